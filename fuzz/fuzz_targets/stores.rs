//! Stores of either width to a UAR page.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| mlx5_fuzz::stores(input));
