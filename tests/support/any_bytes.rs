//! Inputs from seeds: random bytes, and good ones that were damaged. What fails is tried again by the line that it prints.
#![allow(dead_code, unreachable_pub)] // each test program uses its part

pub use fastrand::Rng;
use std::{
    alloc::{GlobalAlloc, Layout, System},
    env,
    sync::atomic::{AtomicUsize, Ordering},
};

/// Calls `try_one` with a generator of its own for each of `n` seeds; `MLX5_FUZZ_RUNS` for another number, `MLX5_SEED` for
/// another first seed.
pub fn for_seeds(test: &str, n: u64, mut try_one: impl FnMut(&mut Rng)) {
    let number =
        |name| env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is no number")));
    let first: u64 = number("MLX5_SEED").unwrap_or(1);
    for seed in first..first + number("MLX5_FUZZ_RUNS").unwrap_or(n) {
        let replay = Replay { test, seed };
        try_one(&mut Rng::with_seed(seed));
        std::mem::forget(replay);
    }
}

struct Replay<'t> {
    test: &'t str,
    seed: u64,
}

impl Drop for Replay<'_> {
    fn drop(&mut self) {
        eprintln!("again: MLX5_SEED={} MLX5_FUZZ_RUNS=1 cargo test {}", self.seed, self.test);
    }
}

/// At most `max_len` random bytes, often mostly zeros.
pub fn bytes(rng: &mut Rng, max_len: usize) -> Vec<u8> {
    let mut bytes = vec![0; rng.usize(..=max_len)];
    if rng.bool() {
        rng.fill(&mut bytes);
    } else {
        for _ in 0..rng.usize(..8) {
            damage(rng, &mut bytes);
        }
    }
    bytes
}

/// Changes one thing about `bytes`: a bit, a byte, a word, or a part that is another's.
pub fn damage(rng: &mut Rng, bytes: &mut [u8]) {
    const EDGES: [u64; 8] =
        [0, 1, 0x7f, 0xff, 0x7fff_ffff, 0xffff_ffff, 0x8000_0000_0000_0000, 0xffff_ffff_ffff_ffff];
    if bytes.is_empty() {
        return;
    }
    let at = rng.usize(..bytes.len());
    let n_left = bytes.len() - at;
    match rng.u8(..5) {
        0 => bytes[at] ^= 1 << rng.u8(..8),
        1 => bytes[at] = rng.u8(..),
        2 => {
            let edge = EDGES[rng.usize(..EDGES.len())].to_be_bytes();
            let n = n_left.min(*rng.choice(&[1, 2, 4, 8]).unwrap_or(&1));
            bytes[at..at + n].copy_from_slice(&edge[8 - n..]);
        }
        3 => {
            let from = rng.usize(..bytes.len());
            let n = n_left.min(bytes.len() - from).min(16);
            bytes.copy_within(from..from + n, at);
        }
        _ => bytes[at..at + n_left.min(16)].fill(0),
    }
}

/// Text: `good` with characters changed, taken out, doubled.
pub fn text(rng: &mut Rng, good: &str) -> String {
    const STRANGE: &str = "0123456789abcdefx:,.;=-+ \n\t%/é\u{0}\u{1f600}";
    let strange: Vec<char> = STRANGE.chars().collect();
    let mut text: Vec<char> = good.chars().collect();
    for _ in 0..rng.usize(..6) {
        let at = rng.usize(..=text.len());
        match rng.u8(..4) {
            0 if at < text.len() => _ = text.remove(at),
            1 if at < text.len() => text[at] = strange[rng.usize(..strange.len())],
            2 => text.insert(at, strange[rng.usize(..strange.len())]),
            _ => text.extend_from_within(at..),
        }
    }
    text.into_iter().take(4096).collect()
}

/// The system's allocator, which remembers the largest request.
pub struct Measured(AtomicUsize);

impl Measured {
    pub const fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// Bytes of the largest allocation so far.
    pub fn largest(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

// SAFETY: the system's allocator does it all.
unsafe impl GlobalAlloc for Measured {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.0.fetch_max(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        self.0.fetch_max(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        self.0.fetch_max(new_size, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(memory, layout, new_size) }
    }
}
