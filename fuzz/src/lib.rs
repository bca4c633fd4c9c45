//! The checks that the crates' tests make of inputs from seeds, for inputs that a fuzzer makes: one of the name of each target.

#[path = "../../tests/support/any_bytes/mod.rs"]
mod any_bytes;
#[path = "../../model/tests/any_bytes/arrivals.rs"]
mod arrivals;
#[path = "../../model/tests/any_bytes/card.rs"]
mod card;
#[path = "../../model/tests/any_bytes/commands.rs"]
mod commands;
#[path = "../../study/tests/any_text/comparing.rs"]
mod comparing;
#[path = "../../tests/any_bytes/cqe.rs"]
mod cqe;
#[path = "../../study/tests/any_text/decoding.rs"]
mod decoding;
#[path = "../../study/tests/any_text/encoding.rs"]
mod encoding;
#[path = "../../model/tests/any_bytes/execution.rs"]
mod execution;
#[path = "../../tests/fixture/mod.rs"]
mod fixture;
#[allow(dead_code)] // the model's tests use the rest
#[path = "../../model/tests/raw/keys.rs"]
mod keys;
#[allow(dead_code)] // the driver's tests count what came of it
#[path = "../../tests/any_bytes/opening.rs"]
mod opening;
#[allow(dead_code)] // the model's tests use the rest
#[path = "../../model/tests/raw/rig.rs"]
mod rig;
#[path = "../../tests/any_bytes/structures.rs"]
mod structures;
#[path = "../../model/tests/any_bytes/wire.rs"]
mod wire;
#[path = "../../tests/any_bytes/words.rs"]
mod words;
#[path = "../../tests/any_bytes/wqe.rs"]
mod wqe;

use any_bytes::{Choices, bounded};

/// Frames that come in at a card's port.
pub fn arrivals(input: &[u8]) {
    bounded(|| arrivals::check(Choices::given(input)));
}

/// Entries of the command queue with anything in them.
pub fn command_entries(input: &[u8]) {
    bounded(|| commands::check_entries(Choices::given(input)));
}

/// Commands of a driver that asks for anything.
pub fn commands(input: &[u8]) {
    bounded(|| commands::check(Choices::given(input)));
}

/// Structures, traces and packets, taken apart to be compared.
pub fn compare(input: &[u8]) {
    bounded(|| comparing::check(input));
}

/// CQEs, read and retired.
pub fn cqe(input: &[u8]) {
    bounded(|| cqe::check(Choices::given(input)));
}

/// Text, read for what devices say.
pub fn decode(input: &[u8]) {
    bounded(|| decoding::check(input));
}

/// Requests in JSON, encoded.
pub fn encode(input: &[u8]) {
    bounded(|| encoding::check(input));
}

/// WQEs of any segments in a send queue.
pub fn execution(input: &[u8]) {
    bounded(|| execution::check(Choices::given(input)));
}

/// A card whose firmware lies, opened and used.
pub fn opening(input: &[u8]) {
    bounded(|| opening::check(Choices::given(input)));
}

/// Stores of either width to a UAR page.
pub fn stores(input: &[u8]) {
    bounded(|| execution::check_stores(Choices::given(input)));
}

/// Structures of the device, printed.
pub fn structures(input: &[u8]) {
    bounded(|| structures::check(input));
}

/// Packets of the wire.
pub fn wire(input: &[u8]) {
    bounded(|| wire::check(input));
}

/// Names, addresses and scripts that users write.
pub fn words(input: &[u8]) {
    bounded(|| words::check(&String::from_utf8_lossy(input)));
}

/// WQEs, taken apart.
pub fn wqe(input: &[u8]) {
    bounded(|| wqe::check(input));
}
