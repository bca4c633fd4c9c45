//! Shared receive queues: RMPs, and those of XRC.

use super::{CmdOpcode, CmdStatus, command};
use crate::mlx5::context::{Rmpc, XrcSrqc};
use crate::mlx5::layout::layout;

layout! {
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

    /// Changes the limit of a shared receive queue, or its state.
    pub struct ModifyRmpIn, 272, "modify_rmp_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        /// The state that it must be in.
        0x08 [31:28] rmp_state: u8,
        0x08 [23:0] rmpn: u32,
        0x10 [struct] bitmask: RmpBitmask,
        0x20 [struct] ctx: Rmpc,
    }

    /// Output of MODIFY_RMP.
    pub struct ModifyRmpOut, 16, "modify_rmp_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// What MODIFY_RMP changes.
    pub struct RmpBitmask, 8, "rmp_bitmask" {
        /// `wq.lwm`.
        0x04 [0:0] lwm: bool,
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

    /// Asks for an event when fewer than `lwm` WQEs are left.
    pub struct ArmXrcSrqIn, 16, "arm_xrc_srq_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x00 [15:0] uid: u16,
        /// 1.
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] xrc_srqn: u32,
        0x0c [15:0] lwm: u16,
    }

    /// Output of ARM_XRC_SRQ.
    pub struct ArmXrcSrqOut, 16, "arm_xrc_srq_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }
}

command! { CREATE_RMP, CreateRmpIn => CreateRmpOut }
command! { QUERY_RMP, QueryRmpIn => QueryRmpOut }
command! { MODIFY_RMP, ModifyRmpIn => ModifyRmpOut }
command! { DESTROY_RMP, DestroyRmpIn => DestroyRmpOut }
command! { CREATE_XRC_SRQ, CreateXrcSrqIn => CreateXrcSrqOut }
command! { QUERY_XRC_SRQ, QueryXrcSrqIn => QueryXrcSrqOut }
command! { ARM_XRC_SRQ, ArmXrcSrqIn => ArmXrcSrqOut }
command! { DESTROY_XRC_SRQ, DestroyXrcSrqIn => DestroyXrcSrqOut }
