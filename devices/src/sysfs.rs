//! A pretend `/sys`, in which libibverbs finds the RDMA devices of a software card: `SYSFS_PATH` names it.

use mlx5_direct::backend::{GidEntry, GidType, gid_of, link_local_gid};
use mlx5_model::{ModelConfig, config::LinkType, wire::UplinkAddress};
use std::{
    env, fs, io,
    net::{IpAddr, Ipv6Addr},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU32, Ordering},
};

/// Entries of a port's GID table.
const N_GIDS: usize = 16;

/// The folder; removed when dropped.
#[derive(Debug)]
pub struct Tree(PathBuf);

impl Tree {
    /// Makes it for the functions of a card, `mlx5_0` and so on, in the folder for temporary files.
    pub fn new(config: &ModelConfig) -> io::Result<Self> {
        // Tests of one program run at the same time.
        static N_TREES: AtomicU32 = AtomicU32::new(0);
        let n = N_TREES.fetch_add(1, Ordering::Relaxed);
        let root = env::temp_dir().join(format!("mlx5-sysfs-{}-{n}", process::id()));
        fs::create_dir(&root)?;
        let tree = Self(root);
        tree.file("class/infiniband_verbs/abi_version", "6")?;
        for index in 0..config.ports {
            tree.function(config, index)?;
        }
        Ok(tree)
    }

    /// Its root.
    pub fn root(&self) -> &Path {
        &self.0
    }

    fn function(&self, config: &ModelConfig, index: u8) -> io::Result<()> {
        let mac = config.port_mac(index);
        let part = config.part.device_id();
        // UCX takes the folder's name for the function's address.
        let function = format!("devices/pci0000:00/0000:01:00.{index}");
        let device = format!("{function}/infiniband/mlx5_{index}");
        let uverbs = format!("{function}/infiniband_verbs/uverbs{index}");
        let guid = |mac| {
            let [.., a, b, c, d, e, f, g, h] = link_local_gid(mac);
            format!("{a:02x}{b:02x}:{c:02x}{d:02x}:{e:02x}{f:02x}:{g:02x}{h:02x}")
        };
        for (name, text) in [
            ("modalias", format!("pci:v000015B3d{part:08X}sv000015B3sd00000000bc02sc00i00")),
            ("vendor", "0x15b3".into()),
            ("device", format!("0x{part:04x}")),
            ("class", "0x020000".into()),
            ("numa_node", "-1".into()),
            ("local_cpus", "ffffffff".into()),
        ] {
            self.file(&format!("{function}/{name}"), &text)?;
        }
        for (name, text) in [
            ("ibdev", format!("mlx5_{index}")),
            ("abi_version", "1".into()),
            // The number of /dev/zero, which is opened in the device's place.
            ("dev", "1:5".into()),
        ] {
            self.file(&format!("{uverbs}/{name}"), &text)?;
        }
        for (name, text) in [
            ("node_type", "1: CA".into()),
            ("node_guid", guid(mac)),
            ("sys_image_guid", guid(config.port_mac(0))),
            ("board_id", "MLX0000000000".into()),
            ("hca_type", format!("MT{}", 4099 + part - 0x1003)),
        ] {
            self.file(&format!("{device}/{name}"), &text)?;
        }
        self.port(config, index, &format!("{device}/ports/1"))?;
        self.link(&format!("class/infiniband/mlx5_{index}"), &format!("../../{device}"))?;
        self.link(&format!("class/infiniband_verbs/uverbs{index}"), &format!("../../{uverbs}"))?;
        self.link(&format!("bus/pci/devices/0000:01:00.{index}"), &format!("../../../{function}"))?;
        self.link(&format!("{device}/device"), "../..")?;
        self.link(&format!("{uverbs}/device"), "../..")
    }

