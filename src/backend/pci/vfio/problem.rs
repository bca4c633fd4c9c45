//! What keeps a function from being driven over VFIO, and the command that helps.
#![forbid(unsafe_code)]

use crate::{
    Error,
    host::{Host, PciAddress, PciDevice},
};
use std::{fs, io};

/// How to bind a function to vfio-pci.
pub(crate) fn bind_command(address: PciAddress, driver: Option<&str>) -> String {
    let unbind = match driver {
        Some(driver) => format!(" && echo {address} > /sys/bus/pci/drivers/{driver}/unbind"),
        None => String::new(),
    };
    format!(
        "as root: modprobe vfio-pci && echo vfio-pci > /sys/bus/pci/devices/{address}/driver_override{unbind} && \
         echo {address} > /sys/bus/pci/drivers_probe"
    )
}

/// Nothing is at the address.
pub(super) fn no_device(address: PciAddress) -> Error {
    Error::host(
        format!("there is no PCI function {address}"),
        "`mlx5 list` shows those of mlx5 devices",
        None,
    )
}

/// Something else is there.
pub(super) fn not_mlx5(device: &PciDevice) -> Error {
    let PciDevice { address, vendor, device, class, .. } = device;
    Error::host(
        format!(
            "{address} is {vendor:04x}:{device:04x}, class {class:06x}, and not an mlx5 device (15b3, network)"
        ),
        "`mlx5 list` shows those of mlx5 devices",
        None,
    )
}

/// The IOMMU is off.
pub(crate) fn no_iommu(address: PciAddress) -> (String, &'static str) {
    (
        format!("{address} is in no IOMMU group, so the IOMMU is off or absent"),
        "turn on VT-d, AMD-Vi or SMMU in the firmware's setup, and boot Linux with intel_iommu=on (Intel)",
    )
}

/// The group is one of VFIO's no-IOMMU mode.
pub(crate) fn noiommu_mode(address: PciAddress, group: u32) -> (String, String) {
    (
        format!(
            "{address} is in no-IOMMU group {group}: its DMA goes to physical addresses, past all protection"
        ),
        format!(
            "turn on the IOMMU, and vfio's enable_unsafe_noiommu_mode off; or, if you trust card and program with \
             all memory, ask for it by name: vfio-noiommu:{address} (VfioApi::NoIommu)"
        ),
    )
}

/// No-IOMMU mode is asked for, and the group is a real one.
pub(super) fn has_iommu(address: PciAddress, group: u32) -> Error {
    Error::host(
        format!("{address} is in IOMMU group {group}, and no-IOMMU mode was asked for"),
        format!("use its protection: vfio:{address}"),
        None,
    )
}

/// The kernel has no no-IOMMU mode, or it is off.
pub(super) fn no_noiommu(source: Option<io::Error>) -> Error {
    Error::host("the kernel offers no no-IOMMU mode to VFIO", NOIOMMU_ON, source)
}

/// How no-IOMMU mode is turned on. The kernel makes a group when the driver is bound.
const NOIOMMU_ON: &str = "use a kernel with CONFIG_VFIO_NOIOMMU; as root: modprobe vfio enable_unsafe_noiommu_mode=1, and \
    bind the function to vfio-pci again";

/// No-IOMMU mode is asked for, and the function is in no group at all.
pub(super) fn no_noiommu_group(address: PciAddress) -> Error {
    Error::host(format!("{address} is in no group of no-IOMMU mode"), NOIOMMU_ON, None)
}

/// A file that tells physical addresses does not open.
pub(super) fn physical(path: &str, source: io::Error) -> Error {
    Error::host(
        format!("{path} does not open, which tells physical addresses for no-IOMMU mode"),
        "run as root, on a kernel with CONFIG_PROC_PAGE_MONITOR",
        source,
    )
}

/// The function has another driver, or none.
pub(crate) fn other_driver(device: &PciDevice) -> (String, String) {
    let (address, driver) = (device.address, device.driver.as_deref());
    let is = match driver {
        Some(driver) => format!("{address} is bound to {driver}, not to vfio-pci"),
        None => format!("{address} is bound to no driver, and has to be to vfio-pci"),
    };
    (is, bind_command(address, driver))
}

/// A file of `/dev` does not open.
pub(super) fn open(path: &str, source: io::Error) -> Error {
    Error::host(format!("{path} does not open"), remedy_for_open(path, &source), source)
}

/// What helps when a file of `/dev` does not open.
pub(crate) fn remedy_for_open(path: &str, source: &io::Error) -> String {
    match source.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => format!(
            "this process may not use it: run as root, or as root once: chown {} {path} (a udev rule keeps it: \
             SUBSYSTEM==\"vfio\", OWNER=\"…\")",
            user()
        ),
        Some(libc::EBUSY) => format!(
            "a group is one process's at a time and another has it: `fuser -v {path}` names it; end it, or use another \
             function"
        ),
        Some(libc::ENOENT) => "as root: modprobe vfio-pci, and bind the function to it".into(),
        Some(libc::ENODEV) => "the driver behind it is not ready: as root: modprobe vfio-pci".into(),
        Some(libc::EMFILE) => "raise the limit on open files: ulimit -n".into(),
        _ => "look at the kernel's log (dmesg)".into(),
    }
}

