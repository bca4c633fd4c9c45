//! TIR, TIS and RQT: the objects between flow steering and queues.

use super::{CmdOpcode, CmdStatus, command};
use crate::mlx5::context::{Rqtc, Tirc, Tisc};
use crate::mlx5::layout::layout;

layout! {
    /// Makes a TIR.
    pub struct CreateTirIn, 272, "create_tir_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x20 [struct] ctx: Tirc,
    }

    /// Output of CREATE_TIR.
    pub struct CreateTirOut, 16, "create_tir_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x00 [23:0] icm_address_63_40: u32,
        0x08 [31:24] icm_address_39_32: u8,
        0x08 [23:0] tirn: u32,
        0x0c [31:0] icm_address_31_0: u32,
    }

    /// Changes the fields that are selected.
    pub struct ModifyTirIn, 272, "modify_tir_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] tirn: u32,
        0x10 [struct] bitmask: ModifyTirBitmask,
        0x20 [struct] ctx: Tirc,
    }

    /// Output of MODIFY_TIR.
    pub struct ModifyTirOut, 16, "modify_tir_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Ends a TIR.
    pub struct DestroyTirIn, 16, "destroy_tir_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] tirn: u32,
    }

    /// Output of DESTROY_TIR.
    pub struct DestroyTirOut, 16, "destroy_tir_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Makes a TIS.
    pub struct CreateTisIn, 192, "create_tis_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x20 [struct] ctx: Tisc,
    }

    /// Output of CREATE_TIS.
    pub struct CreateTisOut, 16, "create_tis_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x08 [23:0] tisn: u32,
    }

    /// Changes the fields that are selected.
    pub struct ModifyTisIn, 192, "modify_tis_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] tisn: u32,
        0x10 [struct] bitmask: ModifyTisBitmask,
        0x20 [struct] ctx: Tisc,
    }

    /// Output of MODIFY_TIS.
    pub struct ModifyTisOut, 16, "modify_tis_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Reads the context.
    pub struct QueryTisIn, 16, "query_tis_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] tisn: u32,
    }

    /// Output of QUERY_TIS.
    pub struct QueryTisOut, 176, "query_tis_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x10 [struct] tis_context: Tisc,
    }

    /// Ends a TIS.
    pub struct DestroyTisIn, 16, "destroy_tis_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] tisn: u32,
    }

    /// Output of DESTROY_TIS.
    pub struct DestroyTisOut, 16, "destroy_tis_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Makes a table of RQs; their numbers follow.
    pub struct CreateRqtIn, 272, "create_rqt_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x20 [struct] rqt_context: Rqtc,
    }

    /// Output of CREATE_RQT.
    pub struct CreateRqtOut, 16, "create_rqt_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x08 [23:0] rqtn: u32,
    }

    /// Replaces the numbers.
    pub struct ModifyRqtIn, 272, "modify_rqt_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] rqtn: u32,
        0x10 [struct] bitmask: RqtBitmask,
        0x20 [struct] ctx: Rqtc,
    }

    /// Output of MODIFY_RQT.
    pub struct ModifyRqtOut, 16, "modify_rqt_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Ends a table of RQs.
    pub struct DestroyRqtIn, 16, "destroy_rqt_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] rqtn: u32,
    }

    /// Output of DESTROY_RQT.
    pub struct DestroyRqtOut, 16, "destroy_rqt_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Which fields MODIFY_TIR changes.
    pub struct ModifyTirBitmask, 8, "modify_tir_bitmask" {
        0x04 [4:4] self_lb_en: bool,
        0x04 [2:2] hash: bool,
        0x04 [0:0] packet_merge: bool,
    }

    /// Which fields MODIFY_TIS changes.
    pub struct ModifyTisBitmask, 8, "modify_tis_bitmask" {
        0x04 [2:2] lag_tx_port_affinity: bool,
        0x04 [1:1] strict_lag_tx_port_affinity: bool,
        0x04 [0:0] prio: bool,
    }

    /// Which fields MODIFY_RQT changes.
    pub struct RqtBitmask, 8, "rqt_bitmask" {
        0x04 [0:0] rqn_list: bool,
    }
}

command! { CREATE_TIR, CreateTirIn => CreateTirOut }
command! { MODIFY_TIR, ModifyTirIn => ModifyTirOut }
command! { DESTROY_TIR, DestroyTirIn => DestroyTirOut }
command! { CREATE_TIS, CreateTisIn => CreateTisOut }
command! { MODIFY_TIS, ModifyTisIn => ModifyTisOut }
command! { QUERY_TIS, QueryTisIn => QueryTisOut }
command! { DESTROY_TIS, DestroyTisIn => DestroyTisOut }
command! { CREATE_RQT, CreateRqtIn => CreateRqtOut }
command! { MODIFY_RQT, ModifyRqtIn => ModifyRqtOut }
command! { DESTROY_RQT, DestroyRqtIn => DestroyRqtOut }
