//! Commands of a driver that asks for anything.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| mlx5_fuzz::commands(input));
