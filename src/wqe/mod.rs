//! Work queue elements.

mod ctrl;

pub use ctrl::{CtrlSeg, SendOpcode};
