//! Segments of operations on the device's own: memory to memory, steering objects, flow tables, TLS.

use crate::mlx5::layout::layout;

layout! {
    /// Of an MMO (memory to memory): where the device keeps what it must remember (rdma-core `mlx5_mmo_metadata_seg`). The
    /// pieces that are read and written follow.
    pub struct MmoSeg, 16, "wqe_mmo_metadata_seg" {
        /// Lower half of the control bits; the upper is `ctrl.imm`.
        0x00 [31:0] mmo_control_31_0: u32,
        /// Key of the device's memory.
        0x04 [31:0] lkey: u32,
        /// Its address.
        0x08 [63:0] addr: u64,
    }

    /// Of an ACCESS_ASO: reads and changes a steering object, if it satisfies conditions (DPDK `mlx5_aso_cseg`).
    pub struct AsoCtrlSeg, 48, "wqe_aso_ctrl_seg" {
        /// Where the object is written to, the upper half of the address.
        0x00 [31:0] va_h: u32,
        /// The lower half; bit 0: it is read.
        0x04 [31:0] va_l_r: u32,
        0x08 [31:0] lkey: u32,
        /// Which conditions, how they are joined, and what is changed.
        0x0c [31:0] operand_masks: u32,
        0x10 [31:0] condition_0_data: u32,
        0x14 [31:0] condition_0_mask: u32,
        0x18 [31:0] condition_1_data: u32,
        0x1c [31:0] condition_1_mask: u32,
        0x20 [63:0] bitwise_data: u64,
        0x28 [63:0] data_mask: u64,
    }

    /// Of a FLOW_TBL_ACCESS (rdma-core `mlx5_wqe_flow_update_ctrl_seg`).
    pub struct FlowUpdateSeg, 48, "wqe_flow_update_ctrl_seg" {
        /// The entry.
        0x00 [31:0] flow_idx_update: u32,
        /// What it leads to.
        0x04 [31:0] dest_handle: u32,
    }
}
