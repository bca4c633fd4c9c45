//! A software ConnectX.

pub mod exec;
