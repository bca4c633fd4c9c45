//! RoCE and InfiniBand on the wire: packets, their checks, the in-memory cable between functions, and the socket that
//! joins cards of different processes.
#![forbid(unsafe_code)]

mod datagram;
mod extension;
pub mod icrc;
pub mod link;
pub(crate) mod neighbour;
pub mod opcode;
pub mod packet;
mod parse;
pub mod uplink;
mod uplink_address;

pub use extension::{Acknowledgement, Aeth, AtomicEth, DcEth, Deth, MaskEth, Reth};
pub use link::{Address, Fate, Interference, Port, Wire};
pub use opcode::{Opcode, Transport};
pub use packet::{Bth, Ethernet, Headers, LinkHeader, Lrh, MAX_FRAME_BYTES, Network, Packet, PacketError};
pub use uplink::{Uplink, UplinkCounters};
pub use uplink_address::UplinkAddress;
