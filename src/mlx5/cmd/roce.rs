//! The RoCE address table.

use super::{CmdOpcode, CmdStatus, command};
use crate::mlx5::context::roce_addr::RoceAddrLayout;
use crate::mlx5::layout::layout;

layout! {
    /// Writes an entry; an all-zero address clears it.
    pub struct SetRoceAddressIn, 48, "set_roce_address_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x04 [15:0] op_mod: u16,
        0x08 [31:16] roce_address_index: u16,
        0x08 [3:0] vhca_port_num: u8,
        0x10 [struct] roce_address: RoceAddrLayout,
    }

    /// Output of SET_ROCE_ADDRESS.
    pub struct SetRoceAddressOut, 16, "set_roce_address_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Reads an entry.
    pub struct QueryRoceAddressIn, 16, "query_roce_address_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x04 [15:0] op_mod: u16,
        0x08 [31:16] roce_address_index: u16,
        0x08 [3:0] vhca_port_num: u8,
    }

    /// Output of QUERY_ROCE_ADDRESS.
    pub struct QueryRoceAddressOut, 48, "query_roce_address_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x10 [struct] roce_address: RoceAddrLayout,
    }
}

command! { SET_ROCE_ADDRESS, SetRoceAddressIn => SetRoceAddressOut }
command! { QUERY_ROCE_ADDRESS, QueryRoceAddressIn => QueryRoceAddressOut }