/// Whom a file of `/dev/vfio` should belong to.
fn user() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let uid = status.lines().find_map(|line| line.strip_prefix("Uid:")?.split_whitespace().next());
    uid.unwrap_or("$USER").into()
}

/// Other functions of the group are still the kernel's.
pub(crate) fn companions_in_use(host: &Host, device: &PciDevice) -> Option<(String, String)> {
    // What isolates no less: VFIO's own drivers (all have it in their names), stubs, and the port drivers of bridges.
    let harmless = |driver: &Option<String>| {
        driver.as_deref().is_none_or(|name| name.contains("vfio") || name == "pci-stub" || name == "pcieport")
    };
    let in_use: Vec<_> =
        device.companions(host).into_iter().filter(|(_, driver)| !harmless(driver)).collect();
    let (first, driver) = in_use.first()?;
    let names: Vec<_> = in_use
        .iter()
        .map(|(address, driver)| format!("{address} ({})", driver.as_deref().unwrap_or("none")))
        .collect();
    let problem = format!(
        "group {} of {} is not viable: it isolates all of its functions together, and other drivers have {}",
        device.iommu_group.unwrap_or_default(),
        device.address,
        names.join(", ")
    );
    Some((problem, format!("give those to vfio-pci too; {}", bind_command(*first, driver.as_deref()))))
}

/// VFIO calls the group not viable.
pub(super) fn not_viable(host: &Host, device: &PciDevice, number: u32) -> Error {
    let (problem, remedy) = companions_in_use(host, device).unwrap_or_else(|| {
        let problem = format!(
            "group {number} of {} is not viable: another function in it is bound to a driver that is not VFIO's",
            device.address
        );
        (problem, format!("bind every function in /sys/kernel/iommu_groups/{number}/devices to vfio-pci"))
    });
    Error::host(problem, remedy, None)
}

/// The kernel has no type 1 IOMMU.
pub(super) fn no_type1(source: Option<io::Error>) -> Error {
    Error::host("the kernel offers no type 1 IOMMU to VFIO", "as root: modprobe vfio_iommu_type1", source)
}

/// The IOMMU does not remap interrupts.
pub(super) fn unsafe_interrupts(source: io::Error) -> Error {
    Error::host(
        "the IOMMU does not remap interrupts, so that a device could raise any: VFIO refuses it",
        "turn on interrupt remapping in the firmware's setup; or, if you trust the card and who programs it, as root: \
         echo 1 > /sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts",
        source,
    )
}

/// The group does not give its device.
pub(super) fn device(address: PciAddress, source: io::Error) -> Error {
    let remedy = match source.raw_os_error() {
        Some(libc::EBUSY) => "another process has it open: `fuser -v /dev/vfio/*` names it".into(),
        Some(libc::ENODEV) => format!("it left VFIO meanwhile; {}", bind_command(address, None)),
        _ => "look at the kernel's log (dmesg)".into(),
    };
    Error::host(format!("VFIO does not open {address}"), remedy, source)
}

/// This process has the function open already.
pub(super) fn opened_twice(address: PciAddress) -> Error {
    Error::host(
        format!("this process has {address} open already"),
        "share its Context: one driver drives a function",
        None,
    )
}

/// The IOMMU's pages are larger than the device's.
pub(super) fn large_pages(page_sizes: u64) -> Error {
    Error::host(
        format!(
            "the IOMMU maps pages of {} bytes at least, and this driver maps 4096",
            1_u64 << page_sizes.trailing_zeros().min(63)
        ),
        "use a kernel with pages of 4 KiB",
        None,
    )
}

/// The text for memory that could not be mapped for DMA.
pub(super) fn map(source: &io::Error, len_bytes: usize) -> io::Error {
    let text = match source.raw_os_error() {
        Some(libc::ENOMEM) => {
            let host = Host::default();
            let limit = memlock_bytes(&host).map_or("none".into(), |bytes| format!("{bytes} bytes"));
            let locked = host.number("/proc/self/status", "VmLck").unwrap_or(0) << 10;
            format!(
                "{source}: memory for DMA is locked; {locked} bytes are, and the limit is {limit}; {RAISE_MEMLOCK}"
            )
        }
        Some(libc::ENOSPC) => format!(
            "{source}: the container has no mappings left; use fewer and larger registrations, or as root: modprobe \
             vfio_iommu_type1 dma_entry_limit=…"
        ),
        Some(libc::EFAULT) => format!("{source}: the {len_bytes} bytes are not all mapped and writable here"),
        _ => source.to_string(),
    };
    io::Error::new(source.kind(), text)
}

/// How to lock more.
pub(crate) const RAISE_MEMLOCK: &str = "raise the limit: ulimit -l unlimited (as root, or in /etc/security/limits.conf; \
    LimitMEMLOCK=infinity of a systemd unit), or give the program CAP_IPC_LOCK";

/// How much memory this process may lock; `None` if there is no limit.
pub(crate) fn memlock_bytes(host: &Host) -> Option<u64> {
    let limits = host.text("/proc/self/limits")?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"))?;
    // "unlimited" is no number.
    line.split_whitespace().next()?.parse().ok()
}
