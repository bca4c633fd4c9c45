//! A CQE taken apart.

mod tags;

use super::json::hex;
use crate::{
    facts,
    record::{Failure, Record, Structure},
};
use mlx5_direct::{
    cqe::{
        CQE_BYTES, CompressedTitleCqe, CqeFormat, CqeOpcode, CqeSyndrome, ErrorCqe, EthernetCqe, MiniCqe,
        MiniCqeRequester, OP_OWN_OFFSET, RequesterCqe, ResponderCqe, SigErrCqe, TmAppOp, TmCqe, TmListCqe,
    },
    mlx5::layout::{Desc, Layout},
    queue::{Completion, CqeCopy},
};
use serde_json::{Map, Value, json};

/// DPDK's mark in an error CQE that it has reported: it writes `seen` into the reserved bytes.
const DPDK_MARK: &[u8; 4] = b"seen";

/// Completions of a compressed session, more than any card is known to put into one.
const MAX_SESSION: u32 = 1 << 12;

/// A CQE taken apart.
#[derive(Debug, Clone)]
pub struct Cqe {
    /// Its bytes.
    pub bytes: [u8; CQE_BYTES],
    /// As `--json` has it.
    pub json: Map<String, Value>,
    /// Its structure, behind the room for data that a CQE of 128 bytes has.
    pub structure: Structure,
    /// In one sentence.
    pub says: String,
    /// What in it misleads.
    pub corrections: Vec<String>,
    /// Of a request that failed: the syndrome and the vendor's.
    pub error: Option<(CqeSyndrome, u8)>,
    /// Of a request that failed, whose.
    pub failure: Option<Failure>,
}

impl Cqe {
    /// Takes the first array of mini CQEs apart, which the title of a session is followed by.
    fn add_minis(&mut self, array: &[u8]) {
        let title = CompressedTitleCqe::from_bytes(self.bytes);
        let n_shown = (title.byte_cnt() as usize).min(CQE_BYTES / size_of::<MiniCqe>());
        let minis = array.as_chunks::<{ size_of::<MiniCqe>() }>().0[..n_shown].iter().enumerate();
        let minis: Vec<Value> = minis
            .map(|(k, mini)| {
                let request = MiniCqeRequester::from_bytes(*mini);
                if title.opcode() == CqeOpcode::REQ {
                    return json!({
                        "wqe_counter": hex(request.wqe_counter(), 1),
                        "send_wqe_opcode": hex(request.s_wqe_opcode().0, 2),
                        "byte_cnt": request.byte_cnt(),
                    });
                }
                json!({
                    "wqe_counter": hex(title.wqe_counter().wrapping_add(k as u16), 1),
                    "hash_or_checksum": hex(MiniCqe::from_bytes(*mini).rx_hash_result(), 8),
                    "byte_cnt": request.byte_cnt(),
                })
            })
            .collect();
        self.says.push_str(&format!(" ({n_shown} of {} are here)", title.byte_cnt()));
        self.json.insert("mini_cqes".into(), json!(minis));
    }

    /// Adds it to a record, which takes its words where it has none yet.
    pub(crate) fn add_to(self, record: &mut Record) {
        record.push("cqe", Value::Object(self.json));
        record.structures.push(self.structure);
        if record.says.is_empty() {
            record.says = self.says;
        }
        record.corrections.extend(self.corrections);
        if let Some((syndrome, vendor)) = self.error {
            record.blame(syndrome, vendor);
        }
        record.failure = record.failure.take().or(self.failure);
    }
}

/// Takes apart a CQE of 64 or 128 bytes: `None` if there are others. `is_raw` if it is of a raw Ethernet queue.
pub fn cqe(bytes: &[u8], is_raw: bool) -> Option<Cqe> {
    if bytes.len() == 2 * CQE_BYTES && is_session(bytes) {
        let (title, minis) = bytes.split_at(CQE_BYTES);
        let mut title = cqe(title, is_raw)?;
        title.add_minis(minis);
        return Some(title);
    }
    let offset_bytes = match bytes.len() {
        CQE_BYTES => 0,
        128 => CQE_BYTES,
        _ => return None,
    };
    let copy = CqeCopy(bytes[offset_bytes..].try_into().ok()?);
    let wc = Completion::of(&copy);
    let desc = layout(&copy.0, is_raw);
    let structure = Structure { title: "CQE".into(), offset_bytes, desc, bytes: copy.0.to_vec() };
    let mut corrections = Vec::new();
    let mut json = common(&copy.0, &wc);
    let failed = matches!(wc.opcode(), CqeOpcode::REQ_ERR | CqeOpcode::RESP_ERR);
    let (mut error, mut failure) = (None, None);
    if failed {
        let cqe = ErrorCqe::from_bytes(copy.0);
        of_error(&cqe, &mut json);
        json.insert("other_nonzero_bytes".into(), json!(n_other_bytes(desc, &copy.0)));
        if let Some(vendor) = facts::vendor(Some(cqe.syndrome()), cqe.vendor_err_synd()) {
            json.insert("vendor_public_meaning".into(), json!(vendor.meaning));
        }
        if &copy.0[1..5] == DPDK_MARK {
            corrections.push("bytes 1 to 4 are DPDK's own mark `seen`, not the device's".into());
        }
        if cqe.se() && cqe.opcode() == CqeOpcode::REQ_ERR {
            corrections
                .push("se is 1 in error CQEs of send requests whether they were solicited or not".into());
        }
        error = Some((cqe.syndrome(), cqe.vendor_err_synd()));
        failure = Some(Failure {
            queue: Some(format!("0x{:x}", cqe.qpn().get())),
            is_flush: cqe.syndrome() == CqeSyndrome::WR_FLUSH_ERR,
        });
    } else {
        of_success(&structure, &mut json);
    }
    let data = data(bytes, &wc);
    if let Some(Data { len_bytes, bytes }) = &data {
        json.insert("inline_data_bytes".into(), json!(len_bytes));
        let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        json.insert("inline_data".into(), if bytes.is_empty() { Value::Null } else { json!(text) });
        if wc.format() == CqeFormat::INLINE_DATA32_SEG {
            corrections
                .push(format!("the first {len_bytes} bytes are data: fields that are shown there are none"));
        }
    }
    Some(Cqe {
        bytes: copy.0,
        says: sentence(&copy.0, &wc, is_raw),
        structure,
        json,
        corrections,
        error,
        failure,
    })
}

