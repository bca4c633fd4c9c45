//! Pages that the device borrows.

use super::{CmdOpcode, CmdStatus, command};
use crate::mlx5::layout::{layout, wire_enum};

layout! {
    /// Asks how many pages the device wants; `op_mod` says at which stage.
    pub struct QueryPagesIn, 16, "query_pages_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x04 [15:0] op_mod: QueryPagesOpMod,
        0x08 [31:31] embedded_cpu_function: bool,
        0x08 [15:0] function_id: u16,
    }

    /// Output of QUERY_PAGES.
    pub struct QueryPagesOut, 16, "query_pages_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x08 [31:31] embedded_cpu_function: bool,
        0x08 [15:0] function_id: u16,
        /// Signed: positive to give, negative to reclaim.
        0x0c [31:0] num_pages: u32,
    }

    /// Gives or takes pages; 64-bit addresses follow when giving.
    pub struct ManagePagesIn, 16, "manage_pages_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x04 [15:0] op_mod: ManagePagesOpMod,
        0x08 [31:31] embedded_cpu_function: bool,
        0x08 [15:0] function_id: u16,
        0x0c [31:0] input_num_entries: u32,
    }

    /// Output of MANAGE_PAGES.
    pub struct ManagePagesOut, 16, "manage_pages_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        /// Pages returned; their addresses follow.
        0x08 [31:0] output_num_entries: u32,
    }
}

wire_enum! {
    /// Stage that QUERY_PAGES asks about.
    pub struct QueryPagesOpMod(u16), "query_pages_op_mod" {
        BOOT_PAGES = 0x01,
        INIT_PAGES = 0x02,
        REGULAR_PAGES = 0x03,
    }

    /// Direction of MANAGE_PAGES.
    pub struct ManagePagesOpMod(u16), "manage_pages_op_mod" {
        CANT_GIVE = 0x00,
        GIVE = 0x01,
        TAKE = 0x02,
    }
}

command! { QUERY_PAGES, QueryPagesIn => QueryPagesOut }
command! { MANAGE_PAGES, ManagePagesIn => ManagePagesOut }
