//! What mlx5e says of a queue that failed or stands still, besides its CQE.

use super::{
    Hit,
    view::{View, caught, hex, pattern},
};
use crate::{record::Record, text::Window};
use mlx5_direct::cqe::CqeOpcode;
use serde_json::{Map, json};

pub(super) const KEYWORDS: &[&str] =
    &["ERR CQE on", "Bad OP in", "TX timeout", "Recovered", "eqes on EQ", "NETDEV WATCHDOG"];

pub(super) fn read(_: &Window<'_>, view: &View, from: usize) -> Option<Hit> {
    let text = view.text.get(from..)?;
    err_cqe(view, text, from).or_else(|| bad_op(view, text, from)).or_else(|| stall(view, text, from))
}

fn err_cqe(view: &View, text: &str, from: usize) -> Option<Hit> {
    let captures = pattern!(r"ERR CQE on (?P<kind>[A-Z]+): 0x(?P<qn>[0-9a-f]+)").captures(text)?;
    let (kind, qn) = (caught(&captures, "kind")?, caught(&captures, "qn")?);
    let mut record = Record::new("mlx5e queue error", 0..=0);
    record
        .parts
        .insert("event".into(), json!({ "event": "ERR_CQE", "queue_type": kind, "qn": format!("0x{qn}") }));
    record.says = format!("{kind} 0x{qn} of mlx5e got an error CQE and is being recovered.");
    record.check.push("the line 'Error cqe on cqn' and the dump near this: they have the reason".to_owned());
    Some(hit(view, from, &captures, record))
}

fn bad_op(view: &View, text: &str, from: usize) -> Option<Hit> {
    let captures = pattern!(r"Bad OP in (?P<kind>\w+) CQE: 0x(?P<op>[0-9a-f]+)").captures(text)?;
    let opcode = CqeOpcode(u8::try_from(caught(&captures, "op").and_then(hex)?).ok()?);
    let kind = caught(&captures, "kind")?;
    let mut record = Record::new("mlx5e queue error", 0..=0);
    let name = opcode.name().unwrap_or("unknown");
    record.parts.insert(
        "event".into(),
        json!({ "event": "BAD_CQE_OPCODE", "queue_type": kind, "cqe_opcode": format!("0x{:x} {name}", opcode.0) }),
    );
    record.says = format!("A CQE of mlx5e's {kind} has opcode 0x{:x}, {name}: the request failed.", opcode.0);
    record.corrections.push(
        "0xd and 0xe are opcodes of the CQE (requester and responder error), not of the WQE".to_owned(),
    );
    record
        .check
        .push("the line 'Error cqe on cqn' and the dump behind this: they have the reason".to_owned());
    Some(hit(view, from, &captures, record))
}

/// Queues that stand still, and what the driver found out.
fn stall(view: &View, text: &str, from: usize) -> Option<Hit> {
    let queue = pattern!(
        r"TX timeout on queue: (?P<queue>\d+), SQ: (?P<sq>0x[0-9a-f]+), CQ: (?P<cq>0x[0-9a-f]+), SQ Cons: (?P<cons>0x[0-9a-f]+) SQ Prod: (?P<prod>0x[0-9a-f]+)(?:, usecs since last trans: (?P<usecs>\d+))?"
    );
    let recovered = pattern!(r"Recover(?:ed|ing) (?P<eqes>\d+) eqes on EQ (?P<eq>0x[0-9a-f]+)");
    let plain = pattern!(
        r"(?:mlx5\S*[^\n]{0,80}TX timeout detected|NETDEV WATCHDOG: [^\n]{0,40}\(mlx5_core\)[^\n]{0,60}timed out)"
    );
    let mut record = Record::new("mlx5e queue stall", 0..=0);
    if let Some(captures) = queue.captures(text) {
        let (cons, prod) =
            (caught(&captures, "cons").and_then(hex)?, caught(&captures, "prod").and_then(hex)?);
        // Both run freely in 16 bits.
        let outstanding = prod.wrapping_sub(cons) & 0xffff;
        let mut event = Map::new();
        event.insert("event".into(), json!("TX_TIMEOUT"));
        for name in ["queue", "sq", "cq", "cons", "prod", "usecs"] {
            event.insert(name.into(), json!(caught(&captures, name)));
        }
        event.insert("outstanding_wqebbs".into(), json!(outstanding));
        record.parts.insert("event".into(), json!(event));
        record.says = format!(
            "Send queue {} stands still with {outstanding} WQEBBs posted and not completed.",
            caught(&captures, "sq")?
        );
        record.check.push("'Recovered N eqes' behind this: then an interrupt was lost and the queue is fine; else its error CQE, pause frames (ethtool -S: tx_pause, rx_pause), health lines".to_owned());
        return Some(hit(view, from, &captures, record));
    }
    if let Some(captures) = recovered.captures(text) {
        let eqes = caught(&captures, "eqes")?;
        record.parts.insert("event".into(), json!({ "event": "LOST_INTERRUPT", "eqes": eqes.parse::<u64>().ok(), "eqn": caught(&captures, "eq") }));
        record.says = format!(
            "{eqes} events lay in event queue {} unseen: an interrupt was lost.",
            caught(&captures, "eq")?
        );
        record.check.push(
            "interrupt affinity, MSI-X masking, hypervisor; /proc/interrupts of that vector".to_owned(),
        );
        return Some(hit(view, from, &captures, record));
    }
    let captures = plain.captures(text)?;
    record.parts.insert("event".into(), json!({ "event": "TX_TIMEOUT" }));
    record.says = "A send queue of mlx5e stands still.".to_owned();
    record.check.push("the line 'TX timeout on queue' behind this, with its counters".to_owned());
    Some(hit(view, from, &captures, record))
}

fn hit(view: &View, from: usize, captures: &regex::Captures<'_>, record: Record) -> Hit {
    let range = captures.get(0).map_or(0..0, |whole| from + whole.start()..from + whole.end());
    Hit { start: range.start, end: range.end, lines: view.lines_of(&range), record }
}
