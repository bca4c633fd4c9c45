//! Send queues of raw Ethernet.

use super::{CmdOpcode, CmdStatus, command};
use crate::mlx5::context::Sqc;
use crate::mlx5::layout::layout;

layout! {
    /// Makes a send queue; its page list follows.
    pub struct CreateSqIn, 272, "create_sq_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x20 [struct] ctx: Sqc,
    }

    /// Output of CREATE_SQ.
    pub struct CreateSqOut, 16, "create_sq_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x08 [23:0] sqn: u32,
    }

    /// Changes state, or the fields that are selected.
    pub struct ModifySqIn, 272, "modify_sq_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        /// The state that it must be in.
        0x08 [31:28] sq_state: u8,
        0x08 [23:0] sqn: u32,
        0x10 [63:0] modify_bitmask: u64,
        0x20 [struct] ctx: Sqc,
    }

    /// Output of MODIFY_SQ.
    pub struct ModifySqOut, 16, "modify_sq_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Reads the context.
    pub struct QuerySqIn, 16, "query_sq_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] sqn: u32,
    }

    /// Output of QUERY_SQ.
    pub struct QuerySqOut, 272, "query_sq_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x20 [struct] sq_context: Sqc,
    }

    /// Ends a send queue.
    pub struct DestroySqIn, 16, "destroy_sq_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] sqn: u32,
    }

    /// Output of DESTROY_SQ.
    pub struct DestroySqOut, 16, "destroy_sq_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }
}

command! { CREATE_SQ, CreateSqIn => CreateSqOut }
command! { MODIFY_SQ, ModifySqIn => ModifySqOut }
command! { QUERY_SQ, QuerySqIn => QuerySqOut }
command! { DESTROY_SQ, DestroySqIn => DestroySqOut }
