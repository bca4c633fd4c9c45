//! Text, read for what devices say.
#![no_main]

#[path = "../../tests/support/any_bytes/mod.rs"]
mod any_bytes;
#[path = "../../study/tests/any_text/decoding.rs"]
mod decoding;

libfuzzer_sys::fuzz_target!(|input: &[u8]| any_bytes::bounded(|| decoding::check(input)));
