//! Management datagrams, and what a vport counted.

use super::{CmdOpcode, CmdStatus, command};
use crate::mlx5::layout::layout;

layout! {
    /// Gives firmware a management datagram.
    pub struct MadIfcIn, 272, "mad_ifc_in" {
        0x00 [31:16] opcode: CmdOpcode,
        /// 1 and 2 leave out the checks of M_Key and B_Key.
        0x04 [15:0] op_mod: u16,
        0x08 [31:16] remote_lid: u16,
        0x08 [7:0] port: u8,
        0x10 [bytes] mad: [u8; 256],
    }

    /// Output of MAD_IFC.
    pub struct MadIfcOut, 272, "mad_ifc_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x10 [bytes] response_mad_packet: [u8; 256],
    }
}

command! { MAD_IFC, MadIfcIn => MadIfcOut }
