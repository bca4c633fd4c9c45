//! The whole driver with a card under it, subject by subject. One program, so that it is linked once: `cargo test --test card rc_operations::`
//! runs a subject.

#[path = "../support/mod.rs"]
mod support;

mod addresses;
mod async_events;
mod completion;
mod device;
mod explained;
mod faults;
mod firmware;
mod infiniband;
mod memory;
mod memory_sharing;
mod qp_lifecycle;
mod qp_states;
mod raw_packet;
mod rc_errors;
mod rc_faults;
mod rc_load;
mod rc_operations;
mod rc_rings;
mod stores;
mod uc;
mod ud;
mod umr;
mod windows;
mod wire;
mod xrc;
