//! Asking for capabilities, and setting them.

use super::{CmdOpcode, CmdStatus, command};
use crate::mlx5::layout::{layout, wire_enum};

layout! {
    /// Asks for one capability group; `op_mod` from [`CapType::op_mod`].
    pub struct QueryHcaCapIn, 16, "query_hca_cap_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x04 [15:0] op_mod: u16,
        0x08 [31:31] other_function: bool,
        0x08 [15:0] function_id: u16,
    }

    /// Output of QUERY_HCA_CAP; the group follows, of the size of its structure or 4096 bytes.
    pub struct QueryHcaCapOut, 16, "query_hca_cap_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Sets one capability group; the group follows. `op_mod` is the group, shifted left by one.
    pub struct SetHcaCapIn, 16, "set_hca_cap_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x04 [15:0] op_mod: u16,
        0x08 [31:31] other_function: bool,
        0x08 [15:0] function_id: u16,
    }

    /// Output of SET_HCA_CAP.
    pub struct SetHcaCapOut, 16, "set_hca_cap_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }
}

wire_enum! {
    /// A capability group.
    pub struct CapType(u16), "hca_cap_type" {
        GENERAL = 0x00,
        ETHERNET_OFFLOADS = 0x01,
        ODP = 0x02,
        ATOMIC = 0x03,
        ROCE = 0x04,
        FLOW_TABLE = 0x07,
        ESWITCH_FLOW_TABLE = 0x08,
        ESWITCH = 0x09,
        VECTOR_CALC = 0x0b,
        QOS = 0x0c,
        DEBUG = 0x0d,
        DEV_MEM = 0x0f,
        TLS = 0x11,
        VDPA_EMULATION = 0x13,
        DEV_EVENT = 0x14,
        IPSEC = 0x15,
        DEV_SHAMPO = 0x1d,
        MACSEC = 0x1f,
        GENERAL_2 = 0x20,
        PORT_SELECTION = 0x25,
        ADV_VIRTUALIZATION = 0x26,
    }
}

command! { QUERY_HCA_CAP, QueryHcaCapIn => QueryHcaCapOut }
command! { SET_HCA_CAP, SetHcaCapIn => SetHcaCapOut }

impl CapType {
    /// `op_mod` of QUERY_HCA_CAP; SET_HCA_CAP takes it with `current` false.
    pub const fn op_mod(self, current: bool) -> u16 {
        self.0 << 1 | current as u16
    }

    /// The group, and whether its current values are meant rather than the greatest, from an `op_mod`.
    pub const fn from_op_mod(op_mod: u16) -> (Self, bool) {
        (Self(op_mod >> 1), op_mod & 1 != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn op_mod_is_the_type_and_what_is_asked() {
        for (cap_type, current, op_mod) in
            [(0, false, 0), (0, true, 1), (7, false, 14), (7, true, 15), (0x20, true, 0x41)]
        {
            assert_eq!(CapType(cap_type).op_mod(current), op_mod);
            assert_eq!(CapType::from_op_mod(op_mod), (CapType(cap_type), current));
        }
    }
}
