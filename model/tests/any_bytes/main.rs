//! Whatever a driver or a peer sends: the model does not panic, allocate without bound, or hang. What must hold of it is said
//! once for inputs from seeds, for fuzzers (`fuzz`) and for what these have found.

#[path = "../../../tests/support/any_bytes/mod.rs"]
mod any_bytes;
mod arrivals;
mod card;
mod commands;
mod execution;
#[allow(dead_code)] // each test program uses its part
#[path = "../raw/keys.rs"]
mod keys;
#[allow(dead_code)] // each test program uses its part
#[path = "../raw/rig.rs"]
mod rig;
mod wire;

use any_bytes::{Choices, bytes, for_corpus, for_seeds};

#[test]
fn commands_are_executed_or_refused() {
    for_seeds("-p mlx5-model --test any_bytes commands", 60, commands::check);
    for_corpus("commands", |input| commands::check(Choices::given(input)));
}

#[test]
fn entries_of_the_command_queue_are_read_or_refused() {
    for_seeds("-p mlx5-model --test any_bytes entries", 300, commands::check_entries);
    for_corpus("command_entries", |input| commands::check_entries(Choices::given(input)));
}

#[test]
fn wqes_are_executed_or_refused() {
    for_seeds("-p mlx5-model --test any_bytes wqes", 300, execution::check);
    for_corpus("execution", |input| execution::check(Choices::given(input)));
}

#[test]
fn stores_to_a_uar_page_are_taken_or_passed_over() {
    for_seeds("-p mlx5-model --test any_bytes stores", 100, execution::check_stores);
    for_corpus("stores", |input| execution::check_stores(Choices::given(input)));
}

#[test]
fn arrivals_are_answered_or_dropped() {
    for_seeds("-p mlx5-model --test any_bytes arrivals", 100, arrivals::check);
    for_corpus("arrivals", |input| arrivals::check(Choices::given(input)));
}

#[test]
fn frames_are_parsed_or_refused() {
    for_seeds("-p mlx5-model --test any_bytes frames", 30_000, |mut choices| {
        let mut frame = bytes(&mut choices, 300);
        // Ethernet of a kind that goes on.
        if frame.len() > 60 && !choices.one_in(4) {
            let ethertype = *choices.one_of(&[[8, 0], [0x86, 0xdd], [0x89, 0x15], [0x81, 0]]);
            frame[12..14].copy_from_slice(&ethertype);
            if ethertype == [8, 0] {
                frame[14] = 0x45;
                frame[23] = 17;
                frame[36..38].copy_from_slice(&4791u16.to_be_bytes());
            }
        }
        wire::check(&frame);
    });
    for_corpus("wire", wire::check);
}
