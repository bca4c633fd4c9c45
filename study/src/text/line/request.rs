//! Requests that programs print with what became of them: Mooncake's slices, Rust stacks.

use super::{
    Hit,
    completion::Failed,
    view::{View, bare, caught, number, pattern},
    wc_fields::status_at,
};
use crate::{record::Record, text::Window};
use serde_json::{Map, Value, json};

pub(super) const KEYWORDS: &[&str] = &["Process failed for slice", "rkey"];

pub(super) fn read(window: &Window<'_>, view: &View, from: usize) -> Option<Hit> {
    slice(window, view, from).or_else(|| request(view, from))
}

const SLICE: &str = r"Process failed for slice \(opcode: (?P<opcode>\d+), source_addr: (?P<local>0x[0-9a-f]+|\d+), length: (?P<len>\d+), dest_addr: (?P<remote>0x[0-9a-f]+|\d+), local_nic: (?P<nic>[^,\s]+), peer_nic: (?P<peer>[^,\s]+), dest_rkey: (?P<rkey>\d+|0x[0-9a-f]+), retry_cnt: (?P<retry>\d+)\): ";

/// Mooncake's slice. Tries of the same one are one record.
fn slice(window: &Window<'_>, view: &View, from: usize) -> Option<Hit> {
    let text = view.text.get(from..)?;
    let captures = pattern!(SLICE).captures(text)?;
    let whole = captures.get(0)?;
    let (status, len) = status_at(&text[whole.end()..])?;
    let field = |name: &str| caught(&captures, name).unwrap_or("");
    let mut fields = Map::new();
    fields.insert("opcode".into(), json!(number(field("opcode"))));
    fields.insert("len".into(), json!(number(field("len"))));
    address(&mut fields, "local", field("local"));
    address(&mut fields, "remote", field("remote"));
    key(&mut fields, "rkey", field("rkey"));
    fields.insert("retry_cnt".into(), json!(number(field("retry"))));
    fields.insert("local_nic".into(), json!(field("nic")));
    fields.insert("peer_nic".into(), json!(field("peer")));
    let failed = Failed::of_status(status, None);
    let mut record = Record::new("Mooncake slice", 0..=0);
    record.push("completion", Value::Object(failed.as_wc()));
    let range = from + whole.start()..from + whole.end() + len;
    let mut lines = view.lines_of(&range);
    tries(window, &mut lines, &captures, &mut record, &mut fields);
    record.parts.insert("request".into(), Value::Object(fields));
    let opcode = if field("opcode") == "0" { "read" } else { "write" };
    failed.explain(
        &mut record,
        &format!("A {opcode} of Mooncake from {} to {}", field("nic"), field("peer")),
        None,
    );
    record.corrections.push("dest_rkey is decimal; opcode is Mooncake's own: 0 reads, 1 writes".to_owned());
    record.check.push(format!("whether {} reaches {}: ib_write_bw between the two, and MC_MS_AUTO_DISC=0 or a NIC list if the pairs are chosen wrongly", field("nic"), field("peer")));
    Some(Hit { start: range.start, end: range.end, lines, record })
}

/// Later tries of the slice on the next lines, and the time between them.
fn tries(
    window: &Window<'_>,
    lines: &mut Vec<usize>,
    first: &regex::Captures<'_>,
    record: &mut Record,
    fields: &mut Map<String, Value>,
) {
    let same = ["opcode", "local", "len", "remote", "nic", "peer", "rkey"];
    let mut times = vec![seconds(window.first())];
    let Some(&last) = lines.last() else { return };
    for (place, line) in window.lines.iter().enumerate().skip(last + 1) {
        let Some(captures) = pattern!(SLICE).captures(bare(&line.text)) else { break };
        if same.iter().any(|name| caught(&captures, name) != caught(first, name))
            || caught(&captures, "retry") == caught(first, "retry")
        {
            break;
        }
        fields.insert("retry_cnt".into(), json!(caught(&captures, "retry").and_then(number)));
        times.push(seconds(&line.text));
        lines.push(place);
    }
    if let (Some(Some(first)), Some(Some(last)), n @ 2..) = (times.first(), times.last(), times.len()) {
        let between = (last - first) / (n - 1) as f64;
        record.parts.insert("timing".into(), json!(format!("{between:.3} s between attempts")));
    }
}

/// The time of day that a program put before its message: the last, since whoever kept the log may have put his own.
fn seconds(line: &str) -> Option<f64> {
    let before = &line[..line.find("Process failed").unwrap_or(line.len())];
    let captures = pattern!(r"\b(?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d\.\d+)\b").captures_iter(before).last()?;
    let part = |name: &str| -> Option<f64> { captures.name(name)?.as_str().parse().ok() };
    Some(part("h")? * 3600.0 + part("m")? * 60.0 + part("s")?)
}

/// `Read request (lkey: 1, addr: 0x0, length 8) to (raddr 0x0, rkey 2)` and the like.
fn request(view: &View, from: usize) -> Option<Hit> {
    let pattern = pattern!(
        r"(?i)\b(?P<op>read|write|send|fetch.?add|compare.?swap) request:? \(?lkey:? (?P<lkey>0x[0-9a-f]+|\d+), addr:? (?P<local>0x[0-9a-f]+|\d+), len(?:gth)?:? (?P<len>\d+)\)? (?:to|from) \(?raddr:? (?P<remote>0x[0-9a-f]+|\d+), rkey:? (?P<rkey>0x[0-9a-f]+|\d+)\)?"
    );
    let captures = pattern.captures(view.text.get(from..)?)?;
    let whole = captures.get(0)?;
    let field = |name: &str| caught(&captures, name).unwrap_or("");
    let op = match field("op").to_ascii_lowercase().as_str() {
        "read" => "RDMA_READ",
        "write" => "RDMA_WRITE",
        "send" => "SEND",
        other if other.starts_with("fetch") => "ATOMIC_FA",
        _ => "ATOMIC_CS",
    };
    let mut fields = Map::new();
    fields.insert("op".into(), json!(op));
    fields.insert("len".into(), json!(number(field("len"))));
    key(&mut fields, "lkey", field("lkey"));
    key(&mut fields, "rkey", field("rkey"));
    address(&mut fields, "local_addr", field("local"));
    address(&mut fields, "remote_addr", field("remote"));
    let mut record = Record::new("request", 0..=0);
    record.says =
        format!("A program posted {op} of {} bytes; what became of it is on another line.", field("len"));
    if number(field("local")) == Some(0) || number(field("remote")) == Some(0) {
        record.corrections.push(
            "address 0 is right for a zero-based key only: with any other it is outside of the region"
                .to_owned(),
        );
    }
    record.parts.insert("request".into(), Value::Object(fields));
    let (start, end) = (from + whole.start(), from + whole.end());
    Some(Hit { start, end, lines: view.lines_of(&(start..end)), record })
}

/// A key as printed: in hexadecimal, and in decimal where it was.
fn key(fields: &mut Map<String, Value>, name: &str, printed: &str) {
    let value = number(printed);
    if !printed.starts_with("0x") {
        fields.insert(format!("{name}_dec"), json!(value));
    }
    fields.insert(name.into(), json!(value.map(|value| format!("0x{value:x}"))));
}

/// An address, likewise.
fn address(fields: &mut Map<String, Value>, name: &str, printed: &str) {
    key(fields, name, printed);
}
