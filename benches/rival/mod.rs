//! The rival: Debian's unmodified libibverbs and libmlx5, on the pretend kernel device of the package
//! `mlx5-uverbs`. Nothing of it is needed to build.
//!
//! What is made here lives as long as the program.
#![allow(dead_code, unreachable_pub)] // included by a benchmark and by tests, each of which uses its part

pub mod device;
pub mod eyes;
pub mod ffi;
pub mod launch;
pub mod library;
pub mod ops;
