//! Records in pasted text: whole logs, mails, issues.
//!
//! The text is read once, with a few lines of sight, in constant memory.

mod window;

pub use window::{Line, Window};

use crate::record::Record;

/// What a reader found at the window's first line.
#[derive(Debug, Clone)]
pub struct Found {
    /// What it is.
    pub record: Record,
    /// Lines that belong to it, the window's first among them: 1 at least.
    pub n_lines: usize,
}

/// One form of text: whether what begins at the window's first line is of it.
pub type Reader = fn(&Window<'_>) -> Option<Found>;
