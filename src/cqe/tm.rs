//! The CQE of tag matching.

use super::{CqeFormat, CqeOpcode};
use crate::{
    mlx5::{
        ids::{Qpn, UserIndex},
        layout::{layout, wire_enum},
    },
    wqe::Tmh,
};

layout! {
    /// A message that took a tag (rdma-core `mlx5_cqe64` with `app` 1): opcode `RESP_*`, or `NO_PACKET` while its data are still to
    /// come. One that took none is in a WQE of the queue, and its CQE a [`ResponderCqe`](super::ResponderCqe).
    pub struct TmCqe, 64, "cqe64_tm" {
        /// The message's header, in the first CQE of two.
        0x00 [struct] tmh: Tmh,
        /// Number that software gave the XRQ (`cqe_version` 1).
        0x20 [23:0] srqn_or_user_index: UserIndex,
        /// Of a message with immediate data.
        0x24 [31:0] imm_inval_pkey: u32,
        /// The application.
        0x28 [31:24] app: CqeApp,
        /// What happened.
        0x28 [23:16] app_op: TmAppOp,
        /// The entry of the list.
        0x28 [15:0] app_info: u16,
        /// Length of the data in bytes, without headers.
        0x2c [31:0] byte_cnt: u32,
        /// Device clock.
        0x30 [63:0] timestamp: u64,
        /// The local queue pair's number.
        0x38 [23:0] qpn: Qpn,
        /// No WQE's.
        0x3c [31:16] wqe_counter: u16,
        /// Inverted XOR of the CQE where signatures are on.
        0x3c [15:8] signature: u8,
        /// What the CQE is.
        0x3c [7:4] opcode: CqeOpcode,
        /// What else it carries.
        0x3c [3:2] format: CqeFormat,
        /// Whether the sender asked for an event.
        0x3c [1:1] se: bool,
        /// Changes with every lap of the ring: tells a new CQE from an old one.
        0x3c [0:0] owner: bool,
    }

    /// An operation on the list of tags: opcode `NO_PACKET`.
    pub struct TmListCqe, 64, "cqe64_tm" {
        /// What came of it.
        0x00 [struct] outcome: TmOutcome,
        /// Number that software gave the XRQ (`cqe_version` 1).
        0x20 [23:0] srqn_or_user_index: UserIndex,
        /// The application.
        0x28 [31:24] app: CqeApp,
        /// Which operation.
        0x28 [23:16] app_op: TmAppOp,
        /// Device clock.
        0x30 [63:0] timestamp: u64,
        /// The queue pair that holds its WQE.
        0x38 [23:0] qpn: Qpn,
        /// Counter of its WQE.
        0x3c [31:16] wqe_counter: u16,
        /// Inverted XOR of the CQE where signatures are on.
        0x3c [15:8] signature: u8,
        /// What the CQE is.
        0x3c [7:4] opcode: CqeOpcode,
        /// What else it carries.
        0x3c [3:2] format: CqeFormat,
        0x3c [1:1] se: bool,
        /// Changes with every lap of the ring: tells a new CQE from an old one.
        0x3c [0:0] owner: bool,
    }

    /// What came of a list operation (rdma-core `mlx5_tm_cqe`).
    pub struct TmOutcome, 16, "tm_cqe" {
        /// REMOVE: the entry was still there.
        0x00 [31:31] success: bool,
        /// Unexpected messages so far. Other than what software has told of: tags added since do not match yet.
        0x04 [31:16] hw_phase_cnt: u16,
    }
}

wire_enum! {
    /// Whose CQE it is (`MLX5_CQE_APP_*`).
    pub struct CqeApp(u8), "cqe_app" {
        /// Nobody's: the transport's own.
        NONE = 0,
        TAG_MATCHING = 1,
    }

    /// What happened to a message, a tag or the list (`MLX5_CQE_APP_OP_TM_*`).
    pub struct TmAppOp(u8), "cqe_app_op_tm" {
        /// A message took the tag; its data come later.
        CONSUMED = 0x1,
        /// They are here.
        EXPECTED = 0x2,
        /// A message took no tag: it is in a WQE of the queue, header first.
        UNEXPECTED = 0x3,
        /// A message asked for no tag: the same.
        NO_TAG = 0x4,
        /// The tag is in the list.
        APPEND = 0x5,
        /// The tag is not in the list any more.
        REMOVE = 0x6,
        /// The count of unexpected messages is known.
        NOOP = 0x7,
        /// A rendezvous took the tag, and is left to software.
        CONSUMED_SW_RDNV = 0x9,
        /// A message took the tag, and its data are here.
        CONSUMED_MSG = 0xa,
        /// A rendezvous took the tag and is left to software; its headers are in the tag's memory.
        CONSUMED_MSG_SW_RDNV = 0xb,
        /// A message took the tag, and its data will not come.
        MSG_COMPLETION_CANCELED = 0xc,
    }
}

impl TmAppOp {
    /// Whether it is an operation on the list, whose CQE is a [`TmListCqe`].
    pub const fn is_list_operation(self) -> bool {
        matches!(self, Self::APPEND | Self::REMOVE | Self::NOOP)
    }

    /// Whether a message took a tag, and its CQE is a [`TmCqe`].
    pub const fn is_of_tag(self) -> bool {
        matches!(
            self,
            Self::CONSUMED
                | Self::EXPECTED
                | Self::CONSUMED_SW_RDNV
                | Self::CONSUMED_MSG
                | Self::CONSUMED_MSG_SW_RDNV
                | Self::MSG_COMPLETION_CANCELED
        )
    }
}
