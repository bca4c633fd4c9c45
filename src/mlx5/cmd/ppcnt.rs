//! PPCNT's groups of Ethernet counters, which follow [`PpcntReg`](super::PpcntReg).
//!
//! Bytes of frames are counted from the destination address to the frame check sequence.

use crate::mlx5::layout::layout;

layout! {
    /// IEEE 802.3, clause 30.
    pub struct Eth8023CntrsGrp, 248, "eth_802_3_cntrs_grp_data_layout" {
        0x00 [63:0] a_frames_transmitted_ok: u64,
        0x08 [63:0] a_frames_received_ok: u64,
        0x10 [63:0] a_frame_check_sequence_errors: u64,
        0x18 [63:0] a_alignment_errors: u64,
        0x20 [63:0] a_octets_transmitted_ok: u64,
        0x28 [63:0] a_octets_received_ok: u64,
        0x30 [63:0] a_multicast_frames_xmitted_ok: u64,
        0x38 [63:0] a_broadcast_frames_xmitted_ok: u64,
        0x40 [63:0] a_multicast_frames_received_ok: u64,
        0x48 [63:0] a_broadcast_frames_received_ok: u64,
        0x50 [63:0] a_in_range_length_errors: u64,
        0x58 [63:0] a_out_of_range_length_field: u64,
        0x60 [63:0] a_frame_too_long_errors: u64,
        0x68 [63:0] a_symbol_error_during_carrier: u64,
        0x70 [63:0] a_mac_control_frames_transmitted: u64,
        0x78 [63:0] a_mac_control_frames_received: u64,
        0x80 [63:0] a_unsupported_opcodes_received: u64,
        0x88 [63:0] a_pause_mac_ctrl_frames_received: u64,
        0x90 [63:0] a_pause_mac_ctrl_frames_transmitted: u64,
    }

    /// RFC 2863, the Interfaces Group MIB.
    pub struct Eth2863CntrsGrp, 248, "eth_2863_cntrs_grp_data_layout" {
        0x00 [63:0] if_in_octets: u64,
        0x08 [63:0] if_in_ucast_pkts: u64,
        /// For lack of buffers at the port.
        0x10 [63:0] if_in_discards: u64,
        0x18 [63:0] if_in_errors: u64,
        0x20 [63:0] if_in_unknown_protos: u64,
        0x28 [63:0] if_out_octets: u64,
        0x30 [63:0] if_out_ucast_pkts: u64,
        0x38 [63:0] if_out_discards: u64,
        0x40 [63:0] if_out_errors: u64,
        0x48 [63:0] if_in_multicast_pkts: u64,
        0x50 [63:0] if_in_broadcast_pkts: u64,
        0x58 [63:0] if_out_multicast_pkts: u64,
        0x60 [63:0] if_out_broadcast_pkts: u64,
    }

    /// RFC 2819, RMON: what was received, by size.
    pub struct Eth2819CntrsGrp, 248, "eth_2819_cntrs_grp_data_layout" {
        0x00 [63:0] ether_stats_drop_events: u64,
        0x08 [63:0] ether_stats_octets: u64,
        0x10 [63:0] ether_stats_pkts: u64,
        0x18 [63:0] ether_stats_broadcast_pkts: u64,
        0x20 [63:0] ether_stats_multicast_pkts: u64,
        0x28 [63:0] ether_stats_crc_align_errors: u64,
        0x30 [63:0] ether_stats_undersize_pkts: u64,
        0x38 [63:0] ether_stats_oversize_pkts: u64,
        0x40 [63:0] ether_stats_fragments: u64,
        0x48 [63:0] ether_stats_jabbers: u64,
        0x50 [63:0] ether_stats_collisions: u64,
        0x58 [63:0] ether_stats_pkts64octets: u64,
        0x60 [63:0] ether_stats_pkts65to127octets: u64,
        0x68 [63:0] ether_stats_pkts128to255octets: u64,
        0x70 [63:0] ether_stats_pkts256to511octets: u64,
        0x78 [63:0] ether_stats_pkts512to1023octets: u64,
        0x80 [63:0] ether_stats_pkts1024to1518octets: u64,
        0x88 [63:0] ether_stats_pkts1519to2047octets: u64,
        0x90 [63:0] ether_stats_pkts2048to4095octets: u64,
        0x98 [63:0] ether_stats_pkts4096to8191octets: u64,
        0xa0 [63:0] ether_stats_pkts8192to10239octets: u64,
    }

    /// RFC 3635, the Ethernet-like interfaces MIB.
    pub struct Eth3635CntrsGrp, 248, "eth_3635_cntrs_grp_data_layout" {
        0x00 [63:0] dot3stats_alignment_errors: u64,
        0x08 [63:0] dot3stats_fcs_errors: u64,
        0x10 [63:0] dot3stats_single_collision_frames: u64,
        0x18 [63:0] dot3stats_multiple_collision_frames: u64,
        0x20 [63:0] dot3stats_sqe_test_errors: u64,
        0x28 [63:0] dot3stats_deferred_transmissions: u64,
        0x30 [63:0] dot3stats_late_collisions: u64,
        0x38 [63:0] dot3stats_excessive_collisions: u64,
        0x40 [63:0] dot3stats_internal_mac_transmit_errors: u64,
        0x48 [63:0] dot3stats_carrier_sense_errors: u64,
        0x50 [63:0] dot3stats_frame_too_longs: u64,
        0x58 [63:0] dot3stats_internal_mac_receive_errors: u64,
        0x60 [63:0] dot3stats_symbol_errors: u64,
        0x68 [63:0] dot3control_in_unknown_opcodes: u64,
        0x70 [63:0] dot3in_pause_frames: u64,
        0x78 [63:0] dot3out_pause_frames: u64,
    }

    /// Of the vendor.
    pub struct EthExtendedCntrsGrp, 248, "eth_extended_cntrs_grp_data_layout" {
        /// Ticks in which there was something to send and no credit.
        0x00 [63:0] port_transmit_wait: u64,
        0x28 [63:0] rx_buffer_almost_full: u64,
        0x30 [63:0] rx_buffer_full: u64,
        /// RoCE packets with a wrong ICRC.
        0x38 [63:0] rx_icrc_encapsulated: u64,
    }

    /// Of one priority of IEEE 802.1p; untagged frames have 0.
    pub struct EthPerPrioGrp, 248, "eth_per_prio_grp_data_layout" {
        0x00 [63:0] rx_octets: u64,
        0x20 [63:0] rx_frames: u64,
        0x28 [63:0] tx_octets: u64,
        0x48 [63:0] tx_frames: u64,
        0x50 [63:0] rx_pause: u64,
        0x58 [63:0] rx_pause_duration: u64,
        0x60 [63:0] tx_pause: u64,
        0x68 [63:0] tx_pause_duration: u64,
        0x70 [63:0] rx_pause_transition: u64,
        0x78 [63:0] rx_discards: u64,
        /// Times that pauses lasted longer than the first watermark.
        0x80 [63:0] device_stall_minor_watermark_cnt: u64,
        /// Times that they lasted longer than the second, and were given up.
        0x88 [63:0] device_stall_critical_watermark_cnt: u64,
    }

    /// Of one traffic class: buffers.
    pub struct EthPerTcPrioGrp, 248, "eth_per_tc_prio_grp_data_layout" {
        /// Bytes that wait.
        0x00 [63:0] transmit_queue: u64,
        0x08 [63:0] no_buffer_discard_uc: u64,
    }

    /// Of one traffic class: congestion.
    pub struct EthPerTcCongestPrioGrp, 248, "eth_per_tc_congest_prio_grp_data_layout" {
        0x00 [63:0] wred_discard: u64,
        0x08 [63:0] ecn_marked_tc: u64,
    }
}
