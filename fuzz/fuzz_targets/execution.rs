//! WQEs of any segments in a send queue.
#![no_main]

#[path = "../../tests/support/any_bytes/mod.rs"]
mod any_bytes;
#[path = "../../model/tests/any_bytes/card.rs"]
mod card;
#[path = "../../model/tests/any_bytes/execution.rs"]
mod execution;
#[allow(dead_code)] // each program uses its part
#[path = "../../model/tests/raw/keys.rs"]
mod keys;
#[allow(dead_code)] // each program uses its part
#[path = "../../model/tests/raw/rig.rs"]
mod rig;

libfuzzer_sys::fuzz_target!(|input: &[u8]| any_bytes::bounded(|| execution::check(
    any_bytes::Choices::given(input)
)));