/// Whether 128 bytes are the title of a compressed session and its first array, rather than one slot: then the title's place has
/// data, or what was there before.
pub(super) fn is_session(bytes: &[u8]) -> bool {
    let head: [u8; CQE_BYTES] = bytes[..CQE_BYTES].try_into().unwrap_or([0; CQE_BYTES]);
    let title = CompressedTitleCqe::from_bytes(head);
    let slot_has_data = bytes[bytes.len() - 1] >> 2 & 3 == CqeFormat::INLINE_DATA64_SEG.0;
    title.format() == CqeFormat::COMPRESSED
        && title.opcode().0 <= CqeOpcode::RESP_SEND_INV.0
        && (2..=MAX_SESSION).contains(&title.byte_cnt())
        && !(slot_has_data && title.byte_cnt() < 8)
}

/// Data in a CQE.
struct Data {
    len_bytes: usize,
    /// None, if they stand before the CQE and are not at hand.
    bytes: Vec<u8>,
}

/// What a CQE in a slot of 64 or 128 bytes brings along: up to 32 bytes at its start, or up to 64 before it.
fn data(slot: &[u8], wc: &Completion<'_>) -> Option<Data> {
    let (start, room_bytes) = match wc.format() {
        CqeFormat::INLINE_DATA32_SEG => (slot.len().checked_sub(CQE_BYTES), 32),
        CqeFormat::INLINE_DATA64_SEG => (slot.len().checked_sub(2 * CQE_BYTES), 64),
        _ => return None,
    };
    let byte_cnt = RequesterCqe::from_bytes(slot[slot.len() - CQE_BYTES..].try_into().ok()?).byte_cnt();
    let len_bytes = (byte_cnt as usize).min(room_bytes);
    let bytes = start.map_or(Vec::new(), |start| slot[start..start + len_bytes].to_vec());
    Some(Data { len_bytes, bytes })
}

/// The layout of a CQE.
fn layout(bytes: &[u8; CQE_BYTES], is_raw: bool) -> &'static Desc {
    match ErrorCqe::from_bytes(*bytes).opcode() {
        CqeOpcode::REQ => RequesterCqe::DESC,
        CqeOpcode::REQ_ERR | CqeOpcode::RESP_ERR => ErrorCqe::DESC,
        CqeOpcode::SIG_ERR => SigErrCqe::DESC,
        _ if is_raw => EthernetCqe::DESC,
        _ if tags::app_op(bytes).is_some_and(TmAppOp::is_list_operation) => TmListCqe::DESC,
        _ if tags::app_op(bytes).is_some_and(TmAppOp::is_of_tag) => TmCqe::DESC,
        _ => ResponderCqe::DESC,
    }
}

/// What every CQE has.
fn common(bytes: &[u8; CQE_BYTES], wc: &Completion<'_>) -> Map<String, Value> {
    let cqe = ErrorCqe::from_bytes(*bytes);
    let opcode = wc.opcode();
    let mut json = Map::new();
    let mut put = |name: &str, value: Value| json.insert(name.into(), value);
    put("cqe_opcode", hex(opcode.0, 1));
    put("cqe_opcode_name", json!(opcode.name().unwrap_or("unknown")));
    put("cqe_format", json!(cqe.format().0));
    put("solicited_event", json!(u8::from(cqe.se())));
    put("owner", json!(bytes[OP_OWN_OFFSET] & 1));
    put("signature", hex(cqe.signature(), 2));
    put("wqe_counter", hex(cqe.wqe_counter(), 1));
    put("wqe_counter_dec", json!(cqe.wqe_counter()));
    put("send_wqe_opcode", hex(cqe.send_wqe_opcode().0, 2));
    let name = match wc.send_opcode() {
        Some(opcode) => opcode.name().unwrap_or("unknown"),
        None => "not applicable (responder)",
    };
    put("send_wqe_opcode_name", json!(name));
    put("qpn", hex(cqe.qpn().get(), 1));
    put("qpn_dec", json!(cqe.qpn().get()));
    json
}

