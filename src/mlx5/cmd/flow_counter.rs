//! Counters of flow entries.

use super::{CmdOpcode, CmdStatus, command};
use crate::mlx5::layout::layout;

layout! {
    /// Makes a flow counter.
    pub struct AllocFlowCounterIn, 16, "alloc_flow_counter_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] pd: u32,
        0x0c [12:8] flow_counter_bulk_log_size: u8,
        /// How many at once, as a bit of `flow_counter_bulk_alloc`; 0 is one.
        0x0c [7:0] flow_counter_bulk: u8,
    }

    /// Output of ALLOC_FLOW_COUNTER.
    pub struct AllocFlowCounterOut, 16, "alloc_flow_counter_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x08 [31:0] flow_counter_id: u32,
    }

    /// Ends a flow counter.
    pub struct DeallocFlowCounterIn, 16, "dealloc_flow_counter_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x04 [15:0] op_mod: u16,
        0x08 [31:0] flow_counter_id: u32,
    }

    /// Output of DEALLOC_FLOW_COUNTER.
    pub struct DeallocFlowCounterOut, 16, "dealloc_flow_counter_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Reads flow counters.
    pub struct QueryFlowCounterIn, 32, "query_flow_counter_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x04 [15:0] op_mod: u16,
        0x0c [31:0] mkey: u32,
        0x10 [63:0] address: u64,
        /// Zero them after reading.
        0x18 [31:31] clear: bool,
        0x18 [30:30] dump_to_memory: bool,
        /// How many, by number from `flow_counter_id` on; 0 is one.
        0x18 [29:0] num_of_counters: u32,
        0x1c [31:0] flow_counter_id: u32,
    }

    /// Output of QUERY_FLOW_COUNTER; a [`TrafficCounter`](super::TrafficCounter) each follows.
    pub struct QueryFlowCounterOut, 16, "query_flow_counter_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }
}

command! { ALLOC_FLOW_COUNTER, AllocFlowCounterIn => AllocFlowCounterOut }
command! { DEALLOC_FLOW_COUNTER, DeallocFlowCounterIn => DeallocFlowCounterOut }
command! { QUERY_FLOW_COUNTER, QueryFlowCounterIn => QueryFlowCounterOut }
