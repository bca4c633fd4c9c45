//! What the page draws, as JSON.

use super::{Note, RULES, enumeration, enumerations, in_order, index, prose, structures};
use mlx5_direct::{
    mlx5::{
        self,
        eqe::*,
        layout::{Bits, Desc, Enumeration, Field, Kind, Layout},
    },
    wqe::{CtrlSeg, DataSeg, EthSeg, KlmEntry, Peer, Rule, Segment, Segments, SendOpcode},
};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The interface tables, which say where public code declares each field.
const TABLE: &str = include_str!("../../../tests/data/prm/layouts.csv");

/// All that is drawn.
pub(super) fn json() -> Value {
    let sources = sources();
    let all: Vec<_> = structures().into_iter().map(|desc| structure(desc, &sources)).collect();
    let mut notes: Vec<_> = in_order().into_iter().map(note).collect();
    notes.push(note(&RULES));
    let enums: Map<_, _> = enumerations().into_iter().map(|e| (e.name.to_string(), values(e))).collect();
    let commands: Vec<_> = mlx5::commands()
        .iter()
        .map(|c| json!([c.opcode.name(), c.opcode.0, c.input.name, c.output.name]))
        .collect();
    json!({
        "structures": all, "enums": enums, "commands": commands, "notes": notes,
        "index": prose::html_of(index()),
        "wqe": recipe(), "events": events(),
    })
}

