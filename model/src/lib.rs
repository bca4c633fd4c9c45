//! A software ConnectX.

pub mod exec;
pub mod wire;
