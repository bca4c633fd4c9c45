//! The context of an XRQ: a shared receive queue with an application in the device.

use super::Wq;
use crate::mlx5::{
    ids::{Cqn, UserIndex},
    layout::{layout, wire_enum},
};

layout! {
    /// XRQ context (PRM `xrqc`), the body of CREATE_XRQ and QUERY_XRQ.
    pub struct Xrqc, 320, "xrqc" {
        /// Only read.
        0x00 [31:28] state: XrqState,
        /// The queue may use the reserved lkey.
        0x00 [27:27] rlkey: bool,
        /// The application.
        0x00 [11:8] topology: XrqTopology,
        /// What the device does of it besides.
        0x00 [3:0] offload: XrqOffload,
        /// Comes back in CQEs under `cqe_version` 1.
        0x04 [23:0] user_index: UserIndex,
        /// Where all of its messages and list operations complete.
        0x08 [23:0] cqn: Cqn,
        0x20 [struct] tag_matching_topology_context: TagMatchingTopologyContext,
        /// Where messages go that match nothing.
        0x80 [struct] wq: Wq,
    }

    /// The list of tags (PRM `tag_matching_topology_context`).
    pub struct TagMatchingTopologyContext, 16, "tag_matching_topology_context" {
        /// log2 of its entries.
        0x00 [31:28] log_matching_list_sz: u8,
        /// Only read: the entry that the next APPEND fills.
        0x00 [15:0] append_next_index: u16,
        /// Only read: unexpected messages that software has told of.
        0x04 [31:16] sw_phase_cnt: u16,
        /// Only read: unexpected messages.
        0x04 [15:0] hw_phase_cnt: u16,
    }
}

wire_enum! {
    /// `xrqc.state` (`MLX5_XRQC_STATE_*`).
    pub struct XrqState(u8), "xrqc_state" {
        GOOD = 0,
        ERROR = 1,
    }

    /// `xrqc.topology` (`MLX5_XRQC_TOPOLOGY_*`).
    pub struct XrqTopology(u8), "xrqc_topology" {
        /// A shared receive queue as any other.
        NO_SPECIAL_TOPOLOGY = 0,
        /// Messages go to the memory of the first tag that fits.
        TAG_MATCHING = 1,
    }

    /// `xrqc.offload` (`MLX5_XRQC_OFFLOAD_*`).
    pub struct XrqOffload(u8), "xrqc_offload" {
        /// Nothing.
        NONE = 0,
        /// Rendezvous: the device reads the data that a message only tells of.
        RNDV = 1,
    }
}
