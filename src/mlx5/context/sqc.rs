//! The context of a raw Ethernet send queue.

use super::{InlineMode, Wq};
use crate::mlx5::{
    ids::{Cqn, UserIndex},
    layout::layout,
};

layout! {
    /// Send queue context (PRM `sqc`): a queue of raw Ethernet.
    pub struct Sqc, 240, "sqc" {
        /// The queue may use the reserved lkey.
        0x00 [31:31] rlky: bool,
        0x00 [30:30] cd_master: bool,
        0x00 [29:29] fre: bool,
        /// In error, WQEs complete as flushed.
        0x00 [28:28] flush_in_error_en: bool,
        /// WQEs of several frames are allowed.
        0x00 [27:27] allow_multi_pkt_send_wqe: bool,
        0x00 [26:24] min_wqe_inline_mode: InlineMode,
        /// 0 reset, 1 ready, 3 error.
        0x00 [23:20] state: u8,
        /// UMR WQEs are allowed.
        0x00 [19:19] reg_umr: bool,
        0x00 [18:18] allow_swp: bool,
        0x00 [17:17] hairpin: bool,
        /// Frames do not reach the wire.
        0x00 [16:16] non_wire: bool,
        0x00 [15:15] static_sq_wq: bool,
        0x00 [10:8] hairpin_wq_buffer_type: u8,
        /// Time stamps of CQEs.
        0x00 [5:4] ts_format: u8,
        0x04 [23:0] user_index: UserIndex,
        0x08 [23:0] cqn: Cqn,
        0x0c [23:0] hairpin_peer_rq: u32,
        0x10 [15:0] hairpin_peer_vhca: u16,
        0x18 [23:0] ts_cqe_to_dest_cqn: u32,
        0x1c [15:0] packet_pacing_rate_limit_index: u16,
        /// Number of TISs: 0 or 1.
        0x20 [31:16] tis_lst_sz: u16,
        0x20 [15:0] qos_queue_group_id: u16,
        /// The TIS that frames go through.
        0x2c [23:0] tis_num_0: u32,
        0x30 [struct] wq: Wq,
    }
}
