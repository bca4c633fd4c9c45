//! What was found: one thing that a device or a program said, explained.

use crate::facts::{self, Cause};
use mlx5_direct::{cqe::CqeSyndrome, mlx5::layout::Desc};
use serde_json::{Map, Value};
use std::ops::RangeInclusive;

/// One thing that a device or a program said, explained.
#[derive(Debug, Clone)]
pub struct Record {
    /// The form in which it was written, as `kernel dump` or `UCX line`.
    pub form: &'static str,
    /// Lines of the input, from 1.
    pub lines: RangeInclusive<u64>,
    /// Its fields as `--json` has them: `cqe`, `wqe`, `completion`, `commands` (lists), `health`, `event` and others.
    pub parts: Map<String, Value>,
    /// The structures whose bytes are there, for people.
    pub structures: Vec<Structure>,
    /// In one sentence.
    pub says: String,
    /// Causes that public reports support.
    pub causes: Vec<Cause>,
    /// What to look at next.
    pub check: Vec<String>,
    /// What of the text misleads: stale fields, a wrong name for a number, decimals that look like hex.
    pub corrections: Vec<String>,
    /// Whose error it is, if it is a failed completion: by it the first error is told from what follows.
    pub failure: Option<Failure>,
    /// Why this is not mlx5's, if it is not.
    pub refused: Option<String>,
}

impl Record {
    /// A record of which nothing is known yet but its form and place.
    pub fn new(form: &'static str, lines: RangeInclusive<u64>) -> Self {
        Self {
            form,
            lines,
            parts: Map::new(),
            structures: Vec::new(),
            says: String::new(),
            causes: Vec::new(),
            check: Vec::new(),
            corrections: Vec::new(),
            failure: None,
            refused: None,
        }
    }

    /// Adds what is known of a failure's causes, and what to look at next.
    pub(crate) fn blame(&mut self, syndrome: CqeSyndrome, vendor: u8) {
        self.causes = facts::causes_of(syndrome, Some(vendor));
        self.check = facts::checks_of(syndrome).iter().map(|check| (*check).to_owned()).collect();
    }

    /// Adds `value` to the list `part`.
    pub fn push(&mut self, part: &str, value: Value) {
        if let Value::Array(list) = self.parts.entry(part).or_insert_with(|| Value::Array(Vec::new())) {
            list.push(value);
        }
    }
}

/// Bytes, and the structure that they are.
#[derive(Debug, Clone)]
pub struct Structure {
    /// What it is here: `CQE`, `control segment`, `data segment 2`.
    pub title: String,
    /// Where it begins in what was dumped, in bytes.
    pub offset_bytes: usize,
    /// Its layout.
    pub desc: &'static Desc,
    /// Its bytes: as many as the layout has.
    pub bytes: Vec<u8>,
}

/// A failed completion's place among others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Who failed: a queue pair's number if it is told, or whatever the text names.
    pub queue: Option<String>,
    /// Whether the request was only flushed, after an earlier error.
    pub is_flush: bool,
}
