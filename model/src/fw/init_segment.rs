//! The init segment: what BAR0 offers before there is a command queue.
#![forbid(unsafe_code)]

use super::{Function, health::Fatal};
use crate::pci::BarMemory;
use mlx5_direct::mlx5::{
    init_segment::{CMDIF_REV, CmdifRevFwSub, CmdqAddrLSz, FwRev, HealthBuffer, Initializing, NicInterface},
    layout::Layout,
};
use zerocopy::IntoBytes;

/// Firmware version of the model: major, minor, subminor.
pub(crate) const FW_VERSION: (u16, u16, u16) = (16, 35, 4030);
/// log2 of the command queue's slots.
pub(crate) const LOG_CMDQ_SIZE: u8 = 5;
/// log2 of a slot's bytes.
pub(crate) const LOG_CMDQ_STRIDE: u8 = 6;

pub(crate) const CMDQ_ADDR_H: u64 = 0x10;
pub(crate) const CMDQ_ADDR_L: u64 = 0x14;
pub(crate) const CMD_DOORBELL: u64 = 0x18;
const INITIALIZING: u64 = 0x1fc;
const HEALTH: u64 = 0x200;
const INTERNAL_TIMER: u64 = 0x1000;
const HEALTH_COUNTER: u64 = 0x1010;
const REAL_TIME: u64 = 0x1040;
/// End of the init segment.
pub(crate) const LEN_BYTES: u64 = 8208;

/// How often the health counter moves.
const HEALTH_PERIOD_NS: u64 = 10_000_000;
/// After a reset the device is initialising for this long.
const INIT_TIME_NS: u64 = 1_000_000;

fn store(bar: &BarMemory, offset: u64, bytes: &[u8]) {
    for (at, word) in (offset..).step_by(4).zip(bytes.as_chunks::<4>().0) {
        bar.store32(at, u32::from_be_bytes(*word));
    }
}

/// State behind the registers.
#[derive(Debug, Default)]
pub(crate) struct InitSegment {
    cmdq_addr_h: u32,
    cmdq_addr_l: CmdqAddrLSz,
    pub(crate) fatal: Option<Fatal>,
    /// Firmware stands still.
    hung: bool,
    ready_at_ns: u64,
    initialising: bool,
    health_counter: u32,
    health_at_ns: u64,
}

impl InitSegment {
    /// IOVA of the command queue, once both halves are written.
    pub(crate) fn cmdq_addr(&self) -> u64 {
        u64::from(self.cmdq_addr_h) << 32 | u64::from(self.cmdq_addr_l.cmdq_addr_31_12()) << 12
    }

    pub(crate) fn nic_interface(&self) -> NicInterface {
        self.cmdq_addr_l.nic_interface()
    }

    /// Whether firmware takes commands.
    pub(crate) fn alive(&self) -> bool {
        self.fatal.is_none() && !self.hung && !self.initialising && self.nic_interface() == NicInterface::FULL
    }
}

impl Function {
    /// Writes the registers as they are after a reset.
    pub(crate) fn reset_init_segment(&mut self) {
        let bar = &self.bar;
        for offset in (0..LEN_BYTES).step_by(4) {
            bar.store32(offset, 0);
        }
        let now = self.clock.now_ns();
        let (major, minor, subminor) = FW_VERSION;
        store(bar, 0x00, FwRev::new().with_fw_rev_major(major).with_fw_rev_minor(minor).as_bytes());
        let rev = CmdifRevFwSub::new().with_cmdif_rev(CMDIF_REV).with_fw_rev_subminor(subminor);
        store(bar, 0x04, rev.as_bytes());
        store(bar, INITIALIZING, Initializing::new().with_fw_initializing(true).as_bytes());
        let health_counter = self.iseg.health_counter;
        self.iseg = InitSegment {
            initialising: true,
            ready_at_ns: now + INIT_TIME_NS,
            health_at_ns: now + HEALTH_PERIOD_NS,
            health_counter: health_counter.wrapping_add(1),
            ..InitSegment::default()
        };
        self.bar.store32(HEALTH_COUNTER, self.iseg.health_counter);
        self.show_geometry();
        self.show_health();
    }

    /// The lower half of the queue's address reads back as its geometry and the interface's state.
    fn show_geometry(&self) {
        store(&self.bar, CMDQ_ADDR_L, self.geometry().as_bytes());
    }

    fn geometry(&self) -> CmdqAddrLSz {
        CmdqAddrLSz::new()
            .with_log_cmdq_size(LOG_CMDQ_SIZE)
            .with_log_cmdq_stride(LOG_CMDQ_STRIDE)
            .with_nic_interface(self.iseg.nic_interface())
    }

