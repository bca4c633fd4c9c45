//! Objects of types that have no commands of their own: made, and ended, by their type's number.

use super::{CmdOpcode, CmdStatus, command};
use crate::mlx5::layout::{layout, wire_enum};

layout! {
    /// Makes an object; its contents follow, by the type.
    pub struct CreateGeneralObjectIn, 16, "general_obj_in_cmd_hdr" {
        0x00 [31:16] opcode: CmdOpcode,
        0x00 [15:0] uid: u16,
        0x04 [31:16] vhca_tunnel_id: u16,
        0x04 [15:0] obj_type: GeneralObjectType,
        0x08 [31:0] obj_id: u32,
        /// log2 of the objects that are made in one go.
        0x0c [28:24] log_obj_range: u8,
    }

    /// Output of CREATE_GENERAL_OBJECT.
    pub struct CreateGeneralObjectOut, 16, "general_obj_out_cmd_hdr" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        /// Of the first, if they are several.
        0x08 [31:0] obj_id: u32,
    }

    /// Changes an object; what of it follows, by the type.
    pub struct ModifyGeneralObjectIn, 16, "general_obj_in_cmd_hdr" {
        0x00 [31:16] opcode: CmdOpcode,
        0x00 [15:0] uid: u16,
        0x04 [31:16] vhca_tunnel_id: u16,
        0x04 [15:0] obj_type: GeneralObjectType,
        0x08 [31:0] obj_id: u32,
        0x0c [28:24] log_obj_range: u8,
    }

    /// Output of MODIFY_GENERAL_OBJECT.
    pub struct ModifyGeneralObjectOut, 16, "general_obj_out_cmd_hdr" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x08 [31:0] obj_id: u32,
    }

    /// Ends an object.
    pub struct DestroyGeneralObjectIn, 16, "general_obj_in_cmd_hdr" {
        0x00 [31:16] opcode: CmdOpcode,
        0x00 [15:0] uid: u16,
        0x04 [31:16] vhca_tunnel_id: u16,
        0x04 [15:0] obj_type: GeneralObjectType,
        0x08 [31:0] obj_id: u32,
        0x0c [28:24] log_obj_range: u8,
    }

    /// Output of DESTROY_GENERAL_OBJECT.
    pub struct DestroyGeneralObjectOut, 16, "general_obj_out_cmd_hdr" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x08 [31:0] obj_id: u32,
    }
}

layout! {
    /// Packets to an address are to be paced as those of a queue pair are; follows the head of CREATE_GENERAL_OBJECT.
    pub struct AvQpMapping, 64, "av_qp_mapping" {
        0x00 [63:0] modify_field_select: u64,
        0x0c [31:0] qpn: u32,
        0x10 [struct] remote_address_vector: UdAv,
    }

    /// Address of a datagram's peer, as objects name it (PRM `ud_av`).
    pub struct UdAv, 48, "ud_av" {
        0x0c [27:24] sl_or_eth_prio: u8,
        /// Own GID index.
        0x1c [27:20] src_addr_index: u8,
        /// The peer's GID.
        0x20 [bytes] rgid_or_rip: [u8; 16],
    }
}

wire_enum! {
    /// What a general object is. The device has those whose bit is set in `general_obj_types`.
    pub struct GeneralObjectType(u16), "general_object_type" {
        /// [`SchedElem`](super::SchedElem).
        SCHEDULING_ELEMENT = 0x26,
        /// Numbers that no queue pair is given.
        RESERVED_QPN = 0x2c,
        /// [`AvQpMapping`].
        AV_QP_MAPPING = 0x3a,
    }
}

command! { CREATE_GENERAL_OBJECT, CreateGeneralObjectIn => CreateGeneralObjectOut }
command! { MODIFY_GENERAL_OBJECT, ModifyGeneralObjectIn => ModifyGeneralObjectOut }
command! { DESTROY_GENERAL_OBJECT, DestroyGeneralObjectIn => DestroyGeneralObjectOut }
