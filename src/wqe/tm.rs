//! Tag matching: the segment that changes the list of tags of a shared receive queue (XRQ), and the headers with which messages
//! to it begin.

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

    /// Tag matching header (rdma-core `ibv_tmh`): the first bytes of every message to an XRQ with tag matching.
    pub struct Tmh, 16, "tmh" {
        /// What the message is.
        0x00 [31:24] opcode: TmhOp,
        /// The sender's own; comes back in the CQE, and in the FIN of a rendezvous.
        0x04 [31:0] app_ctx: u32,
        0x08 [63:0] tag: u64,
    }

    /// Rendezvous header (rdma-core `ibv_rvh`), behind the other: where the data are.
    pub struct Rvh, 16, "rvh" {
        /// Address at the sender.
        0x00 [63:0] va: u64,
        /// Key that opens them to RDMA READ.
        0x08 [31:0] rkey: u32,
        /// How long they are.
        0x0c [31:0] len_bytes: u32,
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

    /// `tmh.opcode`: what a message is (`IBV_TMH_*`).
    pub struct TmhOp(u8), "tmh_op" {
        /// A message without a tag.
        NO_TAG = 0,
        /// Where the data of a tag are; the receiver reads them.
        RNDV = 1,
        /// They were read.
        FIN = 2,
        /// Data of a tag.
        EAGER = 3,
    }
}
