//! A tour as data: steps of text and bytes. Printed for people, or as JSON.

use mlx5_direct::mlx5::layout::{Field, Kind};
use mlx5_study::record::Structure;
use serde_json::{Value, json};
use std::{
    fmt::{self, Display, Write as _},
    io::{self, Write},
};

/// Columns of text.
const WIDTH: usize = 110;
/// Bytes of memory that are shown, and of anything else.
const MOST_BYTES_OF_MEMORY: usize = 64;
const MOST_BYTES: usize = 208;
/// Where a field's note begins.
const NOTE_COLUMN: usize = 60;

/// A whole tour.
#[derive(Debug)]
pub(super) struct Page {
    /// As on the command line.
    pub(super) name: &'static str,
    pub(super) title: String,
    /// All of it in some sentences.
    pub(super) short: &'static str,
    pub(super) steps: Vec<Step>,
}

/// One step.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) title: String,
    pub(super) parts: Vec<Part>,
}

/// What a step is made of.
#[derive(Debug)]
pub(super) enum Part {
    /// A paragraph.
    Says(String),
    /// Words, or names of things, and what they are.
    Table(Vec<(String, String)>),
    /// Lines that stand as they are.
    Drawn(Vec<String>),
    /// Bytes.
    Shows(Dump),
    /// What many take for true, and what is.
    Corrects { error: &'static str, truth: String },
}

/// Bytes, and what they are.
#[derive(Debug)]
pub(super) struct Dump {
    pub(super) title: String,
    pub(super) bytes: Vec<u8>,
    pub(super) structures: Vec<Shown>,
    /// Whether they are text, to be shown beside them.
    pub(super) is_text: bool,
}

/// A structure in a [`Dump`], with a note for each field that has something to say.
#[derive(Debug)]
pub(super) struct Shown {
    pub(super) structure: Structure,
    pub(super) notes: Vec<Option<String>>,
    /// In one line instead of field by field.
    pub(super) brief: Option<String>,
}

impl Step {
    pub(super) fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), parts: Vec::new() }
    }

    pub(super) fn says(mut self, text: impl Into<String>) -> Self {
        self.parts.push(Part::Says(text.into()));
        self
    }

    pub(super) fn with(mut self, parts: impl IntoIterator<Item = Part>) -> Self {
        self.parts.extend(parts);
        self
    }

    pub(super) fn corrects(mut self, error: &'static str, truth: impl Into<String>) -> Self {
        self.parts.push(Part::Corrects { error, truth: truth.into() });
        self
    }
}

impl Page {
    pub(super) fn print(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "{}\n{}", self.title, "=".repeat(self.title.chars().count()))?;
        writeln!(out, "{}", wrapped(self.short, "", ""))?;
        for (n, step) in self.steps.iter().enumerate() {
            let title = format!("{n}. {}", step.title);
            writeln!(out, "\n{title}\n{}", "-".repeat(title.chars().count()))?;
            step.parts.iter().try_for_each(|part| part.print(out))?;
        }
        Ok(())
    }

    pub(super) fn json(&self) -> Value {
        let steps = self.steps.iter().enumerate().map(|(n, step)| {
            let parts: Vec<_> = step.parts.iter().map(Part::json).collect();
            json!({ "step": n, "title": step.title, "parts": parts })
        });
        json!({ "tour": self.name, "title": self.title, "short": self.short, "steps": steps.collect::<Vec<_>>() })
    }
}

impl Part {
    fn print(&self, out: &mut impl Write) -> io::Result<()> {
        match self {
            Self::Says(text) => writeln!(out, "{}", wrapped(text, "", "")),
            Self::Table(rows) => {
                let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
                for (name, text) in rows {
                    let first = format!("  {name:<width$}  ");
                    writeln!(out, "{}", wrapped(text, &first, &" ".repeat(width + 4)))?;
                }
                Ok(())
            }
            Self::Drawn(lines) => {
                lines.iter().try_for_each(|line| writeln!(out, "{}", format!("  {line}").trim_end()))
            }
            Self::Shows(dump) => dump.print(out),
            Self::Corrects { error, truth } => {
                writeln!(out, "{}", wrapped(error, "  Often said: ", "              "))?;
                writeln!(out, "{}", wrapped(truth, "  What is so: ", "              "))
            }
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::Says(text) => json!({ "says": text }),
            Self::Table(rows) => {
                let rows: serde_json::Map<_, _> =
                    rows.iter().map(|(name, text)| (name.clone(), json!(text))).collect();
                json!({ "table": rows })
            }
            Self::Drawn(lines) => json!({ "drawn": lines }),
            Self::Shows(dump) => dump.json(),
            Self::Corrects { error, truth } => json!({ "error": error, "truth": truth }),
        }
    }
}

