//! The CQE of a WQE that failed.

use super::{CqeFormat, CqeOpcode};
use crate::{
    mlx5::{
        ids::{Qpn, UserIndex},
        layout::{layout, wire_enum},
    },
    wqe::SendOpcode,
};

layout! {
    /// Error completion, opcodes `REQ_ERR` and `RESP_ERR` (rdma-core `mlx5_err_cqe`).
    pub struct ErrorCqe, 64, "cqe64_error" {
        /// Number that software gave the QP or SRQ (`cqe_version` 1).
        0x20 [23:0] srqn_or_user_index: UserIndex,
        /// Hardware's own syndrome.
        0x34 [31:24] hw_err_synd: u8,
        /// Kind of the hardware syndrome.
        0x34 [23:20] hw_synd_type: u8,
        /// The vendor's reason; only a few values are published.
        0x34 [15:8] vendor_err_synd: u8,
        /// What went wrong.
        0x34 [7:0] syndrome: CqeSyndrome,
        /// Opcode of the send WQE that failed.
        0x38 [31:24] send_wqe_opcode: SendOpcode,
        /// The queue pair's number.
        0x38 [23:0] qpn: Qpn,
        /// `ctrl.wqe_index` of the send WQE, or counter of the receive WQE.
        0x3c [31:16] wqe_counter: u16,
        /// Inverted XOR of the CQE where signatures are on.
        0x3c [15:8] signature: u8,
        /// `REQ_ERR` or `RESP_ERR`.
        0x3c [7:4] opcode: CqeOpcode,
        /// What else it carries.
        0x3c [3:2] format: CqeFormat,
        /// Whether it is a solicited event.
        0x3c [1:1] se: bool,
        /// Changes with every lap of the ring: tells a new CQE from an old one.
        0x3c [0:0] owner: bool,
    }
}

wire_enum! {
    /// Why a WQE failed (`MLX5_CQE_SYNDROME_*`).
    pub struct CqeSyndrome(u8), "cqe_syndrome" {
        /// Message longer than the receive WQE's scatter list, or than the port allows.
        LOCAL_LENGTH_ERR = 0x01,
        /// The WQE is malformed, or not allowed on this QP.
        LOCAL_QP_OP_ERR = 0x02,
        /// A local key does not cover the memory or lacks the right.
        LOCAL_PROT_ERR = 0x04,
        /// Not executed: the QP was already in error.
        WR_FLUSH_ERR = 0x05,
        /// Memory window bind refused.
        MW_BIND_ERR = 0x06,
        /// The peer's response made no sense.
        BAD_RESP_ERR = 0x10,
        /// A remote access to local memory failed.
        LOCAL_ACCESS_ERR = 0x11,
        /// The peer found the request invalid.
        REMOTE_INVAL_REQ_ERR = 0x12,
        /// The peer's key does not cover the memory or lacks the right.
        REMOTE_ACCESS_ERR = 0x13,
        /// The peer could not complete the request.
        REMOTE_OP_ERR = 0x14,
        /// The peer did not answer.
        TRANSPORT_RETRY_EXC_ERR = 0x15,
        /// The peer had no receive WQE for too long.
        RNR_RETRY_EXC_ERR = 0x16,
        /// The peer gave up the request.
        REMOTE_ABORTED_ERR = 0x22,
    }
}
