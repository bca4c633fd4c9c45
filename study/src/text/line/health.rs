//! Health buffers: kernel, devlink, rdma-core's VFIO driver, FreeBSD; a line for each field.

use super::{
    Hit,
    view::{View, bare, caught, hex, pattern},
};
use crate::{
    facts::{device_of_hw_id, health},
    record::Record,
    text::Window,
};
use mlx5_direct::mlx5::init_segment::HealthSyndrome;
use serde_json::{Map, Value, json};

pub(super) const KEYWORDS: &[&str] = &[
    "assert_var[",
    "assert_exit_ptr",
    "assert_callra",
    "irisc_index",
    "ext_synd",
    "synd 0x",
    "raw fw_ver",
    "health issue observed",
];

/// How many lines of others may stand between two of a buffer.
const SIGHT: usize = 12;

/// The lines of a health buffer: field by field, in the order of all kernels.
const FIELDS: &[(&str, &str)] = &[
    ("issue", r"Health issue observed, (?P<v>[A-Za-z][\w ]*), severity\(\d\) [A-Z]+"),
    ("assert_var", r"assert_var\[(?P<i>\d)\] (?P<v>0x[0-9a-f]+)"),
    ("assert_exit_ptr", r"assert_exit_ptr (?P<v>0x[0-9a-f]+)"),
    ("assert_callra", r"assert_callra (?P<v>0x[0-9a-f]+)"),
    ("raw_fw_ver", r"raw fw_ver (?P<v>0x[0-9a-f]+)"),
    ("fw_ver", r"fw_ver (?P<v>\d+\.\d+\.\d+)"),
    ("hw_id", r"hw_id (?P<v>0x[0-9a-f]+)"),
    ("irisc_index", r"irisc_index (?P<v>\d+)"),
    ("ext_synd", r"ext_synd (?P<v>0x[0-9a-f]+)"),
    ("synd", r"(?:^|[^_(\w])synd (?P<v>0x[0-9a-f]+): (?P<t>[A-Za-z][A-Za-z ]*)"),
    ("time", r"(?:^|\s)time (?P<v>\d+)\s*$"),
    ("rfr", r"(?:^|\s)rfr (?P<v>[01])\s*$"),
    ("crr", r"(?:^|\s)crr (?P<v>[01])\s*$"),
    ("severity", r"(?:^|\s)severity (?P<v>-?\d+) \(\w+\)"),
];

static PATTERNS: std::sync::LazyLock<Vec<regex::Regex>> =
    std::sync::LazyLock::new(|| FIELDS.iter().map(|(_, text)| super::view::regex_of(text)).collect());

/// What a line has of a buffer: which field, its index, value and text.
struct Part<'t> {
    field: &'static str,
    index: Option<&'t str>,
    value: &'t str,
    text: Option<&'t str>,
    end: usize,
}

fn part(line: &str) -> Option<Part<'_>> {
    if line.contains("vend 0x") {
        return None;
    }
    FIELDS.iter().zip(PATTERNS.iter()).find_map(|((field, _), pattern)| {
        let captures = pattern.captures(line)?;
        Some(Part {
            field,
            index: caught(&captures, "i"),
            value: captures.name("v")?.as_str(),
            text: captures.name("t").map(|text| text.as_str().trim_end()),
            end: captures.get(0)?.end(),
        })
    })
}

/// Whose lines these are: the PCI address, where the text has one.
fn owner(line: &str) -> Option<&str> {
    pattern!(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]").find(line).map(|found| found.as_str())
}

pub(super) fn read(window: &Window<'_>, view: &View, from: usize) -> Option<Hit> {
    let first = bare(window.first());
    let start = part(first.get(from..)?).filter(|_| from == 0)?;
    // The first of a buffer's lines: fields that any log may have begin none.
    if matches!(start.field, "time" | "rfr" | "crr" | "severity" | "fw_ver" | "hw_id") {
        return None;
    }
    let whose = owner(first);
    let mut fields = Map::new();
    let (mut lines, mut last, mut end) = (Vec::new(), 0, 0);
    for (place, line) in window.lines.iter().enumerate() {
        if place > last + SIGHT {
            break;
        }
        let text = bare(&line.text);
        let Some(part) = part(text).filter(|_| owner(text) == whose) else { continue };
        let is_known = match part.index {
            Some(index) => fields.get(part.field).and_then(|vars| vars.get(index)).is_some(),
            None => fields.contains_key(part.field),
        };
        // The same field again: the next buffer has begun.
        if is_known {
            break;
        }
        put(&mut fields, &part);
        lines.push(place);
        last = place;
        if place == 0 {
            end = part.end;
        }
    }
    let record = record_of(fields, whose)?;
    Some(Hit { start: 0, end: end.max(view.first_end().min(end + 1)), lines, record })
}

