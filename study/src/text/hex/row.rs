//! One line of a hexdump: where its bytes are, and what stands before them.
//!
//! A dump is pasted with whatever the terminal, the logger and the mail program put around it, so a row is looked for anywhere
//! in a line: the longest run of hexadecimal words of one width, an offset in front of it, and a prefix that the rows of one
//! dump share.

use regex::Regex;
use std::sync::LazyLock;

/// One line of a hexdump.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::text) struct Row {
    /// What stands before it, without time stamps: the same in all rows of a dump.
    pub(super) key: String,
    /// The offset in front, as it is written.
    pub(super) offset: Option<Offset>,
    /// Bytes of one word.
    pub(super) word_bytes: usize,
    /// The bytes, in the order in which they are written.
    pub(super) bytes: Vec<u8>,
    /// Whether nothing but the row is in the line.
    pub(super) is_alone: bool,
    /// Where in the line each of its first words ends: as many as a row has, [`ROW_BYTES`] at most.
    pub(super) word_ends: Vec<usize>,
    /// Where in the line its first word begins, and its offset if there is one.
    pub(super) start: usize,
}

/// Bytes of a row where nothing tells otherwise.
pub(super) const ROW_BYTES: usize = 16;

impl Row {
    /// Whether the same stands before both.
    pub(super) fn has_key_of(&self, other: &Self) -> bool {
        // Most are empty, and an AVX-512 `memcmp` of no bytes at no address takes a hundred nanoseconds.
        self.key.len() == other.key.len() && (self.key.is_empty() || self.key == other.key)
    }
}

/// An offset in front of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::text) struct Offset {
    /// Its value, read as hexadecimal.
    pub(super) hex: u64,
    /// Its value, read as octal, as `od` writes it.
    pub(super) octal: Option<u64>,
    /// Whether a colon follows: `xxd` and the kernel write one, `hexdump` and `od` do not.
    pub(super) has_colon: bool,
    /// Digits.
    pub(super) n_digits: usize,
}

/// A word of letters and digits in a line.
#[derive(Debug, Clone, Copy)]
struct Word {
    start: usize,
    /// Its hexadecimal digits, without `0x`: `start..end` if it has none.
    digits_start: usize,
    end: usize,
    is_hex: bool,
}

impl Word {
    fn n_digits(&self) -> usize {
        self.end - self.digits_start
    }

    /// Whether it can be a group of bytes.
    fn is_bytes(&self) -> bool {
        let n = self.n_digits();
        self.is_hex && (matches!(n, 2 | 4 | 8 | 16) || n >= 32 && n.is_multiple_of(2))
    }
}

/// What loggers and mail programs put in front of a line.
static STAMP: LazyLock<Regex> = LazyLock::new(|| {
    let stamps = [
        r"\[\s*\+?\d+\.\d+\s*\]",
        r"\[(?:[A-Z][a-z]{2} )?[A-Z][a-z]{2} +\d+ \d\d:\d\d(?::\d\d)?(?: \d{4})?\]",
        r"\[?\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z| ?[-+]\d\d:?\d\d)?\]?",
        r"(?:[A-Z][a-z]{2} )?[A-Z][a-z]{2} +\d+ \d\d:\d\d:\d\d(?:[.,]\d+)?",
        r"\b\d\d:\d\d:\d\d(?:[.,]\d+)?(?: |$)",
        r"^[>|\s]+",
    ];
    Regex::new(&stamps.join("|")).expect("a regular expression")
});

/// What is left of a prefix without time stamps, quotes and the kernel's own mark of a dump.
pub(super) fn key(prefix: &str) -> String {
    let mut key = prefix.to_owned();
    loop {
        let next = STAMP.replace_all(&key, "").replace("cqe_dump:", "").trim().to_owned();
        if next == key {
            return key;
        }
        key = next;
    }
}

/// The row in `line`, if there is one.
pub(in crate::text) fn parse(line: &str) -> Option<Row> {
    let words = words(line);
    let (first, last) = longest_run(line, &words)?;
    let run = &words[first..=last];
    let mut bytes = Vec::new();
    for word in run {
        let digits = &line.as_bytes()[word.digits_start..word.end];
        bytes.extend(digits.chunks_exact(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])));
    }
    let offset = first.checked_sub(1).and_then(|before| offset(line, &words[before], run));
    let start = if offset.is_some() { words[first - 1].start } else { run[0].start };
    let mut word_ends: Vec<_> = run.iter().take(ROW_BYTES).map(|word| word.end).collect();
    let end = run[run.len() - 1].end;
    if let Some(glued) = words.get(last + 1)
        && let Some(digits) = glued_word(line, run, glued)
    {
        bytes.extend(digits.as_bytes().chunks_exact(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])));
        word_ends.push(glued.start + digits.len());
    }
    Some(Row {
        key: key(&line[..start]),
        offset,
        word_bytes: run[0].n_digits() / 2,
        bytes,
        is_alone: line[end..].trim().is_empty(),
        word_ends,
        start,
    })
}

fn digit(byte: u8) -> u8 {
    match byte {
        b'0'..=b'9' => byte - b'0',
        b'a'..=b'f' => byte - b'a' + 10,
        _ => byte.wrapping_sub(b'A').wrapping_add(10),
    }
}

