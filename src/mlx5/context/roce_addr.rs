//! An entry of the RoCE address table.

use crate::mlx5::layout::{layout, wire_enum};

layout! {
    /// RoCE address (PRM `roce_addr_layout`): what `ads.src_addr_index` points at.
    pub struct RoceAddrLayout, 32, "roce_addr_layout" {
        /// Own GID; IPv4 as the mapped address ::ffff:a.b.c.d.
        0x00 [bytes] source_l3_address: [u8; 16],
        /// Packets carry a VLAN tag.
        0x10 [28:28] vlan_valid: bool,
        0x10 [27:16] vlan_id: u16,
        /// Own MAC, first two bytes.
        0x10 [15:0] source_mac_47_32: u16,
        /// Own MAC, last four bytes.
        0x14 [31:0] source_mac_31_0: u32,
        0x18 [11:8] roce_l3_type: RoceL3Type,
        0x18 [7:0] roce_version: RoceVersion,
    }
}

wire_enum! {
    /// Version of RoCE of an address (`roce_addr_layout.roce_version`).
    pub struct RoceVersion(u8), "roce" {
        /// Ethertype 0x8915.
        VERSION_1 = 0,
        /// UDP port 4791.
        VERSION_2 = 2,
    }

    /// Network layer of a RoCE v2 address (`roce_addr_layout.roce_l3_type`).
    pub struct RoceL3Type(u8), "roce" {
        L3_TYPE_IPV4 = 0,
        L3_TYPE_IPV6 = 1,
    }
}

impl RoceAddrLayout {
    /// Own MAC.
    #[inline]
    pub fn source_mac(&self) -> [u8; 6] {
        crate::mlx5::mac_from(self.source_mac_47_32(), self.source_mac_31_0())
    }

    /// With the own MAC set.
    #[inline]
    #[must_use]
    pub fn with_source_mac(self, mac: [u8; 6]) -> Self {
        let (high, low) = crate::mlx5::mac_halves(mac);
        self.with_source_mac_47_32(high).with_source_mac_31_0(low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mac_address_is_in_order() {
        let layout = RoceAddrLayout::new().with_source_mac([1, 2, 3, 4, 5, 6]);
        assert_eq!((layout.source_mac_47_32(), layout.source_mac_31_0()), (0x0102, 0x0304_0506));
        assert_eq!(layout.source_mac(), [1, 2, 3, 4, 5, 6]);
    }
}
