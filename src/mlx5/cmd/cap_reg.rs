//! Which registers there are, and what is new in them: PCAM for those of ports, MCAM for those of management.
//!
//! Registers of a group are a bit each: bit 0 of the last dword is the group's first.

use crate::mlx5::layout::layout;

layout! {
    /// PCAM: groups are 0, the registers 0x5000 to 0x507f, and 0 of features.
    pub struct PcamReg, 80, "pcam_reg" {
        0x00 [23:16] feature_group: u8,
        0x00 [7:0] access_reg_group: u8,
        0x08 [bytes] port_access_reg_cap_mask: [u8; 16],
        0x28 [struct] enhanced_features: PcamEnhancedFeatures,
    }

    /// What is new in registers of ports.
    pub struct PcamEnhancedFeatures, 16, "pcam_enhanced_features" {
        0x0c [23:23] fec_50g_per_lane_in_pplm: bool,
        0x0c [18:18] rx_icrc_encapsulated_counter: bool,
        0x0c [13:13] ptys_extended_ethernet: bool,
        /// Masks of [`PfccReg`](super::PfccReg), and its watermarks.
        0x0c [9:9] pfcc_mask: bool,
        0x0c [5:5] per_lane_error_counters: bool,
        0x0c [4:4] rx_buffer_fullness_counters: bool,
        0x0c [3:3] ptys_connector_type: bool,
        0x0c [1:1] ppcnt_discard_group: bool,
        0x0c [0:0] ppcnt_statistical_group: bool,
    }

    /// MCAM: groups are 0 to 2, 128 registers each from 0x9000, 0x9080 and 0x9100 on, and 0 of features.
    pub struct McamReg, 72, "mcam_reg" {
        0x00 [23:16] feature_group: u8,
        0x00 [7:0] access_reg_group: u8,
        0x08 [bytes] mng_access_reg_cap_mask: [u8; 16],
        0x28 [struct] enhanced_features: McamEnhancedFeatures,
    }

    /// What is new in registers of management.
    pub struct McamEnhancedFeatures, 16, "mcam_enhanced_features" {
        0x08 [2:2] mcia_32dwords: bool,
        0x08 [1:1] out_pulse_duration_ns: bool,
        0x08 [0:0] npps_period: bool,
        0x0c [21:21] reset_state: bool,
        0x0c [20:20] ptpcyc2realtime_modify: bool,
        0x0c [17:17] pci_status_and_power: bool,
        0x0c [11:11] mark_tx_action_cnp: bool,
        0x0c [10:10] mark_tx_action_cqe: bool,
        0x0c [9:9] dynamic_tx_overflow: bool,
        0x0c [4:4] pcie_outbound_stalled: bool,
        0x0c [3:3] tx_overflow_buffer_pkt: bool,
        0x0c [2:2] mtpps_enh_out_per_adj: bool,
        0x0c [1:1] mtpps_fs: bool,
        0x0c [0:0] pcie_performance_group: bool,
    }
}
