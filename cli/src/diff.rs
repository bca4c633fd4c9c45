//! `mlx5 diff`: two WQEs, CQEs, dumps or traces beside each other, field by field.

use crate::{
    decode::{Kind, Talk},
    failure::Failure,
};
use clap::Args;
use mlx5_study::{
    diff::{
        Difference, Parts, compare,
        trace::{self, Aligned, Event},
    },
    record::Record,
    text::{Finder, Options},
};
use serde_json::{Value, json};
use std::{
    ffi::{OsStr, OsString},
    fs,
    io::{self, Read, Write},
};

/// Arguments of `diff`.
#[derive(Debug, Args)]
#[command(after_help = "Exit code 0: they are equal. 1: they differ. 2: one of them is not understood.")]
pub(crate) struct Diff {
    /// A file, `-` for standard input, or hexadecimal: bytes of a WQE, CQE, EQE or command, text with a dump in it, or a
    /// trace (--trace) or capture (--pcap) of the software card
    #[arg(value_name = "A")]
    a: OsString,
    /// The other one
    #[arg(value_name = "B")]
    b: OsString,
    /// What bytes are that nothing announces
    #[arg(long = "as", value_enum, default_value_t = Kind::Auto, value_name = "WHAT")]
    read_as: Kind,
    /// How the queue pair of a WQE talks, which no WQE says
    #[arg(long, value_enum)]
    transport: Option<Talk>,
    /// Print equal fields too
    #[arg(long)]
    all: bool,
    /// Take these fields for equal, whatever they hold: --ignore addr,timestamp
    #[arg(long, value_name = "FIELD", value_delimiter = ',')]
    ignore: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What one side is.
enum Side {
    Structures(Parts),
    Trace(Vec<Event>),
}

impl Diff {
    /// What `text` names or is.
    fn read(&self, side: char, text: &OsStr) -> Result<Side, Failure> {
        let wrong = |why: String| Failure::Usage(format!("{side}: {why}"));
        let hex = text.to_str().and_then(hexadecimal);
        let bytes = match hex {
            // A file may be called `beef`.
            Some(bytes) if fs::metadata(text).is_err() => return self.bytes(&bytes).map_err(wrong),
            _ if text == "-" => {
                let mut bytes = Vec::new();
                io::stdin().read_to_end(&mut bytes).map(|_| bytes)
            }
            _ => fs::read(text),
        };
        let bytes =
            bytes.map_err(|error| wrong(format!("{}: {error}, and it is no hexadecimal", text.display())))?;
        if let Some(events) = trace::read(&bytes) {
            return Ok(Side::Trace(events));
        }
        match std::str::from_utf8(&bytes).ok() {
            Some(text) => match hexadecimal(text) {
                Some(bytes) => self.bytes(&bytes).map_err(wrong),
                None => self.text(text).map_err(wrong),
            },
            None => self.bytes(&bytes).map_err(wrong),
        }
    }

    fn bytes(&self, bytes: &[u8]) -> Result<Side, String> {
        Parts::parse(bytes, self.read_as.into(), self.transport.map(Into::into)).map(Side::Structures)
    }

    /// The first dump in some text.
    fn text(&self, text: &str) -> Result<Side, String> {
        let options = Options { read_as: self.read_as.into(), transport: self.transport.map(Into::into) };
        let (mut finder, mut first) = (Finder::new(options), None);
        let mut found = |record: Record| {
            if !record.structures.is_empty() {
                first.get_or_insert(record.structures);
            }
        };
        finder.feed(text.as_bytes(), &mut found);
        finder.end(&mut found);
        let structures = first.ok_or("no bytes, no trace and no text in which a dump is found")?;
        // What stands between structures is not told.
        let end = structures.iter().map(|one| one.offset_bytes + one.bytes.len()).max().unwrap_or(0);
        let mut bytes = vec![0; end];
        for one in &structures {
            bytes[one.offset_bytes..][..one.bytes.len()].copy_from_slice(&one.bytes);
        }
        Ok(Side::Structures(Parts::new(&bytes, structures)))
    }

