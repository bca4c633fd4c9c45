//! Memory on the device.

use crate::mlx5::layout::layout;

layout! {
    /// Capabilities of memory on the device, all of it reached through BAR0 or by memory keys.
    pub struct DeviceMemCap, 256, "device_mem_cap" {
        /// MEMIC: memory for applications.
        0x00 [31:31] memic: bool,
        /// Widths that the operation INCREMENT takes: 1, 2, 4 … bytes, a bit each.
        0x04 [31:24] increment_size_sup: u8,
        /// Smallest piece, log2 of bytes.
        0x04 [20:16] log_min_memic_alloc_size: u8,
        /// Widths that the operation TEST_AND_SET takes, likewise.
        0x04 [15:8] test_and_set_size_sup: u8,
        /// Largest alignment that may be asked for: 64 bytes shifted left by this.
        0x04 [7:0] log_max_memic_addr_alignment: u8,
        /// Where MEMIC begins in BAR0.
        0x08 [63:0] memic_bar_start_addr: u64,
        /// Bytes of BAR0 that show it.
        0x10 [31:0] memic_bar_size: u32,
        /// Largest piece in bytes.
        0x14 [31:0] max_memic_size: u32,
        /// Memory for steering that software owns.
        0x18 [63:0] steering_sw_icm_start_address: u64,
        0x20 [23:16] log_header_modify_sw_icm_size: u8,
        0x20 [13:8] log_sw_icm_alloc_granularity: u8,
        0x20 [7:0] log_steering_sw_icm_size: u8,
        0x24 [31:24] log_indirect_encap_sw_icm_size: u8,
        0x24 [7:0] log_header_modify_pattern_sw_icm_size: u8,
        0x28 [63:0] header_modify_sw_icm_start_address: u64,
        0x38 [63:0] header_modify_pattern_sw_icm_start_address: u64,
        /// Operations that a store to a second address of a piece carries out, a bit each.
        0x40 [31:0] memic_operations: u32,
        0x48 [63:0] indirect_encap_sw_icm_start_address: u64,
        0x50 [63:0] indirect_encap_icm_base: u64,
    }
}
