//! Error CQEs as mlx5_ib tells them with its debug messages on: two lines each.

use super::{
    Hit,
    completion::Failed,
    view::{View, bare, caught, hex, pattern},
};
use crate::{record::Record, text::Window};
use mlx5_direct::cqe::{CqeOpcode, CqeSyndrome};
use serde_json::{Value, json};

pub(super) const KEYWORDS: &[&str] = &["error cqe on cqn"];

/// How many lines of others may stand between the two.
const SIGHT: usize = 4;

/// Who failed, and the completion queue's number.
fn head(text: &str) -> Option<(CqeOpcode, u64)> {
    let captures =
        pattern!(r"(?P<who>Requestor|Responder) error cqe on cqn 0x(?P<cqn>[0-9a-f]+)").captures(text)?;
    let who = if caught(&captures, "who")? == "Requestor" { CqeOpcode::REQ_ERR } else { CqeOpcode::RESP_ERR };
    Some((who, caught(&captures, "cqn").and_then(hex)?))
}

/// Both syndromes.
fn tail(text: &str) -> Option<(u8, u8)> {
    let captures =
        pattern!(r"syndrome 0x(?P<synd>[0-9a-f]+), vendor syndrome 0x(?P<vend>[0-9a-f]+)").captures(text)?;
    let byte = |name| caught(&captures, name).and_then(hex).and_then(|byte| u8::try_from(byte).ok());
    Some((byte("synd")?, byte("vend")?))
}

pub(super) fn read(window: &Window<'_>, view: &View, from: usize) -> Option<Hit> {
    let text = view.text.get(from..)?;
    let start = from + pattern!(r"(?:Requestor|Responder) error cqe on cqn").find(text)?.start();
    let (opcode, cqn) = head(view.line_around(start))?;
    let first = view.line_of(start);
    let pair_at = |place: usize| {
        let is_same = head(bare(&window.lines.get(place)?.text))? == (opcode, cqn);
        let behind = window.lines.iter().enumerate().skip(place + 1).take(SIGHT);
        let (end, syndromes) =
            behind.filter_map(|(place, line)| Some((place, tail(bare(&line.text))?))).next()?;
        is_same.then_some((end, syndromes))
    };
    let (mut last, syndromes) = pair_at(first)?;
    let failed = Failed::of_syndrome(CqeSyndrome(syndromes.0), Some(syndromes.1));
    let (mut lines, mut repeated) = (vec![first, last], 1_u64);
    // Flushes come in hundreds.
    while failed.is_flush() && pair_at(last + 1).is_some_and(|(_, again)| again == syndromes) {
        let Some((end, _)) = pair_at(last + 1) else { break };
        lines.extend([last + 1, end]);
        (last, repeated) = (end, repeated + 1);
    }
    let mut record = Record::new("mlx5_ib error line", 0..=0);
    let name = opcode.name().unwrap_or("unknown");
    record.parts.insert(
        "line".into(),
        json!({ "cqn": format!("0x{cqn:x}"), "cqe_opcode": format!("0x{:x} {name}", opcode.0) }),
    );
    record.push("cqe", Value::Object(failed.as_cqe()));
    if repeated > 1 {
        record.parts.insert("repeated".into(), json!(repeated));
    }
    let what = if opcode == CqeOpcode::RESP_ERR { "A receive" } else { "A send request" };
    failed.explain(&mut record, &format!("{what} on CQ 0x{cqn:x}"), Some(format!("CQ 0x{cqn:x}")));
    Some(Hit { start, end: view.first_end(), lines, record })
}
