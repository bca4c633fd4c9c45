//! What is found wrong with computers that exist as folders only.

use mlx5_direct::{
    device,
    host::{
        Host,
        doctor::{Finding, Severity, examine},
    },
};
use std::{
    env, fs,
    os::unix::fs::symlink,
    path::PathBuf,
    process,
    sync::atomic::{AtomicU32, Ordering},
};

const CARD: &str = "0000:41:00.0";
const OTHER: &str = "0000:41:00.1";

/// A computer with one card that is set up well.
struct Computer {
    root: PathBuf,
}

impl Computer {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let computer = Self { root: env::temp_dir().join(format!("mlx5-doctor-{}-{number}", process::id())) };
        computer.function(CARD, "0x15b3", "0x1017", Some("vfio-pci"));
        computer.file("dev/vfio/vfio", "").file("dev/vfio/7", "");
        computer.file("proc/self/status", "Name:\tx\nCapEff:\t0000000000000000\n");
        computer.file(
            "proc/self/limits",
            "Max locked memory         unlimited            unlimited            bytes\n",
        );
        computer.file("proc/cmdline", "quiet intel_iommu=on\n");
        computer.file("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "8\n");
        computer
    }

    fn file(&self, path: &str, text: &str) -> &Self {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("folder");
        fs::write(path, text).expect("file");
        self
    }

    fn link(&self, path: &str, target: &str) -> &Self {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("folder");
        let _ = fs::remove_file(&path);
        symlink(target, path).expect("link");
        self
    }

    fn remove(&self, path: &str) -> &Self {
        let path = self.root.join(path);
        if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.expect("there");
        self
    }

    /// A function in group 7.
    fn function(&self, address: &str, vendor: &str, device: &str, driver: Option<&str>) -> &Self {
        let at = format!("sys/bus/pci/devices/{address}");
        for (name, text) in [
            ("vendor", vendor),
            ("device", device),
            ("class", "0x020000"),
            ("current_link_speed", "16.0 GT/s PCIe"),
            ("max_link_speed", "16.0 GT/s PCIe"),
            ("current_link_width", "16"),
            ("max_link_width", "16"),
            ("numa_node", "1"),
        ] {
            self.file(&format!("{at}/{name}"), &format!("{text}\n"));
        }
        if let Some(driver) = driver {
            self.link(&format!("{at}/driver"), &format!("../../../../bus/pci/drivers/{driver}"));
        }
        self.link(&format!("{at}/iommu_group"), "../../../kernel/iommu_groups/7");
        self.file(&format!("sys/kernel/iommu_groups/7/devices/{address}"), "")
    }

    fn host(&self) -> Host {
        Host::at(&self.root)
    }

    fn examine(&self) -> Vec<Finding> {
        examine(&self.host(), None)
    }

    /// The only finding of that severity has all these words, in text or remedy.
    #[track_caller]
    fn finds(&self, severity: Severity, words: &[&str]) {
        let found = self.examine();
        let found: Vec<_> = found.iter().filter(|finding| finding.severity == severity).collect();
        // On x86, BlueFlame is always warned of.
        let found: Vec<_> = found.into_iter().filter(|finding| !finding.text.contains("BlueFlame")).collect();
        let [finding] = found[..] else { panic!("one finding: {found:#?}") };
        for word in words {
            assert!(finding.to_string().contains(word), "`{word}` is not in: {finding}");
        }
    }
}

impl Drop for Computer {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

#[test]
fn a_computer_that_is_set_up_well() {
    let computer = Computer::new();
    let found = computer.examine();
    assert!(found.iter().all(|finding| finding.severity != Severity::Problem), "{found:#?}");
    assert!(
        found.iter().any(|finding| finding.text.contains("ConnectX-5, is bound to vfio-pci")),
        "{found:#?}"
    );
    assert_eq!(examine(&computer.host(), Some(CARD.parse().unwrap())), found);
    let listed = device::list(&computer.host()).unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].name.as_ref().unwrap().to_string(), format!("vfio:{CARD}"));
    assert_eq!((listed[0].pci.iommu_group, listed[0].pci.numa_node), (Some(7), Some(1)));
}

#[test]
fn no_mlx5_device() {
    let computer = Computer::new();
    computer.remove(&format!("sys/bus/pci/devices/{CARD}"));
    computer.finds(Severity::Problem, &["no mlx5 device", "lspci -nn -d 15b3:"]);
    assert!(device::list(&computer.host()).unwrap().is_empty());
}

