//! Structures, traces and packets, taken apart to be compared.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| mlx5_fuzz::compare(input));
