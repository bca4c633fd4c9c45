//! The lines that a reader sees.

use super::{
    hex::{self, Row},
    prefilter::{self, Marks},
};
use std::cell::OnceCell;

/// A line of the input, without its end.
#[derive(Debug, Clone)]
pub struct Line {
    /// Its number, from 1.
    pub number: u64,
    /// Its text. What is no UTF-8 is replaced.
    pub text: String,
    // A line is in sight of every record that begins in the lines above it: what it is like is found out once.
    marks: OnceCell<Marks>,
    row: OnceCell<Option<Row>>,
    is_header: OnceCell<bool>,
}

impl Line {
    /// A line of which nothing is known yet.
    pub(crate) fn new(number: u64, text: String) -> Self {
        Self { number, text, marks: OnceCell::new(), row: OnceCell::new(), is_header: OnceCell::new() }
    }

    /// What can begin here.
    pub(super) fn marks(&self) -> Marks {
        *self.marks.get_or_init(|| prefilter::marks(self.text.as_bytes()))
    }

    /// The row of a hexdump in it.
    pub(super) fn row(&self) -> Option<&Row> {
        #[cfg(test)]
        work::add(1, 0);
        let read = || {
            #[cfg(test)]
            work::add(0, 1);
            hex::row(&self.text)
        };
        self.row.get_or_init(read).as_ref()
    }

    /// Whether it announces a dump.
    pub(super) fn is_header(&self) -> bool {
        *self.is_header.get_or_init(|| hex::is_header(&self.text))
    }
}

/// The line that is looked at and those behind it, as many as are in sight.
#[derive(Debug, Clone, Copy)]
pub struct Window<'a> {
    /// The lines, one at least.
    pub lines: &'a [Line],
}

impl<'a> Window<'a> {
    /// The line that is looked at.
    pub fn first(&self) -> &'a str {
        self.lines.first().map_or("", |line| &line.text)
    }
}

/// How much was done, for tests that hold it against the length of a text.
#[cfg(test)]
pub(super) mod work {
    use std::cell::Cell;

    thread_local! {
        static ROWS: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
    }

    /// Rows were asked for, and lines read for them.
    pub(super) fn add(n_asked: usize, n_read: usize) {
        ROWS.set((ROWS.get().0 + n_asked, ROWS.get().1 + n_read));
    }

    /// How many rows were asked for and how many lines read for them since the last time.
    pub(in crate::text) fn take() -> (usize, usize) {
        ROWS.take()
    }
}
