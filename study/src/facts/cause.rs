//! Causes of failed completions that public reports support, and what to look at next.

use mlx5_direct::cqe::CqeSyndrome;

/// A cause that public reports support. No vendor has said so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cause {
    /// What it was.
    pub text: &'static str,
    /// Who reported it.
    pub source: &'static str,
}

/// A cause, and the failures that it was reported for.
struct Known {
    syndrome: CqeSyndrome,
    /// With this vendor syndrome only.
    vendor: Option<u8>,
    cause: Cause,
}

const KNOWN: &[Known] = &[
    known(
        CqeSyndrome::LOCAL_LENGTH_ERR,
        Some(0x68),
        "no headers inline where the device wants them (an empty linear part of an skb; ConnectX-4 Lx)",
        "netdev 2021-01, 'xsk: build skb by page'",
    ),
    known(
        CqeSyndrome::LOCAL_LENGTH_ERR,
        None,
        "a receive buffer smaller than the message that came",
        "InfiniBand specification, completion types",
    ),
    known(
        CqeSyndrome::LOCAL_QP_OP_ERR,
        Some(0x68),
        "two producers on one send queue without a lock: the device read other bytes as a WQE",
        "Linux mlx5e ICOSQ fix 2026-05; openucx/ucx pull 10900",
    ),
    known(
        CqeSyndrome::LOCAL_QP_OP_ERR,
        Some(0x68),
        "a UMR whose translation entries are not aligned to octowords",
        "Linux, UMR alignment fix",
    ),
    known(
        CqeSyndrome::LOCAL_QP_OP_ERR,
        Some(0x68),
        "an extended atomic on DC (labelled a firmware matter)",
        "openucx/ucx 1151",
    ),
    known(
        CqeSyndrome::LOCAL_QP_OP_ERR,
        Some(0xd6),
        "a receive WQE that the device could not read",
        "openucx/ucx pull 11444",
    ),
    known(
        CqeSyndrome::LOCAL_QP_OP_ERR,
        None,
        "the doorbell was rung before all WQEs were visible to the device",
        "openucx/ucx pulls 10900, 11539",
    ),
    known(
        CqeSyndrome::LOCAL_PROT_ERR,
        Some(0x51),
        "GPU memory that the NIC cannot read: no nvidia-peermem or DMA-BUF, or the BIOS puts the GPU's BAR where the NIC cannot reach",
        "linux-rdma/perftest 173; openucx/ucx 9515; NVIDIA/nccl 214",
    ),
    known(
        CqeSyndrome::LOCAL_PROT_ERR,
        Some(0x52),
        "the buffer is not covered by its lkey: deregistered, another protection domain, or a length past its end",
        "spdk/spdk 961; openucx/ucx 4727",
    ),
    known(
        CqeSyndrome::LOCAL_PROT_ERR,
        Some(0x32),
        "a receive buffer's mkey that was never set up, or belongs to another function (SHAMPO, multi-PF)",
        "Linux: fab058356885, fix of e4f9686bdee7",
    ),
    known(
        CqeSyndrome::LOCAL_PROT_ERR,
        Some(0x56),
        "the IOMMU refused the device's write",
        "linux-nvme mailing list 2022, NVMe-oF on AMD EPYC",
    ),
    known(
        CqeSyndrome::LOCAL_PROT_ERR,
        None,
        "a scatter/gather entry outside of its memory region",
        "Nugine/rdma 4; spdk/spdk 961",
    ),
    known(
        CqeSyndrome::WR_FLUSH_ERR,
        None,
        "the queue was in error already, or is being closed: the first error on it is the one to read",
        "spdk/spdk 298, 852, 1387",
    ),
    known(
        CqeSyndrome::MW_BIND_ERR,
        Some(0x78),
        "a UMR against a key that a race had already revoked",
        "Linux, ODP revoke race fix (6.12)",
    ),
    known(
        CqeSyndrome::MW_BIND_ERR,
        None,
        "a UMR or bind on a key in the wrong state, or of another protection domain",
        "Linux, ODP fixes",
    ),
    known(
        CqeSyndrome::REMOTE_INVAL_REQ_ERR,
        None,
        "the two ends disagree on MTU or on what the queue may do",
        "charmplusplus/charm 2532",
    ),
    known(
        CqeSyndrome::REMOTE_ACCESS_ERR,
        None,
        "the rkey, address, length or access right that the request used is not what the peer registered (stale after re-registration, or memory freed)",
        "spdk/spdk 964; openucx/ucx 935",
    ),
    known(
        CqeSyndrome::REMOTE_ACCESS_ERR,
        None,
        "keys of GPU memory with base 0 used with addresses, or the reverse",
        "meta-pytorch/monarch 3759",
    ),
    known(
        CqeSyndrome::REMOTE_OP_ERR,
        None,
        "the peer failed to serve the request: its own log of the same second has the cause",
        "openucx/ucx 5472",
    ),
    known(
        CqeSyndrome::REMOTE_OP_ERR,
        None,
        "GPU memory of the peer that its NIC cannot read: neither DMA-BUF nor nvidia-peermem",
        "open-mpi/ompi 13183",
    ),
    known(
        CqeSyndrome::TRANSPORT_RETRY_EXC_ERR,
        None,
        "the peer died or closed its queue",
        "openucx/ucx 6669; NVIDIA/nccl 1405",
    ),
    known(
        CqeSyndrome::TRANSPORT_RETRY_EXC_ERR,
        None,
        "RoCE set up differently at the two ends: GID index, traffic class, MTU, PFC",
        "openucx/ucx 2434, 6000",
    ),
    known(
        CqeSyndrome::TRANSPORT_RETRY_EXC_ERR,
        None,
        "the NICs chosen at the two ends cannot reach each other",
        "kvcache-ai/Mooncake 1450",
    ),
    known(CqeSyndrome::TRANSPORT_RETRY_EXC_ERR, None, "a failing link or cable", "NVIDIA/nccl 1405, 1664"),
    known(
        CqeSyndrome::RNR_RETRY_EXC_ERR,
        None,
        "the peer had no receive posted for longer than rnr_retry allows",
        "a published experiment: the receiver posts nothing",
    ),
];

