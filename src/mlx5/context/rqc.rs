//! Contexts of receive queues: of the raw Ethernet kind, and shared.

use super::Wq;
use crate::mlx5::{
    ids::{Cqn, UserIndex},
    layout::layout,
};

layout! {
    /// Receive queue context (PRM `rqc`): a queue of raw Ethernet.
    pub struct Rqc, 240, "rqc" {
        /// The queue may use the reserved lkey.
        0x00 [31:31] rlky: bool,
        0x00 [30:30] delay_drop_en: bool,
        /// Frames keep their FCS.
        0x00 [29:29] scatter_fcs: bool,
        /// VLAN tags are not stripped.
        0x00 [28:28] vsd: bool,
        /// 0 a queue of its own, 1 shared (RMP).
        0x00 [27:24] mem_rq_type: u8,
        /// 0 reset, 1 ready, 3 error.
        0x00 [23:20] state: u8,
        /// In error, WQEs complete as flushed.
        0x00 [18:18] flush_in_error_en: bool,
        0x00 [17:17] hairpin: bool,
        0x00 [10:8] hairpin_data_buffer_type: u8,
        /// Time stamps of CQEs.
        0x00 [5:4] ts_format: u8,
        0x04 [23:0] user_index: UserIndex,
        0x08 [23:0] cqn: Cqn,
        /// Q counter that counts this queue.
        0x0c [31:24] counter_set_id: u8,
        /// The shared memory pool, if any.
        0x10 [23:0] rmpn: u32,
        0x14 [23:0] hairpin_peer_sq: u32,
        0x18 [15:0] hairpin_peer_vhca: u16,
        0x24 [25:24] shampo_no_match_alignment_granularity: u8,
        0x24 [17:16] shampo_match_criteria_type: u8,
        0x24 [15:0] reservation_timeout: u16,
        0x30 [struct] wq: Wq,
    }

    /// Receive memory pool context (PRM `rmpc`): a shared receive queue.
    pub struct Rmpc, 240, "rmpc" {
        /// 0 reset, 1 ready, 3 error.
        0x00 [23:20] state: u8,
        0x04 [31:31] basic_cyclic_rcv_wqe: bool,
        0x30 [struct] wq: Wq,
    }
}
