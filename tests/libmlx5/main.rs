//! Byte for byte beside the installed libmlx5, which runs unmodified on a pretend kernel device (`model/uverbs`):
//! requests drawn from a seed are posted by it and by us, and CQEs are read by it and by us.
//!
//! `MLX5_SEED` gives another seed than the usual one; what fails says its own.

#[path = "../fixture/mod.rs"]
mod fixture;
#[path = "../../benches/rival/mod.rs"]
mod rival;

mod address;
mod bind;
mod completions;
mod frame;
mod headers;
mod indirect;
mod ours;
mod random;
mod receives;
mod request;
mod sends;

use rival::{launch, library::Library};

/// Runs `body` in a process that has the pretend device. The caller's own test is the one that is named.
fn beside_libmlx5(name: &str, body: impl FnOnce(&'static Library)) {
    beside_libmlx5_with(name, &[], body);
}

/// The same, with settings of the device.
fn beside_libmlx5_with(name: &str, settings: &[(&str, &str)], body: impl FnOnce(&'static Library)) {
    match Library::load() {
        Err(error) => println!("skipped: {error}"),
        Ok(library) => {
            if launch::test_with(name, settings).is_none() {
                body(Box::leak(Box::new(library)));
            }
        }
    }
}
