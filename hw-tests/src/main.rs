//! Scenarios for mlx5 devices: one list, run on the software ConnectX or on a card, told as one table.
//!
//! ```text
//! cargo run --release -p hw-tests -- --device model:ports=2 --json model.json
//! cargo run --release -p hw-tests -- --device vfio:0000:01:00.0 --peer vfio:0000:01:00.1 --json card.json --html card.html
//! cargo run --release -p hw-tests -- compare model.json card.json
//! ```
//!
//! Exit code 0: none failed. 1: some did, or the device did not open. 2: what was asked breaks a rule. 130: it was
//! interrupted.
//!
//! Nothing that a card keeps is changed. A port that a scenario takes down comes up again, also after Ctrl-C.
#![forbid(unsafe_code)]
// `Ok(request.finish())` says what it does.
#![allow(clippy::unit_arg)]

mod bench;
mod environment;
mod interrupt;
mod outcome;
mod pair;
mod record;
mod report;
mod scenarios;

use bench::Bench;
use clap::{Args, Parser, Subcommand};
use environment::Environment;
use mlx5_devices::OpenError;
use record::{Latency, Row, Run, Verdict};
use scenarios::{Run as Action, SCENARIOS, Scenario};
use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

/// Runs scenarios on an mlx5 device and prints a table
#[derive(Debug, Parser)]
#[command(name = "hw-tests", version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Prints results of several runs as one Markdown table
    ///
    /// The first run is what the others are measured by. Exit code 1 if a scenario failed in one run and not in another.
    Compare {
        /// Results that --json wrote
        #[arg(required = true, num_args = 2..)]
        files: Vec<PathBuf>,
    },
}

