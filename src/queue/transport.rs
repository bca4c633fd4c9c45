//! Transports as types. Which requests a queue pair takes is known when a program is compiled: those that its
//! transport lacks do not exist, and those that it has are not asked which it is.

use crate::mlx5::context::ServiceType;
use core::fmt::Debug;

/// A transport: [`Rc`], [`Uc`], [`Ud`], [`Xrc`] or [`RawPacket`].
pub trait Transport: sealed::Sealed + Debug + Sized + 'static {
    /// As the device names it.
    const SERVICE: ServiceType;
    /// Segments of a request between its control segment and those of its operation.
    const N_AV_SEGMENTS: u32;
    /// Segments before the data, at most. An atomic has one more, and one piece of data.
    ///
    /// Only of [`RawPacket`] they may be more than the first WQEBB holds.
    const N_HEADER_SEGMENTS: u32;
}

/// A transport between two queue pairs: the way to the peer is in the queue pair, not in the request.
pub trait Paired: Transport {}

/// A transport whose requests are for the peer itself.
pub trait Connected: Paired {}

/// Reliable connection: in order, exactly once, with READs and atomics.
#[derive(Debug, Clone, Copy)]
pub enum Rc {}

/// Unreliable connection: SEND and RDMA WRITE. Nothing is acknowledged, and a message of which a packet is lost
/// never comes.
#[derive(Debug, Clone, Copy)]
pub enum Uc {}

/// Unreliable datagram: SEND of one packet, to any queue pair that an [`AddressHandle`](super::AddressHandle)
/// names.
#[derive(Debug, Clone, Copy)]
pub enum Ud {}

/// Extended reliable connection, the initiator's end: what a reliable connection does, for a shared receive queue that each
/// request names ([`RemoteSrq`](super::RemoteSrq)). It receives nothing.
#[derive(Debug, Clone, Copy)]
pub enum Xrc {}

/// Ethernet frames as they are, from whatever protocol: no transport at all. What requests say beside their data is in
/// an Ethernet segment.
#[derive(Debug, Clone, Copy)]
pub enum RawPacket {}

impl Transport for Rc {
    const SERVICE: ServiceType = ServiceType::RC;
    const N_AV_SEGMENTS: u32 = 0;
    const N_HEADER_SEGMENTS: u32 = 2;
}

impl Transport for Uc {
    const SERVICE: ServiceType = ServiceType::UC;
    const N_AV_SEGMENTS: u32 = 0;
    const N_HEADER_SEGMENTS: u32 = 2;
}

impl Transport for Ud {
    const SERVICE: ServiceType = ServiceType::UD;
    const N_AV_SEGMENTS: u32 = 3;
    const N_HEADER_SEGMENTS: u32 = 4;
}

impl Transport for Xrc {
    const SERVICE: ServiceType = ServiceType::XRC;
    const N_AV_SEGMENTS: u32 = 1;
    const N_HEADER_SEGMENTS: u32 = 3;
}

impl Transport for RawPacket {
    const SERVICE: ServiceType = ServiceType::RAW_ETHERTYPE;
    const N_AV_SEGMENTS: u32 = 1;
    const N_HEADER_SEGMENTS: u32 = 2 + super::raw_packet::MAX_HEADER_SEGMENTS;
}

impl Paired for Rc {}
impl Paired for Uc {}
impl Paired for Xrc {}
impl Connected for Rc {}
impl Connected for Uc {}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Rc {}
    impl Sealed for super::Uc {}
    impl Sealed for super::Ud {}
    impl Sealed for super::Xrc {}
    impl Sealed for super::RawPacket {}
}
