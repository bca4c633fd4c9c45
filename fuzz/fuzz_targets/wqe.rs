//! WQEs, taken apart.
#![no_main]

#[path = "../../tests/support/any_bytes/mod.rs"]
mod any_bytes;
#[path = "../../tests/any_bytes/wqe.rs"]
mod wqe;

libfuzzer_sys::fuzz_target!(|input: &[u8]| any_bytes::bounded(|| wqe::check(input)));
