//! Counters of links: PPCNT's groups of the physical layer and of InfiniBand, and MPCNT's of PCI Express.

use crate::mlx5::layout::layout;

layout! {
    /// The physical layer.
    pub struct PhysLayerCntrs, 248, "phys_layer_cntrs" {
        /// Milliseconds.
        0x00 [63:0] time_since_last_clear: u64,
        0x08 [63:0] symbol_errors: u64,
        0x10 [63:0] sync_headers_errors: u64,
        0x18 [63:0] edpl_bip_errors_lane0: u64,
        0x20 [63:0] edpl_bip_errors_lane1: u64,
        0x28 [63:0] edpl_bip_errors_lane2: u64,
        0x30 [63:0] edpl_bip_errors_lane3: u64,
        0x38 [63:0] fc_fec_corrected_blocks_lane0: u64,
        0x40 [63:0] fc_fec_corrected_blocks_lane1: u64,
        0x48 [63:0] fc_fec_corrected_blocks_lane2: u64,
        0x50 [63:0] fc_fec_corrected_blocks_lane3: u64,
        0x58 [63:0] fc_fec_uncorrectable_blocks_lane0: u64,
        0x60 [63:0] fc_fec_uncorrectable_blocks_lane1: u64,
        0x68 [63:0] fc_fec_uncorrectable_blocks_lane2: u64,
        0x70 [63:0] fc_fec_uncorrectable_blocks_lane3: u64,
        0x78 [63:0] rs_fec_corrected_blocks: u64,
        0x80 [63:0] rs_fec_uncorrectable_blocks: u64,
        0x88 [63:0] rs_fec_no_errors_blocks: u64,
        0x90 [63:0] rs_fec_single_error_blocks: u64,
        0x98 [63:0] rs_fec_corrected_symbols_total: u64,
        0xa0 [63:0] rs_fec_corrected_symbols_lane0: u64,
        0xa8 [63:0] rs_fec_corrected_symbols_lane1: u64,
        0xb0 [63:0] rs_fec_corrected_symbols_lane2: u64,
        0xb8 [63:0] rs_fec_corrected_symbols_lane3: u64,
        /// Times that the link went down.
        0xc0 [31:0] link_down_events: u32,
        0xc4 [31:0] successful_recovery_events: u32,
    }

    /// The physical layer, for error rates.
    pub struct PhysLayerStatisticalCntrs, 248, "phys_layer_statistical_cntrs" {
        /// Milliseconds.
        0x00 [63:0] time_since_last_clear: u64,
        0x08 [63:0] phy_received_bits: u64,
        0x10 [63:0] phy_symbol_errors: u64,
        0x18 [63:0] phy_corrected_bits: u64,
        0x20 [63:0] phy_corrected_bits_lane0: u64,
        0x28 [63:0] phy_corrected_bits_lane1: u64,
        0x30 [63:0] phy_corrected_bits_lane2: u64,
        0x38 [63:0] phy_corrected_bits_lane3: u64,
    }

    /// PortCounters of InfiniBand (specification 16.1.3.5), which stay at their greatest value.
    pub struct IbPortCntrsGrp, 40, "ib_port_cntrs_grp_data_layout" {
        0x00 [31:16] symbol_error_counter: u16,
        0x00 [15:8] link_error_recovery_counter: u8,
        0x00 [7:0] link_downed_counter: u8,
        0x04 [31:16] port_rcv_errors: u16,
        0x04 [15:0] port_rcv_remote_physical_errors: u16,
        0x08 [31:16] port_rcv_switch_relay_errors: u16,
        0x08 [15:0] port_xmit_discards: u16,
        0x0c [31:24] port_xmit_constraint_errors: u8,
        0x0c [23:16] port_rcv_constraint_errors: u8,
        0x0c [7:0] link_overrun_errors: u8,
        /// Subnet management for which there was no buffer.
        0x10 [15:0] vl_15_dropped: u16,
        /// Ticks in which there was something to send and no credit.
        0x24 [31:0] port_xmit_wait: u32,
    }

    /// MPCNT: head of the counters of PCI Express; 248 bytes of the group chosen follow.
    pub struct MpcntReg, 8, "mpcnt_reg" {
        0x00 [23:16] pcie_index: u8,
        /// 0 performance.
        0x00 [5:0] grp: u8,
        /// Zero the counters after reading.
        0x04 [31:31] clr: bool,
    }

    /// Performance of PCI Express.
    pub struct PciePerfCntrsGrp, 248, "pcie_perf_cntrs_grp_data_layout" {
        /// Milliseconds since the counters were zeroed.
        0x00 [63:0] life_time_counter: u64,
        0x08 [31:0] rx_errors: u32,
        0x0c [31:0] tx_errors: u32,
        0x10 [31:0] l0_to_recovery_eieos: u32,
        0x14 [31:0] l0_to_recovery_ts: u32,
        0x18 [31:0] l0_to_recovery_framing: u32,
        0x1c [31:0] l0_to_recovery_retrain: u32,
        0x20 [31:0] crc_error_dllp: u32,
        0x24 [31:0] crc_error_tlp: u32,
        0x28 [63:0] tx_overflow_buffer_pkt: u64,
        0x30 [31:0] outbound_stalled_reads: u32,
        0x34 [31:0] outbound_stalled_writes: u32,
        0x38 [31:0] outbound_stalled_reads_events: u32,
        0x3c [31:0] outbound_stalled_writes_events: u32,
    }
}
