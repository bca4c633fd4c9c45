//! Text over line ends: what mail and terminals wrap, and what mail quotes.

use crate::text::Window;
use regex::{Captures, Regex};
use std::ops::Range;

/// Lines over which one message may be wrapped.
const MOST_LINES: usize = 6;
/// What of a line is looked at. Messages of drivers are shorter, and a reader must not be slow on others.
const MOST_BYTES: usize = 4096;

/// Lines that mail wraps are longer.
const LEAST_WRAPPED: usize = 36;
/// Words with which a message about a completion goes on, and none begins.
const GOES_ON: &[&str] = &[
    "number",
    "for",
    "error",
    "err",
    "vendor",
    "vendor_err",
    "vend_err",
    "wr_id",
    "wrid",
    "opcode",
    "qp_idx",
    "qp_num",
    "qpn",
    "len",
    "byte_len",
];

/// How lines hang together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Join {
    /// Wrapped at a blank, as mail does.
    Blank,
    /// Cut wherever the line was full, as terminals do.
    Cut,
}

/// The window's first lines as one text.
#[derive(Debug)]
pub(super) struct View {
    /// The text. Lines that hang together by blanks have a line end between them.
    pub(super) text: String,
    /// Where each line begins in `text`.
    starts: Vec<usize>,
}

impl View {
    /// The first lines of a window, joined.
    pub(super) fn new(window: &Window<'_>, join: Join) -> Self {
        let mut view = Self { text: String::new(), starts: Vec::new() };
        for line in window.lines.iter().take(MOST_LINES) {
            if join == Join::Blank && !view.starts.is_empty() {
                view.text.push('\n');
            }
            view.starts.push(view.text.len());
            view.text.push_str(bare(&line.text));
        }
        view
    }

    /// Where the first line ends.
    pub(super) fn first_end(&self) -> usize {
        self.starts.get(1).copied().unwrap_or(self.text.len())
    }

    /// The line that a byte of the text is in.
    pub(super) fn line_of(&self, at: usize) -> usize {
        self.starts.partition_point(|start| *start <= at).saturating_sub(1)
    }

    /// Where the line ends that a place is in.
    pub(super) fn line_end(&self, at: usize) -> usize {
        self.starts.get(self.line_of(at) + 1).copied().unwrap_or(self.text.len())
    }

    /// The lines that a piece of the text is in.
    pub(super) fn lines_of(&self, piece: &Range<usize>) -> Vec<usize> {
        (self.line_of(piece.start)..=self.line_of(piece.end.saturating_sub(1).max(piece.start))).collect()
    }

    /// The text of the line that a place is in.
    pub(super) fn line_around(&self, at: usize) -> &str {
        self.line(self.line_of(at)).trim_end_matches('\n')
    }
}

impl View {
    /// The lines that a piece of the text is in, and the next two as far as they only go on with them.
    pub(super) fn message_around(&self, piece: &Range<usize>) -> Range<usize> {
        let lines = self.lines_of(piece);
        let (first, mut last) = (lines.first().copied().unwrap_or(0), lines.last().copied().unwrap_or(0));
        for next in last + 1..last + 3 {
            let mut words = self.line(next).split_whitespace();
            let goes_on = match words.next() {
                Some("status") => words.next() == Some("number"),
                Some(word) => {
                    GOES_ON.contains(&word.trim_end_matches([':', '=']).split('=').next().unwrap_or(""))
                }
                None => false,
            };
            // Lines that are not full were not wrapped.
            if !goes_on || (first..=last).all(|place| self.line(place).len() < LEAST_WRAPPED) {
                break;
            }
            last = next;
        }
        let end = self.starts.get(last + 1).copied().unwrap_or(self.text.len());
        self.starts.get(first).copied().unwrap_or(0)..end
    }

