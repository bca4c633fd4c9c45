//! The rows of a dump, gathered from the lines in sight.

use super::row::{self, ROW_BYTES, Row};
use crate::text::Line;

/// Bytes that were dumped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Dump {
    /// The bytes, in memory order.
    pub(super) bytes: Vec<u8>,
    /// Lines that they stand in, as indices into the lines in sight.
    pub(super) taken: Vec<usize>,
    /// What of the last line is behind the dump: the next log line, where the two are stuck together.
    pub(super) glued: Option<String>,
    /// How it is written.
    pub(super) shape: Shape,
}

/// How a dump is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    /// Bytes of one word.
    pub(super) word_bytes: usize,
    /// Whether each row says where it belongs.
    pub(super) has_offsets: bool,
    /// Whether the bytes of each word were reversed, to be as in memory.
    pub(super) is_swapped: bool,
}

/// Lines of something else that may stand between two rows that belong together by their looks alone.
const MAX_STRANGERS: usize = 3;
/// Most bytes of one dump: a mailbox chain of a long command.
const MAX_BYTES: usize = 16 * 1024;

/// Gathers the dump that begins in `lines[first]`. `want_bytes` is how many there should be, if it is known.
pub(super) fn gather(lines: &[Line], first: usize, want_bytes: Option<usize>) -> Option<Dump> {
    let start = lines.get(first)?.row()?;
    let mut rows = vec![(first, start)];
    let mut most_bytes = start.bytes.len();
    let want = want_bytes.unwrap_or(MAX_BYTES);
    let mut strangers = 0;
    let mut starts_passed = 0;
    for (at, line) in lines.iter().enumerate().skip(first + 1) {
        // Rows may overlap: how many bytes they have in all is counted when it can be enough.
        if most_bytes >= want && n_bytes(&rows) >= want || glued(lines, &rows).is_some() {
            break;
        }
        let head = rows[0].1;
        let has_offsets = head.offset.is_some();
        if line.text.trim_matches(|c: char| c == '>' || c.is_whitespace()).is_empty() {
            continue;
        }
        match line.row() {
            Some(row) if follows(&rows, row) => {
                // A row that was passed over began another dump: then both should go on here.
                if starts_passed > 0 && !has_more_alike(&lines[at..], row, starts_passed) {
                    break;
                }
                most_bytes += row.bytes.len();
                rows.push((at, row));
                strangers = 0;
            }
            // Another dump's: the two are written at once.
            Some(row) if !row.has_key_of(head) && row.bytes.len() >= 8 => {}
            Some(row) if has_offsets && row.offset.is_some() => {
                starts_passed += usize::from(row.offset.map(|o| o.hex) == head.offset.map(|o| o.hex));
            }
            _ => {
                let is_next = line.is_header() && row::key(&line.text).starts_with(&head.key);
                if is_next && !has_offsets {
                    break;
                }
                strangers += 1;
                if strangers > MAX_STRANGERS || want_bytes.is_none() && !has_offsets {
                    break;
                }
            }
        }
    }
    Some(assemble(lines, &rows))
}

/// Whether `row` is the next of a dump's rows.
fn follows(rows: &[(usize, &Row)], row: &Row) -> bool {
    let (head, last) = (rows[0].1, rows[rows.len() - 1].1);
    if !row.has_key_of(head) || row.word_bytes != head.word_bytes {
        return false;
    }
    let (Some(base), Some(here)) = (head.offset, row.offset) else {
        // The rest of a row that was wrapped.
        let is_rest = head.offset.is_some()
            && row.offset.is_none()
            && row.is_alone
            && last.bytes.len() + row.bytes.len() <= ROW_BYTES + 1;
        return is_rest || head.offset.is_none() && row.offset.is_none();
    };
    let rows_since = || rows.iter().rev().take_while(|(_, row)| row.offset.is_none());
    let last_offset = rows.iter().rev().find_map(|(_, row)| row.offset).map_or(base.hex, |offset| offset.hex);
    let len = rows_since().map(|(_, row)| row.bytes.len()).sum::<usize>()
        + rows.iter().rev().find(|(_, row)| row.offset.is_some()).map_or(0, |(_, row)| row.bytes.len());
    let step = here.hex.wrapping_sub(last_offset);
    let is_hex_step = step <= len as u64 && step > 0 && step as usize + ROW_BYTES > len;
    is_hex_step || is_octal_step(rows, row)
}

