//! Bringing the function up and down.

use super::{CmdOpcode, CmdStatus, command};
use crate::mlx5::layout::{layout, wire_enum};

layout! {
    /// First command: gives the function to the driver.
    pub struct EnableHcaIn, 16, "enable_hca_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x04 [15:0] op_mod: u16,
        0x08 [31:31] embedded_cpu_function: bool,
        0x08 [15:0] function_id: u16,
    }

    /// Output of ENABLE_HCA.
    pub struct EnableHcaOut, 12, "enable_hca_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Last command.
    pub struct DisableHcaIn, 16, "disable_hca_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x04 [15:0] op_mod: u16,
        0x08 [31:31] embedded_cpu_function: bool,
        0x08 [15:0] function_id: u16,
    }

    /// Output of DISABLE_HCA.
    pub struct DisableHcaOut, 12, "disable_hca_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Starts the data path with the capabilities set. Accepted in 16 bytes too, without `sw_owner_id`.
    pub struct InitHcaIn, 32, "init_hca_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x04 [15:0] op_mod: u16,
        0x0c [29:16] sw_vhca_id: u16,
        0x10 [bytes] sw_owner_id: [u8; 16],
    }

    /// Output of INIT_HCA.
    pub struct InitHcaOut, 16, "init_hca_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Stops the data path.
    pub struct TeardownHcaIn, 16, "teardown_hca_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x04 [15:0] op_mod: u16,
        0x08 [15:0] profile: TeardownProfile,
    }

    /// Output of TEARDOWN_HCA.
    pub struct TeardownHcaOut, 16, "teardown_hca_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        /// 1 when a forced close failed.
        0x0c [0:0] state: bool,
    }

    /// Tells firmware which driver this is.
    pub struct SetDriverVersionIn, 80, "set_driver_version_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x04 [15:0] op_mod: u16,
        /// Text, padded with zeros.
        0x10 [bytes] driver_version: [u8; 64],
    }

    /// Output of SET_DRIVER_VERSION.
    pub struct SetDriverVersionOut, 16, "set_driver_version_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Asks for the board's identity.
    pub struct QueryAdapterIn, 16, "query_adapter_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x04 [15:0] op_mod: u16,
    }

    /// Output of QUERY_ADAPTER.
    pub struct QueryAdapterOut, 272, "query_adapter_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x10 [struct] query_adapter_struct: QueryAdapterParamBlock,
    }

    /// Does nothing, successfully.
    pub struct NopIn, 16, "nop_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x04 [15:0] op_mod: u16,
    }

    /// Output of NOP.
    pub struct NopOut, 16, "nop_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Identity of the board (PRM `query_adapter_param_block`).
    pub struct QueryAdapterParamBlock, 256, "query_adapter_param_block" {
        0x18 [23:0] ieee_vendor_id: u32,
        0x1c [15:0] vsd_vendor_id: u16,
        /// Vendor-specific data.
        0x20 [bytes] vsd: [u8; 208],
        /// Board id: the PSID.
        0xf0 [bytes] vsd_contd_psid: [u8; 16],
    }
}

wire_enum! {
    /// How TEARDOWN_HCA stops (`teardown_hca_in.profile`).
    pub struct TeardownProfile(u16), "teardown_hca" {
        GRACEFUL_CLOSE = 0,
        FORCE_CLOSE = 1,
        PREPARE_FAST_TEARDOWN = 2,
    }
}

command! { ENABLE_HCA, EnableHcaIn => EnableHcaOut }
command! { DISABLE_HCA, DisableHcaIn => DisableHcaOut }
command! { INIT_HCA, InitHcaIn => InitHcaOut }
command! { TEARDOWN_HCA, TeardownHcaIn => TeardownHcaOut }
command! { SET_DRIVER_VERSION, SetDriverVersionIn => SetDriverVersionOut }
command! { QUERY_ADAPTER, QueryAdapterIn => QueryAdapterOut }
command! { NOP, NopIn => NopOut }
