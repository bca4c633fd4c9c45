//! Records in pasted text: whole logs, mails, issues.
//!
//! The text is read once, with a few lines of sight, in constant memory: [`Finder`]. At each line that may begin a record
//! (`prefilter`) hexdumps are looked for (`hex`), then error lines (`line`).

mod clean;
mod finder;
mod hex;
pub mod line;
mod order;
mod prefilter;
mod vector;
mod window;

pub use finder::{Finder, Options};
pub use order::Order;
pub use window::{Line, Window};

use crate::record::Record;

/// What a reader found at the window's first line.
#[derive(Debug, Clone)]
pub struct Found {
    /// What it is.
    pub record: Record,
    /// Lines that belong to it, by their places in the window, in order. Lines between them are of somebody else: logs
    /// of two ports or processes are interleaved.
    pub taken: Vec<usize>,
}
