//! Ports, their addresses and partitions.

use super::{
    Device, VerbsControl, done,
    ffi::{IBV_LINK_LAYER_ETHERNET, IbvGidEntry, IbvPortAttr},
    sysfs,
};
use crate::{
    Error, Result,
    backend::{GidEntry, GidType, LinkLayer, PhysState, PortAttr, PortState},
    mlx5::context::Mtu,
};
use std::{
    ffi::{CStr, c_char},
    io, mem,
    net::{IpAddr, Ipv6Addr},
};

impl Device {
    pub(super) fn port_attr(&self, port: u8) -> Result<PortAttr> {
        // SAFETY: integers: zeros are values.
        let mut attr: IbvPortAttr = unsafe { mem::zeroed() };
        // SAFETY: an open context, and room for the attributes; this version of the function writes the first of them.
        let result = unsafe { (self.library().ibv_query_port)(self.context(), port, &raw mut attr) };
        done(|| format!("querying port {port} of {}", self.name()), result)?;
        let netdev = sysfs::netdev(self.name(), port).unwrap_or_default();
        let link_layer = match attr.link_layer {
            IBV_LINK_LAYER_ETHERNET => LinkLayer::Ethernet,
            _ => LinkLayer::InfiniBand,
        };
        let mtu = |code: i32| Mtu(u8::try_from(code).unwrap_or(0));
        let lanes = lanes(attr.active_width);
        Ok(PortAttr {
            state: match attr.state {
                2 => PortState::Init,
                3 => PortState::Armed,
                4 => PortState::Active,
                _ => PortState::Down,
            },
            phys_state: match attr.phys_state {
                3 => PhysState::Disabled,
                5 => PhysState::LinkUp,
                _ => PhysState::Polling,
            },
            max_mtu: mtu(attr.max_mtu),
            active_mtu: mtu(attr.active_mtu),
            netdev_mtu_bytes: sysfs::mtu(&netdev).unwrap_or(0),
            link_layer,
            active_speed_mbps: lane_mbps(attr.active_speed) * u32::from(lanes),
            active_width: lanes,
            gid_tbl_len: u16::try_from(attr.gid_tbl_len).unwrap_or(0),
            pkey_tbl_len: attr.pkey_tbl_len,
            max_msg_sz: attr.max_msg_sz,
            lid: attr.lid,
            mac: sysfs::mac(&netdev).unwrap_or_default(),
            roce_enabled: link_layer == LinkLayer::Ethernet && attr.gid_tbl_len > 0,
            qkey_viol_cntr: u16::try_from(attr.qkey_viol_cntr).unwrap_or(u16::MAX),
        })
    }
}

/// Lanes of `active_width`.
fn lanes(active_width: u8) -> u8 {
    match active_width {
        1 => 1,
        2 => 4,
        4 => 8,
        8 => 12,
        16 => 2,
        _ => 0,
    }
}

/// Mbit/s of a lane at `active_speed`: SDR, DDR, QDR, FDR10, FDR, EDR, HDR, NDR.
fn lane_mbps(active_speed: u8) -> u32 {
    match active_speed {
        1 => 2_500,
        2 => 5_000,
        4 | 8 => 10_000,
        16 => 14_000,
        32 => 25_000,
        64 => 50_000,
        128 => 100_000,
        _ => 0,
    }
}

/// An address as `ip addr add` takes it.
pub(super) fn prefix(gid: &[u8; 16]) -> String {
    match Ipv6Addr::from(*gid).to_canonical() {
        IpAddr::V4(address) => format!("{address}/24"),
        IpAddr::V6(address) => format!("{address}/64"),
    }
}

impl VerbsControl {
    /// The network interface of a port, to be named in advice.
    pub(super) fn netdev(&self, port: u8) -> String {
        sysfs::netdev(self.device.name(), port).unwrap_or_else(|| "NETDEV".into())
    }

