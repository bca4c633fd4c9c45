//! GIDs: the addresses of ports, and the MAC addresses behind them.
#![forbid(unsafe_code)]

use crate::mlx5::context::{RoceAddrLayout, RoceL3Type, RoceVersion};
use std::{
    fmt,
    net::{IpAddr, Ipv6Addr},
};

/// An entry of a GID table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GidEntry {
    /// The GID. An IPv4 address is `::ffff:a.b.c.d`.
    pub gid: [u8; 16],
    /// Packet format.
    pub gid_type: GidType,
    /// Source MAC.
    pub mac: [u8; 6],
    /// VLAN id, 0 to 4094.
    pub vlan: Option<u16>,
}

/// Packet format that a GID stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GidType {
    /// InfiniBand.
    Ib,
    /// RoCE v1: Ethertype 0x8915.
    RoceV1,
    /// RoCE v2: UDP port 4791.
    RoceV2,
}

impl GidEntry {
    /// An IP address in RoCE v2, without VLAN.
    ///
    /// ```
    /// use mlx5_direct::backend::GidEntry;
    /// let entry = GidEntry::roce_v2([10, 0, 0, 1].into(), [2, 0, 0, 0, 0, 1]);
    /// assert_eq!((entry.to_string().as_str(), entry.ipv4()), ("::ffff:10.0.0.1 RoCE v2", Some([10, 0, 0, 1])));
    /// ```
    pub fn roce_v2(address: IpAddr, mac: [u8; 6]) -> Self {
        Self { gid: gid_of(address), gid_type: GidType::RoceV2, mac, vlan: None }
    }

    /// The IPv4 address, if the GID is one.
    pub fn ipv4(&self) -> Option<[u8; 4]> {
        Ipv6Addr::from(self.gid).to_ipv4_mapped().map(|address| address.octets())
    }

    /// As SET_ROCE_ADDRESS takes it.
    pub fn to_layout(self) -> RoceAddrLayout {
        let ipv4 = self.ipv4().is_some() && self.gid_type == GidType::RoceV2;
        RoceAddrLayout::new()
            .with_source_l3_address(self.gid)
            .with_source_mac(self.mac)
            .with_vlan_valid(self.vlan.is_some())
            .with_vlan_id(self.vlan.unwrap_or(0))
            .with_roce_l3_type(if ipv4 { RoceL3Type::L3_TYPE_IPV4 } else { RoceL3Type::L3_TYPE_IPV6 })
            .with_roce_version(match self.gid_type {
                GidType::RoceV2 => RoceVersion::VERSION_2,
                GidType::Ib | GidType::RoceV1 => RoceVersion::VERSION_1,
            })
    }

    /// As QUERY_ROCE_ADDRESS gives it; `None` for an empty entry, whose GID is zero.
    pub fn from_layout(layout: &RoceAddrLayout) -> Option<Self> {
        let gid_type = match layout.roce_version() {
            RoceVersion::VERSION_2 => GidType::RoceV2,
            _ => GidType::RoceV1,
        };
        let gid = layout.source_l3_address();
        let vlan = layout.vlan_valid().then(|| layout.vlan_id());
        (gid != [0; 16]).then(|| Self { gid, gid_type, mac: layout.source_mac(), vlan })
    }
}

impl fmt::Display for GidEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.gid_type {
            GidType::Ib => "IB",
            GidType::RoceV1 => "RoCE v1",
            GidType::RoceV2 => "RoCE v2",
        };
        write!(f, "{} {kind}", Ipv6Addr::from(self.gid))
    }
}

/// The GID of an IP address: IPv6 as it is, IPv4 as `::ffff:a.b.c.d`.
pub fn gid_of(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// The link-local GID that a MAC gives (modified EUI-64).
pub fn link_local_gid([a, b, c, d, e, f]: [u8; 6]) -> [u8; 16] {
    [0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f]
}

/// The MAC that a link-local GID was made of; `None` for any other GID, which tells no MAC.
///
/// ```
/// use mlx5_direct::backend::{link_local_gid, link_local_mac};
/// let mac = [2, 0, 0, 0x12, 0x34, 0x56];
/// assert_eq!(link_local_mac(&link_local_gid(mac)), Some(mac));
/// ```
pub fn link_local_mac(gid: &[u8; 16]) -> Option<[u8; 6]> {
    let &[.., a, b, c, _, _, d, e, f] = gid;
    let mac = [a ^ 2, b, c, d, e, f];
    (link_local_gid(mac) == *gid).then_some(mac)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_local_gid_of_a_mac_and_back() {
        let gid = link_local_gid([0x02, 0, 0, 0x12, 0x34, 0x56]);
        assert_eq!(Ipv6Addr::from(gid).to_string(), "fe80::ff:fe12:3456");
        assert_eq!(link_local_mac(&gid), Some([0x02, 0, 0, 0x12, 0x34, 0x56]));
        for other in ["::ffff:10.0.0.1", "2001:db8::ff:fe12:3456", "fe80::1", "fe80::1:0:ff:fe12:3456"] {
            assert_eq!(link_local_mac(&other.parse::<Ipv6Addr>().unwrap().octets()), None, "{other}");
        }
    }
}
