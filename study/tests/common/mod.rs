//! What tests of text have in common: cases, records of a text, and the comparison.

use mlx5_study::{
    record::Record,
    text::{Finder, Options},
};
use serde_json::{Map, Value};

/// The cases of a file, one on each line.
pub(crate) fn load(name: &str) -> Vec<Value> {
    let path = format!("{}/tests/data/{name}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The records of a text.
pub(crate) fn records(text: &str) -> Vec<Record> {
    let mut records = Vec::new();
    let mut finder = Finder::new(Options::default());
    finder.feed(text.as_bytes(), &mut |record| records.push(record));
    finder.end(&mut |record| records.push(record));
    records
}

/// What of `expected` the records do not have: lists are joined over all records, everything else is of one of them.
pub(crate) fn check(id: &str, records: &[Record], expected: &Map<String, Value>) -> Vec<String> {
    let mut problems = Vec::new();
    for (part, wanted) in expected {
        let path = format!("{id}: {part}");
        let has = records.iter().filter_map(|record| record.parts.get(part));
        if wanted.is_array() {
            let joined: Vec<Value> = has.filter_map(Value::as_array).flatten().cloned().collect();
            problems.extend(differences(&path, wanted, &Value::Array(joined)));
        } else {
            let all: Vec<Vec<String>> = has.map(|value| differences(&path, wanted, value)).collect();
            match all.into_iter().min_by_key(Vec::len) {
                Some(fewest) => problems.extend(fewest),
                None => problems.push(format!("{path} is missing")),
            }
        }
    }
    problems
}

/// Where `value` differs from `wanted`; fields besides are allowed.
fn differences(path: &str, wanted: &Value, value: &Value) -> Vec<String> {
    match (wanted, value) {
        (Value::Object(wanted), Value::Object(value)) => wanted
            .iter()
            .flat_map(|(name, wanted)| match value.get(name) {
                Some(value) => differences(&format!("{path}/{name}"), wanted, value),
                None => vec![format!("{path}/{name} is missing, should be {wanted}")],
            })
            .collect(),
        (Value::Array(wanted), Value::Array(value)) if wanted.len() == value.len() => (0..)
            .zip(wanted.iter().zip(value))
            .flat_map(|(n, (wanted, value))| differences(&format!("{path}[{n}]"), wanted, value))
            .collect(),
        _ if wanted == value => Vec::new(),
        _ => vec![format!("{path} is {value}, should be {wanted}")],
    }
}
