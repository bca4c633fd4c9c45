//! PCI configuration registers that matter to a driver. Unlike all else here they are little-endian, and
//! single words: bitfield-struct declares them.
//!
//! Source: PCI Local Bus and PCI Express base specifications; names as in Linux `pci_regs.h`.

use bitfield_struct::bitfield;

/// Vendor id of Mellanox, at offset 0.
pub const VENDOR_ID: u16 = 0x15b3;

/// `PCI_COMMAND`, at offset 4.
#[bitfield(u16)]
#[derive(PartialEq, Eq)]
pub struct PciCommand {
    /// Answers accesses to I/O ports.
    pub io: bool,
    /// Answers accesses to its BARs.
    pub memory: bool,
    /// May access memory: DMA and MSI-X.
    pub bus_master: bool,
    #[bits(7)]
    __: u8,
    /// Does not signal by INTx.
    pub intx_disable: bool,
    #[bits(5)]
    __: u8,
}

impl PciCommand {
    /// Its offset in config space.
    pub const OFFSET: u16 = 4;
}

/// `PCI_EXP_DEVCTL`, 8 bytes into the PCI Express capability.
#[bitfield(u16)]
#[derive(PartialEq, Eq)]
pub struct DeviceControl {
    #[bits(5)]
    __: u8,
    /// log₂ of the largest payload in units of 128 bytes.
    #[bits(3)]
    pub max_payload: u8,
    #[bits(4)]
    __: u8,
    /// log₂ of the largest read request in units of 128 bytes.
    #[bits(3)]
    pub max_read_request: u8,
    /// Starts a function-level reset; reads as 0.
    pub initiate_flr: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_where_the_specification_has_them() {
        let command = PciCommand::new().with_memory(true).with_bus_master(true);
        assert_eq!(
            (command.into_bits(), PciCommand::new().with_intx_disable(true).into_bits()),
            (0x6, 0x400)
        );
        assert_eq!(DeviceControl::new().with_initiate_flr(true).into_bits(), 0x8000);
        assert_eq!(DeviceControl::from_bits(0x2810).max_payload(), 0);
        assert_eq!(DeviceControl::from_bits(0x2830).max_payload(), 1);
        assert_eq!(DeviceControl::from_bits(0x2830).max_read_request(), 2);
    }
}
