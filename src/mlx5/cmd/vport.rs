//! The port: Ethernet and InfiniBand attributes, link state.

use super::{CmdOpcode, CmdStatus, command};
use crate::mlx5::context::vport::{HcaVportContext, NicVportContext, NicVportListType};
use crate::mlx5::layout::{layout, wire_enum};

layout! {
    /// Reads the Ethernet attributes.
    pub struct QueryNicVportContextIn, 16, "query_nic_vport_context_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x04 [15:0] op_mod: u16,
        0x08 [31:31] other_vport: bool,
        0x08 [15:0] vport_number: u16,
        0x0c [26:24] allowed_list_type: NicVportListType,
    }

    /// Output of QUERY_NIC_VPORT_CONTEXT.
    pub struct QueryNicVportContextOut, 272, "query_nic_vport_context_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x10 [struct] nic_vport_context: NicVportContext,
    }

    /// Changes the Ethernet attributes that are selected.
    pub struct ModifyNicVportContextIn, 512, "modify_nic_vport_context_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x04 [15:0] op_mod: u16,
        0x08 [31:31] other_vport: bool,
        0x08 [15:0] vport_number: u16,
        0x0c [struct] field_select: ModifyNicVportFieldSelect,
        0x100 [struct] nic_vport_context: NicVportContext,
    }

    /// Output of MODIFY_NIC_VPORT_CONTEXT.
    pub struct ModifyNicVportContextOut, 16, "modify_nic_vport_context_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Asks for the link state.
    pub struct QueryVportStateIn, 16, "query_vport_state_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x04 [15:0] op_mod: u16,
        0x08 [31:31] other_vport: bool,
        0x08 [15:0] vport_number: u16,
    }

    /// Output of QUERY_VPORT_STATE.
    pub struct QueryVportStateOut, 16, "query_vport_state_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x0c [7:4] admin_state: VportAdminState,
        0x0c [3:0] state: VportState,
    }

    /// Sets the administrative state.
    pub struct ModifyVportStateIn, 16, "modify_vport_state_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x04 [15:0] op_mod: u16,
        0x08 [31:31] other_vport: bool,
        0x08 [15:0] vport_number: u16,
        0x0c [7:4] admin_state: VportAdminState,
    }

    /// Output of MODIFY_VPORT_STATE.
    pub struct ModifyVportStateOut, 16, "modify_vport_state_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Reads the InfiniBand attributes.
    pub struct QueryHcaVportContextIn, 16, "query_hca_vport_context_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x04 [15:0] op_mod: u16,
        0x08 [31:31] other_vport: bool,
        0x08 [19:16] port_num: u8,
        0x08 [15:0] vport_number: u16,
    }

    /// Output of QUERY_HCA_VPORT_CONTEXT.
    pub struct QueryHcaVportContextOut, 528, "query_hca_vport_context_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x10 [struct] hca_vport_context: HcaVportContext,
    }

    /// Reads GIDs; 16 bytes each follow.
    pub struct QueryHcaVportGidIn, 16, "query_hca_vport_gid_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x04 [15:0] op_mod: u16,
        0x08 [31:31] other_vport: bool,
        0x08 [19:16] port_num: u8,
        0x08 [15:0] vport_number: u16,
        /// 0xffff for all.
        0x0c [15:0] gid_index: u16,
    }

    /// Output of QUERY_HCA_VPORT_GID.
    pub struct QueryHcaVportGidOut, 16, "query_hca_vport_gid_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x0c [31:16] gids_num: u16,
    }

    /// Reads P_Keys; a [`Pkey`](crate::mlx5::context::vport::Pkey) each follow.
    pub struct QueryHcaVportPkeyIn, 16, "query_hca_vport_pkey_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x04 [15:0] op_mod: u16,
        0x08 [31:31] other_vport: bool,
        0x08 [19:16] port_num: u8,
        0x08 [15:0] vport_number: u16,
        /// 0xffff for all.
        0x0c [15:0] pkey_index: u16,
    }

    /// Output of QUERY_HCA_VPORT_PKEY.
    pub struct QueryHcaVportPkeyOut, 16, "query_hca_vport_pkey_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Which fields MODIFY_NIC_VPORT_CONTEXT changes.
    pub struct ModifyNicVportFieldSelect, 4, "modify_nic_vport_field_select" {
        0x00 [13:13] affiliation: bool,
        0x00 [11:11] disable_uc_local_lb: bool,
        0x00 [10:10] disable_mc_local_lb: bool,
        0x00 [9:9] node_guid: bool,
        0x00 [8:8] port_guid: bool,
        0x00 [7:7] min_inline: bool,
        0x00 [6:6] mtu: bool,
        0x00 [5:5] change_event: bool,
        0x00 [4:4] promisc: bool,
        0x00 [3:3] permanent_address: bool,
        0x00 [2:2] addresses_list: bool,
        0x00 [1:1] roce_en: bool,
    }
}

wire_enum! {
    /// Link of a vport (`query_vport_state_out.state`).
    pub struct VportState(u8), "vport_state" {
        STATE_DOWN = 0,
        STATE_UP = 1,
    }

    /// What the administrator wants of a vport's link.
    pub struct VportAdminState(u8), "vport_state" {
        ADMIN_STATE_DOWN = 0,
        ADMIN_STATE_UP = 1,
        /// Follow the physical port.
        ADMIN_STATE_AUTO = 2,
    }
}

command! { QUERY_NIC_VPORT_CONTEXT, QueryNicVportContextIn => QueryNicVportContextOut }
command! { MODIFY_NIC_VPORT_CONTEXT, ModifyNicVportContextIn => ModifyNicVportContextOut }
command! { QUERY_VPORT_STATE, QueryVportStateIn => QueryVportStateOut }
command! { MODIFY_VPORT_STATE, ModifyVportStateIn => ModifyVportStateOut }
command! { QUERY_HCA_VPORT_CONTEXT, QueryHcaVportContextIn => QueryHcaVportContextOut }
command! { QUERY_HCA_VPORT_GID, QueryHcaVportGidIn => QueryHcaVportGidOut }
command! { QUERY_HCA_VPORT_PKEY, QueryHcaVportPkeyIn => QueryHcaVportPkeyOut }
