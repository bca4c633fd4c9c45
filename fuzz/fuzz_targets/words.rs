//! Names, addresses and scripts that users write.
#![no_main]

#[path = "../../tests/support/any_bytes/mod.rs"]
mod any_bytes;
#[path = "../../tests/any_bytes/words.rs"]
mod words;

libfuzzer_sys::fuzz_target!(|input: &[u8]| any_bytes::bounded(|| words::check(&String::from_utf8_lossy(
    input
))));
