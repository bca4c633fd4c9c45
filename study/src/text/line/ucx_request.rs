//! Requests that UCX prints without a failure: what it posts at trace level, and a failure's WQE cut out of its log.

use super::{Hit, ucx, ucx_wqe::wqe_of, view::View};
use crate::{record::Record, text::Window};
use serde_json::Value;

pub(super) const KEYWORDS: &[&str] = &[" wqe["];

pub(super) fn read(_: &Window<'_>, view: &View, from: usize) -> Option<Hit> {
    let (fields, end) = wqe_of(view.text.get(from..)?)?;
    // Without an operation it is of a receive queue, or of no use.
    fields.get("opcode")?;
    let mut record = Record::new("UCX request", 0..=0);
    record.says =
        format!("{}: a request as UCX posted it; the line says nothing of how it ended.", ucx::who(&fields));
    record.push("wqe", Value::Object(fields));
    let end = from + end;
    Some(Hit { start: from, end, lines: view.lines_of(&(from..end)), record })
}
