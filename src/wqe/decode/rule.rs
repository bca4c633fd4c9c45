//! The rules of a send WQE's make-up, and what is said of one that breaks them.

use crate::wqe::SendOpcode;
use core::fmt;

/// A WQE that breaks a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodeError {
    /// Where, in bytes from the start of the WQE.
    pub at_bytes: usize,
    /// Which rule.
    pub rule: Rule,
}

/// The rules of a send WQE's make-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// The bytes go on to the WQE's end.
    Truncated {
        /// Bytes of the WQE.
        need: usize,
        /// Bytes given.
        have: usize,
    },
    /// `ds` counts the control segment.
    NoDs,
    /// `ds` covers the segments that the opcode has.
    TooShort {
        /// The operation.
        opcode: SendOpcode,
        /// Segments there.
        ds: usize,
        /// Segments needed.
        min_ds: usize,
    },
    /// A NOP is its control segment.
    NopWithSegments,
    /// Inline data end where the WQE does or before.
    InlineLength {
        /// Bytes of inline data.
        len_bytes: usize,
        /// Bytes of the WQE behind the header.
        room_bytes: usize,
    },
    /// Data that arrive go to memory.
    InlineTarget,
    /// An atomic brings as many bytes as its operands have: 8, or 4 of some under masks.
    AtomicLength {
        /// Bytes of its data segment.
        len_bytes: u32,
        /// Bytes of its operands.
        wanted: u32,
    },
    /// An atomic has one data segment.
    AtomicSegments,
    /// The head of a frame ends where the WQE does or before.
    HeaderLength {
        /// Bytes of the head.
        len_bytes: usize,
        /// Bytes of the WQE from the head's first byte on.
        room_bytes: usize,
    },
    /// The translation list of a UMR ends where the WQE does or before.
    ListLength {
        /// Octowords of the list, or of the one segment that names it.
        n_octowords: usize,
        /// Octowords of the WQE behind the key's context.
        room_octowords: usize,
    },
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WQE byte 0x{:02x}: ", self.at_bytes)?;
        match self.rule {
            Rule::Truncated { need, have } => {
                write!(f, "ds says {need} bytes, but only {have} are there")
            }
            Rule::NoDs => f.write_str("ds is 0, but counts the control segment too: at least 1"),
            Rule::TooShort { opcode, ds, min_ds } => {
                write!(f, "{opcode} has {ds} segments (ds), but needs at least {min_ds}")
            }
            Rule::NopWithSegments => f.write_str("a NOP has a control segment only: ds must be 1"),
            Rule::InlineLength { len_bytes, room_bytes } => {
                write!(f, "{len_bytes} bytes of inline data, but ds leaves room for {room_bytes}")
            }
            Rule::InlineTarget => f.write_str("inline data in an operation that brings data: name memory"),
            Rule::AtomicLength { len_bytes, wanted } => {
                write!(f, "an atomic brings {wanted} bytes, but its data segment names {len_bytes}")
            }
            Rule::HeaderLength { len_bytes, room_bytes } => {
                write!(f, "{len_bytes} bytes of the frame's head, but ds leaves room for {room_bytes}")
            }
            Rule::ListLength { n_octowords, room_octowords } => {
                write!(
                    f,
                    "a translation list of {n_octowords} octowords, but ds leaves room for {room_octowords}"
                )
            }
            Rule::AtomicSegments => f.write_str("an atomic has one data segment"),
        }
    }
}

impl core::error::Error for DecodeError {}
