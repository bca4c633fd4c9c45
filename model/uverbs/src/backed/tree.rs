//! What the folder of sysfs says of the ports: the GIDs that the kernel would have put into the card.
#![forbid(unsafe_code)]

use mlx5_direct::backend::{GidEntry, GidType};
use std::{fs, net::Ipv6Addr, path::PathBuf};

/// Entries of the GID table of function `index`, whose MAC is `mac`. Empty where there is no such folder.
pub(crate) fn gids(index: usize, mac: [u8; 6]) -> Vec<(u16, GidEntry)> {
    let Some(root) = std::env::var_os("SYSFS_PATH") else { return Vec::new() };
    let port = PathBuf::from(root).join(format!("class/infiniband/mlx5_{index}/ports/1"));
    let read = |folder: &str, at: u16| fs::read_to_string(port.join(folder).join(at.to_string())).ok();
    let entry = |at: u16| {
        let gid: Ipv6Addr = read("gids", at)?.trim().parse().ok()?;
        let gid_type = match read("gid_attrs/types", at)?.trim() {
            "RoCE v2" => GidType::RoceV2,
            "IB/RoCE v1" => GidType::RoceV1,
            _ => return None,
        };
        (!gid.is_unspecified()).then_some((at, GidEntry { gid: gid.octets(), gid_type, mac, vlan: None }))
    };
    (0..u16::from(u8::MAX)).map_while(|at| read("gids", at).map(|_| entry(at))).flatten().collect()
}