    fn check_port(&self, port: u8) -> Result<()> {
        let last = self.attr.phys_port_cnt;
        if (1..=last).contains(&port) {
            return Ok(());
        }
        Err(Error::invalid(format!("port {port} of {}: ports are 1 to {last}", self.device.name())))
    }

    pub(super) fn port_attr(&self, port: u8) -> Result<PortAttr> {
        self.check_port(port)?;
        self.device.port_attr(port)
    }

    pub(super) fn gid_entry(&self, port: u8, index: u16) -> Result<GidEntry> {
        self.check_port(port)?;
        let mut entry = IbvGidEntry { gid: [0; 2], gid_index: 0, port_num: 0, gid_type: 0, ndev_ifindex: 0 };
        let size = size_of::<IbvGidEntry>();
        // SAFETY: an open context, and room for an entry of that size.
        let result = unsafe {
            (self.device.library()._ibv_query_gid_ex)(
                self.device.context(),
                port.into(),
                index.into(),
                &raw mut entry,
                0,
                size,
            )
        };
        let what = || format!("GID {index} of port {port} of {}", self.device.name());
        match done(what, result) {
            Ok(()) => {}
            Err(Error::Os { source, .. }) if source.raw_os_error() == Some(libc::ENODATA) => {
                return Err(Error::invalid(format!("{} is empty", what())));
            }
            Err(Error::Os { source, .. }) if source.raw_os_error() == Some(libc::EINVAL) => {
                let len = self.device.port_attr(port)?.gid_tbl_len;
                return Err(Error::invalid(format!("{}: the table has {len} entries", what())));
            }
            Err(error) => return Err(error),
        }
        let [high, low] = entry.gid.map(u64::to_ne_bytes);
        let mut gid = [0; 16];
        gid[..8].copy_from_slice(&high);
        gid[8..].copy_from_slice(&low);
        let netdev = interface(entry.ndev_ifindex).unwrap_or_default();
        Ok(GidEntry {
            gid,
            gid_type: match entry.gid_type {
                1 => GidType::RoceV1,
                2 => GidType::RoceV2,
                _ => GidType::Ib,
            },
            mac: sysfs::mac(&netdev).unwrap_or_default(),
            vlan: sysfs::vlan(&netdev),
        })
    }

    pub(super) fn pkey_entry(&self, port: u8, index: u16) -> Result<u16> {
        self.check_port(port)?;
        let mut pkey = 0;
        // SAFETY: an open context, and room for the key.
        let result = unsafe {
            (self.device.library().ibv_query_pkey)(self.device.context(), port, index.into(), &raw mut pkey)
        };
        if result != 0 {
            let len = self.device.port_attr(port)?.pkey_tbl_len;
            let what = format!("P_Key {index} of port {port} of {} (a table of {len})", self.device.name());
            return Err(Error::os(what, io::Error::last_os_error()));
        }
        Ok(u16::from_be(pkey))
    }
}

/// The name of a network interface.
fn interface(index: u32) -> Option<String> {
    let mut name: [c_char; libc::IF_NAMESIZE] = [0; libc::IF_NAMESIZE];
    // SAFETY: room for a name of the longest kind, with its end.
    if index == 0 || unsafe { libc::if_indextoname(index, name.as_mut_ptr()) }.is_null() {
        return None;
    }
    // SAFETY: a string in `name`, which the call has ended.
    Some(unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::gid_of;

    #[test]
    fn addresses_as_ip_takes_them() {
        assert_eq!(prefix(&gid_of([10, 0, 0, 1].into())), "10.0.0.1/24");
        assert_eq!(prefix(&gid_of("2001:db8::1".parse().unwrap())), "2001:db8::1/64");
    }

    #[test]
    fn speeds_and_widths_of_verbs() {
        // 100 Gbit/s Ethernet is told as 4 lanes of EDR.
        assert_eq!(lane_mbps(32) * u32::from(lanes(2)), 100_000);
        assert_eq!((lane_mbps(0), lanes(3)), (0, 0));
    }
}