/// `od` counts in octal.
fn is_octal_step(rows: &[(usize, &Row)], row: &Row) -> bool {
    let (Some(last), Some(here)) = (rows[rows.len() - 1].1.offset, row.offset) else { return false };
    let (Some(from), Some(to)) = (last.octal, here.octal) else { return false };
    !here.has_colon && to.wrapping_sub(from) == rows[rows.len() - 1].1.bytes.len() as u64
}

/// Whether more than `n` rows among `lines` have the same place in a dump of the same key.
fn has_more_alike(lines: &[Line], row: &Row, n: usize) -> bool {
    let offset = |row: &Row| row.offset.map(|offset| offset.hex);
    let rows = lines.iter().filter_map(Line::row);
    rows.filter(|other| offset(other) == offset(row) && other.has_key_of(row)).nth(n).is_some()
}

fn n_bytes(rows: &[(usize, &Row)]) -> usize {
    lengths(rows).iter().sum()
}

/// How many bytes of each row belong to the dump: where offsets tell, no more than up to the next row.
fn lengths(rows: &[(usize, &Row)]) -> Vec<usize> {
    let mut lengths: Vec<_> = rows.iter().map(|(_, row)| row.bytes.len()).collect();
    let mut at = 0;
    while at < rows.len() {
        // A row and the rests of it that were wrapped.
        let mut end = at + 1;
        while end < rows.len() && rows[at].1.offset.is_some() && rows[end].1.offset.is_none() {
            end += 1;
        }
        if let Some(here) = rows[at].1.offset {
            let step =
                rows.get(end).and_then(|(_, next)| next.offset).map(|next| next.hex.wrapping_sub(here.hex));
            let full = match step {
                Some(step) => step as usize,
                None if rows[at].1.bytes.len() == ROW_BYTES + 1 => ROW_BYTES,
                // The last row: as long as the first.
                None => lengths[0].max(ROW_BYTES),
            };
            let mut left = full;
            for length in &mut lengths[at..end] {
                *length = (*length).min(left);
                left -= *length;
            }
        }
        at = end;
    }
    lengths
}

fn assemble(lines: &[Line], rows: &[(usize, &Row)]) -> Dump {
    let head = rows[0].1;
    let mut bytes: Vec<u8> =
        rows.iter().zip(lengths(rows)).flat_map(|((_, row), len)| row.bytes[..len].iter().copied()).collect();
    // hexdump and od print the machine's words, behind offsets of 7 digits without a colon; gdb's words come with 0x.
    let is_swapped = matches!(head.word_bytes, 2 | 4 | 8)
        && head.offset.is_some_and(|offset| !offset.has_colon && offset.n_digits == 7);
    if is_swapped {
        for word in bytes.chunks_exact_mut(head.word_bytes) {
            word.reverse();
        }
    }
    bytes.truncate(MAX_BYTES);
    Dump {
        bytes,
        taken: rows.iter().map(|(at, _)| *at).collect(),
        glued: glued(lines, rows),
        shape: Shape { word_bytes: head.word_bytes, has_offsets: head.offset.is_some(), is_swapped },
    }
}

/// What stands behind the last row in its line, if it is a log line.
fn glued(lines: &[Line], rows: &[(usize, &Row)]) -> Option<String> {
    let (at, row) = rows.last()?;
    let per_row = if row.word_bytes == 4 { 4 } else { ROW_BYTES / row.word_bytes.clamp(1, ROW_BYTES) };
    let end = *row.word_ends.get(per_row.checked_sub(1)?)?;
    let rest = lines[*at].text.get(end..)?;
    // An ASCII column, a 17th byte and a comma have something between.
    let is_log_line =
        rest.starts_with('[') && rest.len() > 8 || rest.starts_with(|c: char| c.is_alphanumeric());
    is_log_line.then(|| rest.to_owned())
}