fn put(fields: &mut Map<String, Value>, part: &Part<'_>) {
    match (part.field, part.index) {
        ("assert_var", Some(index)) => {
            let vars = fields.entry("assert_var").or_insert_with(|| json!({}));
            vars[index] = json!(part.value);
        }
        ("irisc_index" | "time" | "rfr" | "crr" | "severity", _) => {
            fields.insert(part.field.into(), json!(part.value.parse::<i64>().ok()));
        }
        (field, _) => {
            fields.insert(field.into(), json!(part.value));
        }
    }
    if let Some(text) = part.text {
        fields.insert("synd_name".into(), json!(text));
    }
}

/// The record of what was gathered, if that is a health buffer.
fn record_of(mut fields: Map<String, Value>, whose: Option<&str>) -> Option<Record> {
    let is_enough = fields.contains_key("synd")
        || fields.contains_key("assert_exit_ptr")
        || fields.contains_key("assert_var");
    if !is_enough {
        return None;
    }
    let number =
        |fields: &Map<String, Value>, name: &str| fields.get(name).and_then(Value::as_str).and_then(hex);
    if let Some(raw) = number(&fields, "raw_fw_ver") {
        let decoded = format!("{}.{}.{}", raw >> 24 & 0xff, raw >> 16 & 0xff, raw & 0xffff);
        fields.insert("raw_fw_ver_decoded".into(), json!(decoded));
    }
    let hw_id = number(&fields, "hw_id").and_then(|hw_id| u32::try_from(hw_id).ok());
    let family = hw_id.and_then(device_of_hw_id);
    if hw_id.is_some() {
        fields.insert("device_from_hw_id".into(), json!(family.unwrap_or("unknown")));
    }
    let all_ones = |name: &str, width: u64| number(&fields, name).is_none_or(|value| value == width);
    let is_gone = number(&fields, "hw_id").is_some_and(|hw_id| hw_id == u64::from(u32::MAX))
        && all_ones("assert_exit_ptr", u64::from(u32::MAX))
        && all_ones("assert_callra", u64::from(u32::MAX))
        && all_ones("ext_synd", 0xffff)
        && all_ones("synd", 0xff);
    let mut record = Record::new("health buffer", 0..=0);
    let who = whose.map_or("The device".to_owned(), |whose| format!("The device {whose}"));
    let syndrome = number(&fields, "synd").and_then(|synd| u8::try_from(synd).ok());
    if is_gone {
        fields.insert(
            "verdict".into(),
            json!("every field is all ones: the device does not answer on the bus; do not decode the fields"),
        );
        record.says =
            format!("{who} is gone from the bus: every register reads all ones. This is no firmware error.");
        record.check.push(
            "lspci: is the device there? Hot-unplug, a failed slot, a link that is down (AER lines)"
                .to_owned(),
        );
    } else {
        let printed = fields.get("synd_name").and_then(Value::as_str).unwrap_or("");
        let known = syndrome.and_then(|synd| health(HealthSyndrome(synd)));
        let text = known.map_or(printed, |known| known.text);
        record.says = match syndrome {
            Some(0) => format!("{who} printed its health buffer, but firmware reports no error (synd 0)."),
            Some(synd) => format!("{who} has failed: synd 0x{synd:x}, {text}."),
            None => format!("{who} printed its health buffer; the line with synd is not here."),
        };
        record.check.extend(known.map(|known| known.remedy.to_owned()));
        if fields.get("rfr") == Some(&json!(1)) {
            record.check.push(
                "rfr 1: firmware asks for a reset (devlink health recover pci/… reporter fw_fatal)"
                    .to_owned(),
            );
        }
        if fields.get("crr") == Some(&json!(1)) {
            record
                .check
                .push("crr 1: only a cold reset (power off and on) brings the device back".to_owned());
        }
        if known.is_some() && number(&fields, "ext_synd").is_some() {
            record.check.push(
                "ext_synd and assert_var mean something to the vendor only: give them with fw_ver".to_owned(),
            );
        }
    }
    if let (Some(raw), Some(printed)) = (
        fields.get("raw_fw_ver_decoded").and_then(Value::as_str),
        fields.get("fw_ver").and_then(Value::as_str),
    ) && raw != printed
        && !is_gone
    {
        record.corrections.push(format!(
            "fw_ver {printed} and raw fw_ver ({raw}) differ: the raw one is in 8.8.16 bits; kernels before 4.15 cut fw_ver as 4.12.16, and rdma-core's VFIO driver prints the init segment's word"
        ));
    }
    record.parts.insert("health".into(), Value::Object(fields));
    if let Some(whose) = whose {
        record.parts.insert("device".into(), json!(whose));
    }
    Some(record)
}
