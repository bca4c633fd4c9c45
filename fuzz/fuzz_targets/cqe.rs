//! CQEs, read and retired.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| mlx5_fuzz::cqe(input));
