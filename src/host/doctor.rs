//! What keeps mlx5 devices from working here, each with what helps.

use super::{Host, NOIOMMU_GROUP, PciAddress, PciDevice};
use crate::backend::pci::{VFIO_DRIVERS, vfio_problem as problem};
use std::{
    fmt,
    fs::OpenOptions,
    io::{self, ErrorKind},
};

/// Memory that a process must be able to lock to be of use: queues, firmware pages and some registered memory.
const LEAST_MEMLOCK_BYTES: u64 = 256 << 20;
/// `CAP_IPC_LOCK`, with which no limit holds.
const CAP_IPC_LOCK: u32 = 14;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// As it should be.
    Good,
    /// It works, and less well than it could.
    Warning,
    /// It does not work.
    Problem,
}

/// Something that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// What was found.
    pub text: String,
    /// What to do about it; empty if it is good.
    pub remedy: String,
}

impl Finding {
    /// As it should be.
    pub fn good(text: impl Into<String>) -> Self {
        Self { severity: Severity::Good, text: text.into(), remedy: String::new() }
    }

    /// Less than it could be.
    pub fn warning(text: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, text: text.into(), remedy: remedy.into() }
    }

    /// It does not work.
    pub fn problem(text: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { severity: Severity::Problem, text: text.into(), remedy: remedy.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = match self.severity {
            Severity::Good => "ok",
            Severity::Warning => "warning",
            Severity::Problem => "PROBLEM",
        };
        write!(f, "{mark:<8} {}", self.text)?;
        if self.remedy.is_empty() { Ok(()) } else { write!(f, "\n         -> {}", self.remedy) }
    }
}

/// Looks at what opening `device` over VFIO needs, or all mlx5 devices if `None`. Nothing is changed, and no device is
/// opened.
pub fn examine(host: &Host, device: Option<PciAddress>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let devices = match device {
        Some(address) => match PciDevice::find(host, address) {
            Some(found) if found.is_mlx5() => vec![found],
            Some(found) => return vec![not_mlx5(&found)],
            None => {
                return vec![Finding::problem(
                    format!("there is no PCI function {address}"),
                    "`mlx5 list` shows those of mlx5 devices",
                )];
            }
        },
        None => match PciDevice::all_mlx5(host) {
            Ok(found) => found,
            Err(error) => {
                return vec![Finding::problem(
                    format!("PCI functions cannot be listed: {error}"),
                    "mount sysfs: mount -t sysfs sysfs /sys",
                )];
            }
        },
    };
    if devices.is_empty() {
        return vec![Finding::problem(
            "this computer has no mlx5 device (vendor 15b3, class network)",
            "if there should be one: lspci -nn -d 15b3: ; the software card needs none: --device model",
        )];
    }
    findings.push(iommu(host));
    for device in &devices {
        findings.extend(function(host, device));
    }
    findings.push(memlock(host));
    findings.push(huge_pages(host));
    findings
}

fn not_mlx5(device: &PciDevice) -> Finding {
    let PciDevice { address, vendor, device, .. } = device;
    Finding::problem(
        format!("{address} is {vendor:04x}:{device:04x}, and not an mlx5 device"),
        "`mlx5 list` shows those of mlx5 devices",
    )
}

fn iommu(host: &Host) -> Finding {
    let groups = host.names("/sys/kernel/iommu_groups").unwrap_or_default();
    // A folder that is there and cannot be listed tells nothing; functions say more.
    let name = |group: &String| host.text(&format!("/sys/kernel/iommu_groups/{group}/name"));
    let n_real = groups.iter().filter(|group| name(group).as_deref() != Some(NOIOMMU_GROUP)).count();
    if n_real > 0 {
        return Finding::good(format!("the IOMMU is on: {n_real} groups"));
    }
    if !groups.is_empty() {
        return Finding::warning(
            "the IOMMU is off or absent, and VFIO's no-IOMMU mode is on",
            "turn the IOMMU on, if the computer has one",
        );
    }
    let command_line = host.text("/proc/cmdline").unwrap_or_default();
    let off = ["intel_iommu=off", "amd_iommu=off", "iommu=off"]
        .into_iter()
        .find(|word| command_line.contains(word));
    match off {
        Some(word) => Finding::problem(
            format!("the IOMMU is off: `{word}` is on the kernel's command line"),
            "take it out (/etc/default/grub, update-grub) and boot again",
        ),
        None => Finding::problem(
            "the IOMMU is off or absent: there are no IOMMU groups",
            "turn on VT-d, AMD-Vi or SMMU in the firmware's setup, and boot Linux with intel_iommu=on (Intel)",
        ),
    }
}

