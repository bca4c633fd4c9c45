//! DC targets.

use super::{CmdOpcode, CmdStatus, command};
use crate::mlx5::{context::Dctc, layout::layout};

layout! {
    /// Makes a DC target, ready to receive.
    pub struct CreateDctIn, 128, "create_dct_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x10 [struct] dct_context_entry: Dctc,
    }

    /// Output of CREATE_DCT.
    pub struct CreateDctOut, 16, "create_dct_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        /// Initiators name it as they would a queue pair.
        0x08 [23:0] dctn: u32,
        0x0c [31:0] ece: u32,
    }

    /// Lets a DC target finish: the event DCT_DRAINED tells when it has no connection left.
    pub struct DrainDctIn, 16, "drain_dct_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] dctn: u32,
    }

    /// Output of DRAIN_DCT.
    pub struct DrainDctOut, 16, "drain_dct_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Ends a DC target, which must be drained.
    pub struct DestroyDctIn, 16, "destroy_dct_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] dctn: u32,
    }

    /// Output of DESTROY_DCT.
    pub struct DestroyDctOut, 16, "destroy_dct_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Reads the context.
    pub struct QueryDctIn, 16, "query_dct_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] dctn: u32,
    }

    /// Output of QUERY_DCT.
    pub struct QueryDctOut, 128, "query_dct_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x10 [struct] dct_context_entry: Dctc,
    }

    /// Asks for the event DCT_KEY_VIOLATION, once.
    pub struct ArmDctIn, 16, "arm_dct_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] dct_number: u32,
    }

    /// Output of ARM_DCT_FOR_KEY_VIOLATION.
    pub struct ArmDctOut, 16, "arm_dct_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }
}

command! { CREATE_DCT, CreateDctIn => CreateDctOut }
command! { DRAIN_DCT, DrainDctIn => DrainDctOut }
command! { DESTROY_DCT, DestroyDctIn => DestroyDctOut }
command! { QUERY_DCT, QueryDctIn => QueryDctOut }
command! { ARM_DCT_FOR_KEY_VIOLATION, ArmDctIn => ArmDctOut }
