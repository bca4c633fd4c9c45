//! Requests in JSON, encoded.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| mlx5_fuzz::encode(input));
