//! Bytes taken apart: which structures they are, what each field holds, what it says.

mod completion;
mod cqe;
mod json;
mod kind;

pub use completion::{About, completion};
pub use cqe::{Cqe, cqe};
pub use json::fields;
pub use kind::{As, Guess, Transport, guess};