const fn known(syndrome: CqeSyndrome, vendor: Option<u8>, text: &'static str, source: &'static str) -> Known {
    Known { syndrome, vendor, cause: Cause { text, source } }
}

/// Causes of a failed completion: those of its vendor syndrome first.
pub fn causes_of(syndrome: CqeSyndrome, vendor: Option<u8>) -> Vec<Cause> {
    let of = |wanted: fn(&Known) -> bool| {
        KNOWN.iter().filter(move |known| known.syndrome == syndrome && wanted(known))
    };
    let exact = of(|known| known.vendor.is_some()).filter(|known| vendor.is_some() && known.vendor == vendor);
    exact.chain(of(|known| known.vendor.is_none())).map(|known| known.cause).collect()
}

/// What to look at after a failed completion.
pub fn checks_of(syndrome: CqeSyndrome) -> &'static [&'static str] {
    match syndrome {
        CqeSyndrome::LOCAL_LENGTH_ERR => &[
            "length of the receive buffer against the length of the message",
            "of a send: byte counts of the WQE, and what must be inline",
        ],
        CqeSyndrome::LOCAL_QP_OP_ERR => {
            &["the WQE's bytes at that index (mlx5 decode --as wqe)", "who else posts to that queue"]
        }
        CqeSyndrome::LOCAL_PROT_ERR => &[
            "address, length and lkey of each data segment against what was registered, and in which protection domain",
            "dmesg of the same second for IO_PAGE_FAULT or DMAR lines",
            "with GPU memory: lsmod | grep nvidia_peermem, or DMA-BUF registration",
        ],
        CqeSyndrome::WR_FLUSH_ERR => &["the first error on the same queue, here or in the peer's log"],
        CqeSyndrome::MW_BIND_ERR => {
            &["state and protection domain of the mkey", "translation size and alignment of the UMR"]
        }
        CqeSyndrome::BAD_RESP_ERR => {
            &["the peer's device and firmware", "ethtool -S or perfquery for corrupt packets"]
        }
        CqeSyndrome::LOCAL_ACCESS_ERR => &["access rights of the local region (IBV_ACCESS_LOCAL_WRITE)"],
        CqeSyndrome::REMOTE_INVAL_REQ_ERR => &[
            "the peer's asynchronous events: invalid request local work queue error",
            "path MTU and qp_access_flags at both ends, max_rd_atomic against max_dest_rd_atomic",
        ],
        CqeSyndrome::REMOTE_ACCESS_ERR => &[
            "rkey, address and length against what the peer registered, and its access flags (also those of its queue)",
            "the peer's asynchronous events: local access violation work queue error",
        ],
        CqeSyndrome::REMOTE_OP_ERR => &[
            "the peer's log and dmesg of the same second",
            "with GPU memory at the peer: nvidia_peermem or DMA-BUF there",
        ],
        CqeSyndrome::TRANSPORT_RETRY_EXC_ERR => &[
            "whether the peer's process lives, and the first error in its log",
            "ibstat or ip link at both ends; show_gids for the GID index; ib_write_bw between the same two ports",
            "ethtool -S for rx_discards_phy, rdma statistic for local_ack_timeout_err, out_of_sequence",
        ],
        CqeSyndrome::RNR_RETRY_EXC_ERR => &[
            "the peer's counter out_of_buffer (rdma statistic, hw_counters)",
            "how many receives the peer posts; rnr_retry (7 is for ever) and min_rnr_timer",
        ],
        CqeSyndrome::REMOTE_ABORTED_ERR => &["the peer's log"],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::VENDOR;

    #[test]
    fn every_named_syndrome_has_a_next_check() {
        for (name, bits) in CqeSyndrome::TABLE.1 {
            assert!(!checks_of(CqeSyndrome(u8::try_from(*bits).unwrap())).is_empty(), "{name}");
        }
    }

    #[test]
    fn causes_of_a_vendor_syndrome_come_first_and_alone() {
        let causes = causes_of(CqeSyndrome::LOCAL_PROT_ERR, Some(0x51));
        assert!(causes[0].text.starts_with("GPU memory"));
        assert!(causes.iter().all(|cause| !cause.text.contains("IOMMU")));
        assert_eq!(causes_of(CqeSyndrome::LOCAL_PROT_ERR, None).len(), 1);
        assert!(causes_of(CqeSyndrome(0x77), None).is_empty());
    }

    #[test]
    fn every_vendor_syndrome_has_its_syndrome_and_source() {
        for vendor in VENDOR {
            assert!(!vendor.with.is_empty() && !vendor.source.is_empty(), "{:#x}", vendor.code);
        }
    }
}
