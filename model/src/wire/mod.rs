//! RoCE on the wire: packets, their check, and the in-memory cable between functions.
#![forbid(unsafe_code)]

pub mod icrc;
pub mod link;
pub mod opcode;
pub mod packet;
mod parse;

pub use link::{Fate, Interference, Port, Wire};
pub use opcode::Opcode;
pub use packet::{
    Acknowledgement, Aeth, AtomicEth, Bth, Deth, Ethernet, Headers, MAX_FRAME_BYTES, Network, Packet,
    PacketError, Reth,
};
