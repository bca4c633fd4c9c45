//! Which named cases are covered, and where; which mutants survive, and why.

use std::{collections::BTreeMap, fs, path::Path};

/// Groups whose *must* cases on the model are this crate's first acceptance.
const GROUPS: &str = "ABCDEGHKL";

/// A line of `cases.csv`: id, name, where, priority. The sentence in between may hold quoted commas.
fn cases() -> Vec<(String, String, String, String)> {
    let text = include_str!("../data/cases.csv");
    text.lines()
        .skip(1)
        .map(|line| {
            let (head, priority) = line.rsplit_once(',').expect("priority");
            let (head, place) = head.rsplit_once(',').expect("where");
            // A case's name may itself hold commas, between braces and then in quotes.
            let (id, rest) = head.split_once(',').expect("id");
            let name = match rest.strip_prefix('"') {
                Some(quoted) => quoted.split_once('"').expect("closing quote").0,
                None => rest.split_once(',').expect("name").0,
            };
            (id.into(), name.into(), place.into(), priority.into())
        })
        .collect()
}

/// Rows `| id | case | state | where |` of the document.
fn rows() -> BTreeMap<String, (String, String, String)> {
    let text =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/testing.md")).expect("docs");
    text.lines()
        .filter_map(|line| {
            let cells: Vec<_> =
                line.split('|').map(|cell| cell.trim().trim_matches('`').to_string()).collect();
            match cells.as_slice() {
                [_, id, name, state, place, _] if id.starts_with(|c: char| GROUPS.contains(c)) => {
                    Some((id.clone(), (name.clone(), state.clone(), place.clone())))
                }
                _ => None,
            }
        })
        .collect()
}

#[test]
fn every_must_case_is_listed_and_every_covered_one_has_its_test() {
    let rows = rows();
    let mut wrong = Vec::new();
    for (id, name, place, priority) in cases() {
        let on_model = place.split_whitespace().next().is_some_and(|p| p.contains('M'));
        if !GROUPS.contains(&id[..1]) || priority != "M" || !on_model {
            continue;
        }
        let Some((listed, state, place)) = rows.get(&id) else {
            wrong.push(format!("{id} {name}: not listed in docs/testing.md"));
            continue;
        };
        if *listed != name {
            wrong.push(format!("{id}: listed as {listed}, but its name is {name}"));
        }
        if state == "covered" {
            // Names with alternatives in braces have one test an item, all with the same beginning.
            let stem =
                format!("{}_{}", id.to_lowercase(), name.split('{').next().unwrap().trim_end_matches('_'));
            let found = place.split(", ").any(|file| {
                let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file.trim_matches('`'));
                let source = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
                source.contains(&format!("fn {stem}"))
            });
            if !found {
                wrong.push(format!("{id}: no `fn {stem}…` in {place}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// `scripts/mutants` reads the list; a line that has changed since explains nothing.
#[test]
fn explained_mutants_are_of_lines_that_are_there() {
    for entry in include_str!("../data/mutants.tsv").lines() {
        let cells: Vec<_> = entry.split('\t').collect();
        let [file, line, mutation, reason] = cells[..] else { panic!("four cells: {entry}") };
        let source = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).expect(file);
        assert!(source.lines().any(|found| found.trim_start() == line), "not in {file}: {line}");
        assert!(!mutation.is_empty() && !reason.is_empty(), "no reason: {entry}");
    }
}
