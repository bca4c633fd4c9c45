//! The initialization segment: start of BAR0, where a driver meets the device.

use crate::mlx5::layout::{layout, wire_enum};

layout! {
    /// Initialization segment (Linux `mlx5_init_seg`), 8208 bytes at BAR0 + 0.
    pub struct InitSeg, 8208, "init_seg" {
        0x00 [struct] fw_rev: FwRev,
        0x04 [struct] cmdif_rev_fw_sub: CmdifRevFwSub,
        /// Command queue's IOVA, bits 63:32. Written before the lower half.
        0x10 [31:0] cmdq_addr_h: u32,
        0x14 [struct] cmdq_addr_l_sz: CmdqAddrLSz,
        /// A bit for every slot of the command queue that is to be executed.
        0x18 [31:0] cmd_doorbell: u32,
        0x1fc [struct] initializing: Initializing,
        0x200 [struct] health: HealthBuffer,
        /// How long a command may take.
        0xff8 [struct] cmd_exec_to: FwTimeout,
        /// How long after the queue's address is written before commands work; 0: firmware tells no timeouts.
        0xffc [struct] cmd_q_init_to: FwTimeout,
        /// Free-running clock of `device_frequency_khz`, upper half.
        0x1000 [31:0] internal_timer_h: u32,
        0x1004 [31:0] internal_timer_l: u32,
        /// Changes while firmware lives.
        0x1010 [31:0] health_counter: u32,
        /// Seconds.
        0x1040 [31:0] real_time_h: u32,
        /// Nanoseconds.
        0x1044 [31:0] real_time_l: u32,
        0x2000 [63:0] ieee1588_clk: u64,
        0x2008 [31:0] ieee1588_clk_type: u32,
        0x200c [31:0] clr_intx: u32,
    }

    /// Firmware version; its third part is in [`CmdifRevFwSub`].
    pub struct FwRev, 4, "init_seg.fw_rev" {
        0x00 [31:16] fw_rev_minor: u16,
        0x00 [15:0] fw_rev_major: u16,
    }

    /// Revision of the command interface.
    pub struct CmdifRevFwSub, 4, "init_seg.cmdif_rev_fw_sub" {
        /// [`CMDIF_REV`] or the device is not for us.
        0x00 [31:16] cmdif_rev: u16,
        0x00 [15:0] fw_rev_subminor: u16,
    }

    /// Lower half of the command queue's address; reads give the queue's geometry.
    pub struct CmdqAddrLSz, 4, "init_seg.cmdq_addr_l_sz" {
        /// The queue is one page aligned to 4 KiB.
        0x00 [31:12] cmdq_addr_31_12: u32,
        0x00 [10:8] nic_interface: NicInterface,
        /// log2 of the slots, at most 32. Read only.
        0x00 [7:4] log_cmdq_size: u8,
        /// log2 of a slot's bytes. Read only.
        0x00 [3:0] log_cmdq_stride: u8,
    }

    /// Whether firmware is up.
    pub struct Initializing, 4, "init_seg.initializing" {
        /// 1 until firmware takes commands.
        0x00 [31:31] fw_initializing: bool,
        0x00 [30:30] fw_reset_supported: bool,
        0x00 [23:23] embedded_cpu: bool,
    }

    /// A timeout of firmware's.
    pub struct FwTimeout, 4, "init_seg.cmd_exec_to" {
        /// Unit of [`value`](Self::value): 0 millisecond, 1 second, 2 minute, 3 hour.
        0x00 [31:29] multiplier: u8,
        0x00 [19:0] value: u32,
    }

    /// Health buffer (Linux `struct health_buffer`): why firmware died.
    pub struct HealthBuffer, 64, "health_buffer" {
        /// Six words that firmware's developers read.
        0x00 [bytes] assert_var: [u8; 24],
        0x20 [31:0] assert_exit_ptr: u32,
        0x24 [31:0] assert_callra: u32,
        0x2c [31:0] time: u32,
        /// All ones: the device has fallen off the bus.
        0x30 [31:0] fw_ver: u32,
        0x34 [31:0] hw_id: u32,
        /// Request for reset: the device has failed for good.
        0x38 [31:31] rfr: bool,
        0x38 [27:27] severity_valid: bool,
        /// Like syslog: smaller is worse.
        0x38 [26:24] severity: u8,
        0x3c [31:24] irisc_index: u8,
        0x3c [23:16] synd: HealthSyndrome,
        0x3c [15:0] ext_synd: u16,
    }
}

/// [`CmdifRevFwSub::cmdif_rev`] of every device since Connect-IB.
pub const CMDIF_REV: u16 = 5;

wire_enum! {
    /// State of the interface between driver and NIC (`nic_interface`).
    pub struct NicInterface(u8), "nic_interface" {
        /// The driver uses the device.
        FULL = 0,
        /// Written by the driver to stop the device fast, and read back when it has stopped.
        DISABLED = 1,
        NO_DRAM_NIC = 2,
        SW_RESET = 7,
    }

    /// Why firmware died (`health_buffer.synd`); 0 while it lives.
    pub struct HealthSyndrome(u8), "health_syndrome" {
        FW_ERR = 0x01,
        IRISC_ERR = 0x07,
        HW_UNRECOVERABLE_ERR = 0x08,
        CRC_ERR = 0x09,
        FETCH_PCI_ERR = 0x0a,
        HW_FTL_ERR = 0x0b,
        ASYNC_EQ_OVERRUN_ERR = 0x0c,
        EQ_ERR = 0x0d,
        EQ_INV = 0x0e,
        FFSER_ERR = 0x0f,
        HIGH_TEMP = 0x10,
    }
}

impl FwTimeout {
    /// The timeout in milliseconds.
    pub fn millis(&self) -> u64 {
        let unit = [1, 1000, 60_000, 3_600_000][usize::from(self.multiplier() & 3)];
        u64::from(self.value()) * unit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cmdq_geometry_and_address_share_a_dword() {
        let word =
            CmdqAddrLSz::new().with_cmdq_addr_31_12(0x12345).with_log_cmdq_size(5).with_log_cmdq_stride(6);
        assert_eq!(u32::from_be_bytes(word.to_bytes()), 0x1234_5056);
        let disabled = CmdqAddrLSz::from_bytes([0; 4]).with_nic_interface(NicInterface::DISABLED);
        assert_eq!(u32::from_be_bytes(disabled.to_bytes()), 0x100);
    }

    #[test]
    fn timeouts_have_four_units() {
        let to = |multiplier| FwTimeout::new().with_multiplier(multiplier).with_value(2).millis();
        assert_eq!([to(0), to(1), to(2), to(3)], [2, 2000, 120_000, 7_200_000]);
    }
}