    fn line(&self, place: usize) -> &str {
        let start = self.starts.get(place).copied().unwrap_or(self.text.len());
        let end = self.starts.get(place + 1).copied().unwrap_or(self.text.len());
        self.text.get(start..end).unwrap_or("")
    }
}

/// A line without quoting marks, ends and colours.
pub(super) fn bare(line: &str) -> &str {
    let mut bare = line.trim_end_matches(['\r', '\n', ' ', '\t', '\\']);
    loop {
        let cut = bare.trim_start_matches([' ', '\t', '\u{a0}']);
        let cut = cut.strip_prefix('>').or_else(|| cut.strip_prefix("| ")).unwrap_or(cut);
        if cut.len() == bare.len() {
            break;
        }
        bare = cut;
    }
    let mut end = bare.len().min(MOST_BYTES);
    while !bare.is_char_boundary(end) {
        end -= 1;
    }
    &bare[..end]
}

/// A pattern in which a blank stands for blanks and line ends, and ` ?` for any number of them.
pub(super) fn regex_of(text: &str) -> Regex {
    match Regex::new(&text.replace(" ?", r"\s*").replace(' ', r"\s+")) {
        Ok(regex) => regex,
        Err(error) => unreachable!("patterns are constants, each tried by the tests: {error}"),
    }
}

/// A pattern that is made once.
macro_rules! pattern {
    ($text:expr) => {{
        static PATTERN: std::sync::LazyLock<regex::Regex> =
            std::sync::LazyLock::new(|| $crate::text::line::view::regex_of($text));
        &*PATTERN
    }};
}
pub(super) use pattern;

/// What a pattern has caught, by name.
pub(super) fn caught<'t>(captures: &Captures<'t>, name: &str) -> Option<&'t str> {
    captures.name(name).map(|found| found.as_str())
}

/// A number with or without `0x`: hexadecimal if it has it or a letter.
pub(super) fn number(text: &str) -> Option<u64> {
    if let Some(hex) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        return u64::from_str_radix(hex, 16).ok();
    }
    text.parse().ok().or_else(|| u64::from_str_radix(text, 16).ok())
}

/// A hexadecimal number, with `0x` or without.
pub(super) fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text.trim_start_matches("0x").trim_start_matches("0X"), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Line;

    fn lines(texts: &[&str]) -> Vec<Line> {
        (1..).zip(texts).map(|(number, text)| Line::new(number, (*text).to_owned())).collect()
    }

    #[test]
    fn every_pattern_of_the_families_is_one() {
        let literal = Regex::new(r#"pattern!\(\s*r"([^"]*)""#).unwrap();
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/text/line");
        let mut n_patterns = 0;
        for file in std::fs::read_dir(folder).unwrap() {
            let source = std::fs::read_to_string(file.unwrap().path()).unwrap();
            for captures in literal.captures_iter(&source) {
                regex_of(&captures[1]);
                n_patterns += 1;
            }
        }
        assert!(n_patterns > 60, "{n_patterns}");
    }

    #[test]
    fn quotes_ends_and_blanks_go() {
        assert_eq!(bare("> >  > mlx5: x \r\n"), "mlx5: x");
        assert_eq!(bare("| mlx5"), "mlx5");
        assert_eq!(bare(&"é".repeat(4000)).len(), MOST_BYTES);
        assert_eq!(bare(""), "");
    }

    #[test]
    fn places_lead_back_to_lines() {
        let lines = lines(&["ab cd", "> ef", "gh"]);
        let view = View::new(&Window { lines: &lines }, Join::Blank);
        assert_eq!(view.text, "ab cd\nef\ngh");
        let found = regex_of("cd ef").find(&view.text).unwrap().range();
        assert_eq!(view.lines_of(&found), [0, 1]);
        assert_eq!(view.line_around(found.start), "ab cd");
        let view = View::new(&Window { lines: &lines }, Join::Cut);
        assert_eq!(view.text, "ab cdefgh");
        assert_eq!(view.lines_of(&(7..8)), [2]);
    }
}
