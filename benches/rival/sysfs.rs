//! The folder of sysfs in which libibverbs finds the pretend device.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

/// A pretend `/sys`, removed when dropped.
pub struct Tree(PathBuf);

impl Tree {
    /// Makes it in a temporary folder.
    pub fn new() -> io::Result<Self> {
        // Tests of one program run at the same time.
        static N_TREES: AtomicU32 = AtomicU32::new(0);
        let n = N_TREES.fetch_add(1, Ordering::Relaxed);
        let root = std::env::temp_dir().join(format!("mlx5-uverbs-{}-{n}", std::process::id()));
        let tree = Self(root);
        // The folder of the PCI function: UCX takes its name for the device's address.
        let function = "devices/pci0000:00/0000:00:02.0";
        let device = format!("{function}/infiniband/mlx5_0");
        for (path, text) in [
            ("class/infiniband_verbs/abi_version".to_owned(), "6\n"),
            (format!("{function}/modalias"), "pci:v000015B3d0000101Bsv000015B3sd00000007bc02sc07i00\n"),
            (format!("{function}/vendor"), "0x15b3\n"),
            (format!("{function}/device"), "0x101b\n"),
            (format!("{function}/numa_node"), "-1\n"),
            (format!("{function}/local_cpus"), "ffffffff\n"),
            (format!("{function}/infiniband_verbs/uverbs0/ibdev"), "mlx5_0\n"),
            (format!("{function}/infiniband_verbs/uverbs0/abi_version"), "1\n"),
            // The number of /dev/zero, which is opened in the device's place.
            (format!("{function}/infiniband_verbs/uverbs0/dev"), "1:5\n"),
            (format!("{device}/node_type"), "1: CA\n"),
            (format!("{device}/node_guid"), "0200:0000:0000:0001\n"),
            (format!("{device}/sys_image_guid"), "0200:0000:0000:0001\n"),
            (format!("{device}/fw_ver"), "20.36.1010\n"),
            (format!("{device}/ports/1/state"), "4: ACTIVE\n"),
            (format!("{device}/ports/1/gids/0"), "fe80:0000:0000:0000:0200:0000:0000:0001\n"),
            (format!("{device}/ports/1/gid_attrs/types/0"), "IB/RoCE v1\n"),
            (format!("{device}/ports/1/pkeys/0"), "0xffff\n"),
        ] {
            tree.file(&path, text)?;
        }
        for (link, target) in [
            ("class/infiniband/mlx5_0", format!("../../{device}")),
            ("class/infiniband_verbs/uverbs0", format!("../../{function}/infiniband_verbs/uverbs0")),
            (&format!("{device}/device"), "../..".to_owned()),
            (&format!("{function}/infiniband_verbs/uverbs0/device"), "../..".to_owned()),
        ] {
            let link = tree.0.join(link);
            fs::create_dir_all(link.parent().expect("in the tree"))?;
            std::os::unix::fs::symlink(target, link)?;
        }
        Ok(tree)
    }

    /// Its root.
    pub fn root(&self) -> &Path {
        &self.0
    }

    fn file(&self, path: &str, text: &str) -> io::Result<()> {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().expect("in the tree"))?;
        fs::write(path, text)
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
