//! The table of `docs/testing.md` on rdma-core's suite is what a run came to (`reality/suite/expected.csv`, which `reality/run`
//! holds each run to), beside our word on what a card does (`reality/suite/card.csv`). `BLESS=1` writes it anew.

use std::{collections::BTreeMap, fmt::Write, fs, path::Path};

const MARKS: [&str; 2] = ["<!-- suite -->\n", "<!-- /suite -->"];

/// Cells of a line of CSV; quoted ones have no quotes inside.
fn cells(line: &str) -> [String; 4] {
    let mut cells = [const { String::new() }; 4];
    let (mut at, mut quoted) = (0, false);
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => at += 1,
            c => cells[at].push(c),
        }
    }
    cells
}

fn table(of: &str) -> impl Iterator<Item = [String; 4]> {
    of.lines().skip(1).map(cells)
}

/// What is drawn.
fn drawn() -> String {
    let words: Vec<_> = table(include_str!("../../reality/suite/card.csv")).collect();
    let mut used = vec![0; words.len()];
    let mut counts = BTreeMap::<String, usize>::new();
    let mut rows = String::new();
    for [case, state, reason, _] in table(include_str!("../../reality/suite/expected.csv")) {
        *counts.entry(state.clone()).or_default() += 1;
        if state == "ok" {
            continue;
        }
        // The one that says most.
        let word = words.iter().enumerate().filter(|(_, word)| case.starts_with(&word[0]));
        let (at, [_, card, why, _]) = word
            .max_by_key(|(_, word)| word[0].len())
            .unwrap_or_else(|| panic!("no word in card.csv on {case}"));
        used[at] += 1;
        let case = case.trim_start_matches("test_");
        writeln!(rows, "| `{case}` | {state}: {reason} | {card}: {why} |").expect("to a string");
    }
    for (n, [cases, ..]) in used.iter().zip(&words) {
        assert!(*n > 0, "card.csv has a word on {cases}, of which no case is skipped");
    }
    let total: usize = counts.values().sum();
    let count = |state| counts.get(state).copied().unwrap_or(0);
    format!(
        "{total} cases: {} ok, {} skipped, {} failed.\n\n| case | here | a ConnectX-6 under Linux 6.1 |\n|---|---|---|\n{rows}",
        count("ok"),
        count("skipped"),
        count("FAILED")
    )
}

#[test]
fn the_table_is_what_the_suite_came_to() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/testing.md");
    let text = fs::read_to_string(&path).expect("docs/testing.md");
    let (before, rest) = text.split_once(MARKS[0]).expect("the table's first mark");
    let (found, after) = rest.split_once(MARKS[1]).expect("its last mark");
    let drawn = drawn();
    if std::env::var_os("BLESS").is_some() {
        fs::write(&path, [before, MARKS[0], &drawn, MARKS[1], after].concat()).expect("docs/testing.md");
    } else {
        assert_eq!(found, drawn, "docs/testing.md: BLESS=1 writes it anew");
    }
}
