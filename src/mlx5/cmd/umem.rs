//! DevX: contexts of user processes, and their memory as an object that others name.

use super::{CmdOpcode, CmdStatus, command};
use crate::mlx5::layout::layout;

layout! {
    /// Memory of a process: pages of one size, and where in the first of them it starts.
    pub struct Umem, 32, "umem" {
        /// Addresses are translated by the host, on demand.
        0x10 [31:31] ats: bool,
        /// log2 of the pages, less 12.
        0x10 [4:0] log_page_size: u8,
        /// Offset in the first page, in bytes.
        0x14 [31:0] page_offset: u32,
        /// Length of the list that follows.
        0x18 [63:0] num_of_mtt: u64,
    }

    /// Makes a umem; its pages follow.
    pub struct CreateUmemIn, 48, "create_umem_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x10 [struct] umem: Umem,
    }

    /// Output of CREATE_UMEM.
    pub struct CreateUmemOut, 16, "create_umem_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x08 [23:0] umem_id: u32,
    }

    /// Ends a umem.
    pub struct DestroyUmemIn, 16, "destroy_umem_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] umem_id: u32,
    }

    /// Output of DESTROY_UMEM.
    pub struct DestroyUmemOut, 16, "destroy_umem_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// What a process may do beyond its own objects.
    pub struct Uctx, 48, "uctx" {
        /// Raw packets, and resources of the device itself.
        0x00 [31:0] cap: u32,
    }

    /// Makes a context for a process; its number goes into the `uid` of the process's commands.
    pub struct CreateUctxIn, 64, "create_uctx_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x04 [15:0] op_mod: u16,
        0x10 [struct] uctx: Uctx,
    }

    /// Output of CREATE_UCTX.
    pub struct CreateUctxOut, 16, "create_uctx_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x08 [15:0] uid: u16,
    }

    /// Ends a process's context.
    pub struct DestroyUctxIn, 16, "destroy_uctx_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x04 [15:0] op_mod: u16,
        0x08 [15:0] uid: u16,
    }

    /// Output of DESTROY_UCTX.
    pub struct DestroyUctxOut, 16, "destroy_uctx_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }
}

command! { CREATE_UMEM, CreateUmemIn => CreateUmemOut }
command! { DESTROY_UMEM, DestroyUmemIn => DestroyUmemOut }
command! { CREATE_UCTX, CreateUctxIn => CreateUctxOut }
command! { DESTROY_UCTX, DestroyUctxIn => DestroyUctxOut }