    fn port(&self, config: &ModelConfig, index: u8, port: &str) -> io::Result<()> {
        let lid = config.lid + u16::from(index);
        let (link_layer, lid) = match config.link {
            LinkType::Ethernet => ("Ethernet", 0),
            LinkType::InfiniBand => ("InfiniBand", lid),
        };
        for (name, text) in [
            ("state", "4: ACTIVE".into()),
            ("phys_state", "5: LinkUp".into()),
            ("link_layer", link_layer.into()),
            ("rate", "100 Gb/sec (4X EDR)".into()),
            ("lid", format!("0x{lid:x}")),
            ("lid_mask_count", "0".into()),
            ("sm_lid", format!("0x{lid:x}")),
            ("sm_sl", "0".into()),
            ("cap_mask", "0x04010000".into()),
            ("pkeys/0", "0xffff".into()),
        ] {
            self.file(&format!("{port}/{name}"), &text)?;
        }
        let gids = gids(config, index);
        for at in 0..N_GIDS {
            let entry = gids.get(at);
            let gid = Ipv6Addr::from(entry.map_or([0; 16], |entry| entry.gid));
            let text = gid.segments().map(|word| format!("{word:04x}")).join(":");
            self.file(&format!("{port}/gids/{at}"), &text)?;
            let Some(entry) = entry else { continue };
            let gid_type = match entry.gid_type {
                // The kernel has one name for both.
                GidType::Ib | GidType::RoceV1 => "IB/RoCE v1",
                GidType::RoceV2 => "RoCE v2",
            };
            // No `ndevs`: there is no network interface, and a name of none is an error to libibverbs.
            self.file(&format!("{port}/gid_attrs/types/{at}"), gid_type)?;
        }
        Ok(())
    }

    fn file(&self, path: &str, text: &str) -> io::Result<()> {
        let path = self.0.join(path);
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::write(path, format!("{text}\n"))
    }

    fn link(&self, path: &str, target: &str) -> io::Result<()> {
        let path = self.0.join(path);
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        symlink(target, path)
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        // Nobody to tell; it is in the folder for temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The GID table that a kernel would make for a port: its link-local address, then that of its end of the wire, each in
/// RoCE v1 and v2.
pub fn gids(config: &ModelConfig, index: u8) -> Vec<GidEntry> {
    let mac = config.port_mac(index);
    let gid = link_local_gid(mac);
    if config.link == LinkType::InfiniBand {
        return vec![GidEntry { gid, gid_type: GidType::Ib, mac: [0; 6], vlan: None }];
    }
    // One address is one port's.
    let address = if index == 0 { config.wire.as_ref().and_then(address) } else { None };
    let all = [gid].into_iter().chain(address.map(gid_of));
    let both =
        |gid| [GidType::RoceV1, GidType::RoceV2].map(|gid_type| GidEntry { gid, gid_type, mac, vlan: None });
    all.flat_map(both).collect()
}

/// The address of the wire's own end, if it tells the ends apart.
fn address(wire: &UplinkAddress) -> Option<IpAddr> {
    match wire {
        UplinkAddress::Udp { local, peer } => {
            Some(local.ip()).filter(|ip| *ip != peer.ip() && !ip.is_unspecified())
        }
        UplinkAddress::Roce { local } => Some((*local).into()),
        UplinkAddress::Unix { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(options: &str) -> Vec<String> {
        let config: ModelConfig = options.parse().expect("options");
        gids(&config, 0).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn gids_follow_from_mac_and_wire() {
        assert_eq!(texts("mac=02:00:00:00:00:10"), ["fe80::ff:fe00:10 RoCE v1", "fe80::ff:fe00:10 RoCE v2"]);
        let wire = "mac=02:00:00:00:00:10,wire=udp:10.0.0.1:7/10.0.0.2:7";
        assert_eq!(texts(wire)[2..], ["::ffff:10.0.0.1 RoCE v1", "::ffff:10.0.0.1 RoCE v2"]);
        assert_eq!(texts("wire=udp:127.0.0.1:7/127.0.0.1:8").len(), 2, "that address is both ends'");
        assert_eq!(texts("wire=roce:127.0.0.2")[3], "::ffff:127.0.0.2 RoCE v2");
        assert_eq!(texts("link=ib,mac=02:00:00:00:00:10"), ["fe80::ff:fe00:10 IB"]);
    }

    #[test]
    fn a_folder_that_goes() {
        let tree = Tree::new(&"ports=2".parse().expect("options")).expect("a folder");
        let root = tree.root().to_owned();
        let read = |path: &str| {
            fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
        };
        assert_eq!(read("class/infiniband/mlx5_1/ports/1/gid_attrs/types/1"), "RoCE v2\n");
        assert_eq!(read("class/infiniband_verbs/uverbs1/ibdev"), "mlx5_1\n");
        assert_eq!(read("class/infiniband_verbs/uverbs0/device/vendor"), "0x15b3\n");
        assert_eq!(
            read("class/infiniband/mlx5_0/ports/1/gids/15"),
            "0000:0000:0000:0000:0000:0000:0000:0000\n"
        );
        drop(tree);
        assert!(!root.exists());
    }
}
