//! mlx5e's line of an error CQE, where its dump is missing.

use super::{
    Hit,
    completion::Failed,
    view::{View, caught, hex, pattern},
};
use crate::{record::Record, text::Window};
use mlx5_direct::cqe::{CqeOpcode, CqeSyndrome};
use serde_json::{Value, json};

pub(super) const KEYWORDS: &[&str] = &["Error cqe on cqn"];

pub(super) fn read(_: &Window<'_>, view: &View, from: usize) -> Option<Hit> {
    let pattern = pattern!(
        r"Error cqe on cqn 0x(?P<cqn>[0-9a-f]+), ci 0x(?P<ci>[0-9a-f]+), s?qn 0x(?P<qn>[0-9a-f]+), opcode 0x(?P<opcode>[0-9a-f]+), syndrome 0x(?P<synd>[0-9a-f]+), vendor syndrome 0x(?P<vend>[0-9a-f]+)"
    );
    let captures = pattern.captures(view.text.get(from..)?)?;
    let whole = captures.get(0)?;
    let byte = |name: &str| caught(&captures, name).and_then(hex).and_then(|byte| u8::try_from(byte).ok());
    let shown = |name: &str| caught(&captures, name).map(|number| format!("0x{number}"));
    let failed = Failed::of_syndrome(CqeSyndrome(byte("synd")?), byte("vend"));
    let opcode = CqeOpcode(byte("opcode")?);
    let mut record = Record::new("mlx5e error line", 0..=0);
    let name = opcode.name().unwrap_or("unknown");
    record.parts.insert(
        "line".into(),
        json!({ "cqn": shown("cqn"), "cq_ci": shown("ci"), "qn": shown("qn"), "cqe_opcode": format!("0x{:x} {name}", opcode.0) }),
    );
    record.push("cqe", Value::Object(failed.as_cqe()));
    let what = if opcode == CqeOpcode::RESP_ERR {
        "A receive of mlx5e on queue"
    } else {
        "A send of mlx5e on queue"
    };
    failed.explain(&mut record, &format!("{what} {}", shown("qn")?), shown("qn"));
    let (start, end) = (from + whole.start(), from + whole.end());
    Some(Hit { start, end, lines: view.lines_of(&(start..end)), record })
}
