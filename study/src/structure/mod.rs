//! Bytes taken apart: which structures they are, what each field holds, what it says.

mod command;
mod completion;
mod cqe;
mod eqe;
mod json;
mod kind;
mod wqe;

pub use command::{CommandBytes, Direction, command, input_or_output};
pub(crate) use command::{ENTRY_BYTES, blocks};
pub use completion::{About, completion};
pub use cqe::{Cqe, cqe};
pub use eqe::{Eqe, eqe};
pub use json::fields;
pub use kind::{As, Guess, Transport, guess};
pub(crate) use kind::{cqes, is_whole_wqe};
pub use wqe::{Receive, ReceiveHead, Wqe, receive, wqe};