    fn show_health(&self) {
        let (_, minor, subminor) = FW_VERSION;
        let mut health =
            HealthBuffer::new().with_fw_ver(u32::from(minor) << 16 | u32::from(subminor)).with_hw_id(0x20d);
        if let Some(fatal) = self.iseg.fatal {
            health = health
                .with_assert_var([0xad; 24])
                .with_synd(fatal.syndrome)
                .with_ext_synd(fatal.ext_syndrome)
                .with_severity_valid(true)
                .with_severity(2)
                .with_rfr(true);
        }
        debug_assert_eq!(HealthBuffer::DESC.size_bytes, 64);
        store(&self.bar, HEALTH, health.as_bytes());
    }

    /// Firmware dies.
    pub(crate) fn fail_health(&mut self, fatal: Fatal) {
        if self.iseg.fatal.is_none() {
            self.iseg.fatal = Some(fatal);
            self.show_health();
            self.note(|| format!("health: fatal, syndrome {}", fatal.syndrome));
        }
    }

    /// Firmware stands still, and cannot say so.
    pub(super) fn hang(&mut self) {
        self.iseg.hung = true;
    }

    /// After a restart that no driver asked for the interface is disabled, until a driver gives it a command queue (Linux
    /// waits for that in `mlx5_error_sw_reset`).
    pub(super) fn await_driver(&mut self) {
        self.iseg.cmdq_addr_l.set_nic_interface(NicInterface::DISABLED);
        self.show_geometry();
    }

    /// Moves timers and counters; true if anything changed that a driver may wait for.
    pub(crate) fn tick_init_segment(&mut self) -> bool {
        let now = self.clock.now_ns();
        self.bar.store32(INTERNAL_TIMER + 4, self.timer_ticks() as u32);
        self.bar.store32(INTERNAL_TIMER, (self.timer_ticks() >> 32) as u32);
        self.bar.store32(REAL_TIME, (now / 1_000_000_000) as u32);
        self.bar.store32(REAL_TIME + 4, (now % 1_000_000_000) as u32);
        let mut changed = false;
        if self.iseg.initialising && now >= self.iseg.ready_at_ns {
            self.iseg.initialising = false;
            self.bar.store32(INITIALIZING, 0);
            changed = true;
        }
        if now >= self.iseg.health_at_ns {
            self.iseg.health_at_ns = now + HEALTH_PERIOD_NS;
            if self.iseg.fatal.is_none() && !self.iseg.hung {
                self.iseg.health_counter = self.iseg.health_counter.wrapping_add(1);
                self.bar.store32(HEALTH_COUNTER, self.iseg.health_counter);
            }
        }
        changed
    }

    /// The free-running clock: `device_frequency_khz` is a million, so nanoseconds.
    pub(crate) fn timer_ticks(&self) -> u64 {
        self.clock.now_ns()
    }

    /// When the init segment changes next of itself.
    pub(crate) fn init_segment_deadline_ns(&self) -> u64 {
        if self.iseg.initialising { self.iseg.ready_at_ns } else { self.iseg.health_at_ns }
    }

    /// The queue's address or the interface's state, if they were stored to a mapped init segment: the geometry no
    /// longer reads back. True if so.
    pub(crate) fn take_mapped_cmdq_addr(&mut self) -> bool {
        let low = self.bar.load32(CMDQ_ADDR_L);
        let stored = low.to_be_bytes() != self.geometry().to_bytes();
        if stored {
            self.iseg.cmdq_addr_h = self.bar.load32(CMDQ_ADDR_H);
            self.init_segment_write(CMDQ_ADDR_L, low);
        }
        stored
    }

    /// A register write.
    pub(crate) fn init_segment_write(&mut self, offset: u64, value: u32) {
        match offset {
            CMDQ_ADDR_H => {
                self.bar.store32(CMDQ_ADDR_H, value);
                self.iseg.cmdq_addr_h = value;
            }
            CMDQ_ADDR_L => {
                self.iseg.cmdq_addr_l = CmdqAddrLSz::from_bytes(value.to_be_bytes());
                if self.iseg.nic_interface() == NicInterface::DISABLED {
                    self.fast_teardown();
                }
                self.show_geometry();
            }
            CMD_DOORBELL => {
                self.bar.store32(CMD_DOORBELL, 0);
                self.ring_commands(value);
            }
            _ => {}
        }
    }
}
