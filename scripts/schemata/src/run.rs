//! Runs tests once for each mutant: those that come to it, the quickest first, until one fails.

use std::{
    collections::BTreeSet,
    error::Error,
    fs, io,
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

/// At once; some tests have threads of their own.
const JOBS: usize = 2;
/// Processor time that a test may use beside what it takes without a mutant. Not time on the clock: others may use the
/// processors too.
const PATIENCE: Duration = Duration::from_secs(5);
/// Whoever uses less than a twentieth of a processor for so long waits for what does not come.
const STILL: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(2);

/// A test program, and where it runs.
struct Program<'a> {
    package: &'a Path,
    file: &'a Path,
}

/// A test, without a mutant.
struct Test {
    name: String,
    took: Duration,
    reached: BTreeSet<usize>,
}

impl Program<'_> {
    fn command(&self) -> Command {
        let mut command = Command::new(self.file);
        command
            .current_dir(self.package)
            .env("CARGO_MANIFEST_DIR", self.package)
            // What was found need not be made small, nor kept.
            .env("PROPTEST_MAX_SHRINK_ITERS", "0")
            .env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1")
            // The same cases for each mutant, and in each run.
            .env("PROPTEST_RNG_SEED", "6")
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    }

    /// Whether a test passes; `None` if it uses more than `limit` of processor time, or waits for ever.
    fn passes(&self, test: &str, variable: (&str, &str), limit: Duration) -> io::Result<Option<bool>> {
        let mut child =
            self.command().args(["--exact", test, "--test-threads=1"]).env(variable.0, variable.1).spawn()?;
        let (mut since, mut used_then) = (Instant::now(), Duration::ZERO);
        for look in 0u32.. {
            if let Some(status) = child.try_wait()? {
                return Ok(Some(status.success()));
            }
            if look.is_multiple_of(100) {
                let used_now = used(child.id())?;
                let is_due = since.elapsed() > STILL;
                if used_now > limit || is_due && used_now.saturating_sub(used_then) < STILL / 20 {
                    break;
                }
                if is_due {
                    (since, used_then) = (Instant::now(), used_now);
                }
            }
            thread::sleep(LOOK);
        }
        child.kill()?;
        child.wait()?;
        Ok(None)
    }

    /// All tests, the quickest first.
    fn tests(&self) -> Result<Vec<Test>, Box<dyn Error>> {
        let list =
            self.command().args(["--list", "--format", "terse"]).stdout(Stdio::piped()).output()?.stdout;
        let mut tests = Vec::new();
        let reached = self.package.join("reached.txt");
        for name in String::from_utf8(list)?.lines().filter_map(|line| line.strip_suffix(": test")) {
            let start = Instant::now();
            _ = fs::remove_file(&reached);
            let variable = ("MUTANTS_REACHED", reached.to_str().ok_or("a path in UTF-8")?);
            if self.passes(name, variable, Duration::from_secs(600))? != Some(true) {
                return Err(format!("{name} fails without any mutant").into());
            }
            let took = start.elapsed();
            let reached = fs::read_to_string(&reached).unwrap_or_default();
            let reached = reached.lines().filter_map(|id| id.parse().ok()).collect();
            tests.push(Test { name: name.to_owned(), took, reached });
        }
        tests.sort_by_key(|test| test.took);
        Ok(tests)
    }

    /// What becomes of a mutant: whether all tests that come to it pass, or `None` for one that does not end. A test that fails
    /// has to fail twice: it may watch a clock, and others use the processors too.
    fn survives(&self, tests: &[Test], id: usize) -> io::Result<Option<bool>> {
        let variable = ("MUTANT", &*id.to_string());
        for test in tests.iter().filter(|test| test.reached.contains(&id)) {
            for time in 0..2 {
                match self.passes(&test.name, variable, PATIENCE + test.took * 2)? {
                    Some(true) => break,
                    Some(false) if time == 0 => continue,
                    other => return Ok(other),
                }
            }
        }
        Ok(Some(true))
    }
}

/// Processor time that a process has used, all its threads together.
fn used(pid: u32) -> io::Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // utime and stime. The second field, a name in parentheses, may have spaces in it.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: u64 = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    // Linux tells user space 100 a second, whatever it counts in.
    Ok(Duration::from_millis(10 * ticks))
}

/// Tries all of `made`.
pub fn run(package: &Path, program: &Path, made: &BTreeSet<usize>) -> Result<Outcomes, Box<dyn Error>> {
    let program = Program { package, file: program };
    let tests = program.tests()?;
    let took: Duration = tests.iter().map(|test| test.took).sum();
    println!("{} tests, {:.1} s without a mutant", tests.len(), took.as_secs_f64());

    let reached: BTreeSet<usize> = tests.iter().flat_map(|test| &test.reached).copied().collect();
    let left = Mutex::new(made.intersection(&reached).copied());
    let unreached: BTreeSet<usize> = made.difference(&reached).copied().collect();
    let outcomes = Mutex::new(Outcomes { missed: unreached.clone(), unreached, ..Outcomes::default() });
    thread::scope(|scope| {
        let jobs: Vec<_> = (0..JOBS)
            .map(|_| {
                scope.spawn(|| {
                    loop {
                        let Some(id) = left.lock().expect("no panic").next() else { return Ok(()) };
                        let survives = program.survives(&tests, id)?;
                        let mut outcomes = outcomes.lock().expect("no panic");
                        match survives {
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
    .map_err(|error: io::Error| error)?;
    Ok(outcomes.into_inner()?)
}
