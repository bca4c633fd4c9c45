//! Runs as people read them.

mod compare;
mod html;
mod terminal;

pub(crate) use compare::compare;
pub(crate) use html::html;
pub(crate) use terminal::{head, row, tail};
