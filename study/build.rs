//! The list of notes: every file of `docs/prm-notes`, in order of names.

use std::{env, fs, path::Path};

fn main() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/prm-notes");
    println!("cargo::rerun-if-changed={}", dir.display());
    let entries = fs::read_dir(&dir).expect("docs/prm-notes");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("docs/prm-notes").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    paths.sort();
    let notes: String = paths
        .iter()
        .map(|path| {
            let id = path.file_stem().and_then(|name| name.to_str()).expect("a name in UTF-8");
            let path = path.canonicalize().expect("docs/prm-notes");
            format!("    Note {{ id: {id:?}, text: include_str!({path:?}) }},\n")
        })
        .collect();
    let out = env::var_os("OUT_DIR").expect("cargo sets it");
    fs::write(Path::new(&out).join("notes.rs"), format!("&[\n{notes}]")).expect("OUT_DIR can be written");
}
