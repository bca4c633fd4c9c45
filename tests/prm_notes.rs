//! The tables in `docs/prm-notes` are those of the declared types, and the bytes those of vectors. `BLESS=1` draws both again.

#[path = "prm_notes/hexdump.rs"]
mod hexdump;

use mlx5_direct::{cqe, mlx5, wqe};
use std::collections::BTreeSet;
use std::path::PathBuf;

const OPEN: &str = "<!-- drawn: ";
const CLOSE: &str = "<!-- /drawn -->";

fn notes() -> Vec<PathBuf> {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs/prm-notes");
    let mut notes: Vec<_> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    notes.sort();
    notes
}

/// The note with every table drawn anew, and the structures that it shows.
fn drawn(text: &str) -> (String, BTreeSet<String>) {
    let (mut out, mut shown, mut rest) = (String::new(), BTreeSet::new(), text);
    while let Some((before, after)) = rest.split_once(OPEN) {
        let (name, after) = after.split_once(" -->").expect("marker is closed");
        let (_, after) = after.split_once(CLOSE).expect("drawing is closed");
        let all = [mlx5::layouts(), wqe::layouts(), cqe::layouts()].concat();
        let desc = all.iter().find(|desc| desc.name == name).expect("structure is declared");
        out += &format!("{before}{OPEN}{name} -->\n{}{CLOSE}", desc.draw());
        shown.insert(name.to_string());
        rest = after;
    }
    (out + rest, shown)
}

/// The note with every hexdump drawn anew, and the vectors that it shows.
fn dumped(text: &str) -> (String, usize) {
    let (mut out, mut n, mut rest) = (String::new(), 0, text);
    while let Some((before, after)) = rest.split_once("<!-- hexdump: ") {
        let (name, after) = after.split_once(" -->").expect("marker is closed");
        let (_, after) = after.split_once("<!-- /hexdump -->").expect("hexdump is closed");
        out += &format!("{before}<!-- hexdump: {name} -->\n{}<!-- /hexdump -->", hexdump::draw(name));
        n += 1;
        rest = after;
    }
    (out + rest, n)
}

#[test]
fn the_notes_show_what_is_declared() {
    let mut stale = Vec::new();
    for path in notes() {
        let text = std::fs::read_to_string(&path).unwrap();
        let (fresh, _) = drawn(&dumped(&text).0);
        if fresh != text {
            match std::env::var_os("BLESS") {
                Some(_) => std::fs::write(&path, fresh).unwrap(),
                None => stale.push(path),
            }
        }
    }
    assert!(stale.is_empty(), "out of date, run with BLESS=1 and read the difference: {stale:?}");
}

/// The data path's structures are all explained, and the index names every note.
#[test]
fn the_notes_are_complete() {
    let texts: Vec<(PathBuf, String)> =
        notes().into_iter().map(|path| (path.clone(), std::fs::read_to_string(path).unwrap())).collect();
    let shown: BTreeSet<String> = texts.iter().flat_map(|(_, text)| drawn(text).1).collect();
    let wanted = [wqe::layouts(), cqe::layouts()].concat();
    let missing: Vec<_> = wanted.iter().map(|d| d.name).filter(|name| !shown.contains(*name)).collect();
    assert!(missing.is_empty(), "no note shows {missing:?}");
    let index = &texts.iter().find(|(path, _)| path.ends_with("README.md")).unwrap().1;
    for (path, _) in &texts {
        let file = path.file_name().unwrap().to_str().unwrap();
        assert!(file == "README.md" || index.contains(&format!("({file})")), "{file} is not in the index");
    }
}

/// Notes about more than structures: the index, the wire, what was learned.
const OTHERS: [&str; 3] = ["README", "roce-wire", "taught"];

/// Every note says what the rules are and what went wrong for somebody, and shows bytes.
#[test]
fn the_notes_have_all_parts() {
    let mut missing = Vec::new();
    for path in notes() {
        let name = path.file_stem().unwrap().to_str().unwrap().to_string();
        let text = std::fs::read_to_string(&path).unwrap();
        let is_flow = name.starts_with("flow-") && name != "flow-steering";
        if OTHERS.contains(&name.as_str()) || is_flow {
            continue;
        }
        let is_told = text.contains("\n## Rules\n") && text.contains("\n## In practice\n");
        if !is_told && !RARE.contains(&name.as_str()) {
            missing.push(format!("{name}: rules or practice"));
        }
        if !text.contains("\nSeen in ") {
            missing.push(format!("{name}: where it is seen"));
        }
        if !text.contains("<!-- hexdump: ") && !text.contains("```text") {
            missing.push(format!("{name}: bytes"));
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

/// What no public report names, or only one of another driver.
const RARE: [&str; 6] = [
    "device-operation-segments",
    "masked-atomic-segments",
    "signature-segments",
    "tag-matching-segment",
    "tls-segments",
    "wait-segments",
];

/// A link leads to a file that there is, and a rule that is named is one.
#[test]
fn the_links_lead_somewhere() {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs/prm-notes");
    let rules = std::fs::read_to_string(dir.join("../rules.md")).unwrap();
    let (mut dead, mut n_rules) = (Vec::new(), 0);
    for path in notes() {
        let text = std::fs::read_to_string(&path).unwrap();
        for (before, after) in text.match_indices("](").map(|(at, _)| text.split_at(at)) {
            let target = after[2..].split(')').next().unwrap_or_default();
            let file = target.split('#').next().unwrap_or_default();
            if !target.starts_with("https://") && !dir.join(file).is_file() {
                dead.push(format!("{}: {target}", path.display()));
            }
            let named = before.rsplit('[').next().unwrap_or_default();
            if file == "../rules.md" && named.starts_with('`') {
                n_rules += 1;
                if !rules.contains(&format!("| {named} |")) {
                    dead.push(format!("{}: rule {named}", path.display()));
                }
            }
        }
    }
    assert!(dead.is_empty(), "{dead:#?}");
    assert!(n_rules > 40, "{n_rules}");
}