fn words(line: &str) -> Vec<Word> {
    let bytes = line.as_bytes();
    let mut words = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        if !is_word(bytes[at]) {
            at += 1;
            continue;
        }
        let start = at;
        while at < bytes.len() && is_word(bytes[at]) {
            at += 1;
        }
        let word = &bytes[start..at];
        let skip = match word {
            [b'0', b'x' | b'X', _, ..] => 2,
            [b'x', _, ..] if start > 0 && bytes[start - 1] == b'\\' => 1,
            _ => 0,
        };
        let is_hex = word[skip..].iter().all(u8::is_ascii_hexdigit);
        words.push(Word { start, digits_start: start + skip, end: at, is_hex });
    }
    words
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// First and last word of the longest run of words of one width, with nothing but blanks and commas between them.
fn longest_run(line: &str, words: &[Word]) -> Option<(usize, usize)> {
    let mut best: Option<(usize, usize, usize)> = None;
    let mut first = 0;
    while first < words.len() {
        if !words[first].is_bytes() {
            first += 1;
            continue;
        }
        let n_digits = words[first].n_digits();
        let mut last = first;
        while last + 1 < words.len()
            && words[last + 1].is_bytes()
            && words[last + 1].n_digits() == n_digits
            && is_soft(&line[words[last].end..words[last + 1].start], n_digits)
        {
            last += 1;
        }
        let total = (last - first + 1) * n_digits;
        if best.is_none_or(|(_, _, most)| total >= most) {
            best = Some((first, last, total));
        }
        first = last + 1;
    }
    best.map(|(first, last, _)| (first, last))
}

/// Whether what is between two words leaves them in one run. Bytes may have colons or dashes between them, as in an address.
fn is_soft(between: &str, n_digits: usize) -> bool {
    match between {
        ":" | "-" => n_digits == 2,
        // hexdump and od leave a wider gap in the middle; `0x` words come with commas.
        _ => between.bytes().all(|byte| matches!(byte, b' ' | b'\t' | b',' | b'\\' | b'-')) && between != "-",
    }
}

/// The offset that `word` is, in front of `run`.
fn offset(line: &str, word: &Word, run: &[Word]) -> Option<Offset> {
    let between = &line[word.end..run[0].start];
    let has_colon = between.starts_with(':');
    let n_digits = word.n_digits();
    let is_offset = if has_colon {
        n_digits >= 3 && between.len() > 1
    } else {
        !between.is_empty() && matches!(n_digits, 6..=8 | 16) && n_digits != run[0].n_digits()
    };
    if !word.is_hex || n_digits > 16 || !is_offset || !between[usize::from(has_colon)..].trim().is_empty() {
        return None;
    }
    let digits = &line[word.digits_start..word.end];
    let hex = u64::from_str_radix(digits, 16).ok()?;
    Some(Offset { hex, octal: u64::from_str_radix(digits, 8).ok(), has_colon, n_digits })
}

/// The next log line stuck to a row's last word: what of `word` belongs to the row.
fn glued_word<'a>(line: &'a str, run: &[Word], word: &Word) -> Option<&'a str> {
    let n_digits = run[0].n_digits();
    let per_row = match n_digits {
        2 => 16,
        8 => 4,
        _ => return None,
    };
    let text = &line[word.start..word.end];
    let is_last = run.len() == per_row - 1 && is_soft(&line[run[run.len() - 1].end..word.start], n_digits);
    let digits = text.get(..n_digits)?;
    (is_last && text.len() > n_digits && digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
        .then_some(digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(line: &str) -> (String, Option<u64>, usize, usize) {
        let row = parse(line).unwrap();
        (row.key, row.offset.map(|offset| offset.hex), row.word_bytes, row.bytes.len())
    }

    #[test]
    fn rows_with_whatever_is_in_front_of_them() {
        let dwords = "00000000 00008813 08006214 0000f6d2";
        assert_eq!(row(dwords), (String::new(), None, 4, 16));
        assert_eq!(row(&format!("[  +0.000001] {dwords}")), (String::new(), None, 4, 16));
        assert_eq!(row(&format!("> > {dwords}")), (String::new(), None, 4, 16));
        assert_eq!(row(&format!("[1,3]<stderr>:{dwords}")), ("[1,3]<stderr>:".into(), None, 4, 16));
        let bytes = "00 00 00 00 00 00 88 13 08 03 61 b3 1e a1 42 d3";
        assert_eq!(row(&format!("[166755.334837] 00000030: {bytes}")), (String::new(), Some(0x30), 1, 16));
        assert_eq!(row(&format!("   cqe_dump: 00000030: {bytes}")), (String::new(), Some(0x30), 1, 16));
        assert_eq!(
            row(&format!("Nov  3 14:00:01 host01 kernel: [  12.5] 00000030: {bytes}")),
            ("host01 kernel:".into(), Some(0x30), 1, 16)
        );
        assert_eq!(row(&format!("00000030: {bytes} | ......S....4.Z..")), (String::new(), Some(0x30), 1, 16));
        assert_eq!(row("00000030  00 01 02 03 04 05 06 07  08 09 |.....|").3, 10);
        assert_eq!(row("0x00, 0x01, 0x02, 0x03"), (String::new(), None, 1, 4));
        assert_eq!(row("\\x00\\x01\\x02\\x03"), ("\\".into(), None, 1, 4));
        assert_eq!(parse("nothing of that kind"), None);
    }

    #[test]
    fn the_next_line_stuck_to_the_last_word() {
        let row = parse("00000000 00008813 08006214 0000f6d2mlx5: host02: got completion").unwrap();
        assert_eq!((row.bytes.len(), *row.word_ends.last().unwrap()), (16, 35));
        assert_eq!(parse("00000000 00008813 08006214 0000f6d2[149634.5] x").unwrap().bytes.len(), 16);
    }
}
