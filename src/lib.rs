//! Kernel-bypass driver for NVIDIA/Mellanox mlx5 RDMA NICs (ConnectX-5 and later).
//!
//! It builds WQEs by hand in mapped send queues, rings UAR doorbells and parses CQEs. The path to objects is
//! [`Context`] → [`Pd`] → [`Mr`], [`Cq`], [`Qp`]; the path of data is [`queue`]. What the device is, bit by bit,
//! is in [`mlx5`], [`wqe`] and [`cqe`].
//!
//! # Safety model
//! - Memory that the crate owns ([`Mr`]) is reached by copies, and named in requests by a [`queue::Lease`]: all
//!   safe. A queue pair keeps what it was leased registered until the device has destroyed it.
//! - Memory of the application ([`RawMr`]) is registered, and named in requests, by `unsafe` methods that say
//!   what must hold: nobody touches it while the device may.
//! - The device is not trusted: nothing read back from shared memory is used as an index unchecked, and what
//!   it may not say becomes an error.
//! - A peer can do to memory what its access flags allow, and no more.
//!
//! # Features
//! - Without the default feature `std` the crate is layouts, rings and doorbells for `core` alone.
//! - `seeded-mistakes` is for the crate's own tests: it has the driver make a mistake that the test names.
#![cfg_attr(not(any(feature = "std", test)), no_std)]

pub mod cqe;
pub mod doorbell;
#[cfg(feature = "seeded-mistakes")]
pub mod mistake;
#[cfg(not(feature = "seeded-mistakes"))]
mod mistake;
pub mod mlx5;
pub mod queue;
pub mod wqe;

#[cfg(feature = "std")]
mod address;
#[cfg(feature = "std")]
pub mod backend;
#[cfg(feature = "std")]
mod context;
#[cfg(feature = "std")]
mod cq;
#[cfg(feature = "std")]
pub mod device;
#[cfg(feature = "std")]
mod error;
#[cfg(feature = "std")]
pub mod host;
#[cfg(feature = "std")]
mod indirect;
#[cfg(feature = "std")]
mod mr;
#[cfg(feature = "std")]
mod mw;
#[cfg(feature = "std")]
mod pd;
#[cfg(feature = "std")]
mod qp;

#[cfg(feature = "std")]
pub use {
    address::QpAddress,
    backend::Access,
    context::Context,
    cq::{CompChannel, Cq, CqAttr, Events},
    error::{Error, Gone, Result},
    indirect::IndirectMr,
    mr::{Mr, RawMr},
    mw::Mw,
    pd::Pd,
    qp::{Connection, Explanation, Qp, QpInit, RawPacketQp, UcQp, UdQp, XrcQp},
};
