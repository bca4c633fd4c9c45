//! A card whose firmware lies, opened and used.
#![no_main]

#[path = "../../tests/support/any_bytes/mod.rs"]
mod any_bytes;
#[path = "../../tests/any_bytes/opening.rs"]
mod opening;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    any_bytes::bounded(|| opening::check(any_bytes::Choices::given(input)));
});
