//! What `ibv_poll_cq` says of a CQE, as far as the CQE tells it.
//!
//! libmlx5 takes some of it from what was posted: which verb a UMR was for, or that a WQE was given as bytes. Whoever
//! knows what was posted says so in [`About`]; without it such an `opcode` is missing, and `opcode_why` says why.

use super::{json::hex, kind::Transport};
use crate::facts;
use mlx5_direct::{
    cqe::{
        CQE_BYTES, CqeFormat, CqeL3HdrType, CqeOpcode, CqeSyndrome, ErrorCqe, EthernetCqe, OP_OWN_OFFSET,
        RequesterCqe, ResponderCqe,
    },
    queue::{Completion, CqeCopy},
    wqe::SendOpcode,
};
use serde_json::{Map, Value, json};

/// What is known beside the CQE.
#[derive(Debug, Clone, Default)]
pub struct About {
    /// How the queue pair talks.
    pub transport: Option<Transport>,
    /// What was posted, by its name in verbs: `SEND`, `LOCAL_INV`, `BIND_MW`, `RAW_WQE`.
    pub posted: Option<String>,
    /// The owner bit that a new CQE has in this lap of the ring.
    pub owner: Option<bool>,
    /// Room in the memory that was posted: libmlx5 fails what is in the CQE and has no room there.
    pub room_bytes: Option<u64>,
    /// Whether it is polled by `ibv_start_poll`, which gives byte counts and flags as the CQE has them.
    pub is_start_poll: bool,
}

/// `enum ibv_wc_flags`.
mod flag {
    pub(super) const GRH: u32 = 1;
    pub(super) const WITH_IMM: u32 = 2;
    pub(super) const IP_CSUM_OK: u32 = 4;
    pub(super) const WITH_INV: u32 = 8;
}

/// `enum ibv_wc_opcode` of a request that verbs know by another name than the device: [`About::posted`].
const POSTED: &[(&str, u32)] = &[
    ("BIND_MW", 5),
    ("LOCAL_INV", 6),
    ("TSO", 7),
    ("MR_LIST", 135),
    ("MR_INTERLEAVED", 135),
    ("MKEY_CONFIGURE", 135),
    ("RAW_WQE", 136),
    ("MEMCPY", 137),
];

/// What a poll says of a CQE of 64 or 128 bytes: `None` if there are others.
pub fn completion(bytes: &[u8], about: &About) -> Option<Map<String, Value>> {
    let start = match bytes.len() {
        CQE_BYTES => 0,
        128 => CQE_BYTES,
        _ => return None,
    };
    let copy = CqeCopy(bytes[start..].try_into().ok()?);
    let wc = Completion::of(&copy);
    let mut out = Map::new();
    let is_owned = about.owner.is_none_or(|owner| u8::from(owner) == copy.0[OP_OWN_OFFSET] & 1);
    let is_request = wc.is_send() || wc.is_recv();
    out.insert("polled".into(), json!(u8::from(is_owned && is_request)));
    if !is_owned || !is_request {
        let why = match wc.opcode() {
            _ if !is_owned => {
                "its owner bit is of another lap of the ring: the device has not written it".into()
            }
            CqeOpcode::INVALID => "its opcode says that the device has not written it".into(),
            other => format!("it is no request's: {other}"),
        };
        out.insert("why".into(), json!(why));
        return Some(out);
    }
    let byte_cnt = RequesterCqe::from_bytes(copy.0).byte_cnt();
    let has_data = matches!(wc.format(), CqeFormat::INLINE_DATA32_SEG | CqeFormat::INLINE_DATA64_SEG);
    let is_too_long = has_data && about.room_bytes.is_some_and(|room| room < u64::from(byte_cnt));
    let syndrome = match wc.error().filter(|error| error.is_failure()) {
        Some(error) => Some(error.syndrome),
        None => is_too_long.then_some(CqeSyndrome::LOCAL_LENGTH_ERR),
    };
    let status = syndrome.map_or(&facts::WC[0], facts::wc_of_syndrome);
    out.insert("status".into(), json!(status.number));
    out.insert("status_str".into(), json!(status.text));
    out.insert("qpn".into(), hex(wc.qpn().get(), 1));
    match wc.error().filter(|error| error.is_failure()) {
        Some(error) => {
            out.insert("vendor_err".into(), hex(error.vendor_err, 1));
        }
        None if is_too_long => {
            let why =
                format!("the CQE has {byte_cnt} bytes of data, more than the posted memory has room for");
            out.insert("why".into(), json!(why));
            if about.is_start_poll {
                // It reads the byte of every CQE that it calls failed.
                let vendor_err = ErrorCqe::from_bytes(copy.0).vendor_err_synd();
                out.insert("vendor_err".into(), hex(vendor_err, 1));
            }
        }
        None => success(&copy, &wc, about, &mut out),
    }
    Some(out)
}

