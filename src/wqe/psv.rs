//! Segments about protection signature values (PSV): what a signature begins with, and what became of it.

use crate::mlx5::layout::layout;

layout! {
    /// Of a SET_PSV: the state that a signature begins with (rdma-core `mlx5_wqe_set_psv_seg`).
    pub struct SetPsvSeg, 16, "wqe_set_psv_seg" {
        /// The value that is set.
        0x00 [31:0] psv_index: u32,
        0x04 [31:16] syndrome: u16,
        0x04 [15:0] status: u16,
        /// T10-DIF: block guard above, application tag below. A CRC of 64 bits goes on in the next dword.
        0x08 [31:0] transient_sig: u32,
        /// T10-DIF: reference tag.
        0x0c [31:0] ref_tag: u32,
    }

    /// Of a GET_PSV: values are written to memory. No driver of today posts it (`mlx5_seg_get_psv`).
    pub struct GetPsvSeg, 48, "wqe_get_psv_seg" {
        0x10 [7:0] num_psv: u8,
        0x14 [31:0] l_key: u32,
        0x18 [63:0] va: u64,
        /// Four of them.
        0x20 [bytes] psv_index: [u8; 16],
    }

    /// Of a CHECK_PSV: errors of values are made errors of the queue pair. No driver of today posts it (`mlx5_seg_check_psv`).
    pub struct CheckPsvSeg, 48, "wqe_check_psv_seg" {
        0x00 [15:0] err_coalescing_op: u16,
        0x04 [15:0] xport_err_op: u16,
        0x08 [15:0] xport_err_mask: u16,
        0x10 [7:0] num_psv: u8,
        0x14 [31:0] l_key: u32,
        0x18 [63:0] va: u64,
        /// Four of them.
        0x20 [bytes] psv_index: [u8; 16],
    }
}
