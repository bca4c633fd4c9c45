//! What a driver must not do, by name.
//!
//! A card punishes these by silence, corruption or a dead queue; the model names them. A rule that a
//! stock driver (Linux mlx5, libmlx5) would break is a wrong rule.
#![forbid(unsafe_code)]

mod rule;

pub use rule::Rule;

use mlx5_direct::{
    mlx5::layout::{Desc, Layout},
    wqe::{CtrlSeg, decode},
};
use std::{fmt, time::Duration};

/// The queue that a violation is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    /// Send queue of a QP.
    Sq(u32),
    /// Receive queue of a QP.
    Rq(u32),
    /// Shared receive queue.
    Srq(u32),
    /// Completion queue.
    Cq(u32),
    /// Event queue.
    Eq(u32),
    /// Command queue.
    Cmd,
}

impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sq(n) => write!(f, "SQ of QP 0x{n:x}"),
            Self::Rq(n) => write!(f, "RQ of QP 0x{n:x}"),
            Self::Srq(n) => write!(f, "SRQ 0x{n:x}"),
            Self::Cq(n) => write!(f, "CQ 0x{n:x}"),
            Self::Eq(n) => write!(f, "EQ 0x{n:x}"),
            Self::Cmd => f.write_str("command queue"),
        }
    }
}

/// One broken rule, with all that is needed to find it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Which rule.
    pub rule: Rule,
    /// Which of the card's functions; set by the function.
    pub function: u8,
    /// When; set by the function.
    pub at: Duration,
    /// Which queue.
    pub queue: Option<Queue>,
    /// The counter or slot within the queue.
    pub index: Option<u32>,
    /// What was seen and what was expected, with the numbers.
    pub detail: String,
    /// The bytes concerned: a WQE, a doorbell, a command's input.
    pub bytes: Vec<u8>,
    /// The same in words, field by field, where they are of one structure.
    pub decoded: String,
}

impl Violation {
    /// A violation of `rule`; `detail` says what was seen and what was expected.
    pub fn new(rule: Rule, detail: impl Into<String>) -> Self {
        let (function, at) = (0, Duration::ZERO);
        Self {
            rule,
            function,
            at,
            queue: None,
            index: None,
            detail: detail.into(),
            bytes: Vec::new(),
            decoded: String::new(),
        }
    }

    /// On `queue`.
    #[must_use]
    pub fn on(mut self, queue: Queue) -> Self {
        self.queue = Some(queue);
        self
    }

    /// At counter or slot `index`.
    #[must_use]
    pub fn at_index(mut self, index: u32) -> Self {
        self.index = Some(index);
        self
    }

    /// With the bytes concerned.
    #[must_use]
    pub fn with_bytes(mut self, bytes: &[u8]) -> Self {
        self.bytes = bytes.to_vec();
        self
    }

    /// With the bytes concerned, which are of this structure.
    #[must_use]
    pub fn with_bytes_of(self, desc: &'static Desc, bytes: &[u8]) -> Self {
        let decoded =
            if bytes.len() >= desc.size_bytes { desc.explain(bytes).to_string() } else { String::new() };
        Self { decoded, ..self.with_bytes(bytes) }
    }

    /// With the bytes of a send WQE.
    #[must_use]
    pub fn with_wqe(self, bytes: &[u8]) -> Self {
        match decode(bytes) {
            Ok(wqe) => Self { decoded: wqe.to_string(), ..self.with_bytes(bytes) },
            // What breaks a rule may make no sense as a whole.
            Err(_) => self.with_bytes_of(CtrlSeg::DESC, bytes),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [function {}, {:?}", self.rule, self.function, self.at)?;
        if let Some(queue) = self.queue {
            write!(f, ", {queue}")?;
        }
        if let Some(index) = self.index {
            write!(f, ", index {index}")?;
        }
        write!(f, "]: {}. Rule: {} ({})", self.detail, self.rule.text(), self.rule.source())?;
        if !self.bytes.is_empty() {
            write!(f, "\n{}{}", crate::trace::Hexdump(&self.bytes), self.decoded)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_violation_says_all_it_knows() {
        let text = Violation::new(Rule::WqeIndexMatchesPosition, "wqe_index 7, position 8")
            .on(Queue::Sq(0x40))
            .at_index(8)
            .with_bytes(&[0, 0, 7, 10])
            .to_string();
        for part in ["WqeIndexMatchesPosition", "SQ of QP 0x40", "index 8", "wqe_index 7", "00 00 07 0a"] {
            assert!(text.contains(part), "{text}");
        }
    }
}
