//! Runs the contenders of one operation in turn, and says what each took.

use crate::{
    step::{self, Count},
    timing::{median, percentile, time},
};

/// Who does an operation, and how it is run.
pub struct Contender {
    pub who: &'static str,
    /// The measured function.
    pub entry: usize,
    /// Makes room, or completions, for so many calls. Not measured.
    pub prepare: Box<dyn FnMut(u32)>,
    /// So many calls.
    pub run: Box<dyn FnMut(u32)>,
}

/// One operation. Ours is the first contender.
pub struct Case {
    pub group: &'static str,
    pub name: &'static str,
    /// Requests or completions of one call.
    pub n: u32,
    /// Calls of one timed round: as many as the smallest ring holds.
    pub calls: u32,
    /// Whether one call by itself is measured too.
    pub isolated: bool,
    /// Makes those who do it.
    pub contenders: Box<dyn FnOnce() -> Vec<Contender>>,
    pub targets: Targets,
}

/// What is aimed at, per request or completion.
#[derive(Clone, Copy, Default)]
pub struct Targets {
    pub ns: Option<f64>,
    pub instructions: Option<f64>,
    /// How many times faster than libmlx5 without locks.
    pub ratio: Option<f64>,
    /// How many times faster than UCX.
    pub ucx_ratio: Option<f64>,
}

/// What one contender took, per request or completion.
pub struct Took {
    pub who: &'static str,
    pub ns: f64,
    pub isolated_ns: Option<f64>,
    /// Of one call.
    pub count: Option<Count>,
    /// Instructions of one call, if they were asked for.
    pub trace: Vec<usize>,
    /// Times what ours took in the same round: median, and the 10th and 90th percentile.
    pub ratio: [f64; 3],
}

/// What an operation took.
pub struct Outcome {
    pub group: &'static str,
    pub name: &'static str,
    pub n: u32,
    pub contenders: Vec<Took>,
    pub targets: Targets,
}

/// Measures an operation.
pub fn run(case: Case, rounds: usize, with_traces: bool) -> Outcome {
    let n = f64::from(case.n);
    let mut all = (case.contenders)();
    let mut counts: Vec<_> = all
        .iter_mut()
        .map(|c| {
            // Once before, so that nothing is done for the first time.
            for _ in 0..2 {
                (c.prepare)(case.calls);
                (c.run)(case.calls);
            }
            (c.prepare)(case.calls);
            let count = step::count(c.entry, || (c.run)(1));
            let trace = if with_traces { step::trace(c.entry, || (c.run)(1)) } else { None };
            (count, trace.unwrap_or_default())
        })
        .collect();
    let n_contenders = all.len();
    let mut together = vec![vec![]; n_contenders];
    let mut alone = vec![vec![]; n_contenders];
    for round in 0..rounds {
        // In turn, and beginning with another one each time: a slow spell of the machine meets all.
        for turn in 0..n_contenders {
            let who = (round + turn) % n_contenders;
            let contender = &mut all[who];
            (contender.prepare)(case.calls);
            let ns = time(|| (contender.run)(case.calls)) / f64::from(case.calls) / n;
            together[who].push(ns);
        }
        for (contender, alone) in all.iter_mut().zip(&mut alone).filter(|_| case.isolated) {
            // One call between two fenced clock readings, less what the readings cost.
            let nothing = (0..8).map(|_| time(|| ())).fold(f64::MAX, f64::min);
            (contender.prepare)(case.calls);
            for _ in 0..case.calls.min(8) {
                alone.push((time(|| (contender.run)(1)) - nothing) / n);
            }
        }
    }
    let ours = together[0].clone();
    let contenders = (0..n_contenders).map(|who| {
        let mut ratios: Vec<_> = together[who].iter().zip(&ours).map(|(a, b)| a / b).collect();
        Took {
            who: all[who].who,
            ns: median(&mut together[who]),
            isolated_ns: case.isolated.then(|| median(&mut alone[who])),
            count: counts[who].0,
            trace: std::mem::take(&mut counts[who].1),
            ratio: [50, 10, 90].map(|p| percentile(&mut ratios, p)),
        }
    });
    let contenders = contenders.collect();
    Outcome { group: case.group, name: case.name, n: case.n, contenders, targets: case.targets }
}
