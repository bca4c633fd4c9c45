//! Which Ethernet frames a raw packet queue pair receives.
#![forbid(unsafe_code)]

/// Frames, by fields that must hold a value; fields that are not given hold whatever they do. As it is by default, it
/// is all frames that no other rule takes.
///
/// Where rules of two queue pairs match the same frame, the one with more fields gets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FrameMatch {
    /// Destination MAC address.
    pub dmac: Option<[u8; 6]>,
    /// Source MAC address.
    pub smac: Option<[u8; 6]>,
    /// EtherType, of what follows all VLAN tags.
    pub ethertype: Option<u16>,
    /// Number of the VLAN (802.1Q) of the first tag.
    pub vlan: Option<u16>,
}

/// A rule that was made, of one queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FlowId(pub(crate) u32);
