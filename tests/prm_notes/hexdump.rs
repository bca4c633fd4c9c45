//! Bytes that libmlx5 or Linux wrote or read, drawn with the names of what is in them.

use mlx5_direct::{
    cqe::{self, CqeOpcode, ErrorCqe, RequesterCqe, ResponderCqe},
    mlx5::{
        self,
        layout::{Desc, Field, Kind, Layout},
        record::DbrecQp,
    },
    wqe::{self, AvSeg, DataSeg, Peer},
};
use serde_json::Value;
use std::{fmt::Write, path::Path};

const FILES: [&str; 7] = [
    "tests/data/wqe-vectors.jsonl",
    "tests/data/cqe-vectors.jsonl",
    "tests/data/umr-vectors.jsonl",
    "tests/data/raw-packet-vectors.jsonl",
    "tests/data/av-vectors.jsonl",
    "tests/data/guest-vectors.jsonl",
    "study/tests/data/wqe-wide.jsonl",
];

/// A vector, and its file.
fn vector(id: &str) -> (Value, &'static str) {
    let found = FILES.iter().find_map(|file| {
        let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
        let mut vectors = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        Some((vectors.find(|vector| vector["id"] == id)?, *file))
    });
    found.unwrap_or_else(|| panic!("no vector {id}"))
}

fn unhex(value: &Value) -> Vec<u8> {
    let text = value.as_str().expect("hex");
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

/// Bytes of a guest, where they stand, and the structures in them.
struct Block {
    at: usize,
    bytes: Vec<u8>,
    layouts: Vec<(usize, &'static Desc)>,
}

fn blocks(vector: &Value) -> Vec<Block> {
    let all = [mlx5::layouts(), wqe::layouts(), cqe::layouts()].concat();
    let number = |value: &Value| value.as_u64().expect("a number") as usize;
    let list = |value: &Value| value.as_array().expect("a list").clone();
    let layout = |value: &Value| {
        let desc = all.iter().find(|desc| value["name"] == desc.name).expect("declared");
        (number(&value["at"]), *desc)
    };
    let block = |value: &Value| Block {
        at: number(&value["at"]),
        bytes: unhex(&value["hex"]),
        layouts: list(&value["layouts"]).iter().map(layout).collect(),
    };
    list(&vector["blocks"]).iter().map(block).collect()
}

/// What the guest's driver wrote has no bit set that is reserved here; nor has what it read.
#[test]
fn no_reserved_bit_is_set_in_a_guest() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/guest-vectors.jsonl");
    let mut n_layouts = 0;
    for line in std::fs::read_to_string(path).unwrap().lines() {
        let vector: Value = serde_json::from_str(line).unwrap();
        for Block { bytes, layouts, .. } in blocks(&vector) {
            for (start, desc) in layouts {
                assert_eq!(desc.reserved_bit_set(&bytes[start..]), None, "{} of {}", desc.name, vector["id"]);
                n_layouts += 1;
            }
        }
    }
    assert_eq!(n_layouts, 30);
}

/// The block for `ID` or `ID record`, as it stands between the markers.
pub(crate) fn draw(name: &str) -> String {
    let (id, what) = name.split_once(' ').unwrap_or((name, "wqe"));
    let (vector, file) = vector(id);
    let mut out = match vector["by"].as_str() {
        Some(by) => format!("`{id}` of `{file}`, {by}:\n\n```text\n"),
        None => format!("`{id}` of `{file}`:\n\n```text\n"),
    };
    let stem = Path::new(file).file_stem().and_then(|stem| stem.to_str()).expect("a name");
    match (stem, what) {
        (_, "record") => {
            // One of the two counters of the record.
            let at = if vector["kind"] == "recv" { 0 } else { 4 };
            let mut record = [0; 8];
            record[at..at + 4].copy_from_slice(&unhex(&vector["record"]));
            rows(&mut out, 0, &[(0, DbrecQp::DESC)], &record);
        }
        ("cqe-vectors", _) => {
            let bytes = unhex(&vector["cqe"]);
            let desc = match CqeOpcode(bytes[63] >> 4) {
                CqeOpcode::REQ => RequesterCqe::DESC,
                CqeOpcode::REQ_ERR | CqeOpcode::RESP_ERR => ErrorCqe::DESC,
                _ => ResponderCqe::DESC,
            };
            rows(&mut out, 0, &[(0, desc)], &bytes);
        }
        ("guest-vectors", _) => {
            for Block { at, bytes, layouts } in blocks(&vector) {
                rows(&mut out, at, &layouts, &bytes);
            }
        }
        ("av-vectors", _) => rows(&mut out, 0, &[(0, AvSeg::DESC)], &unhex(&vector["hex"])),
        (_, "wqe") if vector["kind"] == "recv" => {
            for (i, piece) in unhex(&vector["wqe"]).chunks(16).enumerate() {
                rows(&mut out, i * 16, &[(0, DataSeg::DESC)], piece);
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
        rows(out, one.at_bytes, &[(0, desc)], &bytes[one.at_bytes..end]);
    }
}

/// Rows of 16 bytes with the fields that begin in each, but for those that are zero, of structures at places in these bytes. Of
/// more than 128 bytes rows of zeros are left out.
fn rows(out: &mut String, at: usize, layouts: &[(usize, &Desc)], bytes: &[u8]) {
    let is_long = bytes.len() > 128;
    let end = layouts.iter().map(|(start, desc)| start + desc.size_bytes).max().unwrap_or(0);
    // A structure may go on behind what there is of it.
    let mut whole = bytes.to_vec();
    whole.resize(end.max(bytes.len()), 0);
    let mut is_named = vec![false; layouts.len()];
    for (i, row) in bytes.chunks(16).enumerate() {
        if i > 0 && is_long && row.iter().all(|byte| *byte == 0) {
            continue;
        }
        let dwords: Vec<String> =
            row.chunks(4).map(|d| d.iter().map(|b| format!("{b:02x}")).collect()).collect();
        let mut line = format!("{:02x}  {:<35}  ", at + i * 16, dwords.join(" "));
        let mut parts = Vec::new();
        for (k, (start, desc)) in layouts.iter().enumerate() {
            let fields = desc.fields.iter().filter(|field| (start * 8 + field.bit_offset) / 128 == i);
            // What a structure of its own explains is not named besides.
            let fields = fields.filter(|field| !is_explained(&layouts[k + 1..], *start, field));
            let told: Vec<_> = fields.filter_map(|field| told(desc, field, &whole[*start..])).collect();
            let is_here = *start < i * 16 + 16 && i * 16 < start + desc.size_bytes;
            if is_here && !is_named[k] {
                is_named[k] = true;
                parts.push(format!("{}: {}", desc.name, told.join(", ")));
            } else if !told.is_empty() {
                parts.push(told.join(", "));
            }
        }
        line += &parts.iter().map(|part| part.trim_end_matches(": ")).collect::<Vec<_>>().join("; ");
        if i * 16 >= end && row.iter().any(|byte| *byte != 0) {
            line += "data";
        }
        writeln!(out, "{}", line.trim_end()).unwrap();
    }
}

/// Whether one of `others` begins where a field of the structure at `start` does that is bytes.
fn is_explained(others: &[(usize, &Desc)], start: usize, field: &Field) -> bool {
    let is_bytes = !matches!(field.kind, Kind::Bits { .. });
    is_bytes && others.iter().any(|(at, _)| at * 8 == start * 8 + field.bit_offset)
}

fn told(desc: &Desc, field: &Field, bytes: &[u8]) -> Option<String> {
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
