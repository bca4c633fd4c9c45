//! The lines that a reader sees.

/// A line of the input, without its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Its number, from 1.
    pub number: u64,
    /// Its text. What is no UTF-8 is replaced.
    pub text: String,
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
