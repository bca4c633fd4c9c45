//! Flow steering: tables and their entries.

use super::FteMatchParam;
use crate::mlx5::layout::{layout, wire_enum};

layout! {
    /// Context of a flow table (PRM `flow_table_context`).
    pub struct FlowTableContext, 40, "flow_table_context" {
        0x00 [31:31] reformat_en: bool,
        0x00 [30:30] decap_en: bool,
        0x00 [29:29] sw_owner: bool,
        0x00 [28:28] termination_table: bool,
        /// 0 default, 1 to the table `table_miss_id`.
        0x00 [27:24] table_miss_action: u8,
        /// Entries lead to tables of a higher level only.
        0x00 [23:16] level: u8,
        0x00 [15:15] rtc_valid: bool,
        /// log2 of the entries.
        0x00 [7:0] log_size: u8,
        0x04 [23:0] table_miss_id: u32,
        0x08 [23:0] lag_master_next_table_id: u32,
        0x18 [63:0] sw_owner_icm_root_1: u64,
        0x20 [63:0] sw_owner_icm_root_0: u64,
    }

    /// An entry of a flow table (PRM `flow_context`); its destinations follow, 8 bytes each.
    pub struct FlowContext, 768, "flow_context" {
        0x00 [struct] push_vlan: Vlan,
        0x04 [31:0] group_id: u32,
        /// Comes back in the CQE.
        0x08 [23:0] flow_tag: u32,
        /// What is done with a packet that matches, `flow_context_action`.
        0x0c [15:0] action: u16,
        0x10 [31:31] extended_destination: bool,
        0x10 [29:28] flow_source: u8,
        0x10 [27:24] encrypt_decrypt_type: u8,
        0x10 [23:0] destination_list_size: u32,
        0x14 [23:0] flow_counter_list_size: u32,
        0x18 [31:0] packet_reformat_id: u32,
        0x1c [31:0] modify_header_id: u32,
        0x20 [struct] push_vlan_2: Vlan,
        0x24 [31:0] encrypt_decrypt_obj_id: u32,
        /// What fields must hold, where the group has criteria.
        0x40 [struct] match_value: FteMatchParam,
        0x240 [bytes] execute_aso: [u8; 32],
    }

    /// A VLAN tag to push.
    pub struct Vlan, 4, "vlan" {
        0x00 [31:16] ethtype: u16,
        0x00 [15:13] prio: u8,
        0x00 [12:12] cfi: bool,
        0x00 [11:0] vid: u16,
    }

    /// A destination of a flow entry.
    pub struct DestFormatStruct, 8, "dest_format_struct" {
        0x00 [31:24] destination_type: FlowDestination,
        0x00 [23:0] destination_id: u32,
        0x04 [31:31] destination_eswitch_owner_vhca_id_valid: bool,
        0x04 [30:30] packet_reformat: bool,
        0x04 [15:0] destination_eswitch_owner_vhca_id: u16,
    }
}

wire_enum! {
    /// Kind of a flow entry's destination.
    pub struct FlowDestination(u8), "flow_destination_type" {
        TYPE_VPORT = 0,
        TYPE_FLOW_TABLE = 1,
        TYPE_TIR = 2,
    }

    /// What is done with packets that match (`flow_context.action`), a bit each.
    pub struct FlowAction(u16), "flow_context_action" {
        ALLOW = 1,
        DROP = 2,
        FWD_DEST = 4,
        COUNT = 8,
    }
}
