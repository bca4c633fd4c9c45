//! Requests in JSON, encoded.
#![no_main]

#[path = "../../tests/support/any_bytes/mod.rs"]
mod any_bytes;
#[path = "../../study/tests/any_text/encoding.rs"]
mod encoding;

libfuzzer_sys::fuzz_target!(|input: &[u8]| any_bytes::bounded(|| encoding::check(input)));
