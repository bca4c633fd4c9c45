//! Bytes that libmlx5 wrote or read, drawn with the names of what is in them.

use mlx5_direct::{
    cqe::{CqeOpcode, ErrorCqe, RequesterCqe, ResponderCqe},
    mlx5::{
        layout::{Desc, Kind, Layout},
        record::DbrecQp,
    },
    wqe::{self, AvSeg, DataSeg, Peer},
};
use serde_json::Value;
use std::{fmt::Write, path::Path};

/// A vector, and its file.
fn vector(id: &str) -> (Value, &'static str) {
    let files = ["wqe-vectors", "cqe-vectors", "umr-vectors", "raw-packet-vectors", "av-vectors"];
    let found = files.iter().find_map(|file| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/data/{file}.jsonl"));
        let text = std::fs::read_to_string(path).unwrap();
        let mut vectors = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        Some((vectors.find(|vector| vector["id"] == id)?, *file))
    });
    found.unwrap_or_else(|| panic!("no vector {id}"))
}

fn unhex(value: &Value) -> Vec<u8> {
    let text = value.as_str().expect("hex");
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

/// The block for `ID` or `ID record`, as it stands between the markers.
pub(crate) fn draw(name: &str) -> String {
    let (id, what) = name.split_once(' ').unwrap_or((name, "wqe"));
    let (vector, file) = vector(id);
    let mut out = format!("`{id}` of `tests/data/{file}.jsonl`:\n\n```text\n");
    match (file, what) {
        (_, "record") => {
            // One of the two counters of the record.
            let at = if vector["kind"] == "recv" { 0 } else { 4 };
            let mut record = [0; 8];
            record[at..at + 4].copy_from_slice(&unhex(&vector["record"]));
            rows(&mut out, 0, DbrecQp::DESC, &record);
        }
        ("cqe-vectors", _) => {
            let bytes = unhex(&vector["cqe"]);
            let desc = match CqeOpcode(bytes[63] >> 4) {
                CqeOpcode::REQ => RequesterCqe::DESC,
                CqeOpcode::REQ_ERR | CqeOpcode::RESP_ERR => ErrorCqe::DESC,
                _ => ResponderCqe::DESC,
            };
            rows(&mut out, 0, desc, &bytes);
        }
        ("av-vectors", _) => rows(&mut out, 0, AvSeg::DESC, &unhex(&vector["hex"])),
        (_, "wqe") if vector["kind"] == "recv" => {
            for (i, piece) in unhex(&vector["wqe"]).chunks(16).enumerate() {
                rows(&mut out, i * 16, DataSeg::DESC, piece);
            }
        }
        (_, "wqe") => {
            let hex = if vector["wqe"].is_string() { &vector["wqe"] } else { &vector["wqes"][0]["hex"] };
            let peer = match vector["transport"].as_str() {
                Some("UD") => Peer::Av,
                Some("RAW_PACKET") => Peer::Eth,
                Some("XRC") => Peer::Xrc,
                _ => Peer::None,
            };
            request(&mut out, &unhex(hex), peer);
        }
        _ => panic!("what is `{what}` of a vector?"),
    }
    out + "```\n"
}

/// A send WQE, a segment after the other.
fn request(out: &mut String, bytes: &[u8], peer: Peer) {
    let decoded = wqe::decode_as(bytes, peer).expect("a good WQE");
    let placed: Vec<_> = decoded.placed().collect();
    for (i, one) in placed.iter().enumerate() {
        let end = placed.get(i + 1).map_or(bytes.len(), |next| next.at_bytes);
        let desc = one.segment.desc().expect("declared");
        rows(out, one.at_bytes, desc, &bytes[one.at_bytes..end]);
    }
}

/// Rows of 16 bytes with the fields that begin in each, but for those that are zero.
fn rows(out: &mut String, at: usize, desc: &Desc, bytes: &[u8]) {
    for (i, row) in bytes.chunks(16).enumerate() {
        let dwords: Vec<String> =
            row.chunks(4).map(|d| d.iter().map(|b| format!("{b:02x}")).collect()).collect();
        let mut line = format!("{:02x}  {:<35}  ", at + i * 16, dwords.join(" "));
        if i == 0 {
            line += &format!("{}: ", desc.name);
        }
        let fields =
            desc.fields.iter().filter(|f| f.bit_offset / 128 == i).filter_map(|f| told(desc, f, bytes));
        line += &fields.collect::<Vec<_>>().join(", ");
        if i * 16 >= desc.size_bytes {
            line += "data";
        }
        writeln!(out, "{}", line.trim_end().trim_end_matches(':')).unwrap();
    }
}

fn told(desc: &Desc, field: &mlx5_direct::mlx5::layout::Field, bytes: &[u8]) -> Option<String> {
    let Kind::Bits { enumeration, show } = field.kind else {
        let range = field.bit_offset / 8..(field.bit_offset + field.bit_width) / 8;
        return bytes[range].iter().any(|byte| *byte != 0).then(|| field.name.to_string());
    };
    let value = desc.read(field, bytes);
    let named = enumeration.and_then(|e| e.values.iter().find(|v| v.bits == value));
    if value == 0 && field.name != "opcode" {
        return None;
    }
    Some(match named {
        Some(named) => format!("{} {}", field.name, named.name),
        None => {
            struct Shown(fn(u64, &mut std::fmt::Formatter<'_>) -> std::fmt::Result, u64);
            impl std::fmt::Display for Shown {
                fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    self.0(self.1, f)
                }
            }
            let text = Shown(show, value).to_string();
            format!("{} {}", field.name, text.split(" (").next().unwrap_or(&text))
        }
    })
}
