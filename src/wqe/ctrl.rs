//! The control segment: first 16 bytes of every send WQE, and the first 8 are the doorbell.

use crate::mlx5::{
    ids::Qpn,
    layout::{layout, wire_enum},
};

layout! {
    /// Control segment of a send WQE (rdma-core `mlx5_wqe_ctrl_seg`).
    pub struct CtrlSeg, 16, "wqe_ctrl_seg" {
        /// Variant of the opcode; 0 for all RC operations but masked atomics.
        0x00 [31:24] opmod: u8,
        /// Free-running counter of this WQE's first WQEBB, not masked to the queue's size.
        0x00 [23:8] wqe_index: u16,
        /// The operation.
        0x00 [7:0] opcode: SendOpcode,
        /// The send queue's own number.
        0x04 [31:8] qpn: Qpn,
        /// Size of the whole WQE in 16-byte units.
        0x04 [5:0] ds: u8,
    }
}

wire_enum! {
    /// Send opcodes (`MLX5_OPCODE_*`).
    pub struct SendOpcode(u8), "wqe_opcode" {
        NOP = 0x00,
        SEND = 0x0a,
    }
}
