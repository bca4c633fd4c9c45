//! Devices by the number that their health buffer carries.

/// `hw_id` of device families (`KNOWN_HW_DEV_IDS` of mstflint; the device ID register of the CR space).
const FAMILIES: &[(u32, &str)] = &[
    (0x1ff, "Connect-IB family"),
    (0x209, "ConnectX-4 family"),
    (0x20b, "ConnectX-4 Lx family"),
    (0x20d, "ConnectX-5 family"),
    (0x20f, "ConnectX-6 family"),
    (0x211, "BlueField family"),
    (0x212, "ConnectX-6 Dx family"),
    (0x214, "BlueField-2 family"),
    (0x216, "ConnectX-6 Lx family"),
    (0x218, "ConnectX-7 family"),
    (0x21c, "BlueField-3 family"),
    (0x21e, "ConnectX-8 family"),
];

/// The family of devices with a `hw_id`. Its upper half is the revision. All ones come from a bus that does not answer.
pub fn device_of_hw_id(hw_id: u32) -> Option<&'static str> {
    if hw_id == u32::MAX {
        return Some("none: bus read failed");
    }
    FAMILIES.iter().find(|(known, _)| *known == hw_id & 0xffff).map(|(_, family)| *family)
}
