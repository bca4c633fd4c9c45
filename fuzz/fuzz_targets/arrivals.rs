//! Frames that come in at a card's port.
#![no_main]

#[path = "../../tests/support/any_bytes/mod.rs"]
mod any_bytes;
#[path = "../../model/tests/any_bytes/arrivals.rs"]
mod arrivals;
#[path = "../../model/tests/any_bytes/card.rs"]
mod card;
#[allow(dead_code)] // each program uses its part
#[path = "../../model/tests/raw/keys.rs"]
mod keys;
#[allow(dead_code)] // each program uses its part
#[path = "../../model/tests/raw/rig.rs"]
mod rig;
#[path = "../../model/tests/any_bytes/wire.rs"]
mod wire;

libfuzzer_sys::fuzz_target!(|input: &[u8]| any_bytes::bounded(|| arrivals::check(
    any_bytes::Choices::given(input)
)));
