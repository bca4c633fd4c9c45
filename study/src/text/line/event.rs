//! Asynchronous events of verbs, as UCX, NCCL, Open MPI, SPDK and others print them, and unhandled ones of the kernel.

use super::{
    Hit,
    view::{View, caught, hex, number, pattern},
};
use crate::{
    facts::{AsyncEvent, EVENTS, event_by_text, event_of_type},
    record::Record,
    text::Window,
};
use mlx5_direct::mlx5::eqe::EventType;
use regex::Regex;
use serde_json::{Map, json};
use std::sync::LazyLock;

pub(super) const KEYWORDS: &[&str] = &[
    "async event",
    "async fatal event",
    "asynchronous event",
    "IBV_EVENT_",
    "IB_EVENT_",
    "was flushed",
    "GID table changed",
    "Unhandled event",
    "MLX5_EVENT_TYPE_",
    "catastrophic error",
    "access violation",
    "invalid request local work queue",
    "dapl async_event",
];

/// Any event's text or name, the longest first.
static TEXTS: LazyLock<Regex> = LazyLock::new(|| {
    let mut texts: Vec<&str> = EVENTS.iter().flat_map(|event| [event.text, event.name]).collect();
    texts.sort_by_key(|text| std::cmp::Reverse(text.len()));
    let texts: Vec<String> = texts.iter().map(|text| regex::escape(text).replace(r"\ ", " ")).collect();
    super::view::regex_of(&format!("(?i){}", texts.join("|")))
});

pub(super) fn read(_: &Window<'_>, view: &View, from: usize) -> Option<Hit> {
    let text = view.text.get(from..)?;
    verbs(view, text, from)
        .or_else(|| flushed(view, text, from))
        .or_else(|| kernel(view, text, from))
        .or_else(|| dapl(view, text, from))
}

/// A text of libibverbs, in a line that says that it is an event.
fn verbs(view: &View, text: &str, from: usize) -> Option<Hit> {
    let says_so = pattern!(
        r"(?i)async(?:hronous)?(?: fatal)? event|IBV?_EVENT_[A-Z]|catastrophic error|local access violation|invalid request local|GID table changed"
    );
    let sign = says_so.find(text)?;
    let changed = pattern!(r"GID table changed").find(text).map(|found| (found.range(), "GID table change"));
    let (range, name) = match TEXTS.find(text) {
        // The sign is before the text or in it.
        Some(found) if found.end() >= sign.start() => (found.range(), found.as_str()),
        _ => changed?,
    };
    let name = name.split_whitespace().collect::<Vec<_>>().join(" ");
    let event = event_by_text(&name)?;
    let rest = &text[range.end..];
    let object = pattern!(
        r"^(?:\(\d+\))?,? (?:on |for )?(?:(?:QPN?|qpn) (?P<qpn>0x[0-9a-f]+|\d+)|port (?P<port>\d+)|CQ (?P<cq>(?:0x)?[0-9a-f]+)|SRQ (?P<srq>(?:0x)?[0-9a-f]+))"
    );
    let before = pattern!(r"qpn=(?P<qpn>\d+)");
    let device = pattern!(r"(?i)(?:event (?:on )?|NET/IB ?: )(?P<dev>[a-z][\w\-]*\d)(?::(?P<port>\d+))?[: ]");
    let start = sign.start().min(range.start);
    let (mut end, mut fields) = (range.end, event_fields(event));
    if let Some(captures) = object.captures(rest) {
        for name in ["qpn", "port", "cq", "srq"] {
            if let Some(value) = caught(&captures, name) {
                fields.insert(name.into(), shown(name, value));
            }
        }
        end += captures.get(0)?.end();
    } else if let Some(captures) = before.captures(&text[start..range.start]) {
        fields.insert("qpn".into(), shown("qpn", caught(&captures, "qpn")?));
    }
    // `NET/IB : mlx5_0:1 async fatal event` has the device before its sign.
    let line = view.line_around(from + start);
    if let Some(captures) = device.captures(line) {
        fields.insert("device".into(), json!(caught(&captures, "dev")));
    }
    let mut record = Record::new("asynchronous event", 0..=0);
    record.parts.insert("event".into(), json!(fields));
    record.says = format!("Event '{}': {}.", event.text, event.says);
    record.check.push(event.check.to_owned());
    Some(hit(view, from + start, from + end, record))
}

