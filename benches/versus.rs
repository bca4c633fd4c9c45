//! `cargo bench --bench versus`: what post and poll cost the processor: ours, a floor written by hand, and Debian's
//! unmodified libmlx5, all in one run and in turn.
//!
//! There is no card: queues, records and UAR pages are ordinary memory on all sides, with the fences of
//! write-combining memory. See the notes that the table ends with for what that does not show.
//!
//! `-- --filter RE` runs the operations that match; `--rounds N`, `--json FILE`, `--plot FILE`;
//! `--listing FILE` gets every instruction that one call executes, libraries included.
#![allow(unreachable_pub)] // its modules are of one program

#[path = "versus/cases.rs"]
mod cases;
#[path = "versus/floors.rs"]
mod floors;
#[path = "versus/listing.rs"]
mod listing;
#[path = "versus/many.rs"]
mod many;
#[path = "versus/measure.rs"]
mod measure;
#[path = "versus/plot.rs"]
mod plot;
#[path = "versus/report.rs"]
mod report;
#[path = "versus/rivals.rs"]
mod rivals;
#[path = "versus/ucx.rs"]
mod ucx;

#[path = "hot/floor.rs"]
mod floor;
#[path = "hot/ops.rs"]
mod ops;
#[path = "hot/rig.rs"]
mod rig;
#[path = "hot/step.rs"]
mod step;
#[path = "hot/timing.rs"]
mod timing;

mod rival;

use regex_lite::Regex;
use rival::{launch, library::Library};
use std::{path::PathBuf, process::exit};

/// What the command line asks.
struct Arguments {
    filter: Regex,
    rounds: usize,
    json: Option<PathBuf>,
    plot: Option<PathBuf>,
    listing: Option<PathBuf>,
}

fn arguments() -> Result<Arguments, String> {
    // `cargo test --benches` runs this program too: it only has to work then.
    let rounds = if std::env::args().any(|arg| arg == "--bench") { 300 } else { 3 };
    let mut arguments = Arguments {
        filter: Regex::new("").expect("a pattern"),
        rounds,
        json: None,
        plot: None,
        listing: None,
    };
    let mut given = std::env::args().skip(1);
    while let Some(name) = given.next() {
        let mut value = || given.next().ok_or(format!("{name} needs a value"));
        match name.as_str() {
            "--filter" => arguments.filter = Regex::new(&value()?).map_err(|e| e.to_string())?,
            "--rounds" => arguments.rounds = value()?.parse().map_err(|e| format!("--rounds: {e}"))?,
            "--json" => arguments.json = Some(value()?.into()),
            "--plot" => arguments.plot = Some(value()?.into()),
            "--listing" => arguments.listing = Some(value()?.into()),
            "--bench" => {}
            _ => {
                return Err(format!(
                    "{name} is not known; there are --filter RE, --rounds N, --json FILE, --plot FILE, --listing FILE"
                ));
            }
        }
    }
    if arguments.rounds == 0 {
        return Err("--rounds: at least 1".into());
    }
    Ok(arguments)
}

fn main() {
    let arguments = arguments().unwrap_or_else(|error| {
        eprintln!("{error}");
        exit(2)
    });
    let library = match Library::load() {
        Ok(library) if launch::is_inside() => Some(&*Box::leak(Box::new(library))),
        Ok(_) => exit(launch::again()),
        Err(error) => {
            println!("Without libmlx5: {error}\n");
            None
        }
    };
    let mut results = vec![];
    let mut group = String::new();
    for case in cases::all(library) {
        if !arguments.filter.is_match(case.name) {
            continue;
        }
        if group != case.group {
            group = case.group.into();
            println!("{}", report::head(&group));
        }
        let result = measure::run(case, arguments.rounds, arguments.listing.is_some());
        print!("{}", report::rows(&result));
        results.push(result);
    }
    println!("{}\n{}", report::summary(&results), report::notes());
    let write = |path: &Option<PathBuf>, text: String| {
        if let Some(path) = path
            && let Err(error) = std::fs::write(path, text)
        {
            eprintln!("{}: {error}", path.display());
            exit(1);
        }
    };
    write(&arguments.json, report::json(&results));
    write(&arguments.plot, plot::svg(&results));
    if arguments.listing.is_some() {
        let mut listings = listing::Listings::default();
        let all =
            results.iter().flat_map(|result| result.contenders.iter().map(move |took| (result.name, took)));
        let text = all.map(|(name, took)| format!("{name}, {}:\n{}\n", took.who, listings.text(&took.trace)));
        write(&arguments.listing, text.collect());
    }
    for result in &results {
        let ours = &result.contenders[0];
        assert_eq!(ours.count.unwrap_or_default().locks, 0, "{}: a locked instruction", result.name);
    }
}
