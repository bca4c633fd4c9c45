//! Which error of a log is the first, and which only follow from it.
//!
//! When a request fails its queue goes to error, and all that was posted is flushed: a log has one error to read and
//! hundreds that say nothing. They are told apart for each queue, in bounded memory.

use crate::record::{Failure, Record};
use serde_json::{Value, json};
use std::collections::{HashMap, VecDeque};

/// Queues that are remembered; the one that failed first is forgotten when there are more.
const MOST_QUEUES: usize = 4096;

/// Lines between a dump and what the program says of the same completion.
const NEAR_LINES: u64 = 16;
/// Failures that are remembered for that.
const MOST_NEAR: usize = 32;

/// A failed completion as one record has it: libmlx5 and the kernel dump it, and the program that polled it says so in its
/// own words.
#[derive(Debug)]
struct Told {
    is_dump: bool,
    first_line: u64,
    last_line: u64,
    status: u64,
    vendor: Option<u64>,
    queue: Option<String>,
}

impl Told {
    fn of(record: &Record, failure: &Failure) -> Option<Self> {
        let is_dump = matches!(record.form, "libmlx5 dump" | "kernel dump");
        let part = record.parts.get(if is_dump { "cqe" } else { "completion" })?.get(0)?;
        let vendor = part.get("vendor_err_synd").or_else(|| part.get("vendor_err")).and_then(Value::as_str);
        Some(Self {
            is_dump,
            first_line: *record.lines.start(),
            last_line: *record.lines.end(),
            status: part.get("ibv_wc_status_num")?.as_u64()?,
            vendor: vendor.and_then(|code| u64::from_str_radix(code.trim_start_matches("0x"), 16).ok()),
            // Others than the device's numbers name no queue that a dump could name.
            queue: failure.queue.clone().filter(|queue| queue.starts_with("0x")),
        })
    }

    /// Whether `self` tells the completion again that `before` told.
    fn is_again(&self, before: &Self) -> bool {
        let is_same_queue = match (&before.queue, &self.queue) {
            (Some(before), Some(queue)) => before == queue,
            // Words without a queue belong to the dump that they follow.
            _ => before.is_dump,
        };
        self.is_dump != before.is_dump
            && self.first_line.saturating_sub(before.last_line) <= NEAR_LINES
            && self.status == before.status
            && (self.vendor.is_none() || before.vendor.is_none() || self.vendor == before.vendor)
            && is_same_queue
    }
}

/// What failed so far.
#[derive(Debug, Default)]
pub struct Order {
    /// Line of each queue's first error that is no flush, if there was one.
    queues: HashMap<String, Option<u64>>,
    /// The queues in the order of their first failure.
    ages: VecDeque<String>,
    /// The last error that was no flush, of whatever queue.
    last: Option<u64>,
    /// The first one of the text.
    first: Option<u64>,
    n_errors: u64,
    n_flushes: u64,
    /// The last failures that are no flushes.
    near: VecDeque<Told>,
}

impl Order {
    /// Before any record.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next record of the text, and tells it its place.
    pub fn note(&mut self, record: &mut Record) {
        let Some(failure) = record.failure.clone() else { return };
        let line = *record.lines.start();
        if !failure.is_flush && self.again(record, &failure) {
            return;
        }
        let queue = failure.queue.clone().unwrap_or_default();
        let before = self.queues.get(&queue).copied().flatten();
        let n_flushed = record.parts.get("repeated").and_then(serde_json::Value::as_u64).unwrap_or(1);
        let who = if queue.is_empty() { String::new() } else { format!(" of {queue}") };
        let (role, cause, says) = if failure.is_flush {
            self.n_flushes += n_flushed;
            // Without a queue's name, whatever failed last is the best guess.
            let cause = before.or(if queue.is_empty() { self.last } else { None });
            let says = match cause {
                Some(cause) => format!("Flush noise: the error to read is at line {cause}"),
                None => format!(
                    "Flush noise, but no error{who} stands before it: look for it earlier, or in the peer's log"
                ),
            };
            ("flush", cause, says)
        } else {
            self.n_errors += 1;
            match before {
                Some(first) if queue.is_empty() => (
                    "later",
                    Some(first),
                    format!("An error before it, of this queue or another, is at line {first}"),
                ),
                Some(first) => {
                    ("later", Some(first), format!("Not the first error{who}: that is at line {first}"))
                }
                None => ("first", None, format!("The first error{who}: read this one")),
            }
        };
        if !failure.is_flush {
            self.last = Some(line);
            self.first = self.first.or(Some(line));
        }
        self.remember(queue, (!failure.is_flush).then_some(line));
        record.parts.insert("order".into(), json!({ "role": role, "first_error_line": cause }));
        record.says += &format!(" {says}.");
    }

