//! The context of a shared receive queue of XRC.

use crate::mlx5::{
    ids::{Cqn, Pdn, UserIndex},
    layout::layout,
};

layout! {
    /// XRC shared receive queue context (PRM `xrc_srqc`).
    pub struct XrcSrqc, 64, "xrc_srqc" {
        0x00 [31:28] state: u8,
        0x00 [27:24] log_xrc_srq_size: u8,
        0x04 [31:31] wq_signature: bool,
        0x04 [30:30] cont_srq: bool,
        0x04 [28:28] rlky: bool,
        0x04 [27:27] basic_cyclic_rcv_wqe: bool,
        /// log2 of the stride, less 4 (16-byte units).
        0x04 [26:24] log_rq_stride: u8,
        0x04 [23:0] xrcd: u32,
        /// First WQE's offset in the first page, in 64ths of the page.
        0x08 [31:26] page_offset: u8,
        0x08 [24:24] dbr_umem_valid: bool,
        0x08 [23:0] cqn: Cqn,
        0x10 [31:31] user_index_equal_xrc_srqn: bool,
        /// log2 of the pages of the list, less 12.
        0x10 [29:24] log_page_size: u8,
        0x10 [23:0] user_index: UserIndex,
        0x18 [23:0] pd: Pdn,
        /// Limit: an event when fewer WQEs are left.
        0x1c [31:16] lwm: u16,
        0x1c [15:0] wqe_cnt: u16,
        0x28 [31:0] db_record_addr_h: u32,
        /// Low half, in 4-byte units.
        0x2c [31:2] db_record_addr_l: u32,
    }
}
