//! Scheduling trees: shares and rates of groups of queues. A tree is made of TSARs; its leaves are queue groups, which send
//! queues and queue pairs name.

use super::{CmdOpcode, CmdStatus, command};
use crate::mlx5::layout::{layout, wire_enum};

layout! {
    /// An element (PRM `scheduling_context`).
    pub struct SchedulingContext, 64, "scheduling_context" {
        0x00 [31:24] element_type: SchedulingElementType,
        0x04 [struct] element_attributes: TsarElement,
        /// The TSAR that it is a part of; 0 of a tree's root.
        0x08 [31:0] parent_element_id: u32,
        /// Weight among its brothers; 0: none.
        0x14 [31:0] bw_share: u32,
        /// Most that it sends, in Mbit/s; 0: without limit.
        0x18 [31:0] max_average_bw: u32,
    }

    /// How a TSAR chooses among its parts.
    pub struct TsarElement, 4, "tsar_element" {
        0x00 [23:16] tsar_type: TsarType,
    }

    /// Makes an element.
    pub struct CreateSchedulingElementIn, 128, "create_scheduling_element_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x04 [15:0] op_mod: u16,
        0x08 [31:24] scheduling_hierarchy: SchedulingHierarchy,
        0x20 [struct] scheduling_context: SchedulingContext,
    }

    /// Output of CREATE_SCHEDULING_ELEMENT.
    pub struct CreateSchedulingElementOut, 64, "create_scheduling_element_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x10 [31:0] scheduling_element_id: u32,
    }

    /// Reads an element.
    pub struct QuerySchedulingElementIn, 64, "query_scheduling_element_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x04 [15:0] op_mod: u16,
        0x08 [31:24] scheduling_hierarchy: SchedulingHierarchy,
        0x0c [31:0] scheduling_element_id: u32,
    }

    /// Output of QUERY_SCHEDULING_ELEMENT.
    pub struct QuerySchedulingElementOut, 128, "query_scheduling_element_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x20 [struct] scheduling_context: SchedulingContext,
    }

    /// Changes share or rate of an element.
    pub struct ModifySchedulingElementIn, 128, "modify_scheduling_element_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x04 [15:0] op_mod: u16,
        0x08 [31:24] scheduling_hierarchy: SchedulingHierarchy,
        0x0c [31:0] scheduling_element_id: u32,
        /// Bits of [`sched_select`].
        0x14 [31:0] modify_bitmask: u32,
        0x20 [struct] scheduling_context: SchedulingContext,
    }

    /// Output of MODIFY_SCHEDULING_ELEMENT.
    pub struct ModifySchedulingElementOut, 64, "modify_scheduling_element_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Ends an element.
    pub struct DestroySchedulingElementIn, 64, "destroy_scheduling_element_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x04 [15:0] op_mod: u16,
        0x08 [31:24] scheduling_hierarchy: SchedulingHierarchy,
        0x0c [31:0] scheduling_element_id: u32,
    }

    /// Output of DESTROY_SCHEDULING_ELEMENT.
    pub struct DestroySchedulingElementOut, 64, "destroy_scheduling_element_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// The same element as a general object, as libmlx5 makes it; follows the head of CREATE_GENERAL_OBJECT and
    /// MODIFY_GENERAL_OBJECT.
    pub struct SchedElem, 128, "sched_elem" {
        /// Bits of [`sched_select`].
        0x00 [63:0] modify_field_select: u64,
        0x08 [31:24] scheduling_hierarchy: SchedulingHierarchy,
        0x20 [struct] sched_context: SchedulingContext,
    }
}

/// Which fields of an element are changed.
pub mod sched_select {
    /// `bw_share`.
    pub const BW_SHARE: u32 = 1;
    /// `max_average_bw`.
    pub const MAX_AVERAGE_BW: u32 = 1 << 1;
}

wire_enum! {
    /// Whose queues a tree schedules.
    pub struct SchedulingHierarchy(u8), "scheduling_hierarchy" {
        /// Virtual ports of the embedded switch.
        E_SWITCH = 2,
        /// Queues of a function.
        NIC = 3,
    }

    /// What an element is.
    pub struct SchedulingElementType(u8), "scheduling_element_type" {
        /// A transmit scheduling arbiter: a node of the tree.
        TSAR = 0,
        VPORT = 1,
        VPORT_TC = 2,
        PARA_VPORT_TC = 3,
        /// A leaf: send queues and queue pairs name it.
        QUEUE_GROUP = 4,
    }

    /// How a TSAR chooses among its parts.
    pub struct TsarType(u8), "tsar_type" {
        /// By their weights (deficit weighted round robin).
        DWRR = 0,
        ROUND_ROBIN = 1,
        ETS = 2,
    }
}

command! { CREATE_SCHEDULING_ELEMENT, CreateSchedulingElementIn => CreateSchedulingElementOut }
command! { QUERY_SCHEDULING_ELEMENT, QuerySchedulingElementIn => QuerySchedulingElementOut }
command! { MODIFY_SCHEDULING_ELEMENT, ModifySchedulingElementIn => ModifySchedulingElementOut }
command! { DESTROY_SCHEDULING_ELEMENT, DestroySchedulingElementIn => DestroySchedulingElementOut }
