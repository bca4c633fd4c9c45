//! Protection signature values: what a signature begins with, and what became of it.

use super::{CmdOpcode, CmdStatus, command};
use crate::mlx5::{ids::Pdn, layout::layout};

layout! {
    /// Makes up to four values.
    pub struct CreatePsvIn, 16, "create_psv_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x04 [15:0] op_mod: u16,
        /// How many.
        0x08 [31:28] num_psv: u8,
        0x08 [23:0] pd: Pdn,
    }

    /// Output of CREATE_PSV.
    pub struct CreatePsvOut, 32, "create_psv_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x10 [23:0] psv0_index: u32,
        0x14 [23:0] psv1_index: u32,
        0x18 [23:0] psv2_index: u32,
        0x1c [23:0] psv3_index: u32,
    }

    /// Ends a value.
    pub struct DestroyPsvIn, 16, "destroy_psv_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] psvn: u32,
    }

    /// Output of DESTROY_PSV.
    pub struct DestroyPsvOut, 16, "destroy_psv_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }
}

command! { CREATE_PSV, CreatePsvIn => CreatePsvOut }
command! { DESTROY_PSV, DestroyPsvIn => DestroyPsvOut }