#[derive(Debug, Args)]
struct RunArgs {
    /// `model` is the software ConnectX, with options as in `model:ports=2`; `mlx5 list` prints the names of cards
    #[arg(long, default_value = "model:ports=2", value_name = "DEVICE")]
    device: String,
    /// The other end of connections, cabled to the first; without it both ends are on one device
    #[arg(long, value_name = "DEVICE")]
    peer: Option<String>,
    /// Run scenarios with this in their names only; may be given several times
    #[arg(long, value_name = "TEXT")]
    filter: Vec<String>,
    /// Print the scenarios, what they assert and what they need, and run none
    #[arg(long)]
    list: bool,
    /// Write the results as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the results as one HTML page, with curves of latencies
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Why there is no result.
#[derive(Debug)]
enum Failure {
    /// What was asked breaks a rule.
    Usage(String),
    /// It did not work.
    Run(String),
    /// Nobody reads standard output.
    Output(io::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let mut out = io::stdout().lock();
    let result = match &cli.command {
        Some(Command::Compare { files }) => compare(files, &mut out),
        None => run(&cli.run, &mut out),
    };
    let (text, code) = match result {
        Ok(code) => return code,
        // Whoever read the table went away.
        Err(Failure::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => return ExitCode::SUCCESS,
        Err(Failure::Output(error)) => (format!("cannot write to standard output: {error}"), 1),
        Err(Failure::Run(text)) => (text, 1),
        Err(Failure::Usage(text)) => (text, 2),
    };
    let _ = writeln!(io::stderr(), "error: {text}");
    ExitCode::from(code)
}

fn run(args: &RunArgs, out: &mut impl Write) -> Result<ExitCode, Failure> {
    let wanted = |scenario: &&Scenario| {
        args.filter.is_empty() || args.filter.iter().any(|text| scenario.name.contains(text.as_str()))
    };
    let chosen: Vec<_> = SCENARIOS.iter().filter(wanted).collect();
    if chosen.is_empty() {
        return Err(Failure::Usage(format!(
            "no scenario has {:?} in its name; --list prints all {}",
            args.filter,
            SCENARIOS.len()
        )));
    }
    if args.list {
        for scenario in chosen {
            writeln!(out, "{:<24} {} {:?}", scenario.name, scenario.asserts, scenario.needs)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    interrupt::install().map_err(|error| Failure::Run(format!("cannot wait for Ctrl-C: {error}")))?;
    let device = [Some(args.device.as_str()), args.peer.as_deref()];
    let device = device.into_iter().flatten().collect::<Vec<_>>().join(",");
    let bench = Bench::open(&device).map_err(|error| match error {
        OpenError::Usage(text) => Failure::Usage(text),
        OpenError::Device(text) => Failure::Run(text),
    })?;
    let mut run = Run { device, environment: Environment::of(bench.functions()), scenarios: Vec::new() };
    report::head(&run, out)?;
    for scenario in chosen {
        let row = judge(scenario, &bench);
        report::row(&row, out)?;
        run.scenarios.push(row);
    }
    let start = Instant::now();
    if let Err(why) = bench.close() {
        let row = Row {
            name: "close".into(),
            asserts: "the device is taken down, and no rule was broken".into(),
            verdict: Verdict::Fail,
            why: Some(why),
            ms: start.elapsed().as_secs_f64() * 1e3,
            latency: None,
        };
        report::row(&row, out)?;
        run.scenarios.push(row);
    }
    report::tail(&run, out)?;
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(&run).map_err(|error| Failure::Run(error.to_string()))?;
        write(path, &(text + "\n"))?;
    }
    if let Some(path) = &args.html {
        write(path, &report::html(&run))?;
    }
    let [_, failed, _] = run.counts();
    Ok(match failed {
        _ if interrupt::asked() => ExitCode::from(130),
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text).map_err(|error| Failure::Run(format!("writing {}: {error}", path.display())))
}

fn compare(files: &[PathBuf], out: &mut impl Write) -> Result<ExitCode, Failure> {
    let read = |path: &PathBuf| {
        let failed = |error: &dyn std::fmt::Display| Failure::Usage(format!("{}: {error}", path.display()));
        let text = fs::read_to_string(path).map_err(|error| failed(&error))?;
        serde_json::from_str(&text).map_err(|error| failed(&format!("not the results of a run: {error}")))
    };
    let runs = files.iter().map(read).collect::<Result<Vec<Run>, _>>()?;
    Ok(if report::compare(&runs, out)? { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs a scenario if the device has what it needs.
fn judge(scenario: &Scenario, bench: &Bench) -> Row {
    let start = Instant::now();
    let (verdict, why, latency) = if interrupt::asked() {
        (Verdict::Skip, Some("interrupted".into()), None)
    } else if let Some(why) = scenario.needs.iter().find_map(|need| need.missing_on(bench)) {
        (Verdict::Skip, Some(why), None)
    } else {
        act(scenario, bench)
    };
    Row {
        name: scenario.name.into(),
        asserts: scenario.asserts.into(),
        verdict,
        why,
        ms: start.elapsed().as_secs_f64() * 1e3,
        latency,
    }
}

fn act(scenario: &Scenario, bench: &Bench) -> (Verdict, Option<String>, Option<Latency>) {
    let result = match scenario.run {
        Action::Check(run) => run(bench).map(|()| None),
        Action::Measure(run) => run(bench).map(|histogram| Some(Latency::of(&histogram))),
    };
    // Taken whatever the result, so that they are not told of the next scenario.
    let broken = bench.take_violations();
    match (result, broken.as_slice()) {
        (Ok(latency), []) => (Verdict::Pass, None, latency),
        (Ok(latency), [first, ..]) => {
            (Verdict::Fail, Some(format!("{} rules broken: {first}", broken.len())), latency)
        }
        // What this control path cannot do is no failure of the device.
        (Err(error), []) if is_unsupported(&*error) => (Verdict::Skip, Some(error.to_string()), None),
        (Err(error), _) => (Verdict::Fail, Some(error.to_string()), None),
    }
}

fn is_unsupported(error: &(dyn std::error::Error + 'static)) -> bool {
    matches!(error.downcast_ref(), Some(mlx5_direct::Error::Unsupported { .. }))
}
