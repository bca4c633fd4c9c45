//! Records, printed for people or as JSON.

use mlx5_study::record::Record;
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    io::{self, Write},
};

/// Prints records, and what there was in all.
#[derive(Debug)]
pub(super) struct Printer {
    json: bool,
    /// Whether records are told with the file that they are from.
    names_files: bool,
    file: OsString,
    n_records: usize,
    n_refused: usize,
    forms: BTreeMap<&'static str, usize>,
    /// What failed, a sentence a file.
    failures: Vec<String>,
}

impl Printer {
    pub(super) fn new(json: bool, names_files: bool) -> Self {
        Self {
            json,
            names_files,
            file: OsString::new(),
            n_records: 0,
            n_refused: 0,
            forms: BTreeMap::new(),
            failures: Vec::new(),
        }
    }

    /// What comes now is of `name`.
    pub(super) fn next_file(&mut self, name: &OsStr) {
        self.file = name.to_owned();
    }

    /// What failed in a file, if anything did.
    pub(super) fn end_of_file(&mut self, failures: Option<String>) {
        let place = if self.names_files { format!("{}: ", self.file.display()) } else { String::new() };
        self.failures.extend(failures.map(|text| format!("{place}{text}")));
    }

    pub(super) fn n_records(&self) -> usize {
        self.n_records
    }

    fn place(&self, record: &Record) -> String {
        let (from, to) = (record.lines.start(), record.lines.end());
        let lines = if from == to { format!("line {from}") } else { format!("lines {from}-{to}") };
        if self.names_files { format!("{} {lines}", self.file.display()) } else { lines }
    }

    pub(super) fn record(&mut self, record: &Record, out: &mut impl Write) -> io::Result<()> {
        let place = self.place(record);
        *self.forms.entry(record.form).or_default() += 1;
        self.n_refused += usize::from(record.refused.is_some());
        let is_first = self.n_records == 0;
        self.n_records += 1;
        if self.json {
            let mut object = to_json(record);
            if self.names_files {
                object["file"] = json!(self.file.to_string_lossy());
            }
            return writeln!(out, "{object}");
        }
        if !is_first {
            writeln!(out)?;
        }
        writeln!(out, "{place}: {}", record.form)?;
        for_people(record, out)
    }

    /// How many of what, and which failure was the first.
    pub(super) fn summary(&self, out: &mut impl Write) -> io::Result<()> {
        if self.json || self.n_records < 2 {
            return Ok(());
        }
        writeln!(out, "\n{} records:", self.n_records)?;
        for (form, n) in &self.forms {
            writeln!(out, "  {n:>6} {form}")?;
        }
        for failures in &self.failures {
            writeln!(out, "{failures}")?;
        }
        if self.n_refused > 0 {
            writeln!(out, "{} are not of mlx5", self.n_refused)?;
        }
        Ok(())
    }
}

fn to_json(record: &Record) -> Value {
    let mut object = record.parts.clone();
    object.insert("form".into(), json!(record.form));
    object.insert("lines".into(), json!([record.lines.start(), record.lines.end()]));
    object.insert("says".into(), json!(record.says));
    let causes: Vec<_> =
        record.causes.iter().map(|cause| json!({"text": cause.text, "source": cause.source})).collect();
    object.insert("causes".into(), json!(causes));
    object.insert("check".into(), json!(record.check));
    object.insert("corrections".into(), json!(record.corrections));
    if let Some(failure) = &record.failure {
        object.insert("failure".into(), json!({"queue": failure.queue, "is_flush": failure.is_flush}));
    }
    if let Some(why) = &record.refused {
        object.insert("refused".into(), json!(why));
    }
    Value::Object(object)
}

fn for_people(record: &Record, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "  {}", record.says)?;
    if let Some(why) = &record.refused {
        writeln!(out, "  not mlx5: {why}")?;
    }
    for structure in &record.structures {
        writeln!(out, " {} ({}), +0x{:02x}:", structure.title, structure.desc.prm, structure.offset_bytes)?;
        write!(out, "{}", structure.desc.explain(&structure.bytes))?;
    }
    for correction in &record.corrections {
        writeln!(out, "  note: {correction}")?;
    }
    for cause in &record.causes {
        writeln!(out, "  reported cause: {} ({})", cause.text, cause.source)?;
    }
    for check in &record.check {
        writeln!(out, "  check: {check}")?;
    }
    Ok(())
}