impl Dump {
    fn print(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "  {}:", self.title)?;
        let most = if self.is_text { MOST_BYTES_OF_MEMORY } else { MOST_BYTES };
        let n = self.bytes.len().min(most);
        for (line, bytes) in self.bytes[..n].chunks(16).enumerate() {
            let hex = bytes.iter().fold(String::new(), |text, byte| text + &format!(" {byte:02x}"));
            let text: String = bytes.iter().map(|byte| printable(*byte)).collect();
            match self.is_text {
                true => writeln!(out, "{}", format!("    {:04x} {hex:<48}  {text}", line * 16).trim_end())?,
                false => writeln!(out, "    {:04x} {hex}", line * 16)?,
            }
        }
        if n < self.bytes.len() {
            writeln!(out, "    and {} bytes more", self.bytes.len() - n)?;
        }
        self.structures.iter().try_for_each(|shown| shown.print(out))
    }

    fn json(&self) -> Value {
        let structures: Vec<_> = self.structures.iter().map(Shown::json).collect();
        json!({ "bytes": self.title, "hex": hex(&self.bytes), "structures": structures })
    }
}

impl Shown {
    fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let Structure { title, offset_bytes, desc, bytes } = &self.structure;
        let place = format!("  at 0x{offset_bytes:02x} {title}");
        if let Some(brief) = &self.brief {
            return writeln!(out, "{}", wrapped(brief, &format!("{place}: "), "      "));
        }
        match &*desc.prm.to_lowercase() {
            prm if title.to_lowercase().contains(prm) => writeln!(out, "{place}:")?,
            _ => writeln!(out, "{place} ({}):", desc.prm)?,
        }
        let mut zeros = Vec::new();
        for (field, note) in desc.fields.iter().zip(&self.notes) {
            let is_zero = matches!(field.kind, Kind::Bits { .. }) && desc.read(field, bytes) == 0;
            if is_zero && note.is_none() {
                zeros.push(field.name);
                continue;
            }
            let at = offset_bytes + field.dword_offset_bytes();
            let place = match field.kind {
                Kind::Bits { .. } => {
                    let (hi, lo) = field.hi_lo();
                    format!("    +0x{at:02x} [{hi:>2}:{lo:<2}] ")
                }
                _ => format!("    +0x{:02x}         ", offset_bytes + field.bit_offset / 8),
            };
            let mut row = format!("{place}{:<16} {}", field.name, value(field, &self.structure));
            let pad = NOTE_COLUMN.saturating_sub(row.chars().count()).max(2);
            let _ = write!(row, "{}", " ".repeat(pad));
            let line = wrapped(note.as_deref().unwrap_or(""), &row, &" ".repeat(NOTE_COLUMN));
            writeln!(out, "{}", line.trim_end())?;
        }
        if !zeros.is_empty() {
            writeln!(out, "{}", wrapped(&zeros.join(", "), "    zero: ", "          "))?;
        }
        Ok(())
    }

    fn json(&self) -> Value {
        let Structure { title, offset_bytes, desc, .. } = &self.structure;
        let fields = desc.fields.iter().zip(&self.notes).map(|(field, note)| {
            let (offset, place) = match field.kind {
                Kind::Bits { .. } => {
                    let (hi, lo) = field.hi_lo();
                    (field.dword_offset_bytes(), json!([hi, lo]))
                }
                _ => (field.bit_offset / 8, Value::Null),
            };
            json!({
                "name": field.name,
                "offset": offset_bytes + offset,
                "bits": place,
                "value": value(field, &self.structure),
                "note": note,
            })
        });
        json!({
            "title": title,
            "prm": desc.prm,
            "offset": offset_bytes,
            "fields": fields.collect::<Vec<_>>(),
        })
    }
}

/// A field's value as text. Of what is longer than a dword the decimal number tells nobody anything.
pub(super) fn value(field: &Field, structure: &Structure) -> String {
    struct Of<'a>(&'a Field, &'a Structure);
    impl Display for Of<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            let Self(field, structure) = self;
            let range = field.bit_offset / 8..(field.bit_offset + field.bit_width).div_ceil(8);
            match field.kind {
                Kind::Bits { .. } if field.bit_width > 32 => {
                    write!(f, "0x{:x}", structure.desc.read(field, &structure.bytes))
                }
                Kind::Bits { show, .. } => show(structure.desc.read(field, &structure.bytes), f),
                _ => f.write_str(&hex(&structure.bytes[range])),
            }
        }
    }
    Of(field, structure).to_string()
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

fn printable(byte: u8) -> char {
    if (0x20..0x7f).contains(&byte) { char::from(byte) } else { '.' }
}

/// `text` in lines of [`WIDTH`] columns: the first begins with `first`, the others with `other`.
fn wrapped(text: &str, first: &str, other: &str) -> String {
    let (mut lines, mut line, mut n_words) = (String::new(), first.to_string(), 0);
    for word in text.split_whitespace() {
        if n_words > 0 && line.chars().count() + 1 + word.chars().count() > WIDTH {
            lines += line.trim_end();
            lines.push('\n');
            (line, n_words) = (other.to_string(), 0);
        }
        if n_words > 0 {
            line.push(' ');
        }
        line += word;
        n_words += 1;
    }
    lines + &line
}
