//! Entries of the command queue with anything in them.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| mlx5_fuzz::command_entries(input));
