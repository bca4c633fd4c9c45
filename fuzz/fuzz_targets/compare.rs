//! Structures, traces and packets, taken apart to be compared.
#![no_main]

#[path = "../../tests/support/any_bytes/mod.rs"]
mod any_bytes;
#[path = "../../study/tests/any_text/comparing.rs"]
mod comparing;
#[allow(dead_code)] // its kinds are used
#[path = "../../study/tests/any_text/decoding.rs"]
mod decoding;

libfuzzer_sys::fuzz_target!(|input: &[u8]| any_bytes::bounded(|| comparing::check(input)));
