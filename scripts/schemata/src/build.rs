//! Builds the rewritten package, and finds out which mutants the compiler does not take.

use crate::{
    Mutant,
    rewrite::{Rewritten, rewrite},
};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    fs,
    ops::Range,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// What was built.
pub struct Built {
    /// The test program.
    pub program: PathBuf,
    pub made: BTreeSet<usize>,
    pub broken: BTreeSet<usize>,
    pub constant: BTreeSet<usize>,
}

/// The function that mutants ask whether they are the one. `MUTANTS_REACHED` names a file that takes down who asks.
const CHOICE: &str = r#"
#[doc(hidden)]
pub fn mutant(id: u32) -> bool {
    extern crate std;
    use std::{collections::BTreeSet, env, fs::File, io::Write, string::String, sync::{LazyLock, Mutex}};
    static CHOSEN: LazyLock<u32> =
        LazyLock::new(|| env::var("MUTANT").ok().and_then(|id| id.parse().ok()).unwrap_or(u32::MAX));
    static REACHED: LazyLock<Option<Mutex<(BTreeSet<u32>, File)>>> = LazyLock::new(|| {
        let file = File::create(env::var_os("MUTANTS_REACHED")?).expect("a file to write to");
        Some(Mutex::new((BTreeSet::new(), file)))
    });
    if let Some(reached) = &*REACHED {
        let mut reached = reached.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if reached.0.insert(id) {
            let line = std::format!("{id}\n");
            _ = reached.1.write_all(line.as_bytes());
        }
    }
    *CHOSEN == id
}
"#;

/// Builds `package` with all of `mutants` that can be built together.
pub fn build(package: &Path, mutants: &[Mutant], arguments: &[String]) -> Result<Built, Box<dyn Error>> {
    let mut sources = BTreeMap::new();
    for mutant in mutants {
        if !sources.contains_key(&mutant.file) {
            sources.insert(mutant.file.clone(), fs::read_to_string(package.join(&mutant.file))?);
        }
    }
    let root = package.join("src/lib.rs");
    let lib = fs::read_to_string(&root)?;
    fs::write(root, lib + CHOICE)?;

    let (mut broken, mut kept_const) = (BTreeSet::new(), BTreeSet::new());
    loop {
        let mut files: BTreeMap<String, Rewritten> = BTreeMap::new();
        for (file, source) in &sources {
            let of_file: Vec<_> = mutants
                .iter()
                .enumerate()
                .filter(|(id, mutant)| mutant.file == *file && !broken.contains(id))
                .collect();
            let rewritten = rewrite(source, &of_file, &kept_const)?;
            fs::write(package.join(file), &rewritten.text)?;
            files.insert(file.clone(), rewritten);
        }
        match compile(package, arguments)? {
            Ok(program) => {
                let all =
                    |of: fn(&Rewritten) -> &BTreeSet<usize>| files.values().flat_map(of).copied().collect();
                let (made, constant): (BTreeSet<_>, BTreeSet<_>) = (all(|f| &f.made), all(|f| &f.constant));
                let lost = |id: &usize| ![&made, &constant, &broken].iter().any(|set| set.contains(id));
                for id in (0..mutants.len()).filter(lost) {
                    println!("not found in the source: {}", mutants[id].name);
                }
                return Ok(Built { program, made, broken, constant });
            }
            Err(faults) => {
                let n = broken.len() + kept_const.len();
                for fault in faults {
                    if let Some(function) = needed_const(&fault.said) {
                        kept_const.insert(function);
                        continue;
                    }
                    let regions = |file: &String| files.get(file).map(|file| file.regions.iter());
                    let is_arm = |ids: &[usize]| ids.iter().any(|id| mutants[*id].genre == "MatchArm");
                    let closest = fault.places.iter().find_map(|(file, place)| match fault.lacks_an_arm() {
                        // Of the matched value: its arms follow.
                        true => regions(file)?.find(|(at, ids)| at.start >= place.end && is_arm(ids)),
                        false => regions(file)?
                            .filter(|(at, _)| at.start < place.end && place.start < at.end)
                            .min_by_key(|(at, _)| (!at.contains(&place.start), at.len())),
                    });
                    let Some((_, ids)) = closest else { return Err(fault.said.into()) };
                    broken.extend(ids);
                }
                if broken.len() + kept_const.len() == n {
                    return Err("the compiler names no mutant".into());
                }
                println!(
                    "{} mutants do not build so far, {} functions have to be const",
                    broken.len(),
                    kept_const.len()
                );
            }
        }
    }
}

/// The function of which the compiler says that a constant needs it.
fn needed_const(said: &str) -> Option<String> {
    let (_, call) = said.split_once("cannot call non-const ")?;
    let path = call.split('`').nth(1)?;
    let path = path.split("::<").next()?;
    Some(path.rsplit("::").next()?.to_owned())
}

/// An error of the compiler.
struct Fault {
    said: String,
    /// What it points at, the nearest to the cause first.
    places: Vec<(String, Range<usize>)>,
}

impl Fault {
    /// Whether a `match` is not exhaustive.
    fn lacks_an_arm(&self) -> bool {
        self.said.starts_with("error[E0004]")
    }
}

/// The test program, or where the errors are.
fn compile(package: &Path, arguments: &[String]) -> Result<Result<PathBuf, Vec<Fault>>, Box<dyn Error>> {
    let output = Command::new("cargo")
        .args(["test", "--lib", "--no-run", "--message-format=json"])
        .args(arguments)
        .current_dir(package)
        .stderr(Stdio::inherit())
        .output()?;
    let (mut faults, mut program) = (Vec::new(), None);
    for line in String::from_utf8(output.stdout)?.lines() {
        let Ok(value) = serde_json::from_str::<Value>(line) else { continue };
        if let Some(path) = value["executable"].as_str() {
            program = Some(PathBuf::from(path));
        }
        let message = &value["message"];
        if message["level"] == "error" {
            let said = message["rendered"].as_str().unwrap_or_default().to_owned();
            let mut spans: Vec<_> = message["spans"].as_array().into_iter().flatten().collect();
            spans.sort_by_key(|span| span["is_primary"] != true);
            let place = |span: &&Value| {
                let byte = |name: &str| span[name].as_u64().map(|n| n as usize);
                Some((span["file_name"].as_str()?.to_owned(), byte("byte_start")?..byte("byte_end")?))
            };
            let places: Vec<_> = spans.iter().filter_map(place).collect();
            // The summary at the end has none.
            if !places.is_empty() {
                faults.push(Fault { said, places });
            }
        }
    }
    match program {
        Some(program) if output.status.success() => Ok(Ok(program)),
        _ if faults.is_empty() => Err("cargo failed without an error of the compiler".into()),
        _ => Ok(Err(faults)),
    }
}