    fn compare(&self, a: &Parts, b: &Parts) -> Difference {
        let mut difference = compare(a, b);
        difference.ignore(&self.ignore);
        difference
    }
}

/// Bytes written in hexadecimal and nothing else: digits in pairs, as they come or with spaces, or rows with offsets
/// before a colon.
fn hexadecimal(text: &str) -> Option<Vec<u8>> {
    let mut digits = String::new();
    for line in text.lines() {
        let row = match line.split_once(':') {
            Some((offset, row)) if offset.trim().chars().all(|c| c.is_ascii_hexdigit() || c == 'x') => row,
            Some(_) => return None,
            None => line,
        };
        for word in row.split_whitespace() {
            let word = word.strip_prefix("0x").unwrap_or(word);
            if word.len() % 2 != 0 {
                return None;
            }
            digits += word;
        }
    }
    let byte = |two: &[u8]| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok();
    let is_hex = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_hex.then(|| digits.as_bytes().chunks(2).map(byte).collect())?
}

/// Carries out `diff`.
pub(crate) fn diff(args: &Diff, out: &mut impl Write) -> Result<(), Failure> {
    if args.a == "-" && args.b == "-" {
        return Err(Failure::Usage("A and B: standard input is there once only".into()));
    }
    let is_equal = match (args.read('A', &args.a)?, args.read('B', &args.b)?) {
        (Side::Structures(a), Side::Structures(b)) => structures(args, &a, &b, out)?,
        (Side::Trace(a), Side::Trace(b)) => traces(args, &a, &b, out)?,
        _ => {
            return Err(Failure::Usage(
                "one is a trace, and the other is not: they cannot be compared".into(),
            ));
        }
    };
    if is_equal { Ok(()) } else { Err(Failure::Told(1)) }
}

fn structures(args: &Diff, a: &Parts, b: &Parts, out: &mut impl Write) -> Result<bool, Failure> {
    let mut difference = args.compare(a, b);
    let is_equal = difference.is_equal();
    if !args.all {
        difference.hide_equal();
    }
    if args.json {
        writeln!(out, "{}", json!({ "equal": is_equal, "structures": difference.json() }))?;
    } else if is_equal && !args.all {
        writeln!(out, "equal")?;
    } else {
        write!(out, "{difference}")?;
    }
    Ok(is_equal)
}

fn traces(args: &Diff, a: &[Event], b: &[Event], out: &mut impl Write) -> Result<bool, Failure> {
    let Some(steps) = trace::align(a, b) else {
        let text = "the traces differ in too many events to be of the same run; compare shorter ones";
        return Err(Failure::Usage(text.into()));
    };
    let (mut n_different, mut list) = (0, Vec::new());
    for step in steps {
        let (what, mut difference) = match step {
            Aligned::Both(n, m) => {
                let difference = args.compare(&Parts::of_event(&a[n]), &Parts::of_event(&b[m]));
                (format!("A event {n}: {}\nB event {m}: {}", a[n], b[m]), Some(difference))
            }
            Aligned::OnlyA(n) => (format!("only in A, event {n}: {}", a[n]), None),
            Aligned::OnlyB(m) => (format!("only in B, event {m}: {}", b[m]), None),
        };
        let is_equal = difference.as_ref().is_some_and(Difference::is_equal);
        if !args.all {
            difference.iter_mut().for_each(Difference::hide_equal);
            if is_equal {
                continue;
            }
        }
        n_different += usize::from(!is_equal);
        if args.json {
            list.push(json(step, a, b, difference.as_ref()));
            continue;
        }
        if !is_equal && n_different == 1 {
            writeln!(out, "the first difference:")?;
        }
        writeln!(out, "{what}")?;
        if let Some(difference) = difference {
            write!(out, "{difference}")?;
        }
    }
    if args.json {
        writeln!(out, "{}", json!({ "equal": n_different == 0, "events": list }))?;
    } else {
        let (n, m) = (a.len(), b.len());
        writeln!(out, "{n} events in A, {m} in B: {n_different} different, or on one side only")?;
    }
    Ok(n_different == 0)
}

fn json(step: Aligned, a: &[Event], b: &[Event], difference: Option<&Difference>) -> Value {
    let of = |events: &[Event], n: Option<usize>| {
        n.map(|n| json!({ "event": n, "at": events[n].at, "kind": events[n].kind, "text": events[n].text }))
    };
    let (n, m) = match step {
        Aligned::Both(n, m) => (Some(n), Some(m)),
        Aligned::OnlyA(n) => (Some(n), None),
        Aligned::OnlyB(m) => (None, Some(m)),
    };
    json!({ "a": of(a, n), "b": of(b, m), "structures": difference.map(Difference::json) })
}
