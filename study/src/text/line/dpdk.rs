//! DPDK's line about an error CQE, and NVIDIA Aerial's, which is the same but for a decimal syndrome.

use super::{
    Hit,
    completion::Failed,
    view::{View, caught, hex, pattern},
};
use crate::{record::Record, text::Window};
use mlx5_direct::cqe::CqeSyndrome;
use serde_json::{Map, Value, json};

pub(super) const KEYWORDS: &[&str] = &["Unexpected CQE error syndrome"];

pub(super) fn read(_: &Window<'_>, view: &View, from: usize) -> Option<Hit> {
    let pattern = pattern!(
        r"Unexpected CQE error syndrome (?P<synd>0x[0-9a-f]{1,2}|\d{1,3}) CQN = (?P<cqn>\d+) (?P<kind>SQN|RQN) = (?P<qn>\d+) wqe_counter = (?P<counter>\d+)(?: (?:wq|rq)_ci = (?P<wq_ci>\d+))? cq_ci = (?P<cq_ci>\d+)"
    );
    let captures = pattern.captures(view.text.get(from..)?)?;
    let whole = captures.get(0)?;
    let decimal = |name: &str| caught(&captures, name).and_then(|digits| digits.parse::<u32>().ok());
    let synd = caught(&captures, "synd")?;
    let synd = if synd.starts_with("0x") { hex(synd) } else { synd.parse().ok() };
    let failed = Failed::of_syndrome(CqeSyndrome(u8::try_from(synd?).ok()?), None);
    let is_send = caught(&captures, "kind")? == "SQN";
    let queue = format!("0x{:x}", decimal("qn")?);
    let mut cqe = failed.as_cqe();
    cqe.insert("qpn".into(), json!(queue));
    cqe.insert("wqe_counter_dec".into(), json!(decimal("counter")));
    let mut record = Record::new("DPDK completion", 0..=0);
    record.push("cqe", Value::Object(cqe));
    let mut line = Map::new();
    line.insert("cqn".into(), json!(decimal("cqn").map(|cqn| format!("0x{cqn:x}"))));
    line.insert(if is_send { "sqn" } else { "rqn" }.into(), json!(queue));
    for name in ["wq_ci", "cq_ci"] {
        line.insert(name.into(), json!(decimal(name)));
    }
    record.parts.insert("line".into(), Value::Object(line));
    let who = format!(
        "{} {} of {} {queue}",
        if is_send { "The send request at WQE" } else { "The receive at WQE" },
        decimal("counter")?,
        if is_send { "SQ" } else { "RQ" },
    );
    failed.explain(&mut record, &who, Some(queue));
    record.corrections.push("all numbers but the syndrome are decimal, queues' too".to_owned());
    record.check.push(
        "the file of DPDK's that goes with this line (dpdk_mlx5_port_…): it has the CQE and the queue's bytes".to_owned(),
    );
    let (start, end) = (from + whole.start(), from + whole.end());
    Some(Hit { start, end, lines: view.lines_of(&(start..end)), record })
}