/// UCX's own words for a last WQE that was reached.
fn flushed(view: &View, text: &str, from: usize) -> Option<Hit> {
    let captures = pattern!(r"SRQ-attached QP (?P<qpn>0x[0-9a-f]+) was flushed").captures(text)?;
    let event = event_by_text("last WQE reached")?;
    let mut fields = event_fields(event);
    fields.insert("qpn".into(), json!(caught(&captures, "qpn")));
    let mut record = Record::new("asynchronous event", 0..=0);
    record.parts.insert("event".into(), json!(fields));
    record.says = format!("QP {}: {}.", caught(&captures, "qpn")?, event.says);
    record.check.push(event.check.to_owned());
    let whole = captures.get(0)?;
    Some(hit(view, from + whole.start(), from + whole.end(), record))
}

/// `Unhandled event 0x.. on EQ 0x..` and `MLX5_EVENT_TYPE_…` of the kernel.
fn kernel(view: &View, text: &str, from: usize) -> Option<Hit> {
    let unhandled = pattern!(r"Unhandled event 0x(?P<kind>[0-9a-f]+) on EQ 0x(?P<eqn>[0-9a-f]+)");
    let named = pattern!(
        r"MLX5_EVENT_TYPE_(?P<name>[A-Z_]+)(?:\((?P<kind>\d+)\))?(?:[^\n]{0,40}?(?:CQN|QPN?|RSN|rsn|resource) ?(?:0x)?(?P<qpn>[0-9a-f]+))?"
    );
    let (captures, kind) = if let Some(captures) = unhandled.captures(text) {
        let kind = caught(&captures, "kind").and_then(hex)?;
        (captures, EventType(u8::try_from(kind).ok()?))
    } else {
        let captures = named.captures(text)?;
        let name = caught(&captures, "name")?;
        let bits = EventType::TABLE.1.iter().find(|(known, _)| *known == name)?.1;
        (captures, EventType(u8::try_from(bits).ok()?))
    };
    // A completion event is no error, and no news.
    if kind == EventType::COMP {
        return None;
    }
    let mut fields = Map::new();
    fields
        .insert("event_type".into(), json!(format!("0x{:02x} {}", kind.0, kind.name().unwrap_or("unknown"))));
    if let Some(eqn) = captures.name("eqn") {
        fields.insert("eqn".into(), json!(format!("0x{}", eqn.as_str())));
    }
    if let Some(number) = captures.name("qpn") {
        fields.insert("number".into(), json!(format!("0x{}", number.as_str())));
    }
    let mut record = Record::new("device event", 0..=0);
    record.parts.insert("event".into(), json!(fields));
    let known = event_of_type(kind);
    record.says =
        format!("Event {kind}: {}.", known.map_or("no driver code was there for it", |known| known.says));
    record.check.extend(known.map(|known| known.check.to_owned()));
    let whole = captures.get(0)?;
    Some(hit(view, from + whole.start(), from + whole.end(), record))
}

/// DAPL's lines, which have the number of verbs' enumeration alone, and a pointer of the program's.
fn dapl(view: &View, text: &str, from: usize) -> Option<Hit> {
    let pattern =
        pattern!(r"dapl async_event (?P<who>QP|CQ) \((?P<at>0x[0-9a-f]+)\) (?:Event|ERR) (?P<number>\d+)");
    let captures = pattern.captures(text)?;
    let event = EVENTS.get(caught(&captures, "number").and_then(|number| number.parse::<usize>().ok())?)?;
    let mut record = Record::new("asynchronous event", 0..=0);
    record.parts.insert("event".into(), json!(event_fields(event)));
    record.says = format!("Event '{}' of a {}: {}.", event.text, caught(&captures, "who")?, event.says);
    record.check.push(event.check.to_owned());
    let whole = captures.get(0)?;
    Some(hit(view, from + whole.start(), from + whole.end(), record))
}

fn event_fields(event: &AsyncEvent) -> Map<String, serde_json::Value> {
    let mut fields = Map::new();
    if let Some(kind) = event.kind {
        fields.insert(
            "event_type".into(),
            json!(format!("0x{:02x} {}", kind.0, kind.name().unwrap_or("unknown"))),
        );
    }
    fields.insert("event".into(), json!(event.name));
    fields.insert("text".into(), json!(event.text));
    fields
}

/// A number as the other records have it: queue pairs in hexadecimal, ports in decimal.
fn shown(name: &str, value: &str) -> serde_json::Value {
    match (name, number(value)) {
        ("qpn", Some(qpn)) => json!(format!("0x{qpn:x}")),
        ("port", Some(port)) => json!(port),
        _ => json!(value),
    }
}

fn hit(view: &View, start: usize, end: usize, record: Record) -> Hit {
    Hit { start, end, lines: view.lines_of(&(start..end)), record }
}
