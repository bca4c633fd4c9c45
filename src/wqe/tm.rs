//! The tag matching segment: changes the list of tags of a shared receive queue (XRQ).

use crate::mlx5::layout::{layout, wire_enum};

layout! {
    /// Tag matching segment (rdma-core `mlx5_wqe_tm_seg`). A data segment follows where a tag is appended.
    pub struct TmSeg, 32, "wqe_tm_seg" {
        /// What is done to the list.
        0x00 [31:28] op: TmOp,
        /// A completion is wanted.
        0x00 [23:23] cqe_req: bool,
        /// [`sw_cnt`](Self::sw_cnt) counts.
        0x00 [22:22] sw_cnt_valid: bool,
        /// The entry: where the next one goes, or which is removed.
        0x00 [15:0] index: u16,
        /// Unexpected messages that software has seen.
        0x04 [15:0] sw_cnt: u16,
        /// The tag.
        0x10 [63:0] append_tag: u64,
        /// Bits of it that must match.
        0x18 [63:0] append_mask: u64,
    }
}

wire_enum! {
    /// `tm.op`: what is done to a list of tags.
    pub struct TmOp(u8), "tm_op" {
        /// Only the count of unexpected messages.
        NOP = 0,
        /// A tag is added, with memory for its message.
        APPEND = 1,
        /// A tag is taken out.
        REMOVE = 2,
    }
}