/// What concerns one function.
fn function(host: &Host, device: &PciDevice) -> Vec<Finding> {
    let mut findings = Vec::new();
    let address = device.address;
    let Some(group) = device.iommu_group else {
        let (text, remedy) = problem::no_iommu(address);
        return vec![Finding::problem(text, remedy)];
    };
    let over_vfio = device.driver.as_deref().is_some_and(|driver| VFIO_DRIVERS.contains(&driver));
    if over_vfio && device.is_in_noiommu_mode(host) {
        let (text, remedy) = problem::noiommu_mode(address, group);
        findings.push(Finding::warning(text, remedy));
        findings.push(may_open(host, &format!("/dev/vfio/noiommu-{group}")));
    } else if over_vfio {
        let driver = device.driver.as_deref().unwrap_or_default();
        findings.push(Finding::good(format!("{address}, {}, is bound to {driver}", device.model_name())));
        findings.push(match problem::companions_in_use(host, device) {
            Some((text, remedy)) => Finding::problem(text, remedy),
            None => Finding::good(format!("its group {group} has no function that is another driver's")),
        });
        findings.push(may_open(host, "/dev/vfio/vfio"));
        findings.push(may_open(host, &format!("/dev/vfio/{group}")));
        if cfg!(any(target_arch = "x86", target_arch = "x86_64")) {
            findings.push(Finding::warning(
                format!("{address}: doorbells are mapped uncached, so BlueFlame is off: VFIO on x86 has no other mapping"),
                "nothing to do; small messages cost one DMA read more than with the kernel's driver",
            ));
        }
    } else {
        let (text, remedy) = problem::other_driver(device);
        findings.push(Finding::problem(text, remedy));
    }
    if let Some(link) = &device.link {
        let now = format!("{} x{}", link.speed, link.width);
        findings.push(if link.is_reduced() {
            Finding::warning(
                format!(
                    "{address}: its PCIe link is {now}, and could be {} x{}",
                    link.max_speed, link.max_width
                ),
                format!(
                    "seat the card again, or use a wider slot; lspci -vv -s {address} shows LnkCap and LnkSta"
                ),
            )
        } else {
            Finding::good(format!("{address}: its PCIe link is {now}, the card's most"))
        });
    }
    findings
}

/// Whether a file of `/dev/vfio` can be opened.
fn may_open(host: &Host, path: &str) -> Finding {
    match OpenOptions::new().read(true).write(true).open(host.path(path)) {
        Ok(_) => Finding::good(format!("{path} can be opened")),
        Err(error) => {
            let text = format!("{path} cannot be opened: {}", reason(&error));
            Finding::problem(text, problem::remedy_for_open(path, &error))
        }
    }
}

fn reason(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => "it is not there".into(),
        _ => error.to_string(),
    }
}

fn memlock(host: &Host) -> Finding {
    let status = host.text("/proc/self/status").unwrap_or_default();
    let capabilities = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let capabilities = capabilities.and_then(|word| u64::from_str_radix(word.trim(), 16).ok()).unwrap_or(0);
    if capabilities >> CAP_IPC_LOCK & 1 == 1 {
        return Finding::good("memory for DMA may be locked without limit (CAP_IPC_LOCK)");
    }
    match problem::memlock_bytes(host) {
        None => Finding::good("memory for DMA may be locked without limit"),
        Some(bytes) if bytes >= LEAST_MEMLOCK_BYTES => {
            Finding::good(format!("{bytes} bytes of memory may be locked for DMA"))
        }
        Some(bytes) => Finding::problem(
            format!(
                "{bytes} bytes of memory may be locked for DMA, and {LEAST_MEMLOCK_BYTES} are the least of use"
            ),
            problem::RAISE_MEMLOCK,
        ),
    }
}

fn huge_pages(host: &Host) -> Finding {
    let free = |kib| {
        let text = host.text(&format!("/sys/kernel/mm/hugepages/hugepages-{kib}kB/free_hugepages"));
        text.and_then(|text| text.parse::<u64>().ok()).unwrap_or(0)
    };
    match free(2048) {
        0 => Finding::warning(
            "no huge pages of 2 MiB are free: memory with PageSize::Huge2M cannot be had",
            "as root: sysctl vm.nr_hugepages=512",
        ),
        n => Finding::good(format!("{n} huge pages of 2 MiB are free")),
    }
}
