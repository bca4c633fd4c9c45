//! CQEs, read and retired.
#![no_main]

#[path = "../../tests/support/any_bytes/mod.rs"]
mod any_bytes;
#[path = "../../tests/any_bytes/cqe.rs"]
mod cqe;
#[path = "../../tests/fixture/mod.rs"]
mod fixture;

libfuzzer_sys::fuzz_target!(|input: &[u8]| any_bytes::bounded(|| cqe::check(any_bytes::Choices::given(
    input
))));