fn success(copy: &CqeCopy, wc: &Completion<'_>, about: &About, out: &mut Map<String, Value>) {
    match opcode(wc, about) {
        Ok(opcode) => out.insert("opcode".into(), json!(opcode)),
        Err(why) => out.insert("opcode_why".into(), json!(why)),
    };
    let byte_cnt = RequesterCqe::from_bytes(copy.0).byte_cnt();
    let responder = ResponderCqe::from_bytes(copy.0);
    let has_len = wc.is_recv()
        || matches!(
            wc.send_opcode(),
            Some(SendOpcode::RDMA_READ | SendOpcode::ATOMIC_CS | SendOpcode::ATOMIC_FA)
        );
    if about.is_start_poll {
        out.insert("byte_len".into(), json!(byte_cnt));
    } else if has_len {
        out.insert("byte_len".into(), json!(wc.byte_len()));
    }
    let with_imm = match wc.send_opcode() {
        Some(SendOpcode::SEND_IMM | SendOpcode::RDMA_WRITE_IMM) => !about.is_start_poll,
        _ => wc.imm().is_some(),
    };
    let mut flags = 0;
    flags |= if with_imm { flag::WITH_IMM } else { 0 };
    flags |= if wc.invalidated_rkey().is_some() { flag::WITH_INV } else { 0 };
    // `ibv_start_poll` reads the flag of every CQE, also where data stands in its place.
    flags |= if responder.grh() != 0 && (wc.is_recv() || about.is_start_poll) { flag::GRH } else { 0 };
    let frame = EthernetCqe::from_bytes(copy.0);
    let is_raw = wc.is_recv() && about.transport == Some(Transport::Raw);
    let checked = frame.l3_ok() && frame.l4_ok() && frame.l3_hdr_type() == CqeL3HdrType::IPV4;
    flags |= if is_raw && checked { flag::IP_CSUM_OK } else { 0 };
    out.insert("wc_flags".into(), json!(format!("0x{flags:x}")));
    if let Some(imm) = wc.imm() {
        out.insert("imm".into(), hex(imm, 1));
    }
    if let Some(rkey) = wc.invalidated_rkey() {
        out.insert("invalidated_rkey".into(), hex(rkey.get(), 1));
    }
    if let Some(source) = wc.source() {
        out.insert("src_qp".into(), hex(source.qpn.get(), 1));
        out.insert("slid".into(), json!(source.slid));
        out.insert("sl".into(), json!(source.sl));
        out.insert("dlid_path_bits".into(), json!(source.path_bits));
        out.insert("pkey_index".into(), json!(responder.imm_inval_pkey() & 0xffff));
    }
    out.insert("completion_ts".into(), hex(wc.timestamp(), 1));
}

/// `enum ibv_wc_opcode`.
fn opcode(wc: &Completion<'_>, about: &About) -> Result<u32, String> {
    let posted = about.posted.as_deref().and_then(|name| POSTED.iter().find(|(known, _)| *known == name));
    let Some(sent) = wc.send_opcode() else {
        return Ok(if wc.opcode() == CqeOpcode::RESP_WR_IMM { 129 } else { 128 });
    };
    if let Some((_, opcode)) = posted {
        return Ok(*opcode);
    }
    match sent {
        SendOpcode::SEND | SendOpcode::SEND_IMM | SendOpcode::SEND_INVAL => Ok(0),
        SendOpcode::RDMA_WRITE | SendOpcode::RDMA_WRITE_IMM => Ok(1),
        SendOpcode::RDMA_READ => Ok(2),
        SendOpcode::ATOMIC_CS => Ok(3),
        SendOpcode::ATOMIC_FA => Ok(4),
        SendOpcode::LSO => Ok(7),
        SendOpcode::UMR => {
            Err("a UMR: what it was posted as (BIND_MW, LOCAL_INV, a list of keys) is not in the CQE".into())
        }
        other => Err(format!("{other}: what it was posted as is not in the CQE")),
    }
}
