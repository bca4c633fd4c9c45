//! Registers of the init segment, by name.
#![forbid(unsafe_code)]

use crate::{
    backend::pci::PciFunction,
    mlx5::{
        init_segment::{HealthBuffer, InitSeg},
        layout::{Desc, Layout},
    },
};

/// Byte offset of a declared field.
const fn offset(desc: &Desc, name: &str) -> u64 {
    let mut i = 0;
    while i < desc.fields.len() {
        if same(desc.fields[i].name.as_bytes(), name.as_bytes()) {
            return desc.fields[i].dword_offset_bytes() as u64;
        }
        i += 1;
    }
    panic!("no such register");
}

const fn same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut i = 0;
    while i < a.len() {
        if a[i] != b[i] {
            return false;
        }
        i += 1;
    }
    true
}

const fn init_seg(name: &str) -> u64 {
    offset(InitSeg::DESC, name)
}

pub(super) const FW_REV: u64 = init_seg("fw_rev");
pub(super) const CMDIF_REV_FW_SUB: u64 = init_seg("cmdif_rev_fw_sub");
pub(super) const CMDQ_ADDR_H: u64 = init_seg("cmdq_addr_h");
pub(super) const CMDQ_ADDR_L_SZ: u64 = init_seg("cmdq_addr_l_sz");
pub(super) const CMD_DOORBELL: u64 = init_seg("cmd_doorbell");
pub(super) const INITIALIZING: u64 = init_seg("initializing");
pub(super) const HEALTH_COUNTER: u64 = init_seg("health_counter");
pub(super) const INTERNAL_TIMER_H: u64 = init_seg("internal_timer_h");
pub(super) const INTERNAL_TIMER_L: u64 = init_seg("internal_timer_l");
pub(super) const HEALTH_FW_VER: u64 = init_seg("health") + offset(HealthBuffer::DESC, "fw_ver");
pub(super) const HEALTH_RFR: u64 = init_seg("health") + offset(HealthBuffer::DESC, "rfr");
pub(super) const HEALTH_SYND: u64 = init_seg("health") + offset(HealthBuffer::DESC, "synd");

/// What a function that has left the bus reads.
pub(super) const ALL_ONES: u32 = u32::MAX;

/// The bytes of a register, to be looked at through its layout.
pub(super) fn read(function: &dyn PciFunction, offset: u64) -> [u8; 4] {
    function.bar_read32(offset).to_be_bytes()
}

/// The 64-bit internal timer, whose halves are read one after the other.
pub(super) fn internal_timer(function: &dyn PciFunction) -> u64 {
    let mut high = function.bar_read32(INTERNAL_TIMER_H);
    loop {
        let low = function.bar_read32(INTERNAL_TIMER_L);
        let again = function.bar_read32(INTERNAL_TIMER_H);
        if again == high {
            return u64::from(high) << 32 | u64::from(low);
        }
        high = again;
    }
}