/// Structure and field to the public sources that declare it; by place, for names differ.
type Sources = BTreeMap<(&'static str, usize, usize), &'static str>;

fn sources() -> Sources {
    let rows = TABLE.lines().skip(1).filter_map(|line| {
        let cells: Vec<&str> = line.split(',').collect();
        let [prm, _, offset, width, _, source] = cells[..] else { return None };
        Some(((prm, offset.parse().ok()?, width.parse().ok()?), source))
    });
    rows.collect()
}

fn structure(desc: &Desc, sources: &Sources) -> Value {
    let fields: Vec<_> = desc.fields.iter().map(|f| field(desc, f, sources)).collect();
    json!({
        "name": desc.name, "prm": desc.prm, "size": desc.size_bytes, "doc": prose::plain(desc.doc),
        "fields": fields,
    })
}

fn field(desc: &Desc, field: &Field, sources: &Sources) -> Value {
    let mut json = json!({ "name": field.name, "bit": field.bit_offset, "width": field.bit_width });
    let of = match field.kind {
        Kind::Bits { .. } => enumeration(field).map(|e| ("enum", e.name)),
        Kind::Bytes => Some(("bytes", "")),
        Kind::Struct(inner) => Some(("struct", inner.name)),
    };
    if let Some((kind, name)) = of {
        json[kind] = name.into();
    }
    let doc = prose::plain(field.doc);
    if !doc.is_empty() {
        json["doc"] = doc.into();
    }
    if let Some(source) = sources.get(&(desc.prm, field.bit_offset, field.bit_width)) {
        json["from"] = readable(source).into();
    }
    json
}

/// The table's names of sources, as people write them.
fn readable(source: &str) -> String {
    let names = [("+", ", "), ("linux-", "Linux "), ("dpdk", "DPDK"), ("ucx", "UCX")];
    names.iter().fold(source.to_string(), |text, (name, readable)| text.replace(name, readable))
}

fn values(of: &Enumeration) -> Value {
    // As text: a number of the page's script has 53 bits.
    let values: Vec<_> =
        of.values.iter().map(|v| json!([v.name, v.bits.to_string(), prose::plain(v.doc)])).collect();
    json!({ "table": of.table, "doc": prose::plain(of.doc), "values": values })
}

fn note(note: &Note) -> Value {
    json!({ "id": note.id, "title": note.title(), "html": prose::html_of(note), "structures": note.structures() })
}

/// How a WQE is taken apart, as the driver's decoder does it: the segments that an operation has before its data, and what
/// those are. By opcode, then peer, then `opmod`.
fn recipe() -> Value {
    let peers = [
        ("none", Peer::None),
        ("av", Peer::Av),
        ("dc", Peer::DcAv),
        ("xrc", Peer::Xrc),
        ("eth", Peer::Eth),
        ("ipoib", Peer::Ipoib),
    ];
    let named = SendOpcode::ENUMERATION.map_or(&[][..], |e| e.values);
    let opcodes = named.iter().map(|value| {
        let by_peer =
            peers.map(|(name, peer)| (name.to_string(), by_opmod(SendOpcode(value.bits as u8), peer)));
        (value.bits.to_string(), Map::from_iter(by_peer).into())
    });
    json!({
        "opcodes": Map::from_iter(opcodes),
        "insert_vlan": EthSeg::INSERT_VLAN,
        "header_start": EthSeg::HEADER_START_BYTES,
        "repeat": KlmEntry::REPEAT.get(),
        "terminator": DataSeg::terminator().to_bytes(),
    })
}

/// What most values of `opmod` mean, and those that mean something else.
fn by_opmod(opcode: SendOpcode, peer: Peer) -> Value {
    let other = operation(opcode, u8::MAX, peer);
    let own = (0..u8::MAX).map(|opmod| (opmod.to_string(), operation(opcode, opmod, peer)));
    let mut all: Map<_, _> = own.filter(|(_, of)| *of != other).collect();
    all.insert("else".into(), other);
    all.into()
}

/// What the decoder makes of an operation, found by having it decode: names of segments, and the kind of what follows.
fn operation(opcode: SendOpcode, opmod: u8, peer: Peer) -> Value {
    let ctrl = CtrlSeg::new().with_opcode(opcode).with_opmod(opmod).with_ds(16);
    let wqe = |inline: bool| {
        let mut bytes = [0; 256];
        bytes[..16].copy_from_slice(&ctrl.to_bytes());
        // An address vector of 48 bytes, wherever there is one.
        bytes[24] = 0x80;
        let heads = walk(&bytes, peer).0;
        let at = 16 + heads.iter().map(|head| head.size_bytes).sum::<usize>();
        bytes[at] = if inline { 0x80 } else { 0 };
        let (heads, end) = walk(&bytes, peer);
        (heads.iter().map(|head| head.name).collect::<Vec<_>>(), end)
    };
    let ((heads, plain), (_, inline)) = (wqe(false), wqe(true));
    let tail = match (plain, inline) {
        (End::Umr, _) => "umr",
        (End::Nothing, _) => "none",
        (End::Data, End::Data) => "data",
        (End::Data | End::Result, _) => "memory",
        (End::Other, _) => "other",
    };
    json!([heads, tail])
}

/// What is behind the segments that an operation has once.
enum End {
    Nothing,
    Data,
    /// One piece of memory, of a length.
    Result,
    Umr,
    Other,
}

fn walk(bytes: &[u8], peer: Peer) -> (Vec<&'static Desc>, End) {
    let mut heads = Vec::new();
    for placed in Segments::new(bytes, peer).skip(1) {
        let desc = match placed {
            Ok(placed) => match placed.segment {
                Segment::Data(_) | Segment::Inline { .. } => return (heads, End::Data),
                Segment::UmrCtrl(_) => return (heads, End::Umr),
                segment => segment.desc(),
            },
            Err(error) => match error.rule {
                Rule::AtomicLength { .. } | Rule::InlineTarget => return (heads, End::Result),
                _ => return (heads, End::Nothing),
            },
        };
        let Some(desc) = desc else { return (heads, End::Other) };
        heads.push(desc);
    }
    (heads, End::Nothing)
}

/// An event's type, and what its data are.
fn events() -> Value {
    let pairs = [
        (EventType::COMP, EqeComp::DESC),
        (EventType::CQ_ERROR, EqeCqErr::DESC),
        (EventType::CMD, EqeCmd::DESC),
        (EventType::PAGE_REQUEST, EqePageReq::DESC),
        (EventType::PORT_CHANGE, EqePortState::DESC),
        (EventType::PORT_MODULE_EVENT, EqePortModule::DESC),
        (EventType::TEMP_WARN_EVENT, EqeTempWarning::DESC),
        (EventType::NIC_VPORT_CHANGE, EqeVportChange::DESC),
        (EventType::DB_BF_CONGESTION, EqeCongestion::DESC),
        (EventType::XRQ_ERROR, EqeXrqErr::DESC),
        (EventType::DCT_DRAINED, EqeDct::DESC),
        (EventType::DCT_KEY_VIOLATION, EqeDct::DESC),
    ];
    let of_queues = [
        EventType::PATH_MIG,
        EventType::COMM_EST,
        EventType::SQ_DRAINED,
        EventType::WQ_CATAS_ERROR,
        EventType::PATH_MIG_FAILED,
        EventType::WQ_INVAL_REQ_ERROR,
        EventType::WQ_ACCESS_ERROR,
        EventType::SRQ_CATAS_ERROR,
        EventType::SRQ_LAST_WQE,
        EventType::SRQ_RQ_LIMIT,
    ];
    let of_queues = of_queues.map(|event| (event, EqeQpSrq::DESC));
    let all = pairs.into_iter().chain(of_queues);
    all.map(|(event, desc)| (event.0.to_string(), desc.name.into())).collect::<Map<_, _>>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_knows_where_public_code_declares_it() {
        let json = json();
        let structures = json["structures"].as_array().unwrap();
        let ctrl = structures.iter().find(|s| s["name"] == "CtrlSeg").unwrap();
        let ds = ctrl["fields"].as_array().unwrap().iter().find(|f| f["name"] == "ds").unwrap();
        assert!(ds["from"].as_str().unwrap().contains("rdma-core"), "{ds}");
        let fields = structures.iter().flat_map(|s| s["fields"].as_array().unwrap());
        let (with, all) =
            fields.fold((0, 0), |(n, all), f| (n + usize::from(f["from"].is_string()), all + 1));
        assert!(with * 100 > all * 90, "{with} of {all}");
    }
}
