//! The device over a software card: what the kernel's mlx5_ib does with a program's commands.
//!
//! The card is brought up, and objects are made in it, by real commands, through the driver's own command interface
//! (`mlx5_direct::backend::prm`). Rings and doorbell records are the program's memory, mapped for the card; UAR pages are
//! those of its BAR.
//!
//! | room | what is in it |
//! |---|---|
//! | `card` | the card, its threads, the report at the end |
//! | `context` | an open device: the commands, and what is short |
//! | `answers` | what a device and a port are |
//! | `memory` | the program's memory |
//! | `cq`, `qp`, `srq` | queues |
//! | `state` | queue pairs: states and attributes |
//! | `address` | ways to peers |
//! | `uar` | the pages that the program rings on |
//! | `events` | descriptors of events |
//! | `tree` | the GID table, as sysfs has it |

mod address;
mod answers;
pub(crate) mod card;
mod context;
mod cq;
pub(crate) mod events;
mod memory;
mod qp;
mod srq;
mod state;
mod tree;
pub(crate) mod uar;

pub(crate) use context::Context;

use mlx5_direct::Error;
use std::{
    collections::BTreeSet,
    ffi::c_int,
    sync::{Mutex, PoisonError},
};

/// Says on standard error what was asked for and is not done; the same thing once.
pub(crate) fn complain(text: &str) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    if SAID.lock().unwrap_or_else(PoisonError::into_inner).insert(text.into()) {
        eprintln!("mlx5-uverbs: {text}");
    }
}

/// What was refused is said, and its errno is for the program.
fn refused(error: Error) -> c_int {
    complain(&error.to_string());
    match error {
        Error::DeviceGone(_) => libc::EIO,
        Error::Os { source, .. } => source.raw_os_error().unwrap_or(libc::ENOMEM),
        Error::Command { .. } => libc::EREMOTEIO,
        Error::Unsupported { .. } => libc::EOPNOTSUPP,
        _ => libc::EINVAL,
    }
}

/// Something that verbs have and this device does not.
fn unsupported(what: &str) -> c_int {
    complain(&format!("{what}: not done here"));
    libc::EOPNOTSUPP
}
