//! Open MPI's openib BTL: one message with everything, which mail wraps anywhere.

use super::{
    Hit,
    completion::Failed,
    view::{View, caught, pattern},
};
use crate::{facts::wc_by_number, record::Record, text::Window};
use serde_json::{Value, json};

pub(super) const KEYWORDS: &[&str] = &["btl_openib_component.c", "error polling"];

pub(super) fn read(_: &Window<'_>, view: &View, from: usize) -> Option<Hit> {
    let pattern = pattern!(
        r"(?:handle_wc\] ?(?:from (?P<host>\S+) to: (?P<peer>\S+) )?)?error polling (?P<cq>[LH]P) CQ with status (?P<text>[A-Z][A-Z_\s\-]*?) status number (?P<n>\d+) for wr_id (?P<wr_id>(?:0x)?[0-9a-f]+) opcode (?P<opcode>-?\d+) vendor error (?P<vendor>\d+)(?: qp_idx (?P<qp>-?\d+))?"
    );
    let captures = pattern.captures(view.text.get(from..)?)?;
    let whole = captures.get(0)?;
    let decimal = |name: &str| caught(&captures, name).and_then(|digits| digits.parse::<i64>().ok());
    let status = wc_by_number(u32::try_from(decimal("n")?).ok()?).filter(|status| status.number != 0)?;
    let failed = Failed::of_status(status, decimal("vendor").and_then(|vendor| u8::try_from(vendor).ok()));
    let mut completion = failed.as_wc();
    // Hexadecimal since 1.6, decimal before: only letters tell, and the id is a pointer of the program's anyway.
    completion.insert("wr_id".into(), json!(caught(&captures, "wr_id")));
    completion.insert("opcode_as_printed".into(), json!(decimal("opcode")));
    completion.insert("opcode_len_valid".into(), json!(false));
    completion.insert("qp_idx".into(), json!(decimal("qp")));
    completion
        .insert("cq_priority".into(), json!(if caught(&captures, "cq")? == "LP" { "low" } else { "high" }));
    for name in ["host", "peer"] {
        if let Some(value) = caught(&captures, name) {
            completion.insert(name.into(), json!(value));
        }
    }
    let mut record = Record::new("Open MPI openib completion", 0..=0);
    record.push("completion", Value::Object(completion));
    let between = match (caught(&captures, "host"), caught(&captures, "peer")) {
        (Some(host), Some(peer)) => format!(" from {host} to {peer}"),
        _ => String::new(),
    };
    // Each pair of processes has its own queue pairs, which the message numbers from 0.
    let queue = caught(&captures, "peer").map(|peer| {
        format!("queue {} to {peer}", decimal("qp").map_or("?".to_owned(), |index| index.to_string()))
    });
    failed.explain(&mut record, &format!("A request of Open MPI{between}"), queue);
    let vendor = caught(&captures, "vendor")?;
    record.corrections.push(format!(
        "vendor error is decimal ({vendor} is 0x{:02x}); opcode and qp_idx are no numbers of the device",
        failed.vendor.unwrap_or(0)
    ));
    let (start, end) = (from + whole.start(), from + whole.end());
    Some(Hit { start, end, lines: view.lines_of(&(start..end)), record })
}
