//! Receive queues: of raw Ethernet, and shared.

use super::{CmdOpcode, CmdStatus, command};
use crate::mlx5::context::{Rmpc, Rqc, XrcSrqc};
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

    /// Makes a shared receive queue; its page list follows.
    pub struct CreateRmpIn, 272, "create_rmp_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x20 [struct] ctx: Rmpc,
    }

    /// Output of CREATE_RMP.
    pub struct CreateRmpOut, 16, "create_rmp_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x08 [23:0] rmpn: u32,
    }

    /// Reads the context.
    pub struct QueryRmpIn, 16, "query_rmp_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] rmpn: u32,
    }

    /// Output of QUERY_RMP.
    pub struct QueryRmpOut, 272, "query_rmp_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x20 [struct] rmp_context: Rmpc,
    }

    /// Ends a shared receive queue.
    pub struct DestroyRmpIn, 16, "destroy_rmp_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] rmpn: u32,
    }

    /// Output of DESTROY_RMP.
    pub struct DestroyRmpOut, 16, "destroy_rmp_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Makes a shared receive queue of XRC; its page list follows.
    pub struct CreateXrcSrqIn, 272, "create_xrc_srq_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x10 [struct] xrc_srq_context_entry: XrcSrqc,
        0x5c [31:31] xrc_srq_umem_valid: bool,
    }

    /// Output of CREATE_XRC_SRQ.
    pub struct CreateXrcSrqOut, 16, "create_xrc_srq_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x08 [23:0] xrc_srqn: u32,
    }

    /// Reads the context.
    pub struct QueryXrcSrqIn, 16, "query_xrc_srq_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] xrc_srqn: u32,
    }

    /// Output of QUERY_XRC_SRQ.
    pub struct QueryXrcSrqOut, 272, "query_xrc_srq_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x10 [struct] xrc_srq_context_entry: XrcSrqc,
    }

    /// Ends a shared receive queue of XRC.
    pub struct DestroyXrcSrqIn, 16, "destroy_xrc_srq_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] xrc_srqn: u32,
    }

    /// Output of DESTROY_XRC_SRQ.
    pub struct DestroyXrcSrqOut, 16, "destroy_xrc_srq_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }
}

command! { CREATE_RQ, CreateRqIn => CreateRqOut }
command! { MODIFY_RQ, ModifyRqIn => ModifyRqOut }
command! { QUERY_RQ, QueryRqIn => QueryRqOut }
command! { DESTROY_RQ, DestroyRqIn => DestroyRqOut }
command! { CREATE_RMP, CreateRmpIn => CreateRmpOut }
command! { QUERY_RMP, QueryRmpIn => QueryRmpOut }
command! { DESTROY_RMP, DestroyRmpIn => DestroyRmpOut }
command! { CREATE_XRC_SRQ, CreateXrcSrqIn => CreateXrcSrqOut }
command! { QUERY_XRC_SRQ, QueryXrcSrqIn => QueryXrcSrqOut }
command! { DESTROY_XRC_SRQ, DestroyXrcSrqIn => DestroyXrcSrqOut }
