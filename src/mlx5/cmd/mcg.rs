//! Multicast groups of datagram queue pairs.

use super::{CmdOpcode, CmdStatus, command};
use crate::mlx5::{ids::Qpn, layout::layout};

layout! {
    /// A queue pair joins a group.
    pub struct AttachToMcgIn, 32, "attach_to_mcg_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] qpn: Qpn,
        0x10 [bytes] multicast_gid: [u8; 16],
    }

    /// Output of ATTACH_TO_MCG.
    pub struct AttachToMcgOut, 16, "attach_to_mcg_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// A queue pair leaves a group.
    pub struct DetachFromMcgIn, 32, "detach_from_mcg_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] qpn: Qpn,
        0x10 [bytes] multicast_gid: [u8; 16],
    }

    /// Output of DETACH_FROM_MCG.
    pub struct DetachFromMcgOut, 16, "detach_from_mcg_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }
}

command! { ATTACH_TO_MCG, AttachToMcgIn => AttachToMcgOut }
command! { DETACH_FROM_MCG, DetachFromMcgIn => DetachFromMcgOut }
