//! The software ConnectX on a socket: one function of a [`Model`](mlx5_model::Model), served over vfio-user
//! to a virtual machine monitor or any other client of that protocol.
//!
//! The protocol is carried by rust-vmm's `vfio_user`. Here is what stands behind it: BAR0 and config space,
//! the client's memory, MSI-X by eventfd, reset. BAR0 is reached by region reads and writes; its UAR pages
//! can be mapped too, unless the card was made with `bar=trapped`.
//!
//! The client is trusted as far as its memory goes: who shrinks a file that is mapped for DMA takes the server
//! down (SIGBUS). Memory that comes without a file descriptor is accepted and cannot be reached.
#![deny(unsafe_code)]

mod backend;
mod memory;
mod service;

pub use service::{Gone, ServeError, Service};
