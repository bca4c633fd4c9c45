//! What the device is, except WQEs and CQEs: registers, contexts, commands, events. Layouts only.

pub mod be;
pub mod ids;
pub mod layout;
