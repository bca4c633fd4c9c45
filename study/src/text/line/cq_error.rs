//! Completion queues that died, as the kernel's event queue tells: several lines of the same moment are one event.

use super::{
    Hit,
    view::{View, bare, caught, hex, pattern},
};
use crate::{
    facts::{Cause, event_of_type, wc_of_syndrome},
    record::Record,
    text::Window,
};
use mlx5_direct::{
    cqe::CqeSyndrome,
    mlx5::eqe::{CqErrorSyndrome, EventType},
};
use serde_json::{Map, json};

pub(super) const KEYWORDS: &[&str] = &["CQ error on CQN", "mlx5e_cq_error_event", "cq_err_event_notifier"];

/// How many lines of others may stand between two of an event.
const SIGHT: usize = 8;

/// What a line says: number of the queue, syndrome.
fn line(text: &str) -> Option<(u64, Option<u8>, usize, usize)> {
    let error = pattern!(r"CQ error on CQN 0x(?P<cqn>[0-9a-f]+), syndrome? 0x(?P<synd>[0-9a-f]+)");
    let event = pattern!(r"mlx5e_cq_error_event: cqn=0x(?P<cqn>[0-9a-f]+) event=0x0?4");
    let captures = error.captures(text).or_else(|| event.captures(text))?;
    let whole = captures.get(0)?;
    let syndrome = caught(&captures, "synd").and_then(hex).and_then(|syndrome| u8::try_from(syndrome).ok());
    Some((caught(&captures, "cqn").and_then(hex)?, syndrome, whole.start(), whole.end()))
}

pub(super) fn read(window: &Window<'_>, view: &View, from: usize) -> Option<Hit> {
    let (cqn, mut syndrome, start, end) = line(view.text.get(from..)?)?;
    let (start, end) = (from + start, from + end);
    let mut lines = view.lines_of(&(start..end));
    let mut cqns = vec![cqn];
    let mut last = *lines.last()?;
    for (place, text) in window.lines.iter().enumerate().skip(last + 1) {
        if place > last + SIGHT {
            break;
        }
        let Some((cqn, other, ..)) = line(bare(&text.text)) else { continue };
        // Another syndrome is another event.
        if other.is_some() && syndrome.is_some() && other != syndrome {
            break;
        }
        syndrome = syndrome.or(other);
        if !cqns.contains(&cqn) {
            cqns.push(cqn);
        }
        lines.push(place);
        last = place;
    }
    let shown: Vec<String> = cqns.iter().map(|cqn| format!("0x{cqn:x}")).collect();
    let mut record = Record::new("CQ error event", 0..=0);
    let mut event = Map::new();
    event.insert("event_type".into(), json!(format!("0x{:02x} CQ_ERROR", EventType::CQ_ERROR.0)));
    event.insert("cqns".into(), json!(shown));
    let name = syndrome.map(|syndrome| name(CqErrorSyndrome(syndrome)));
    if let Some(syndrome) = syndrome {
        event.insert("event_syndrome".into(), json!(format!("0x{syndrome:x}")));
        event.insert("event_syndrome_name".into(), json!(name));
        let other = wc_of_syndrome(CqeSyndrome(syndrome));
        let table =
            format!("cq_error event table, NOT the CQE syndrome table (there {syndrome} is {})", other.text);
        event.insert("table".into(), json!(table));
        record
            .corrections
            .push(format!("syndrome {syndrome} here is not the CQE syndrome {syndrome} ({})", other.text));
    }
    record.parts.insert("event".into(), json!(event));
    let why = match syndrome.map(CqErrorSyndrome) {
        Some(CqErrorSyndrome::CQ_OVERRUN) => "overflowed: more completions came than it has room for",
        Some(CqErrorSyndrome::CQ_ACCESS_VIOLATION_ERROR) => {
            "could not be written: the device may not reach its memory"
        }
        _ => "died",
    };
    record.says = format!(
        "Completion queue {} {why}. Every queue pair on it is dead too; to a program it looks like a hang.",
        shown.join(", ")
    );
    if syndrome.map(CqErrorSyndrome) == Some(CqErrorSyndrome::CQ_OVERRUN) {
        record.causes.push(Cause {
            text: "more work posted than the completion queue holds: nothing in verbs prevents that",
            source: "ofiwg/libfabric 4525, pulls 4913, 5500; openucx/ucx pull 7143",
        });
        record.causes.push(Cause {
            text: "the consumer index told to the device late, after the space was given out again",
            source: "Linux, fix of 1880bc4e4a96 (port timestamp CQ)",
        });
        record.check.push(
            "depth of the completion queue against what all its queues can have outstanding".to_owned(),
        );
    } else {
        record.check.push("IO_PAGE_FAULT or DMAR lines in dmesg; whether the memory was freed".to_owned());
    }
    record.check.extend(event_of_type(EventType::CQ_ERROR).map(|event| event.check.to_owned()));
    Some(Hit { start, end, lines, record })
}

/// A syndrome's name, and what the other would be.
fn name(syndrome: CqErrorSyndrome) -> String {
    let others = CqErrorSyndrome::TABLE.1.iter().filter(|(_, bits)| *bits != u64::from(syndrome.0));
    let others: Vec<String> = others.map(|(name, bits)| format!("{bits} would be {name}")).collect();
    format!("{} ({})", syndrome.name().unwrap_or("unknown"), others.join(", "))
}
