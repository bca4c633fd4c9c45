//! Text, read for what devices say.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| mlx5_fuzz::decode(input));
