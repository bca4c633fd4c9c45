//! Random schedules: posts, polls, sleeps, arms, resets and faults, against a reference that is as plain as can be. Every
//! request has exactly one outcome, in order, whatever goes wrong; and with nothing wrong but the wire, memory is what doing
//! one request after another makes of it.
//!
//! `MLX5_SEEDS=100000 cargo test --release --test schedules` runs more, `MLX5_SEED=7` one of them again.

#[path = "../support/mod.rs"]
mod support;

mod reference;
mod world;

use mlx5_model::fault::{FaultScript, Mix};
use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::Mutex,
    time::{Duration, Instant},
};
use support::{Need, needs};
use world::World;

/// SplitMix64.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// Whether one of `n` chances comes.
    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// Seeds of a run, if nothing else is asked for.
const SEEDS: u64 = 1500;
/// Kinds of faults that happen in them: all that a script can be drawn to have.
const N_KINDS: usize = 22;

fn asked(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|error| panic!("{variable}={text}: {error}")))
}

/// What may go wrong with a seed.
fn mix(seed: u64) -> Mix {
    match seed % 8 {
        6 => Mix::Errors,
        7 => Mix::All,
        _ => Mix::Wire,
    }
}

/// Faults that happened, by kind: `packet drop`, `command stuck`, `time gone`.
type Counts = BTreeMap<String, u64>;

fn run(seed: u64, counts: &mut Counts) {
    let mut draw = Draw(seed);
    let mut world = World::new(mix(seed));
    world.model.inject(&FaultScript::random(seed, mix(seed)));
    let n_steps = 40 + draw.below(160);
    for _ in 0..n_steps {
        world.act(&mut draw);
    }
    for fault in world.finish(&mut draw).faults {
        let fault = fault.to_string();
        let words: Vec<_> = fault.split(' ').filter(|word| !word.starts_with('@')).collect();
        *counts.entry(format!("{} {}", words[0], words[2])).or_default() += 1;
    }
}

/// Runs a seed; a failure says how to have it again.
fn run_told(seed: u64, counts: &mut Counts) {
    let start = Instant::now();
    let result = catch_unwind(AssertUnwindSafe(|| run(seed, counts)));
    let took = start.elapsed();
    if let Err(panic) = result {
        eprintln!("seed {seed} failed; again: MLX5_SEED={seed} cargo test --test schedules");
        resume_unwind(panic);
    }
    assert!(
        took < Duration::from_secs(30),
        "seed {seed} took {took:?}: MLX5_SEED={seed} cargo test --test schedules"
    );
}

#[test]
fn random_schedules_against_a_naive_reference() {
    needs!(Need::Model);
    if let Some(seed) = asked("MLX5_SEED") {
        return run_told(seed, &mut Counts::new());
    }
    let n = asked("MLX5_SEEDS").unwrap_or(SEEDS);
    let n_threads = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let counts = Mutex::new(Counts::new());
    std::thread::scope(|scope| {
        for first in 0..n_threads {
            let counts = &counts;
            scope.spawn(move || {
                let mut mine = Counts::new();
                (first..n).step_by(n_threads as usize).for_each(|seed| run_told(seed, &mut mine));
                let mut counts = counts.lock().unwrap();
                mine.into_iter().for_each(|(kind, n)| *counts.entry(kind).or_default() += n);
            });
        }
    });
    let counts = counts.into_inner().unwrap();
    println!("{n} seeds, faults: {counts:?}");
    // So that it is known what was tried.
    assert!(n < SEEDS || counts.len() >= N_KINDS, "{counts:?}");
}
