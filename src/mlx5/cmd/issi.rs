//! The interface step.

use super::{CmdOpcode, CmdStatus, command};
use crate::mlx5::layout::layout;

layout! {
    /// Asks which interface steps the device knows.
    pub struct QueryIssiIn, 16, "query_issi_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x04 [15:0] op_mod: u16,
    }

    /// Output of QUERY_ISSI.
    pub struct QueryIssiOut, 112, "query_issi_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x08 [15:0] current_issi: u16,
        /// Bit n: ISSI n.
        0x6c [31:0] supported_issi_dw0: u32,
    }

    /// Chooses the interface step; 1 brings the object commands of today.
    pub struct SetIssiIn, 16, "set_issi_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x04 [15:0] op_mod: u16,
        0x08 [15:0] current_issi: u16,
    }

    /// Output of SET_ISSI.
    pub struct SetIssiOut, 16, "set_issi_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }
}

command! { QUERY_ISSI, QueryIssiIn => QueryIssiOut }
command! { SET_ISSI, SetIssiIn => SetIssiOut }
