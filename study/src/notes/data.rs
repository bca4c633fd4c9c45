//! What the page draws, as JSON.

use super::{Note, RULES, enumeration, enumerations, in_order, prose, structures};
use mlx5_direct::{
    mlx5::{
        self,
        eqe::*,
        layout::{Bits, Desc, Enumeration, Field, Kind, Layout},
    },
    wqe::{AtomicSeg, AvSeg, DataSeg, EthSeg, KlmEntry, RaddrSeg, SendOpcode, XrcSeg},
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
        "index": prose::html_of(&super::NOTES[0]),
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

/// How a WQE is taken apart: the segments that an operation has before its data, and what those are.
fn recipe() -> Value {
    let named = SendOpcode::ENUMERATION.map_or(&[][..], |e| e.values);
    let opcodes: Map<_, _> =
        named.iter().map(|v| (v.bits.to_string(), operation(SendOpcode(v.bits as u8)))).collect();
    json!({
        "opcodes": opcodes,
        "peers": { "ud": AvSeg::DESC.name, "xrc": XrcSeg::DESC.name, "raw": EthSeg::DESC.name },
        "insert_vlan": EthSeg::INSERT_VLAN,
        "header_start": EthSeg::HEADER_START_BYTES,
        "repeat": KlmEntry::REPEAT.get(),
        "terminator": DataSeg::terminator().to_bytes(),
    })
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

fn operation(opcode: SendOpcode) -> Value {
    let mut heads = Vec::new();
    if opcode.has_raddr() {
        heads.push(RaddrSeg::DESC.name);
    }
    if opcode.is_atomic() {
        heads.push(AtomicSeg::DESC.name);
    }
    let tail = match opcode {
        SendOpcode::NOP => "none",
        SendOpcode::UMR => "umr",
        SendOpcode::SEND
        | SendOpcode::SEND_IMM
        | SendOpcode::SEND_INVAL
        | SendOpcode::RDMA_WRITE
        | SendOpcode::RDMA_WRITE_IMM => "data",
        // Data that arrive go to memory, and not into the WQE.
        SendOpcode::RDMA_READ | SendOpcode::ATOMIC_CS | SendOpcode::ATOMIC_FA => "memory",
        SendOpcode::LSO => "raw",
        _ => "other",
    };
    json!({ "heads": heads, "tail": tail })
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
