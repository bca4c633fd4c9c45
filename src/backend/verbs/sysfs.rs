//! What the kernel tells of a device in /sys and verbs do not.
#![forbid(unsafe_code)]

use crate::host::Host;

fn read(path: &str) -> Option<String> {
    Host::default().text(path)
}

/// A file of an InfiniBand device.
pub(super) fn device(name: &str, file: &str) -> Option<String> {
    read(&format!("/sys/class/infiniband/{name}/{file}"))
}

/// The network interface of a port.
pub(super) fn netdev(name: &str, port: u8) -> Option<String> {
    device(name, &format!("ports/{port}/gid_attrs/ndevs/0"))
}

/// The MAC address of a network interface.
pub(super) fn mac(netdev: &str) -> Option<[u8; 6]> {
    let text = read(&format!("/sys/class/net/{netdev}/address"))?;
    let bytes: Option<Vec<u8>> = text.split(':').map(|byte| u8::from_str_radix(byte, 16).ok()).collect();
    bytes?.try_into().ok()
}

/// Bytes of payload of a network interface's frames.
pub(super) fn mtu(netdev: &str) -> Option<u16> {
    read(&format!("/sys/class/net/{netdev}/mtu"))?.parse().ok()
}

/// The VLAN of a network interface, if it is one's.
pub(super) fn vlan(netdev: &str) -> Option<u16> {
    // First line: `eth0.5  VID: 5	 REORDER_HDR: 1 …`
    let text = read(&format!("/proc/net/vlan/{netdev}"))?;
    text.split_once("VID: ")?.1.split_whitespace().next()?.parse().ok()
}
