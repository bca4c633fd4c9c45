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
}

command! { MAD_IFC, MadIfcIn => MadIfcOut }
command! { QUERY_VPORT_COUNTER, QueryVportCounterIn => QueryVportCounterOut }
