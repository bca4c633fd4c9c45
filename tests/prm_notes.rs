//! The tables in `docs/prm-notes` are those of the declared types. `BLESS=1` draws them again.

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

#[test]
fn the_notes_show_what_is_declared() {
    let mut stale = Vec::new();
    for path in notes() {
        let text = std::fs::read_to_string(&path).unwrap();
        let (fresh, _) = drawn(&text);
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
