//! Scenarios for mlx5 devices: one list, run on the software ConnectX or on a card, told as one table.
//!
//! `cargo run --release -p hw-tests -- --device model --filter rnr`
//!
//! Exit code 0: none failed. 1: some did, or the device did not open. 2: what was asked breaks a rule.
#![forbid(unsafe_code)]
// `Ok(request.finish())` says what it does.
#![allow(clippy::unit_arg)]

mod bench;
mod pair;
mod scenarios;

use bench::Bench;
use clap::Parser;
use mlx5_devices::OpenError;
use scenarios::{SCENARIOS, Scenario};
use std::{
    io::{self, Write},
    process::ExitCode,
    time::{Duration, Instant},
};

/// Runs scenarios on an mlx5 device and prints a table
#[derive(Debug, Parser)]
#[command(name = "hw-tests", version)]
struct Cli {
    /// `model` is the software ConnectX, with options as in `model:ports=2`; `vfio:0000:01:00.0` a card's function, and two
    /// with a comma the two ends
    #[arg(long, default_value = "model:ports=2", value_name = "DEVICE")]
    device: String,
    /// Run scenarios with this in their names only; may be given several times
    #[arg(long, value_name = "TEXT")]
    filter: Vec<String>,
    /// Print the scenarios and what they assert, and run none
    #[arg(long)]
    list: bool,
}

/// How a scenario ended.
#[derive(Debug)]
enum Verdict {
    Pass,
    Fail(String),
    Skip(String),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let mut out = io::stdout().lock();
    match run(&cli, &mut out) {
        Ok(code) => code,
        // Whoever read the table went away.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: cannot write to standard output: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli, out: &mut impl Write) -> io::Result<ExitCode> {
    let wanted = |scenario: &&Scenario| {
        cli.filter.is_empty() || cli.filter.iter().any(|text| scenario.name.contains(text.as_str()))
    };
    let chosen: Vec<_> = SCENARIOS.iter().filter(wanted).collect();
    if chosen.is_empty() {
        let _ = writeln!(
            io::stderr(),
            "error: no scenario has {:?} in its name; --list prints all {}",
            cli.filter,
            SCENARIOS.len()
        );
        return Ok(ExitCode::from(2));
    }
    if cli.list {
        for scenario in chosen {
            writeln!(out, "{:<24} {} {:?}", scenario.name, scenario.asserts, scenario.needs)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let bench = match Bench::open(&cli.device) {
        Ok(bench) => bench,
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {error}");
            return Ok(if matches!(error, OpenError::Usage(_)) {
                ExitCode::from(2)
            } else {
                ExitCode::FAILURE
            });
        }
    };
    writeln!(out, "device: {}", bench.describe())?;
    writeln!(out, "{:<24} {:<4} {:>9}  asserts, or the reason", "scenario", "", "ms")?;
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for scenario in chosen {
        let start = Instant::now();
        let (mark, text) = match judge(scenario, &bench) {
            Verdict::Pass => (passed += 1, ("pass", scenario.asserts.to_owned())).1,
            Verdict::Fail(why) => (failed += 1, ("FAIL", why)).1,
            Verdict::Skip(why) => (skipped += 1, ("skip", why)).1,
        };
        writeln!(out, "{:<24} {mark} {:>9.2}  {text}", scenario.name, ms(start.elapsed()))?;
    }
    if let Err(why) = bench.close() {
        failed += 1;
        writeln!(out, "{:<24} FAIL {:>9}  {why}", "close", "")?;
    }
    writeln!(out, "{passed} passed, {failed} failed, {skipped} skipped")?;
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Runs a scenario if the device has what it needs.
fn judge(scenario: &Scenario, bench: &Bench) -> Verdict {
    if let Some(why) = scenario.needs.iter().find_map(|need| need.missing_on(bench)) {
        return Verdict::Skip(why);
    }
    let result = (scenario.run)(bench).map_err(|error| error.to_string());
    // Taken whatever the result, so that they are not told of the next scenario.
    let broken = bench.take_violations();
    match (result, broken.as_slice()) {
        (Err(why), _) => Verdict::Fail(why),
        (Ok(()), []) => Verdict::Pass,
        (Ok(()), [first, ..]) => Verdict::Fail(format!("{} rules broken: {first}", broken.len())),
    }
}