fn of_error(cqe: &ErrorCqe, json: &mut Map<String, Value>) {
    json.extend(syndrome(cqe.syndrome()));
    let mut put = |name: &str, value: Value| json.insert(name.into(), value);
    put("vendor_err_synd", hex(cqe.vendor_err_synd(), 2));
    put("vendor_err_synd_dec", json!(cqe.vendor_err_synd()));
    put("hw_err_synd", hex(cqe.hw_err_synd(), 2));
    // The whole byte, as libmlx5's `mlx5_err_cqe_ex` has it: the kind is in its upper half.
    put("hw_synd_type", hex(cqe.hw_synd_type() << 4 | cqe.to_bytes()[0x35] & 0xf, 2));
    put("srqn_or_uidx", hex(cqe.srqn_or_user_index().get(), 1));
}

/// A syndrome, and the status of verbs that is made of it.
fn syndrome(syndrome: CqeSyndrome) -> Map<String, Value> {
    let wc = facts::wc_of_syndrome(syndrome);
    let name = syndrome.name().map(|name| format!("MLX5_CQE_SYNDROME_{name}"));
    let mut json = Map::new();
    json.insert("syndrome".into(), hex(syndrome.0, 2));
    json.insert("syndrome_name".into(), json!(name));
    json.insert("ibv_wc_status".into(), json!(wc.name));
    json.insert("ibv_wc_status_num".into(), json!(wc.number));
    json
}

/// The fields of a success that are not in every CQE, by their names.
fn of_success(structure: &Structure, json: &mut Map<String, Value>) {
    let common = ["send_wqe_opcode", "qpn", "wqe_counter", "signature", "opcode", "format", "se", "owner"];
    let Value::Object(fields) = super::fields(structure) else { return };
    json.extend(fields.into_iter().filter(|(name, _)| !common.contains(&name.as_str())));
}

/// Bytes that are not zero outside of every field.
fn n_other_bytes(desc: &Desc, bytes: &[u8]) -> usize {
    let covered = |at: usize| {
        desc.fields
            .iter()
            .any(|field| field.bit_offset / 8 <= at && at < (field.bit_offset + field.bit_width).div_ceil(8))
    };
    (0..bytes.len()).filter(|&at| bytes[at] != 0 && !covered(at)).count()
}

fn sentence(bytes: &[u8; CQE_BYTES], wc: &Completion<'_>, is_raw: bool) -> String {
    if let Some(says) = tags::sentence(bytes).filter(|_| !is_raw) {
        return says;
    }
    let (qpn, counter) = (wc.qpn(), wc.wqe_counter());
    let at = format!("at WQE 0x{counter:04x} of QP {qpn}");
    match wc.opcode() {
        CqeOpcode::REQ => match wc.send_opcode().and_then(|opcode| opcode.name()) {
            Some(name) => format!("{name} {at} is done, and all requests before it"),
            None => format!("a send request of an unknown opcode {at} is done"),
        },
        CqeOpcode::RESP_WR_IMM => {
            format!("an RDMA WRITE of {} bytes with immediate data {at} has arrived", wc.byte_len())
        }
        CqeOpcode::RESP_SEND => format!("a message of {} bytes has arrived {at}", wc.byte_len()),
        CqeOpcode::RESP_SEND_IMM => {
            format!("a message of {} bytes with immediate data has arrived {at}", wc.byte_len())
        }
        CqeOpcode::RESP_SEND_INV => {
            format!("a message of {} bytes has arrived {at}, and has invalidated a key", wc.byte_len())
        }
        CqeOpcode::RESIZE_CQ => "the last CQE of a buffer that was replaced".into(),
        CqeOpcode::SIG_ERR => "a signature did not fit its data".into(),
        CqeOpcode::NO_PACKET => "tag matching, without a packet, of a kind that is unknown".into(),
        CqeOpcode::INVALID => "no CQE: the device has not written this slot".into(),
        CqeOpcode::REQ_ERR | CqeOpcode::RESP_ERR => {
            wc.error().map_or_else(String::new, |error| error.to_string())
        }
        other => format!("a CQE of unknown opcode {other}"),
    }
    .to_owned()
        + match wc.format() {
            CqeFormat::COMPRESSED => "; it is the title of a compressed session, mini-CQEs follow",
            CqeFormat::INLINE_DATA32_SEG => "; its data are the first bytes of the CQE",
            CqeFormat::INLINE_DATA64_SEG => "; its data are in the 64 bytes before the CQE",
            _ => "",
        }
}
