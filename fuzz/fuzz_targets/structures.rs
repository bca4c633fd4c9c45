//! Structures of the device, printed.
#![no_main]

#[path = "../../tests/support/any_bytes/mod.rs"]
mod any_bytes;
#[path = "../../tests/any_bytes/structures.rs"]
mod structures;

libfuzzer_sys::fuzz_target!(|input: &[u8]| any_bytes::bounded(|| structures::check(input)));
