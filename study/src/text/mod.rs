//! Records in pasted text: whole logs, mails, issues.
//!
//! The text is read once, with a few lines of sight, in constant memory: [`Finder`]. At each line that may begin a record
//! (`prefilter`) hexdumps are looked for (`hex`), then each [`Reader`] is asked.

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

/// One form of text: what begins at the window's first line and is of it. Two records can be glued together on a line.
///
/// It is asked only at lines that have one of the words of `prefilter`, or hexadecimal as in a dump.
pub type Reader = fn(&Window<'_>) -> Vec<Found>;

/// All forms of text but hexdumps, in the order in which they are tried.
const READERS: &[Reader] = &[line::read];
