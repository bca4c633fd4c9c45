//! A request as JSON: numbers as the dumps of drivers have them, counts and lengths as numbers.

use super::super::json::hex;
use mlx5_direct::{
    mlx5::layout::{Desc, Kind},
    wqe::{CtrlSeg, Placed, SEGMENT_BYTES, Segment},
};
use serde_json::{Map, Value, json};

/// Fields that are counts or lengths.
const COUNTS: &[&str] = &[
    "byte_count",
    "mss",
    "inline_hdr_sz",
    "klm_octowords",
    "translation_offset_or_bsf_octowords",
    "repeat_count",
    "num_entries",
    "byte_count_per_cycle",
    "stride",
    "len",
    "bsf_octword_size",
    "translations_octword_size",
    "log_page_size",
    "stat_rate",
    "sl",
    "mlid",
    "rlid_or_udp_sport",
    "tclass",
    "hop_limit",
    "src_addr_index",
    "next_wqe_index",
    "num_psv",
    "max_index",
    "sqnpc",
    "sw_cnt",
    "index",
];

/// All segments.
pub(super) fn of(segments: &[Placed<'_>], bytes: &[u8]) -> Map<String, Value> {
    let mut map = Map::new();
    for Placed { at_bytes, segment } in segments {
        let (name, is_list) = name(segment);
        let value = match (segment, segment.desc()) {
            (Segment::Ctrl(ctrl), _) => control(*ctrl),
            (Segment::Inline { header, data }, _) => {
                json!({ "byte_count": header.byte_count(), "inline": 1, "data": plain_hex(data) })
            }
            (Segment::Eth { segment, header }, Some(desc)) => {
                let mut fields = fields(desc, &bytes[*at_bytes..]);
                if !header.is_empty() {
                    let start = segment.inline_hdr_start().to_be_bytes();
                    fields.insert("inline_hdr".into(), json!(plain_hex(&[&start[..], header].concat())));
                }
                Value::Object(fields)
            }
            (_, Some(desc)) => Value::Object(fields(desc, &bytes[*at_bytes..])),
            (_, None) => json!(plain_hex(segment.payload())),
        };
        match is_list {
            true => match map.entry(name).or_insert_with(|| json!([])) {
                Value::Array(list) => list.push(value),
                _ => unreachable!("a list since its first entry"),
            },
            false => drop(map.insert(name.into(), value)),
        }
    }
    map
}

/// Name of a segment, and whether there may be several.
fn name(segment: &Segment<'_>) -> (&'static str, bool) {
    let name = match segment {
        Segment::Ctrl(_) => "ctrl",
        Segment::Av(_) | Segment::AvBase(_) | Segment::DcAv(_) | Segment::DcAvBase(_) => "av",
        Segment::Xrc(_) => "xrc",
        Segment::EthPad(_) => "eth_pad",
        Segment::Eth { .. } => "eth_seg",
        Segment::Raddr(_) => "raddr",
        Segment::Atomic(_) => "atomic",
        Segment::MaskedCas64(_) | Segment::MaskedCas32(_) => "masked_cas",
        Segment::MaskedFa64(_) | Segment::MaskedFa32(_) => "masked_fa",
        Segment::Data(_) => return ("data", true),
        Segment::Inline { .. } => return ("inline", true),
        Segment::UmrCtrl(_) => "umr_ctrl",
        Segment::Mkc(_) => "mkc",
        Segment::Klm(_) => return ("klm", true),
        Segment::Mtt(_) => return ("mtt", true),
        Segment::RepeatBlock(_) => "repeat_block",
        Segment::RepeatEntry(_) => return ("repeat_entry", true),
        Segment::BsfBasic(_) => "bsf_basic",
        Segment::BsfExt(_) => "bsf_ext",
        Segment::BsfWire(_) => "bsf_inl_wire",
        Segment::BsfMem(_) => "bsf_inl_mem",
        Segment::BsfCrypto(_) => "bsf_crypto",
        Segment::TlsStatic(_) => "tls_static_params",
        Segment::TlsProgress(_) => "tls_progress_params",
        Segment::SetPsv(_) => "set_psv",
        Segment::GetPsv(_) => "get_psv",
        Segment::CheckPsv(_) => "check_psv",
        Segment::WaitCq(_) => "wait_cq",
        Segment::WaitTime(_) => "wait_time",
        Segment::SendEn(_) => "send_en",
        Segment::Tm(_) => "tm",
        Segment::Mmo(_) => "mmo",
        Segment::AsoCtrl(_) => "aso_ctrl",
        Segment::FlowUpdate(_) => "flow_update",
        _ => "other",
    };
    (name, false)
}

/// The control segment, whose eight fields at its middle are one byte in the headers.
fn control(ctrl: CtrlSeg) -> Value {
    let fm_ce_se = ctrl.fm().0 << 5 | ctrl.ce().0 << 2 | u8::from(ctrl.se()) << 1;
    json!({
        "opmod": hex(ctrl.opmod(), 1),
        "wqe_index": hex(ctrl.wqe_index(), 1),
        "opcode": hex(ctrl.opcode().0, 2),
        "opcode_name": ctrl.opcode().name().unwrap_or("unknown"),
        "qpn": hex(ctrl.qpn().get(), 1),
        "ds": ctrl.ds(),
        "ds_bytes": usize::from(ctrl.ds()) * SEGMENT_BYTES,
        "signature": hex(ctrl.signature(), 2),
        "stream_channel": hex(ctrl.dci_stream_channel_id(), 1),
        // Reserved bits too, as they are.
        "fm_ce_se": hex(fm_ce_se | ctrl.to_bytes()[11] & 0x11, 2),
        "ce": ctrl.ce().0,
        "se": u8::from(ctrl.se()),
        "fm": ctrl.fm().0,
        "imm": hex(ctrl.imm(), 8),
    })
}

/// The fields of a layout.
pub(super) fn fields(desc: &'static Desc, bytes: &[u8]) -> Map<String, Value> {
    let mut map = Map::new();
    for field in desc.fields {
        let range = field.bit_offset / 8..(field.bit_offset + field.bit_width).div_ceil(8);
        let value = match field.kind {
            Kind::Bits { .. } => {
                let number = desc.read(field, bytes);
                match field.bit_width {
                    _ if COUNTS.contains(&field.name) => json!(number),
                    1 => json!(number),
                    width @ (8 | 16 | 32 | 64) => hex(number, width / 4),
                    _ => hex(number, 1),
                }
            }
            Kind::Bytes if field.name == "rmac" => {
                let octets: Vec<_> = bytes[range].iter().map(|byte| format!("{byte:02x}")).collect();
                json!(octets.join(":"))
            }
            Kind::Bytes => json!(plain_hex(&bytes[range])),
            Kind::Struct(inner) => Value::Object(fields(inner, &bytes[range])),
        };
        map.insert(field.name.into(), value);
    }
    map
}

pub(super) fn plain_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
