//! Receive queues of raw Ethernet.

use super::{CmdOpcode, CmdStatus, command};
use crate::mlx5::context::Rqc;
use crate::mlx5::layout::layout;

layout! {
    /// Makes a receive queue; its page list follows.
    pub struct CreateRqIn, 272, "create_rq_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x20 [struct] ctx: Rqc,
    }

    /// Output of CREATE_RQ.
    pub struct CreateRqOut, 16, "create_rq_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x08 [23:0] rqn: u32,
    }

    /// Changes state, or the fields that are selected.
    pub struct ModifyRqIn, 272, "modify_rq_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        /// The state that it must be in.
        0x08 [31:28] rq_state: u8,
        0x08 [23:0] rqn: u32,
        0x10 [63:0] modify_bitmask: u64,
        0x20 [struct] ctx: Rqc,
    }

    /// Output of MODIFY_RQ.
    pub struct ModifyRqOut, 16, "modify_rq_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Reads the context.
    pub struct QueryRqIn, 16, "query_rq_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] rqn: u32,
    }

    /// Output of QUERY_RQ.
    pub struct QueryRqOut, 272, "query_rq_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x20 [struct] rq_context: Rqc,
    }

    /// Ends a receive queue.
    pub struct DestroyRqIn, 16, "destroy_rq_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] rqn: u32,
    }

    /// Output of DESTROY_RQ.
    pub struct DestroyRqOut, 16, "destroy_rq_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }
}

command! { CREATE_RQ, CreateRqIn => CreateRqOut }
command! { MODIFY_RQ, ModifyRqIn => ModifyRqOut }
command! { QUERY_RQ, QueryRqIn => QueryRqOut }
command! { DESTROY_RQ, DestroyRqIn => DestroyRqOut }
