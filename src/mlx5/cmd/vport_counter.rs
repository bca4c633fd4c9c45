//! What a vport counts.

use super::{CmdOpcode, CmdStatus, command};
use crate::mlx5::layout::layout;

layout! {
    /// Reads the counters of a vport.
    pub struct QueryVportCounterIn, 32, "query_vport_counter_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x04 [15:0] op_mod: u16,
        0x08 [31:31] other_vport: bool,
        0x08 [19:16] port_num: u8,
        0x08 [15:0] vport_number: u16,
        /// Zero them after reading.
        0x18 [31:31] clear: bool,
    }

    /// Output of QUERY_VPORT_COUNTER.
    pub struct QueryVportCounterOut, 528, "query_vport_counter_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x10 [struct] received_errors: TrafficCounter,
        0x20 [struct] transmit_errors: TrafficCounter,
        0x30 [struct] received_ib_unicast: TrafficCounter,
        0x40 [struct] transmitted_ib_unicast: TrafficCounter,
        0x50 [struct] received_ib_multicast: TrafficCounter,
        0x60 [struct] transmitted_ib_multicast: TrafficCounter,
        0x70 [struct] received_eth_broadcast: TrafficCounter,
        0x80 [struct] transmitted_eth_broadcast: TrafficCounter,
        0x90 [struct] received_eth_unicast: TrafficCounter,
        0xa0 [struct] transmitted_eth_unicast: TrafficCounter,
        0xb0 [struct] received_eth_multicast: TrafficCounter,
        0xc0 [struct] transmitted_eth_multicast: TrafficCounter,
    }

    /// Packets and bytes.
    pub struct TrafficCounter, 16, "traffic_counter" {
        0x00 [63:0] packets: u64,
        0x08 [63:0] octets: u64,
    }

    /// Reads what went wrong at a vport.
    pub struct QueryVnicEnvIn, 16, "query_vnic_env_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x04 [15:0] op_mod: u16,
        0x08 [31:31] other_vport: bool,
        0x08 [15:0] vport_number: u16,
    }

    /// Output of QUERY_VNIC_ENV.
    pub struct QueryVnicEnvOut, 528, "query_vnic_env_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x10 [struct] vport_env: VnicDiagnosticStatistics,
    }

    /// What went wrong at a vport.
    pub struct VnicDiagnosticStatistics, 512, "vnic_diagnostic_statistics" {
        0x00 [31:0] counter_error_queues: u32,
        0x04 [31:0] total_error_queues: u32,
        0x08 [31:0] send_queue_priority_update_flow: u32,
        /// Packets that no flow entry took.
        0x10 [63:0] nic_receive_steering_discard: u64,
        /// Packets that came while the vport was down.
        0x18 [63:0] receive_discard_vport_down: u64,
        /// Packets to be sent while it was.
        0x20 [63:0] transmit_discard_vport_down: u64,
        0x28 [31:0] async_eq_overrun: u32,
        0x2c [31:0] comp_eq_overrun: u32,
        0x34 [31:0] invalid_command: u32,
        0x38 [31:0] quota_exceeded_command: u32,
        0x3c [31:0] internal_rq_out_of_buffer: u32,
        0x40 [31:0] cq_overrun: u32,
        0x44 [31:0] eth_wqe_too_small: u32,
    }
}

command! { QUERY_VPORT_COUNTER, QueryVportCounterIn => QueryVportCounterOut }
command! { QUERY_VNIC_ENV, QueryVnicEnvIn => QueryVnicEnvOut }
