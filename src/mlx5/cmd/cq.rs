//! Completion queues.

use super::{CmdOpcode, CmdStatus, command};
use crate::mlx5::context::cqc::Cqc;
use crate::mlx5::{
    ids::Cqn,
    layout::{layout, wire_enum},
};

layout! {
    /// Makes a completion queue; page addresses follow.
    pub struct CreateCqIn, 272, "create_cq_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x10 [struct] cq_context: Cqc,
        0x50 [63:0] cq_umem_offset: u64,
        0x58 [31:0] cq_umem_id: u32,
        0x5c [31:31] cq_umem_valid: bool,
    }

    /// Output of CREATE_CQ.
    pub struct CreateCqOut, 16, "create_cq_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x08 [23:0] cqn: Cqn,
    }

    /// Reads a completion queue back.
    pub struct QueryCqIn, 16, "query_cq_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] cqn: Cqn,
    }

    /// Output of QUERY_CQ.
    pub struct QueryCqOut, 272, "query_cq_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x10 [struct] cq_context: Cqc,
    }

    /// Changes moderation, or with `op_mod` 1 the buffer; page addresses follow when resizing.
    pub struct ModifyCqIn, 272, "modify_cq_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: ModifyCqOpMod,
        0x08 [23:0] cqn: Cqn,
        /// Which fields of the context count; the bits are [`CqFieldSelect`] or [`CqResizeSelect`], by `op_mod`.
        0x0c [31:0] modify_field_select_resize_field_select: u32,
        0x10 [struct] cq_context: Cqc,
        0x5c [31:31] cq_umem_valid: bool,
    }

    /// Output of MODIFY_CQ.
    pub struct ModifyCqOut, 16, "modify_cq_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Ends a completion queue.
    pub struct DestroyCqIn, 16, "destroy_cq_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] cqn: Cqn,
    }

    /// Output of DESTROY_CQ.
    pub struct DestroyCqOut, 16, "destroy_cq_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }
}

wire_enum! {
    /// What MODIFY_CQ does.
    pub struct ModifyCqOpMod(u16), "modify_cq_mask_and_opmod" {
        MODIFY_CQ = 0,
        /// The new buffer's pages follow; see [`CqResizeSelect`].
        RESIZE_CQ = 1,
    }

    /// Fields that MODIFY_CQ changes, a bit each.
    pub struct CqFieldSelect(u32), "modify_cq_mask_and_opmod" {
        CQ_PERIOD = 1,
        CQ_MAX_COUNT = 2,
        OI = 4,
        C_EQN = 8,
    }

    /// Fields that MODIFY_CQ with [`ModifyCqOpMod::RESIZE_CQ`] takes, a bit each.
    pub struct CqResizeSelect(u32), "modify_cq_mask_and_opmod" {
        LOG_CQ_SIZE = 1,
        PAGE_OFFSET = 2,
        LOG_PAGE_SIZE = 4,
    }
}

command! { CREATE_CQ, CreateCqIn => CreateCqOut }
command! { QUERY_CQ, QueryCqIn => QueryCqOut }
command! { MODIFY_CQ, ModifyCqIn => ModifyCqOut }
command! { DESTROY_CQ, DestroyCqIn => DestroyCqOut }
