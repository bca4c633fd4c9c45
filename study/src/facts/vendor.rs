//! Vendor syndromes of error CQEs (`vendor_err_synd`): the list is not published.

use super::Basis;
use mlx5_direct::cqe::CqeSyndrome;

/// A vendor syndrome that public reports let read.
#[derive(Debug)]
pub struct Vendor {
    /// The byte.
    pub code: u8,
    /// The syndromes that it was seen with.
    pub with: &'static [CqeSyndrome],
    /// What it says, by those reports.
    pub meaning: &'static str,
    /// What that rests on.
    pub basis: Basis,
    /// Who reported it.
    pub source: &'static str,
}

/// Every vendor syndrome with a public reading.
pub const VENDOR: &[Vendor] = &[
    reported(
        0x32,
        &[CqeSyndrome::LOCAL_PROT_ERR],
        "receive side: buffer key/PD violation or translation not set up (seen: SHAMPO header mkey unmapped; commit text 'violation of PD')",
        "Linux: fix of e4f9686bdee7, and fab058356885; UCX",
    ),
    reported(
        0x51,
        &[CqeSyndrome::LOCAL_PROT_ERR],
        "send side gather read failed; public reports are nearly all GPU buffers (GPUDirect path not usable)",
        "openucx/ucx 9515, 7863; linux-rdma/perftest 173; NVIDIA/nccl 214",
    ),
    reported(
        0x52,
        &[CqeSyndrome::LOCAL_PROT_ERR],
        "send side: gather buffer not covered by the lkey used (wrong or stale key)",
        "spdk/spdk 961; openucx/ucx 4727; FDio/csit 3988",
    ),
    reported(
        0x53,
        &[CqeSyndrome::LOCAL_PROT_ERR],
        "send side gather error seen with DPDK TX (hw_err_synd 0x9d)",
        "Juniper/warp17 81",
    ),
    reported(
        0x56,
        &[CqeSyndrome::LOCAL_PROT_ERR],
        "receive side scatter failed (seen together with an IOMMU page fault)",
        "linux-nvme mailing list 2022, NVMe-oF on AMD EPYC",
    ),
    reported(0x61, &[CqeSyndrome::LOCAL_QP_OP_ERR], "unclear: one report only", "openucx/ucx 857"),
    reported(
        0x68,
        &[CqeSyndrome::LOCAL_LENGTH_ERR, CqeSyndrome::LOCAL_QP_OP_ERR],
        "WQE refused as malformed (bad opcode/size/alignment/inline length)",
        "Linux mlx5e commits; netdev 2021-01; openucx/ucx 1151",
    ),
    reported(
        0x78,
        &[CqeSyndrome::MW_BIND_ERR],
        "UMR / bind refused (mkey state or translation size)",
        "Linux commits on ODP and UMR races",
    ),
    reported(
        0x81,
        &[CqeSyndrome::TRANSPORT_RETRY_EXC_ERR],
        "no ACK from the peer: transport retries used up",
        "NVIDIA/nccl 1405, 1664; openucx/ucx 6000, 6669",
    ),
    reported(
        0x87,
        &[CqeSyndrome::RNR_RETRY_EXC_ERR],
        "RNR NAK retries used up (no receive posted)",
        "a published experiment: the receiver posts nothing",
    ),
    reported(
        0x88,
        &[CqeSyndrome::REMOTE_ACCESS_ERR],
        "NAK remote access (rkey, range or permission)",
        "openucx/ucx 935, 1569; spdk/spdk 964",
    ),
    reported(
        0x89,
        &[CqeSyndrome::REMOTE_OP_ERR],
        "NAK remote operation error (responder failed while serving)",
        "openucx/ucx 5472; NVIDIA/nccl 214",
    ),
    reported(
        0x8a,
        &[CqeSyndrome::REMOTE_INVAL_REQ_ERR],
        "NAK invalid request (the responder cannot take this request)",
        "charmplusplus/charm 2532",
    ),
    reported(
        0xd6,
        &[CqeSyndrome::LOCAL_QP_OP_ERR],
        "receive WQE refused as malformed (an NVIDIA engineer: 'RDE_MAL_WQE')",
        "openucx/ucx pull 11444",
    ),
    reported(
        0xf9,
        &[CqeSyndrome::WR_FLUSH_ERR],
        "flushed: QP already in error state",
        "many, among them NVIDIA/nccl 1405",
    ),
];

const fn reported(
    code: u8,
    with: &'static [CqeSyndrome],
    meaning: &'static str,
    source: &'static str,
) -> Vendor {
    Vendor { code, with, meaning, basis: Basis::Reports, source }
}

/// What `code` says beside `syndrome`, or beside any where none is told.
pub fn vendor(syndrome: Option<CqeSyndrome>, code: u8) -> Option<&'static Vendor> {
    VENDOR
        .iter()
        .find(|entry| entry.code == code && syndrome.is_none_or(|syndrome| entry.with.contains(&syndrome)))
}

/// Where a vendor syndrome without a reading probably comes from. A pattern of the reports, and no rule.
pub fn vendor_origin(code: u8) -> Option<&'static str> {
    match code >> 4 {
        0x3 => Some("writing local memory"),
        0x5 => Some("reading or writing local memory"),
        0x6 | 0x7 => Some("the WQE itself"),
        0x8 => Some("the wire: a NAK or no answer"),
        _ => None,
    }
}
