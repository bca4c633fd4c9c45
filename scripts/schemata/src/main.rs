//! All mutants of a package in one build, each chosen by an environment variable when the tests run.
//!
//! `schemata PACKAGE MUTANTS OUT ARGUMENT…`: `MUTANTS` is what `cargo mutants --list --json` says, `ARGUMENT…` goes to cargo. The sources
//! of the package are rewritten in place. Mutants that do not build are found by the compiler's errors and taken out. In `OUT` one file
//! for each outcome lists the mutants by name.
#![forbid(unsafe_code)]

mod build;
mod rewrite;
mod run;

use serde_json::Value;
use std::{collections::BTreeSet, env, error::Error, fs, path::PathBuf};

/// What `cargo mutants` says of a mutant.
#[derive(Clone)]
pub struct Mutant {
    pub file: String,
    pub genre: String,
    /// Line and column from 1, of what is changed.
    pub start: (usize, usize),
    pub name: String,
    pub replacement: String,
}

impl Mutant {
    fn read(value: &Value) -> Option<Self> {
        let text = |name: &str| Some(value[name].as_str()?.to_owned());
        let start = &value["span"]["start"];
        let number = |name: &str| start[name].as_u64().map(|n| n as usize);
        Some(Self {
            file: text("file")?,
            genre: text("genre")?,
            start: (number("line")?, number("column")?),
            name: text("name")?,
            replacement: text("replacement")?,
        })
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [package, list, out, cargo_arguments @ ..] = &arguments[..] else {
        return Err("schemata PACKAGE MUTANTS OUT ARGUMENT…".into());
    };
    let (package, out) = (PathBuf::from(package), PathBuf::from(out));
    let list: Vec<Value> = serde_json::from_str(&fs::read_to_string(list)?)?;
    let mutants: Vec<Mutant> = list.iter().filter_map(Mutant::read).collect();
    fs::create_dir_all(&out)?;

    let names =
        |ids: &BTreeSet<usize>| ids.iter().map(|id| mutants[*id].name.clone() + "\n").collect::<String>();
    let built = build::build(&package, &mutants, cargo_arguments)?;
    println!(
        "{} mutants: {} built, {} do not build, {} in constants and seeded mistakes",
        mutants.len(),
        built.made.len(),
        built.broken.len(),
        built.constant.len()
    );
    fs::write(out.join("unviable.txt"), names(&built.broken))?;
    fs::write(out.join("constant.txt"), names(&built.constant))?;

    let outcomes = run::run(&package, &built.program, &built.made)?;
    fs::write(out.join("caught.txt"), names(&outcomes.caught))?;
    fs::write(out.join("timeout.txt"), names(&outcomes.timeout))?;
    fs::write(out.join("missed.txt"), names(&outcomes.missed))?;
    fs::write(out.join("unreached.txt"), names(&outcomes.unreached))?;
    Ok(())
}
