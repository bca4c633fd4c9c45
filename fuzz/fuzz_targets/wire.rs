//! Packets of the wire.
#![no_main]

#[path = "../../tests/support/any_bytes/mod.rs"]
mod any_bytes;
#[path = "../../model/tests/any_bytes/wire.rs"]
mod wire;

libfuzzer_sys::fuzz_target!(|input: &[u8]| any_bytes::bounded(|| wire::check(input)));
