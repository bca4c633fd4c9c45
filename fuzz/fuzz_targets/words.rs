//! Names, addresses and scripts that users write.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| mlx5_fuzz::words(input));