#[test]
fn wrong_vendor() {
    let computer = Computer::new();
    computer.function(OTHER, "0x8086", "0x1572", Some("i40e"));
    let found = examine(&computer.host(), Some(OTHER.parse().unwrap()));
    assert!(
        found.len() == 1 && found[0].to_string().contains("8086:1572, and not an mlx5 device"),
        "{found:#?}"
    );
    // ConnectX-3 is Mellanox's, and mlx4's.
    computer.function(OTHER, "0x15b3", "0x1003", Some("mlx4_core"));
    assert_eq!(device::list(&computer.host()).unwrap().len(), 1);
    let found = examine(&computer.host(), Some("0000:42:00.0".parse().unwrap()));
    assert!(
        found.len() == 1 && found[0].text.contains("there is no PCI function 0000:42:00.0"),
        "{found:#?}"
    );
}

#[test]
fn iommu_off() {
    let computer = Computer::new();
    computer.remove("sys/kernel/iommu_groups").remove(&format!("sys/bus/pci/devices/{CARD}/iommu_group"));
    computer.file("proc/cmdline", "quiet intel_iommu=off\n");
    let found = computer.examine();
    let text: String = found.iter().map(|finding| format!("{finding}\n")).collect();
    assert!(text.contains("`intel_iommu=off` is on the kernel's command line"), "{text}");
    assert!(text.contains(&format!("{CARD} is in no IOMMU group")), "{text}");
    computer.file("proc/cmdline", "quiet\n");
    let text: String = computer.examine().iter().map(|finding| format!("{finding}\n")).collect();
    assert!(text.contains("intel_iommu=on") && text.contains("VT-d"), "{text}");
}

#[test]
fn noiommu_mode() {
    let computer = Computer::new();
    computer.file("sys/kernel/iommu_groups/7/name", "vfio-noiommu\n").file("dev/vfio/noiommu-7", "");
    let text: String = computer.examine().iter().map(|finding| format!("{finding}\n")).collect();
    for words in ["no-IOMMU mode is on", "past all protection", "by name: vfio-noiommu:0000:41:00.0"] {
        assert!(text.contains(words), "`{words}` is not in: {text}");
    }
    assert!(!text.contains("PROBLEM") && text.contains("noiommu-7 can be opened"), "{text}");
    let name = device::list(&computer.host()).unwrap().remove(0).name.unwrap();
    assert_eq!(name.to_string(), format!("vfio-noiommu:{CARD}"));
}

#[test]
fn another_driver() {
    let computer = Computer::new();
    let driver = format!("sys/bus/pci/devices/{CARD}/driver");
    computer.link(&driver, "../../../../bus/pci/drivers/mlx5_core");
    computer
        .finds(Severity::Problem, &["is bound to mlx5_core", "drivers/mlx5_core/unbind", "driver_override"]);
    assert!(device::list(&computer.host()).unwrap()[0].name.is_none());
    computer.remove(&driver);
    computer.finds(Severity::Problem, &["bound to no driver", "drivers_probe"]);
}

#[test]
fn a_group_that_is_not_viable() {
    let computer = Computer::new();
    computer.function("0000:40:00.0", "0x8086", "0x3c02", Some("pcieport"));
    assert!(computer.examine().iter().all(|finding| finding.severity != Severity::Problem));
    computer.function("0000:41:00.2", "0x8086", "0x1572", Some("i40e"));
    computer
        .finds(Severity::Problem, &["group 7", "not viable", "0000:41:00.2 (i40e)", "drivers/i40e/unbind"]);
}

#[test]
fn files_that_are_missing() {
    let computer = Computer::new();
    computer.remove("dev/vfio/7");
    computer
        .finds(Severity::Problem, &["/dev/vfio/7 cannot be opened: it is not there", "modprobe vfio-pci"]);
}

#[test]
fn locked_memory() {
    let computer = Computer::new();
    let limit =
        |text: &str| format!("Max locked memory         {text}              8388608              bytes\n");
    computer.file("proc/self/limits", &limit("8388608"));
    computer.finds(
        Severity::Problem,
        &["8388608 bytes of memory may be locked", "ulimit -l unlimited", "systemd"],
    );
    // With the capability no limit holds.
    computer.file("proc/self/status", "CapEff:\t0000000000004000\n");
    assert!(computer.examine().iter().all(|finding| finding.severity != Severity::Problem));
    computer
        .file("proc/self/status", "CapEff:\t0000000000000000\n")
        .file("proc/self/limits", &limit("1073741824"));
    assert!(computer.examine().iter().all(|finding| finding.severity != Severity::Problem));
}

#[test]
fn warnings() {
    let computer = Computer::new();
    computer.file(&format!("sys/bus/pci/devices/{CARD}/current_link_width"), "8\n");
    computer.finds(Severity::Warning, &["16.0 GT/s PCIe x8", "could be 16.0 GT/s PCIe x16", "lspci -vv"]);
    let computer = Computer::new();
    computer.file("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "0\n");
    computer.finds(Severity::Warning, &["huge pages", "vm.nr_hugepages"]);
}
