//! Flow steering: tables, groups of entries with common criteria, entries.

use super::{CmdOpcode, CmdStatus, command};
use crate::mlx5::context::{FlowContext, FlowTableContext, FteMatchParam};
use crate::mlx5::layout::{layout, wire_enum};

layout! {
    /// Makes a flow table.
    pub struct CreateFlowTableIn, 64, "create_flow_table_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [31:31] other_vport: bool,
        0x08 [15:0] vport_number: u16,
        0x10 [31:24] table_type: FlowTableType,
        0x18 [struct] flow_table_context: FlowTableContext,
    }

    /// Output of CREATE_FLOW_TABLE.
    pub struct CreateFlowTableOut, 16, "create_flow_table_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x00 [23:0] icm_address_63_40: u32,
        0x08 [31:24] icm_address_39_32: u8,
        0x08 [23:0] table_id: u32,
        0x0c [31:0] icm_address_31_0: u32,
    }

    /// Ends a flow table without groups.
    pub struct DestroyFlowTableIn, 64, "destroy_flow_table_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x04 [15:0] op_mod: u16,
        0x08 [31:31] other_vport: bool,
        0x08 [15:0] vport_number: u16,
        0x10 [31:24] table_type: FlowTableType,
        0x14 [23:0] table_id: u32,
    }

    /// Output of DESTROY_FLOW_TABLE.
    pub struct DestroyFlowTableOut, 16, "destroy_flow_table_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Changes where packets go that match nothing.
    pub struct ModifyFlowTableIn, 64, "modify_flow_table_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [31:31] other_vport: bool,
        0x08 [15:0] vport_number: u16,
        /// 1: the miss table.
        0x0c [15:0] modify_field_select: u16,
        0x10 [31:24] table_type: FlowTableType,
        0x14 [23:0] table_id: u32,
        0x18 [struct] flow_table_context: FlowTableContext,
    }

    /// Output of MODIFY_FLOW_TABLE.
    pub struct ModifyFlowTableOut, 16, "modify_flow_table_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Sets the table that packets enter first.
    pub struct SetFlowTableRootIn, 64, "set_flow_table_root_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x04 [15:0] op_mod: u16,
        0x08 [31:31] other_vport: bool,
        0x08 [15:0] vport_number: u16,
        0x10 [31:24] table_type: FlowTableType,
        0x10 [16:16] table_of_other_vport: bool,
        0x10 [15:0] table_vport_number: u16,
        0x14 [23:0] table_id: u32,
        0x18 [23:0] underlay_qpn: u32,
        0x1c [31:31] table_eswitch_owner_vhca_id_valid: bool,
        0x1c [15:0] table_eswitch_owner_vhca_id: u16,
    }

    /// Output of SET_FLOW_TABLE_ROOT.
    pub struct SetFlowTableRootOut, 16, "set_flow_table_root_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Makes a group: a range of entries that look at the same fields.
    pub struct CreateFlowGroupIn, 1024, "create_flow_group_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x04 [15:0] op_mod: u16,
        0x08 [31:31] other_vport: bool,
        0x08 [15:0] vport_number: u16,
        0x10 [31:24] table_type: FlowTableType,
        0x10 [19:16] group_type: u8,
        0x14 [23:0] table_id: u32,
        0x18 [31:31] source_eswitch_owner_vhca_id_valid: bool,
        0x1c [31:0] start_flow_index: u32,
        0x24 [31:0] end_flow_index: u32,
        0x28 [15:0] match_definer_id: u16,
        /// Parts of the criteria that count: 1 outer headers, 2 miscellaneous, 4 inner headers, 8 and on more of these.
        0x3c [7:0] match_criteria_enable: u8,
        /// A mask over the fields.
        0x40 [struct] match_criteria: FteMatchParam,
    }

    /// Output of CREATE_FLOW_GROUP.
    pub struct CreateFlowGroupOut, 16, "create_flow_group_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x08 [23:0] group_id: u32,
    }

    /// Ends a group without entries.
    pub struct DestroyFlowGroupIn, 64, "destroy_flow_group_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x04 [15:0] op_mod: u16,
        0x08 [31:31] other_vport: bool,
        0x08 [15:0] vport_number: u16,
        0x10 [31:24] table_type: FlowTableType,
        0x14 [23:0] table_id: u32,
        0x18 [31:0] group_id: u32,
    }

    /// Output of DESTROY_FLOW_GROUP.
    pub struct DestroyFlowGroupOut, 16, "destroy_flow_group_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Writes an entry.
    pub struct SetFteIn, 832, "set_fte_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x04 [15:0] op_mod: u16,
        0x08 [31:31] other_vport: bool,
        0x08 [15:0] vport_number: u16,
        0x10 [31:24] table_type: FlowTableType,
        0x14 [23:0] table_id: u32,
        0x18 [31:31] ignore_flow_level: bool,
        /// With op_mod 1: what of an existing entry is changed.
        0x18 [7:0] modify_enable_mask: u8,
        0x20 [31:0] flow_index: u32,
        0x40 [struct] flow_context: FlowContext,
    }

    /// Output of SET_FLOW_TABLE_ENTRY.
    pub struct SetFteOut, 16, "set_fte_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Clears an entry.
    pub struct DeleteFteIn, 64, "delete_fte_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x04 [15:0] op_mod: u16,
        0x08 [31:31] other_vport: bool,
        0x08 [15:0] vport_number: u16,
        0x10 [31:24] table_type: FlowTableType,
        0x14 [23:0] table_id: u32,
        0x20 [31:0] flow_index: u32,
    }

    /// Output of DELETE_FLOW_TABLE_ENTRY.
    pub struct DeleteFteOut, 16, "delete_fte_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }
}

wire_enum! {
    /// Which packets a flow table is for.
    pub struct FlowTableType(u8), "flow_table_type" {
        NIC_RX = 0,
        NIC_TX = 1,
        ESW_EGRESS_ACL = 2,
        ESW_INGRESS_ACL = 3,
        FDB = 4,
        SNIFFER_RX = 5,
        SNIFFER_TX = 6,
        RDMA_RX = 7,
        RDMA_TX = 8,
    }
}

command! { CREATE_FLOW_TABLE, CreateFlowTableIn => CreateFlowTableOut }
command! { DESTROY_FLOW_TABLE, DestroyFlowTableIn => DestroyFlowTableOut }
command! { MODIFY_FLOW_TABLE, ModifyFlowTableIn => ModifyFlowTableOut }
command! { SET_FLOW_TABLE_ROOT, SetFlowTableRootIn => SetFlowTableRootOut }
command! { CREATE_FLOW_GROUP, CreateFlowGroupIn => CreateFlowGroupOut }
command! { DESTROY_FLOW_GROUP, DestroyFlowGroupIn => DestroyFlowGroupOut }
command! { SET_FLOW_TABLE_ENTRY, SetFteIn => SetFteOut }
command! { DELETE_FLOW_TABLE_ENTRY, DeleteFteIn => DeleteFteOut }
