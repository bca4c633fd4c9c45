//! PCI config space: header, power management, PCI Express and MSI-X capabilities.
#![forbid(unsafe_code)]

use crate::config::Part;
use mlx5_direct::mlx5::pci::{DeviceControl, PciCommand, VENDOR_ID};

/// Bytes of config space.
const LEN_BYTES: usize = 4096;
/// Bytes of BAR0.
pub const BAR_LEN_BYTES: u64 = 32 << 20;
/// MSI-X table in BAR0, where a ConnectX-5 has it.
const MSIX_TABLE: u32 = 0x2000;
/// MSI-X pending bits in BAR0.
const MSIX_PBA: u32 = 0x3000;

const COMMAND: usize = PciCommand::OFFSET as usize;
const BAR0: usize = 0x10;
const CAP_PM: u8 = 0x40;
const CAP_PCIE: u8 = 0x60;
const CAP_MSIX: u8 = 0x9c;
const DEVICE_CONTROL: usize = CAP_PCIE as usize + 8;
const MSIX_CONTROL: usize = CAP_MSIX as usize + 2;

/// What a config write did beyond storing bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    None,
    /// Function-level reset was started (PCIe device control, bit 15).
    Reset,
}

/// Config space of one function.
#[derive(Debug, Clone)]
pub(crate) struct ConfigSpace {
    bytes: Vec<u8>,
    /// 1 = software may write the bit.
    writable: Vec<u8>,
}

impl ConfigSpace {
    pub(crate) fn new(part: Part, n_vectors: u16, multi_function: bool) -> Self {
        let mut space = Self { bytes: vec![0; LEN_BYTES], writable: vec![0; LEN_BYTES] };
        space.put(0x00, &VENDOR_ID.to_le_bytes());
        space.put(0x02, &part.device_id().to_le_bytes());
        space.put(0x06, &0x0010u16.to_le_bytes()); // status: capability list
        space.put(0x09, &[0x00, 0x00, 0x02]); // Ethernet controller
        space.put(0x0e, &[if multi_function { 0x80 } else { 0 }]);
        space.put(BAR0, &0x0000_000cu32.to_le_bytes()); // 64 bits, prefetchable
        space.put(0x2c, &VENDOR_ID.to_le_bytes());
        space.put(0x2e, &0x0008u16.to_le_bytes());
        space.put(0x34, &[CAP_PM]);
        space.put(CAP_PM.into(), &[0x01, CAP_PCIE, 0x03, 0x00]);
        space.put(CAP_PCIE.into(), &[0x10, CAP_MSIX, 0x02, 0x00]); // version 2, endpoint
        space.put(usize::from(CAP_PCIE) + 4, &(1u32 << 28 | 1 << 15 | 2).to_le_bytes()); // FLR, payload 512
        space.put(usize::from(CAP_PCIE) + 12, &(16u32 << 4 | 3).to_le_bytes()); // x16, 8 GT/s
        space.put(usize::from(CAP_PCIE) + 18, &(16u16 << 4 | 3).to_le_bytes());
        space.put(CAP_MSIX.into(), &[0x11, 0]);
        space.put(MSIX_CONTROL, &(n_vectors - 1).to_le_bytes());
        space.put(usize::from(CAP_MSIX) + 4, &MSIX_TABLE.to_le_bytes());
        space.put(usize::from(CAP_MSIX) + 8, &MSIX_PBA.to_le_bytes());

        let bar_mask = !(BAR_LEN_BYTES - 1);
        space.writable[COMMAND..COMMAND + 2].copy_from_slice(&0x0546u16.to_le_bytes());
        space.writable[0x0c] = 0xff;
        space.writable[BAR0..BAR0 + 8].copy_from_slice(&bar_mask.to_le_bytes());
        space.writable[0x3c] = 0xff;
        space.writable[usize::from(CAP_PM) + 4] = 0x03;
        space.writable[DEVICE_CONTROL..DEVICE_CONTROL + 2].copy_from_slice(&0x7fffu16.to_le_bytes());
        space.writable[MSIX_CONTROL..MSIX_CONTROL + 2].copy_from_slice(&0xc000u16.to_le_bytes());
        space
    }

    fn put(&mut self, offset: usize, bytes: &[u8]) {
        self.bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    /// Reads; bytes past the end are all ones, as on a bus.
    pub(crate) fn read(&self, offset: u16, into: &mut [u8]) {
        for (at, byte) in (usize::from(offset)..).zip(into) {
            *byte = self.bytes.get(at).copied().unwrap_or(0xff);
        }
    }

    /// Writes the writable bits.
    pub(crate) fn write(&mut self, offset: u16, bytes: &[u8]) -> Effect {
        let mut effect = Effect::None;
        for (at, byte) in (usize::from(offset)..LEN_BYTES).zip(bytes) {
            let mask = self.writable[at];
            self.bytes[at] = self.bytes[at] & !mask | byte & mask;
            let control = DeviceControl::from_bits(u16::from(*byte) << 8);
            if at == DEVICE_CONTROL + 1 && control.initiate_flr() {
                effect = Effect::Reset;
            }
        }
        effect
    }

    fn command(&self) -> PciCommand {
        PciCommand::from_bits(u16::from_le_bytes([self.bytes[COMMAND], self.bytes[COMMAND + 1]]))
    }

    /// Whether registers answer.
    pub(crate) fn memory_enabled(&self) -> bool {
        self.command().memory()
    }

    /// Whether the function may read and write memory and interrupt.
    pub(crate) fn bus_master(&self) -> bool {
        self.command().bus_master()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_and_capability_list() {
        let space = ConfigSpace::new(Part::Cx6, 16, true);
        let mut head = [0; 16];
        space.read(0, &mut head);
        assert_eq!(head, [0xb3, 0x15, 0x1b, 0x10, 0, 0, 0x10, 0, 0, 0, 0, 2, 0, 0, 0x80, 0]);
        let (mut ids, mut next) = (Vec::new(), [0x40u8, 0]);
        while next[0] != 0 {
            let mut cap = [0; 2];
            space.read(next[0].into(), &mut cap);
            ids.push(cap[0]);
            next[0] = cap[1];
        }
        assert_eq!(ids, [1, 0x10, 0x11]);
    }

    #[test]
    fn bar_sizing_and_reset() {
        let mut space = ConfigSpace::new(Part::Cx5, 16, false);
        assert_eq!(space.write(0x10, &[0xff; 8]), Effect::None);
        let mut bar = [0; 8];
        space.read(0x10, &mut bar);
        assert_eq!(u64::from_le_bytes(bar), !(BAR_LEN_BYTES - 1) | 0xc);
        assert_eq!(space.write(0x68, &0x8000u16.to_le_bytes()), Effect::Reset);
        assert!(!space.bus_master());
        space.write(4, &6u16.to_le_bytes());
        assert!(space.bus_master() && space.memory_enabled());
        let mut past = [0; 2];
        space.read(0xfff, &mut past);
        assert_eq!(past, [0, 0xff]);
    }
}
