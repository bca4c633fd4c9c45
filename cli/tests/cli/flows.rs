//! docs/prm-notes/flow-*.md quote what `mlx5 tour` prints, step by step.
//!
//! `BLESS=1 cargo test -p mlx5-cli --test cli flows` writes the quotations anew.

use super::ok;
use std::{fs, path::Path};

/// The steps of a tour as it is printed, the last line's end included.
fn steps(tour: &str) -> Vec<String> {
    let text = ok(&format!("tour {tour}"));
    let is_title = |pair: &[&str]| {
        pair[0].starts_with(|c: char| c.is_ascii_digit())
            && !pair[1].is_empty()
            && pair[1].chars().all(|c| c == '-')
    };
    let lines: Vec<_> = text.lines().collect();
    let starts: Vec<_> =
        lines.windows(2).enumerate().filter(|(_, pair)| is_title(pair)).map(|(n, _)| n).collect();
    let ends = starts.iter().skip(1).copied().chain([lines.len()]);
    starts
        .iter()
        .zip(ends)
        .map(|(&start, end)| lines[start..end].join("\n").trim_end().to_string() + "\n")
        .collect()
}

fn check(tour: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../docs/prm-notes/flow-{tour}.md"));
    let note = fs::read_to_string(&path).expect("note");
    let (mut rest, mut written) = (note.as_str(), String::new());
    for (n, step) in steps(tour).iter().enumerate() {
        let mark = format!("<!-- shown: mlx5 tour {tour}, step {n} -->\n```\n");
        let (before, after) =
            rest.split_once(&mark).unwrap_or_else(|| panic!("flow-{tour}.md has no step {n} here: {mark}"));
        let (shown, after) = after.split_once("```\n<!-- end -->").expect("an end");
        if std::env::var_os("BLESS").is_none() {
            assert_eq!(shown, step, "flow-{tour}.md, step {n}: BLESS=1 writes it anew");
        }
        written += &format!("{before}{mark}{step}```\n<!-- end -->");
        rest = after;
    }
    assert!(!rest.contains("<!-- shown"), "flow-{tour}.md has more steps than the tour");
    if std::env::var_os("BLESS").is_some() {
        fs::write(path, written + rest).expect("note");
    }
}

#[test]
fn the_notes_quote_what_the_tours_print() {
    ["read", "write", "send"].into_iter().for_each(check);
}
