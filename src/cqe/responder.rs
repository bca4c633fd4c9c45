//! The CQE of a receive WQE.

use super::{CqeApp, CqeFormat, CqeOpcode, TmAppOp};
use crate::mlx5::{
    ids::{Qpn, UserIndex},
    layout::{layout, wire_enum},
};

layout! {
    /// Receive completion, opcodes `RESP_*` (rdma-core `mlx5_cqe64`).
    pub struct ResponderCqe, 64, "cqe64_responder_rdma" {
        /// InfiniBand: destination path bits.
        0x10 [22:16] ml_path: u8,
        /// InfiniBand: source LID.
        0x14 [15:0] slid: u16,
        /// 1 if a GRH is in the buffer, 2 if it is in the CQE.
        0x18 [29:28] grh: u8,
        /// InfiniBand: service level. RoCE: UDP present and kind of network header.
        0x18 [27:24] sl: u8,
        /// Remote QP number.
        0x18 [23:0] rqpn: Qpn,
        /// Number that software gave the QP or SRQ (`cqe_version` 1).
        0x20 [23:0] srqn_or_user_index: UserIndex,
        /// By opcode: immediate data, invalidated rkey, or pkey.
        0x24 [31:0] imm_inval_pkey: u32,
        /// The application: tag matching, of a message to an XRQ.
        0x28 [31:24] app: CqeApp,
        /// What it says of the message.
        0x28 [23:16] app_op: TmAppOp,
        /// Of a message that took a tag, its entry.
        0x28 [15:0] app_info: u16,
        /// Length of the message in bytes.
        0x2c [31:0] byte_cnt: u32,
        /// Device clock when the message completed.
        0x30 [63:0] timestamp: u64,
        /// The local queue pair's number.
        0x38 [23:0] qpn: Qpn,
        /// Counter of the receive WQE.
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
}

wire_enum! {
    /// RoCE: the network header of a packet that was received, in the lower bits of `sl`. The uppermost bit says that UDP
    /// follows (`MLX5_CQE_ROCE_L3_HEADER_TYPE_*`).
    pub struct RoceL3(u8), "cqe_roce_l3" {
        /// RoCE v1.
        GRH = 0x0,
        /// RoCE v2 over IPv6.
        IPV6 = 0x1,
        /// RoCE v2 over IPv4.
        IPV4 = 0x2,
    }
}
