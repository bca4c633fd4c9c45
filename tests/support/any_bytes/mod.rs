//! Inputs from seeds, from a fuzzer and from its corpus: random bytes, and good ones that were damaged. What fails is tried
//! again by the line that it prints.
#![allow(dead_code, unreachable_pub)] // each test program uses its part

mod choices;
mod measured;

pub use choices::Choices;
use measured::Measured;
use std::{env, fs, path::Path};

#[global_allocator]
static MEMORY: Measured = Measured::new();

/// No input here is longer than some KiB.
const MAX_ALLOCATION_BYTES: usize = 64 << 20;

/// Calls `check`; fails if there was an allocation larger than any input can be worth.
pub fn bounded<T>(check: impl FnOnce() -> T) -> T {
    let done = check();
    let largest = MEMORY.largest();
    assert!(largest <= MAX_ALLOCATION_BYTES, "an allocation of {largest} bytes");
    done
}

/// Calls `try_one` with choices of its own for each of `n` seeds; `MLX5_FUZZ_RUNS` for another number, `MLX5_SEED` for
/// another first seed.
pub fn for_seeds(test: &str, n: u64, mut try_one: impl FnMut(Choices)) {
    let number =
        |name| env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is no number")));
    let first: u64 = number("MLX5_SEED").unwrap_or(1);
    for seed in first..first + number("MLX5_FUZZ_RUNS").unwrap_or(n) {
        let replay = Replay(format!("MLX5_SEED={seed} MLX5_FUZZ_RUNS=1 cargo test {test}"));
        bounded(|| try_one(Choices::seeded(seed)));
        std::mem::forget(replay);
    }
}

/// Calls `try_one` with each input that fuzzing `target` has found to do something new (`fuzz/README.md`).
pub fn for_corpus(target: &str, mut try_one: impl FnMut(&[u8])) {
    let folder = Path::new("fuzz/corpus").join(target);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().find(|dir| dir.join(&folder).is_dir());
    let folder = root.unwrap_or_else(|| panic!("no {}", folder.display())).join(folder);
    let mut files: Vec<_> =
        fs::read_dir(folder).expect("a corpus").map(|file| file.expect("a file").path()).collect();
    files.sort();
    assert!(!files.is_empty(), "no inputs of {target}");
    for file in files {
        let input = fs::read(&file).expect("an input");
        let replay = Replay(format!("fuzz/run {target} {}", file.display()));
        bounded(|| try_one(&input));
        std::mem::forget(replay);
    }
}

/// Says on a panic how to do it again.
struct Replay(String);

impl Drop for Replay {
    fn drop(&mut self) {
        eprintln!("again: {}", self.0);
    }
}

/// At most `max_len` random bytes, often mostly zeros.
pub fn bytes(choices: &mut Choices, max_len: usize) -> Vec<u8> {
    let mut bytes = vec![0; choices.below(max_len + 1)];
    if choices.bool() {
        choices.fill(&mut bytes);
    } else {
        for _ in 0..choices.below(8) {
            damage(choices, &mut bytes);
        }
    }
    bytes
}

/// Changes one thing about `bytes`: a bit, a byte, a word, or a part that is another's.
pub fn damage(choices: &mut Choices, bytes: &mut [u8]) {
    const EDGES: [u64; 8] =
        [0, 1, 0x7f, 0xff, 0x7fff_ffff, 0xffff_ffff, 0x8000_0000_0000_0000, 0xffff_ffff_ffff_ffff];
    if bytes.is_empty() {
        return;
    }
    let at = choices.below(bytes.len());
    let n_left = bytes.len() - at;
    match choices.below(5) {
        0 => bytes[at] ^= 1 << choices.below(8),
        1 => bytes[at] = choices.u8(),
        2 => {
            let edge = choices.one_of(&EDGES).to_be_bytes();
            let n = n_left.min(*choices.one_of(&[1, 2, 4, 8]));
            bytes[at..at + n].copy_from_slice(&edge[8 - n..]);
        }
        3 => {
            let from = choices.below(bytes.len());
            let n = n_left.min(bytes.len() - from).min(16);
            bytes.copy_within(from..from + n, at);
        }
        _ => bytes[at..at + n_left.min(16)].fill(0),
    }
}

/// Text: `good` with characters changed, taken out, doubled.
pub fn text(choices: &mut Choices, good: &str) -> String {
    const STRANGE: &str = "0123456789abcdefx:,.;=-+ \n\t%/é\u{0}\u{1f600}";
    let strange: Vec<char> = STRANGE.chars().collect();
    let mut text: Vec<char> = good.chars().collect();
    for _ in 0..choices.below(6) {
        let at = choices.below(text.len() + 1);
        match choices.below(4) {
            0 if at < text.len() => _ = text.remove(at),
            1 if at < text.len() => text[at] = *choices.one_of(&strange),
            2 => text.insert(at, *choices.one_of(&strange)),
            _ => text.extend_from_within(at..),
        }
    }
    text.into_iter().take(4096).collect()
}
