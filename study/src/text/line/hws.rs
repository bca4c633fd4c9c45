//! Steering rules that the kernel could not write (`mlx5hws`): an error CQE told field by field, a line each.

use super::{
    Hit,
    completion::Failed,
    view::{View, bare, hex, pattern},
};
use crate::{record::Record, text::Window};
use mlx5_direct::cqe::CqeSyndrome;
use serde_json::{Map, Value, json};

pub(super) const KEYWORDS: &[&str] = &["--- hw_error_syndrome", "--- vendor_err_synd", "(MLX5_CQE_REQ_ERR)"];

/// How many lines of others may stand between two of a CQE.
const SIGHT: usize = 4;

/// The rule's number, a field's name and value.
fn field(line: &str) -> Option<(&str, &str, u64)> {
    let pattern = pattern!(
        r"rule (?P<rule>0x[0-9a-f]+): +(?:\|-+ )?(?:cqe->)?(?P<name>hw_error_syndrome|hw_syndrome_type|vendor_err_synd|syndrome|opcode) += (?P<v>0x[0-9a-f]+|\d+)"
    );
    let captures = pattern.captures(line)?;
    let value = captures.name("v")?.as_str();
    let value = if value.starts_with("0x") { hex(value) } else { value.parse().ok() };
    Some((captures.name("rule")?.as_str(), captures.name("name")?.as_str(), value?))
}

pub(super) fn read(window: &Window<'_>, view: &View, from: usize) -> Option<Hit> {
    let first = bare(window.first());
    let (rule, ..) = field(first).filter(|_| from == 0)?;
    let (mut fields, mut lines) = (Map::new(), Vec::new());
    for (place, line) in window.lines.iter().enumerate() {
        if place > lines.last().copied().unwrap_or(0) + SIGHT {
            break;
        }
        let Some((_, name, value)) = field(bare(&line.text)).filter(|(other, ..)| *other == rule) else {
            continue;
        };
        if fields.insert(name.to_owned(), json!(value)).is_some() {
            break;
        }
        lines.push(place);
    }
    let byte = |name: &str| fields.get(name).and_then(Value::as_u64).and_then(|byte| u8::try_from(byte).ok());
    let failed = Failed::of_syndrome(CqeSyndrome(byte("syndrome")?), byte("vendor_err_synd"));
    let mut cqe = failed.as_cqe();
    cqe.insert("cqe_opcode_name".into(), json!("REQ_ERR"));
    for (name, shown) in [("hw_err_synd", "hw_error_syndrome"), ("hw_synd_type", "hw_syndrome_type")] {
        cqe.insert(name.into(), json!(byte(shown).map(|byte| format!("0x{byte:02x}"))));
    }
    let mut record = Record::new("steering rule's CQE", 0..=0);
    record.push("cqe", Value::Object(cqe));
    record.parts.insert("rule".into(), json!(rule));
    failed.explain(
        &mut record,
        &format!("The request that writes steering rule {rule}"),
        Some(format!("rule {rule}")),
    );
    Some(Hit { start: 0, end: view.first_end(), lines, record })
}
