//! Runs the test program once for each mutant.

use std::{
    collections::BTreeSet,
    error::Error,
    fs,
    path::Path,
    process::{Command, Stdio},
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

/// What became of the mutants.
#[derive(Default)]
pub struct Outcomes {
    pub caught: BTreeSet<usize>,
    pub timeout: BTreeSet<usize>,
    pub missed: BTreeSet<usize>,
    /// Those of `missed` that no test comes to.
    pub unreached: BTreeSet<usize>,
}

/// At once; each has threads of its own.
const JOBS: usize = 2;
/// Beside the time that the tests take without a mutant.
const PATIENCE: Duration = Duration::from_secs(15);

fn tests(package: &Path, program: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .args(["-Z", "unstable-options", "--fail-fast", "--test-threads=2"])
        .current_dir(package)
        .env("CARGO_MANIFEST_DIR", package)
        .env("RUSTC_BOOTSTRAP", "1")
        // What was found need not be made small, nor kept.
        .env("PROPTEST_MAX_SHRINK_ITERS", "0")
        .env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// Whether the tests pass within `limit`; `None` if they take longer.
fn pass(mut command: Command, limit: Duration) -> Result<Option<bool>, std::io::Error> {
    let (mut child, start) = (command.spawn()?, Instant::now());
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status.success()));
        }
        if start.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Tries all of `made`.
pub fn run(package: &Path, program: &Path, made: &BTreeSet<usize>) -> Result<Outcomes, Box<dyn Error>> {
    let (start, list) = (Instant::now(), package.join("reached.txt"));
    let mut command = tests(package, program);
    command.env("MUTANTS_REACHED", &list).stdout(Stdio::inherit());
    if pass(command, Duration::from_secs(600))? != Some(true) {
        return Err("the tests fail without any mutant".into());
    }
    let limit = PATIENCE + start.elapsed() * 2;
    let reached: BTreeSet<usize> =
        fs::read_to_string(list)?.lines().filter_map(|id| id.parse().ok()).collect();

    let left = Mutex::new(made.iter().copied().filter(|id| reached.contains(id)));
    let unreached: BTreeSet<usize> = made.difference(&reached).copied().collect();
    let outcomes = Mutex::new(Outcomes { missed: unreached.clone(), unreached, ..Outcomes::default() });
    thread::scope(|scope| {
        let jobs: Vec<_> = (0..JOBS)
            .map(|_| {
                scope.spawn(|| {
                    loop {
                        let Some(id) = left.lock().expect("no panic").next() else { return Ok(()) };
                        let mut command = tests(package, program);
                        command.env("MUTANT", id.to_string());
                        let passed = pass(command, limit)?;
                        let mut outcomes = outcomes.lock().expect("no panic");
                        match passed {
                            Some(true) => &mut outcomes.missed,
                            Some(false) => &mut outcomes.caught,
                            None => &mut outcomes.timeout,
                        }
                        .insert(id);
                    }
                })
            })
            .collect();
        jobs.into_iter().try_for_each(|job| job.join().expect("no panic"))
    })
    .map_err(|error: std::io::Error| error)?;
    Ok(outcomes.into_inner()?)
}
