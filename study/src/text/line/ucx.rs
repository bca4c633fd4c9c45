//! UCX's lines of failed completions on mlx5 (`uct_ib_mlx5_completion_with_err`).
//!
//! Since 1.6 (2019) a failure is two lines, the second with the WQE; before it was one, and before that without the
//! hardware syndrome. `hw_synd A/B` is decimal.

use super::{
    Hit,
    completion::Failed,
    ucx_wqe::wqe_of,
    view::{View, bare, caught, hex, number, pattern},
};
use crate::{record::Record, text::Window};
use mlx5_direct::cqe::CqeSyndrome;
use serde_json::{Map, Value, json};

pub(super) const KEYWORDS: &[&str] = &["(synd 0x", "synd 0x", " vend 0x"];

/// How many lines of others may stand between the two of a failure.
const SIGHT: usize = 16;

pub(super) fn read(window: &Window<'_>, view: &View, from: usize) -> Option<Hit> {
    let old = pattern!(
        r"Error on (?:(?P<dev>[\w.\-]+:\d+) )?QP 0x(?P<qpn>[0-9a-f]+) wqe\[(?P<wqe>\d+)\]: (?P<text>[^(\n]*?)\s*\(synd 0x(?P<synd>[0-9a-f]+) vend 0x(?P<vend>[0-9a-f]+)(?: hw_synd (?P<kind>\d+)/(?P<hw>\d+))?\) opcode\s*(?P<opcode>[A-Z_]*)"
    );
    let new = pattern!(
        r"(?:(?P<text>[A-Z][\w\- ]*?) on (?P<dev>[\w.\-]+:\d+/\w+) )?\(synd 0x(?P<synd>[0-9a-f]+) vend 0x(?P<vend>[0-9a-f]+)(?: hw_synd (?P<kind>\d+)/(?P<hw>\d+))?\)"
    );
    let text = view.text.get(from..)?;
    let (captures, is_old) = match old.captures(text) {
        Some(captures) => (captures, true),
        None => (new.captures(text)?, false),
    };
    let whole = captures.get(0)?;
    let failed = Failed::of_syndrome(
        CqeSyndrome(u8::try_from(hex(caught(&captures, "synd")?)?).ok()?),
        Some(u8::try_from(hex(caught(&captures, "vend")?)?).ok()?),
    );
    let mut completion = failed.as_cqe();
    if let (Some(kind), Some(hw)) =
        (caught(&captures, "kind").and_then(number), caught(&captures, "hw").and_then(number))
    {
        completion.insert("hw_err_synd".into(), json!(format!("0x{hw:02x} (printed in decimal as {hw})")));
        completion.insert("hw_synd_type_high_nibble".into(), json!(kind));
    }
    let mut record = Record::new("UCX completion", 0..=0);
    let mut lines = view.lines_of(&(from + whole.start()..from + whole.end()));
    let mut wqe = None;
    if is_old {
        if let Some(opcode) = caught(&captures, "opcode").filter(|opcode| !opcode.is_empty()) {
            completion.insert("opcode".into(), json!(opcode));
        }
        let mut fields = Map::new();
        fields.insert("qp_type".into(), json!("QP"));
        fields.insert("qpn".into(), json!(format!("0x{}", caught(&captures, "qpn")?)));
        fields.insert("wqe_counter".into(), json!(caught(&captures, "wqe").and_then(number)));
        wqe = Some((fields, whole.end()));
    } else if let Some((fields, end)) = wqe_of(&text[whole.end()..]).filter(|(fields, _)| !fields.is_empty())
    {
        // On the same line, or on the next without a prefix.
        lines = view.lines_of(&(from + whole.start()..from + whole.end() + end));
        wqe = Some((fields, whole.end() + end));
    } else if let Some((fields, line)) = wqe_line(window, *lines.last()?) {
        lines.push(line);
        wqe = Some((fields, whole.end()));
    }
    let end = wqe.as_ref().map_or(whole.end(), |(_, end)| *end);
    let queue = wqe.as_ref().and_then(|(fields, _)| Some(fields.get("qpn")?.as_str()?.to_owned()));
    let who = wqe.as_ref().map_or_else(|| "A work request".to_owned(), |(fields, _)| who(fields));
    record.push("completion", Value::Object(completion));
    if let Some((fields, _)) = wqe {
        record.push("wqe", Value::Object(fields));
    }
    if let Some(device) = caught(&captures, "dev") {
        record.parts.insert("device".into(), json!(device));
    }
    failed.explain(&mut record, &who, queue);
    if caught(&captures, "hw").and_then(number).is_some_and(|hw| hw > 9) {
        record.corrections.push("UCX prints hw_synd in decimal, synd and vend in hexadecimal".to_owned());
    }
    correct_name(&mut record, caught(&captures, "text"), &failed);
    Some(Hit { start: from + whole.start(), end: from + end, lines, record })
}

/// UCX calls some errors by other names than verbs.
fn correct_name(record: &mut Record, text: Option<&str>, failed: &Failed) {
    if text.is_some_and(|text| text.eq_ignore_ascii_case("remote QP")) && failed.syndrome.is_some() {
        record.corrections.push(
            "'Remote QP' is what older UCX calls IBV_WC_REM_OP_ERR: the peer failed to serve the request"
                .to_owned(),
        );
    }
}

/// The WQE line of a failure: the next one of the same process, whoever's lines are between.
fn wqe_line(window: &Window<'_>, after: usize) -> Option<(Map<String, Value>, usize)> {
    let prefix = prefix_of(&window.lines.get(after)?.text);
    window.lines.iter().enumerate().skip(after + 1).take(SIGHT).find_map(|(place, line)| {
        let text = bare(&line.text);
        let (fields, _) = wqe_of(text).filter(|(fields, _)| !fields.is_empty())?;
        (prefix.is_none() || prefix == prefix_of(text)).then_some((fields, place))
    })
}

/// The `[host:pid:…]` that UCX puts before its lines.
fn prefix_of(text: &str) -> Option<&str> {
    pattern!(r"\[(?P<who>[^\[\]:\s]+:\d+[^\[\]]*)\]").captures(text)?.name("who").map(|found| found.as_str())
}

pub(super) fn who(wqe: &Map<String, Value>) -> String {
    let field = |name: &str| wqe.get(name).and_then(Value::as_str).unwrap_or("");
    let opcode = match field("opcode") {
        "" => "A work request",
        opcode => opcode,
    };
    let index = wqe
        .get("wqe_counter")
        .and_then(Value::as_u64)
        .map_or(String::new(), |index| format!(", WQE {index}"));
    match field("qp_type") {
        "" | "QP" => format!("{opcode} on QP {}{index}", field("qpn")),
        kind => format!("{opcode} on {kind} QP {}{index}", field("qpn")),
    }
}
