//! Frames that come in at a card's port.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| mlx5_fuzz::arrivals(input));
