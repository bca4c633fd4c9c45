//! Lines that cannot begin a record, told cheaply: most of a log.

use aho_corasick::AhoCorasick;
use std::sync::LazyLock;

/// The lines above dumps have one of these, and CQEs in JSON.
const HEADERS: &[&str] = &[
    "\"cqe",
    "got completion with error",
    "dump error cqe",
    "wc error:",
    "rror cqe on",
    "wqe dump",
    "dump command",
    "mlx5 error ",
];

/// Hexadecimal digits in groups of one width, at least, in a line of a dump.
const LEAST_DIGITS: usize = 16;

/// What can begin in a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Marks {
    /// A dump with the line that announces it, or CQEs in JSON.
    pub(super) is_header: bool,
    /// A dump that nothing announces.
    pub(super) is_dump: bool,
    /// An error line.
    pub(super) is_message: bool,
}

impl Marks {
    /// Whether anything can.
    pub(super) fn any(self) -> bool {
        self.is_header || self.is_dump || self.is_message
    }
}

/// Every line that a record begins with, but for hexdumps, has one of these, in whatever case.
static FOUND: LazyLock<AhoCorasick> = LazyLock::new(|| {
    let words = HEADERS.iter().copied().chain(super::line::keywords());
    AhoCorasick::builder().ascii_case_insensitive(true).build(words).expect("a few words")
});

/// What can begin in `line`.
pub(super) fn marks(line: &[u8]) -> Marks {
    let (mut is_header, mut is_message) = (false, false);
    for word in FOUND.find_overlapping_iter(line) {
        let is_of_header = word.pattern().as_usize() < HEADERS.len();
        is_header |= is_of_header;
        is_message |= !is_of_header;
    }
    Marks { is_header, is_dump: may_be_dump(line), is_message }
}

/// Whether `line` may begin a record: what [`marks`] says, at the first sign of it.
pub(super) fn may_begin(line: &[u8]) -> bool {
    FOUND.is_match(line) || may_be_dump(line)
}

/// Whether `line` has groups of hexadecimal digits as a dump has.
fn may_be_dump(line: &[u8]) -> bool {
    // Digits of the groups so far, and of the group that is read; `None` in a word that is no group.
    let (mut total, mut width) = (0, 0);
    let mut group = Some(0);
    for &byte in line.iter().chain(b" ") {
        if byte.is_ascii_hexdigit() {
            group = group.map(|n| n + 1);
        } else if byte == b'x' && matches!(group, Some(0 | 1)) {
            group = Some(0);
        } else if byte.is_ascii_alphanumeric() || byte == b'_' {
            group = None;
        } else {
            match group {
                Some(0) => {}
                Some(n) if n == 2 || n == 4 || n == 8 || n == 16 || n >= 32 => {
                    total = if n == width { total + n } else { n };
                    width = n;
                    if total >= LEAST_DIGITS {
                        return true;
                    }
                }
                _ => total = 0,
            }
            group = Some(0);
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_of_a_log_is_passed_over() {
        for dump in [
            "00000000: 00 00 00 00 00 00 88 13",
            "[ 1.5] 00000000 00008813 08006214 0000f6d2",
            "0x00,0x01,0x02,0x03,0x04,0x05,0x06,0x07",
            "\\x00\\x01\\x02\\x03\\x04\\x05\\x06\\x07",
            "0123456789abcdef0123456789abcdef",
        ] {
            assert!(may_begin(dump.as_bytes()) && marks(dump.as_bytes()).is_dump, "{dump}");
        }
        for other in [
            "2026-10-03T05:56:38-0400 host01 systemd[1]: Started Session 12 of user root.",
            "[   12.345678] usb 1-1: new high-speed USB device number 2 using xhci_hcd",
            "550e8400-e29b-41d4-a716-446655440000",
            "link/ether 02:00:00:00:00:01 brd ff:ff:ff:ff:ff:f",
        ] {
            assert!(!may_begin(other.as_bytes()) && !marks(other.as_bytes()).any(), "{other}");
        }
    }
}
