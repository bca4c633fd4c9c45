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
        /// Size of the whole WQE in 16-byte units, this segment included.
        0x04 [5:0] ds: u8,
        /// Inverted XOR of the WQE's bytes where signatures are on, else 0.
        0x08 [31:24] signature: u8,
        /// Stream of a DC initiator; 0 on other transports.
        0x08 [23:8] dci_stream_channel_id: u16,
        /// What this WQE waits for.
        0x08 [7:5] fm: FenceMode,
        /// When this WQE makes a CQE.
        0x08 [3:2] ce: CompletionMode,
        /// Whether the receiver's completion is a solicited event.
        0x08 [1:1] se: bool,
        /// By opcode: immediate data, the rkey to invalidate, or a UMR's mkey.
        0x0c [31:0] imm: u32,
    }
}

wire_enum! {
    /// Send opcodes (`MLX5_OPCODE_*`).
    pub struct SendOpcode(u8), "wqe_opcode" {
        /// Does nothing, and may say so by a CQE.
        NOP = 0x00,
        /// SEND that invalidates a key of the receiver.
        SEND_INVAL = 0x01,
        /// Write to remote memory.
        RDMA_WRITE = 0x08,
        /// Write to remote memory, then complete one of its receive WQEs with 32 bits.
        RDMA_WRITE_IMM = 0x09,
        /// Message to a receive WQE.
        SEND = 0x0a,
        /// Message to a receive WQE with 32 bits beside it.
        SEND_IMM = 0x0b,
        /// TCP segmentation (raw Ethernet).
        LSO = 0x0e,
        /// Wait for a CQ or for a time.
        WAIT = 0x0f,
        /// Read remote memory.
        RDMA_READ = 0x10,
        /// Compare and swap 8 bytes of remote memory.
        ATOMIC_CS = 0x11,
        /// Fetch and add on 8 bytes of remote memory.
        ATOMIC_FA = 0x12,
        /// Compare and swap under masks.
        ATOMIC_MASKED_CS = 0x14,
        /// Fetch and add with field boundaries.
        ATOMIC_MASKED_FA = 0x15,
        /// Enables another send queue.
        SEND_EN = 0x17,
        /// Binds a memory window on devices before mlx5; UMR does it here.
        BIND_MW = 0x18,
        /// Fast registration on devices before mlx5; UMR does it here.
        FMR = 0x19,
        /// Invalidates a key on devices before mlx5; UMR does it here.
        LOCAL_INVAL = 0x1b,
        /// A command through a queue, on devices before mlx5.
        CONFIG_CMD = 0x1f,
        /// Writes a protection value for signatures; by `opmod` 1 and 2, where a TLS connection is.
        SET_PSV = 0x20,
        /// Reads protection values.
        GET_PSV = 0x21,
        /// Makes errors of protection values errors of the queue pair.
        CHECK_PSV = 0x22,
        /// Reads local memory to the trace.
        DUMP = 0x23,
        /// Changes a memory key: registration, invalidation, windows.
        UMR = 0x25,
        /// GET_PSV at the peer.
        RGET_PSV = 0x26,
        /// CHECK_PSV at the peer.
        RCHECK_PSV = 0x27,
        /// Tag matching list operation.
        TAG_MATCHING = 0x28,
        /// Several Ethernet packets in one WQE.
        ENHANCED_MPSW = 0x29,
        /// Changes an entry of a flow table.
        FLOW_TBL_ACCESS = 0x2c,
        /// Atomic on a steering object.
        ACCESS_ASO = 0x2d,
        /// Memory to memory operation.
        MMO = 0x2f,
    }

    /// `ctrl.fm`: what a WQE waits for before it starts.
    pub struct FenceMode(u8), "fence_mode" {
        /// Nothing.
        NONE = 0,
        /// Earlier UMRs and invalidations of this queue.
        INITIATOR_SMALL = 1,
        /// Earlier READs and atomics.
        FENCE = 2,
        /// All earlier WQEs.
        STRONG_ORDERING = 3,
        /// Both: what libmlx5 writes for `IBV_SEND_FENCE`.
        SMALL_AND_FENCE = 4,
    }

    /// `ctrl.ce`: when a WQE makes a CQE.
    pub struct CompletionMode(u8), "ce_mode" {
        /// Only if it fails.
        ONLY_ERR = 0,
        /// Only if it is the first to fail.
        ONLY_FIRST_ERR = 1,
        /// Always.
        ALWAYS = 2,
        /// Always, with an event besides.
        CQE_AND_EQE = 3,
    }
}

impl SendOpcode {
    /// Whether a remote address segment follows the control segment (RC).
    pub const fn has_raddr(self) -> bool {
        matches!(self.0, 0x08 | 0x09 | 0x10..=0x12 | 0x14 | 0x15)
    }

    /// Whether this is an atomic with 8-byte operands and no masks.
    pub const fn is_atomic(self) -> bool {
        matches!(self.0, 0x11 | 0x12)
    }

    /// Whether this is an atomic under masks, whose operands are as wide as `ctrl.opmod` says.
    pub const fn is_masked_atomic(self) -> bool {
        matches!(self.0, 0x14 | 0x15)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_told_by_what_follows_their_control_segment() {
        for (name, bits) in SendOpcode::TABLE.1 {
            let opcode = SendOpcode(*bits as u8);
            let is_masked = name.starts_with("ATOMIC_MASKED");
            assert_eq!(opcode.is_masked_atomic(), is_masked, "{name}");
            assert_eq!(opcode.is_atomic(), name.starts_with("ATOMIC") && !is_masked, "{name}");
            let is_remote = name.starts_with("RDMA_") || name.starts_with("ATOMIC");
            assert_eq!(opcode.has_raddr(), is_remote, "{name}");
        }
    }
}
