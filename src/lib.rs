//! Kernel-bypass driver for NVIDIA/Mellanox mlx5 RDMA NICs.
#![cfg_attr(not(feature = "std"), no_std)]

pub mod cqe;
pub mod doorbell;
pub mod mlx5;
pub mod queue;
pub mod wqe;

#[cfg(feature = "std")]
pub mod backend;
#[cfg(feature = "std")]
mod error;
#[cfg(feature = "std")]
pub use error::{Error, Gone, Result};
