//! Packet pacing: rates that send queues name by number.

use super::{CmdOpcode, CmdStatus, command};
use crate::mlx5::layout::layout;

layout! {
    /// A rate.
    pub struct SetPpRateLimitContext, 48, "set_pp_rate_limit_context" {
        /// In the unit of `rate_mode`, kbit/s if that is 0; 0 frees the number.
        0x00 [31:0] rate_limit: u32,
        /// Bytes that may be sent at once; 0: the device chooses.
        0x04 [31:0] burst_upper_bound: u32,
        0x08 [19:16] rate_mode: u8,
        /// Bytes of most packets; 0: not known.
        0x08 [15:0] typical_packet_size: u16,
    }

    /// Sets a rate.
    pub struct SetPpRateLimitIn, 64, "set_pp_rate_limit_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        /// Its number, from 1 on.
        0x08 [15:0] rate_limit_index: u16,
        0x10 [struct] ctx: SetPpRateLimitContext,
    }

    /// Output of SET_PP_RATE_LIMIT.
    pub struct SetPpRateLimitOut, 16, "set_pp_rate_limit_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }
}

command! { SET_PP_RATE_LIMIT, SetPpRateLimitIn => SetPpRateLimitOut }
