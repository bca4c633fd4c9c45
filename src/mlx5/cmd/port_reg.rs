//! Registers of the port that tools ask for: flow control, lanes, checks, error correction, the module.

use crate::mlx5::layout::layout;

layout! {
    /// PFCC: pauses, of the port and of its priorities.
    pub struct PfccReg, 32, "pfcc_reg" {
        0x00 [23:16] local_port: u8,
        0x00 [4:4] ppan_mask_n: bool,
        0x00 [3:3] minor_stall_mask: bool,
        0x00 [2:2] critical_stall_mask: bool,
        0x04 [31:28] ppan: u8,
        /// Bits of `pfctx` that are written.
        0x04 [23:16] prio_mask_tx: u8,
        /// Bits of `pfcrx` that are written.
        0x04 [7:0] prio_mask_rx: u8,
        /// The port sends pauses.
        0x08 [31:31] pptx: bool,
        0x08 [30:30] aptx: bool,
        /// `pptx` stays as it is.
        0x08 [29:29] pptx_mask_n: bool,
        /// Priorities for which the port sends them, a bit each.
        0x08 [23:16] pfctx: u8,
        /// The port obeys pauses.
        0x0c [31:31] pprx: bool,
        0x0c [30:30] aprx: bool,
        /// `pprx` stays as it is.
        0x0c [29:29] pprx_mask_n: bool,
        /// Priorities for which it obeys them.
        0x0c [23:16] pfcrx: u8,
        0x10 [31:16] device_stall_minor_watermark: u16,
        0x10 [15:0] device_stall_critical_watermark: u16,
    }

    /// PVLC: virtual lanes of an InfiniBand port.
    pub struct PvlcReg, 16, "pvlc_reg" {
        0x00 [23:16] local_port: u8,
        /// How many there are: 1, 2, 4, 8 or 15.
        0x04 [3:0] vl_hw_cap: u8,
        0x08 [3:0] vl_admin: u8,
        0x0c [3:0] vl_operational: u8,
    }

    /// PCMR: which checks the port makes.
    pub struct PcmrReg, 12, "pcmr_reg" {
        0x00 [23:16] local_port: u8,
        0x04 [31:31] entropy_force_cap: bool,
        0x04 [30:30] entropy_calc_cap: bool,
        0x04 [29:29] entropy_gre_calc_cap: bool,
        0x04 [13:13] rx_ts_over_crc_cap: bool,
        0x04 [1:1] fcs_cap: bool,
        0x08 [31:31] entropy_force: bool,
        0x08 [30:30] entropy_calc: bool,
        0x08 [29:29] entropy_gre_calc: bool,
        0x08 [13:13] rx_ts_over_crc: bool,
        /// Frames with a wrong frame check sequence are dropped.
        0x08 [1:1] fcs_chk: bool,
    }

    /// PPLM: forward error correction. Modes are a bit each: 0 none, 1 Firecode, 2 Reed-Solomon (528, 514).
    pub struct PplmReg, 80, "pplm_reg" {
        0x00 [23:16] local_port: u8,
        0x08 [31:24] port_profile_mode: u8,
        0x08 [23:16] static_port_profile: u8,
        0x08 [15:8] active_port_profile: u8,
        0x0c [31:24] retransmission_active: u8,
        /// The mode in use.
        0x0c [23:0] fec_mode_active: u32,
        0x10 [31:28] rs_fec_correction_bypass_cap: u8,
        0x10 [19:16] fec_override_cap_56g: u8,
        0x10 [15:12] fec_override_cap_100g: u8,
        0x10 [11:8] fec_override_cap_50g: u8,
        0x10 [7:4] fec_override_cap_25g: u8,
        0x10 [3:0] fec_override_cap_10g_40g: u8,
        0x14 [31:28] rs_fec_correction_bypass_admin: u8,
        0x14 [19:16] fec_override_admin_56g: u8,
        0x14 [15:12] fec_override_admin_100g: u8,
        0x14 [11:8] fec_override_admin_50g: u8,
        0x14 [7:4] fec_override_admin_25g: u8,
        0x14 [3:0] fec_override_admin_10g_40g: u8,
        0x18 [31:16] fec_override_cap_400g_8x: u16,
        0x18 [15:0] fec_override_cap_200g_4x: u16,
        0x1c [31:16] fec_override_cap_100g_2x: u16,
        0x1c [15:0] fec_override_cap_50g_1x: u16,
        0x20 [31:16] fec_override_admin_400g_8x: u16,
        0x20 [15:0] fec_override_admin_200g_4x: u16,
        0x24 [31:16] fec_override_admin_100g_2x: u16,
        0x24 [15:0] fec_override_admin_50g_1x: u16,
    }

    /// PMLP: which lanes of which module the port has.
    pub struct PmlpReg, 64, "pmlp_reg" {
        0x00 [31:31] rxtx: bool,
        0x00 [23:16] local_port: u8,
        /// Lanes in use.
        0x00 [7:0] width: u8,
        /// The module in bits `7:0`; its lanes above.
        0x04 [31:0] lane0_module_mapping: u32,
        0x08 [31:0] lane1_module_mapping: u32,
        0x0c [31:0] lane2_module_mapping: u32,
        0x10 [31:0] lane3_module_mapping: u32,
    }

    /// MCIA: bytes of the memory in the module.
    pub struct MciaReg, 144, "mcia_reg" {
        0x00 [31:31] l: bool,
        0x00 [23:16] module: u8,
        /// 0 if they were read; 1 if the module has no memory.
        0x00 [7:0] status: u8,
        0x04 [31:24] i2c_device_address: u8,
        0x04 [23:16] page_number: u8,
        0x04 [15:0] device_address: u16,
        /// Bytes.
        0x08 [15:0] size: u16,
        0x10 [bytes] dwords: [u8; 128],
    }
}
