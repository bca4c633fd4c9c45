//! A card whose firmware lies, opened and used.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| mlx5_fuzz::opening(input));
