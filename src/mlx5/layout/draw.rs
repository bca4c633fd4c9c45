//! A structure drawn as a Markdown table, as `docs/prm-notes` shows it.

use super::{Desc, Field, Kind};
use core::fmt;

impl Desc {
    /// Draws the structure as a Markdown table: every bit once, reserved ones included.
    pub fn draw(&self) -> Drawing<'_> {
        Drawing { desc: self }
    }

    /// The field with the lowest place that ends after `bit`.
    fn next_field(&self, bit: usize) -> Option<&Field> {
        self.fields
            .iter()
            .filter(|field| field.bit_offset + field.bit_width > bit)
            .min_by_key(|field| (field.bit_offset, field.bit_width))
    }
}

/// A structure as a Markdown table: see [`Desc::draw`].
#[derive(Debug, Clone, Copy)]
pub struct Drawing<'a> {
    desc: &'a Desc,
}

impl fmt::Display for Drawing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "`{}` · `{}` · {} bytes", self.desc.name, self.desc.prm, self.desc.size_bytes)?;
        writeln!(f, "\n| Offset | Bits | Field | What |\n|---|---|---|---|")?;
        let (mut bit, end) = (0, self.desc.size_bytes * 8);
        while let Some(field) = self.desc.next_field(bit) {
            reserved(f, bit, field.bit_offset)?;
            row(f, field)?;
            bit = field.bit_offset + field.bit_width;
        }
        reserved(f, bit, end)
    }
}

/// The row of one field.
fn row(f: &mut fmt::Formatter<'_>, field: &Field) -> fmt::Result {
    match field.kind {
        Kind::Bits { .. } => {
            let (hi, lo) = field.hi_lo();
            write!(f, "| 0x{:02x} | {hi}:{lo} | `{}` |", field.dword_offset_bytes(), field.name)?;
        }
        Kind::Bytes | Kind::Struct(_) => {
            let bytes = field.bit_width / 8;
            write!(f, "| 0x{:02x} | {bytes} bytes | `{}` |", field.bit_offset / 8, field.name)?;
        }
    }
    if let Kind::Struct(desc) = field.kind {
        write!(f, " `{}`.", desc.name)?;
    }
    for line in field.doc.lines().map(str::trim).filter(|line| !line.is_empty()) {
        write!(f, " ")?;
        plain(f, line)?;
    }
    writeln!(f, " |")
}

/// A line of documentation, of whose links only the text is kept: their targets mean nothing outside rustdoc.
fn plain(f: &mut fmt::Formatter<'_>, line: &str) -> fmt::Result {
    let mut rest = line;
    while let Some((before, after)) = rest.split_once('[') {
        let Some((text, after)) = after.split_once(']') else { break };
        write!(f, "{before}{text}")?;
        rest = match after.strip_prefix('(').and_then(|target| target.split_once(')')) {
            Some((_, after)) => after,
            None => after,
        };
    }
    write!(f, "{rest}")
}

/// Rows for the bits from `bit` to `end` that no field covers: one for the rest of a dword, one for whole dwords.
fn reserved(f: &mut fmt::Formatter<'_>, mut bit: usize, end: usize) -> fmt::Result {
    while bit < end {
        if bit.is_multiple_of(32) && end - bit >= 32 {
            let bytes = (end - bit) / 32 * 4;
            writeln!(f, "| 0x{:02x} | {bytes} bytes | – | |", bit / 8)?;
            bit += bytes * 8;
        } else {
            let width = (end - bit).min(32 - bit % 32);
            let hi = 31 - bit % 32;
            writeln!(f, "| 0x{:02x} | {hi}:{} | – | |", bit / 32 * 4, hi + 1 - width)?;
            bit += width;
        }
    }
    Ok(())
}
