//! The CQE of a send WQE.

use super::{CqeFormat, CqeOpcode};
use crate::{
    mlx5::{
        ids::{Qpn, UserIndex},
        layout::layout,
    },
    wqe::SendOpcode,
};

layout! {
    /// Send completion, opcode `REQ`: this WQE and all before it are done.
    pub struct RequesterCqe, 64, "cqe64_requester" {
        /// Number that software gave the QP (`cqe_version` 1).
        0x20 [23:0] user_index: UserIndex,
        /// Bytes that a READ or an atomic brought.
        0x2c [31:0] byte_cnt: u32,
        /// Device clock when the WQE completed.
        0x30 [63:0] timestamp: u64,
        /// Opcode of the WQE.
        0x38 [31:24] send_wqe_opcode: SendOpcode,
        /// The send queue's number.
        0x38 [23:0] qpn: Qpn,
        /// `ctrl.wqe_index` of the WQE.
        0x3c [31:16] wqe_counter: u16,
        /// Inverted XOR of the CQE where signatures are on.
        0x3c [15:8] signature: u8,
        /// What the CQE is.
        0x3c [7:4] opcode: CqeOpcode,
        /// What else it carries.
        0x3c [3:2] format: CqeFormat,
        /// Whether it is a solicited event.
        0x3c [1:1] se: bool,
        /// Changes with every lap of the ring: tells a new CQE from an old one.
        0x3c [0:0] owner: bool,
    }
}
