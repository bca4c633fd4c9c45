//! WQEs of any segments in a send queue.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| mlx5_fuzz::execution(input));