    /// Whether a record tells a completion again that the one before it told: then it is no error of its own.
    fn again(&mut self, record: &mut Record, failure: &Failure) -> bool {
        let Some(told) = Told::of(record, failure) else { return false };
        if let Some(before) = self.near.iter().rev().find(|before| told.is_again(before)) {
            let line = before.first_line;
            let whose = if told.is_dump { "as the device wrote it" } else { "in the program's words" };
            record.says += &format!(" The same completion as at line {line}, {whose}.");
            record.parts.insert("order".into(), json!({ "role": "same", "first_error_line": line }));
            return true;
        }
        if self.near.len() == MOST_NEAR {
            self.near.pop_front();
        }
        self.near.push_back(told);
        false
    }

    /// What there was in all, if anything failed.
    pub fn summary(&self) -> Option<String> {
        let (errors, flushes) = (self.n_errors, self.n_flushes);
        match self.first {
            Some(first) => Some(format!(
                "Failed completions: {errors} to read, the first at line {first}, and {flushes} flushed after errors."
            )),
            None if flushes > 0 => Some(format!(
                "All {flushes} failed completions are flushes: the error that caused them is not in this text."
            )),
            None => None,
        }
    }

    fn remember(&mut self, queue: String, line: Option<u64>) {
        if !self.queues.contains_key(&queue) {
            if self.ages.len() == MOST_QUEUES
                && let Some(oldest) = self.ages.pop_front()
            {
                self.queues.remove(&oldest);
            }
            self.ages.push_back(queue.clone());
        }
        let first = self.queues.entry(queue).or_insert(None);
        *first = first.or(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Failure;

    fn failed(line: u64, queue: Option<&str>, is_flush: bool) -> Record {
        let mut record = Record::new("test", line..=line);
        record.failure = Some(Failure { queue: queue.map(str::to_owned), is_flush });
        record
    }

    fn roles(records: &[(u64, Option<&str>, bool)]) -> Vec<String> {
        let mut order = Order::new();
        let shown = records.iter().map(|(line, queue, is_flush)| {
            let mut record = failed(*line, *queue, *is_flush);
            order.note(&mut record);
            let first = &record.parts["order"]["first_error_line"];
            format!("{} {first}", record.parts["order"]["role"].as_str().unwrap_or(""))
        });
        shown.collect()
    }

    #[test]
    fn each_queue_has_its_own_first_error() {
        let (a, b) = (Some("0x1"), Some("0x2"));
        assert_eq!(
            roles(&[(1, a, false), (2, b, true), (3, a, true), (4, b, false), (5, b, true), (6, a, false)]),
            ["first null", "flush null", "flush 1", "first null", "flush 4", "later 1"]
        );
    }

    #[test]
    fn a_flush_of_an_unnamed_queue_follows_the_last_error_of_any() {
        assert_eq!(roles(&[(1, Some("0x1"), false), (2, None, true)]), ["first null", "flush 1"]);
        assert_eq!(roles(&[(1, None, true)]), ["flush null"]);
    }

    #[test]
    fn memory_is_bounded() {
        let mut order = Order::new();
        for line in 0..3 * MOST_QUEUES as u64 {
            order.note(&mut failed(line, Some(&format!("{line:#x}")), false));
        }
        assert_eq!((order.queues.len(), order.ages.len()), (MOST_QUEUES, MOST_QUEUES));
        assert!(order.summary().unwrap().contains("the first at line 0"));
        assert_eq!(Order::new().summary(), None);
    }
}
