//! What a run was made on: results without it cannot be compared.

use mlx5_direct::Context;
use mlx5_direct::host::{Host, PciDevice};
use serde::{Deserialize, Serialize};
use std::time::{SystemTime, UNIX_EPOCH};

/// Computer and devices.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Environment {
    /// Seconds since 1970.
    pub(crate) started_unix_s: u64,
    /// Of this crate.
    pub(crate) driver_version: String,
    pub(crate) kernel: String,
    pub(crate) cpu: String,
    pub(crate) n_cpus: usize,
    pub(crate) devices: Vec<Device>,
}

/// An open function.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Device {
    pub(crate) name: String,
    pub(crate) vendor_part_id: String,
    pub(crate) fw_ver: String,
    /// The board's parameter set.
    pub(crate) psid: String,
    pub(crate) link: String,
    /// Of a function on this computer's bus.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pcie: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) numa_node: Option<u32>,
}

impl Environment {
    /// Of this computer, and these functions.
    pub(crate) fn of(functions: &[Context]) -> Self {
        let host = Host::default();
        let unknown = || "unknown".to_owned();
        let cpu = host.text("/proc/cpuinfo").and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("model name"))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        });
        Self {
            started_unix_s: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs()),
            driver_version: env!("CARGO_PKG_VERSION").into(),
            kernel: host.text("/proc/sys/kernel/osrelease").unwrap_or_else(unknown),
            cpu: cpu.unwrap_or_else(unknown),
            n_cpus: std::thread::available_parallelism().map_or(1, usize::from),
            devices: functions.iter().map(|function| Device::of(function, &host)).collect(),
        }
    }

    /// Names and values, for reports.
    pub(crate) fn lines(&self) -> Vec<(String, String)> {
        let mut lines = vec![
            ("driver".into(), format!("mlx5-direct {}", self.driver_version)),
            ("kernel".into(), self.kernel.clone()),
            ("CPU".into(), format!("{} × {}", self.n_cpus, self.cpu)),
        ];
        lines.extend(self.devices.iter().map(|device| (device.name.clone(), device.line())));
        lines
    }
}

impl Device {
    /// All but its name.
    pub(crate) fn line(&self) -> String {
        let Self { vendor_part_id, fw_ver, psid, link, pcie, numa_node, .. } = self;
        let mut text = format!("{vendor_part_id}, firmware {fw_ver}, PSID {psid}, port {link}");
        if let Some(pcie) = pcie {
            text += &format!(", PCIe {pcie}");
        }
        if let Some(node) = numa_node {
            text += &format!(", NUMA node {node}");
        }
        text
    }

    fn of(function: &Context, host: &Host) -> Self {
        let attr = function.device();
        let name = function.name();
        let link = match function.port(1) {
            Ok(port) => format!("{:?} {} Mbit/s", port.link_layer, port.active_speed_mbps),
            Err(error) => error.to_string(),
        };
        // Names end in what the kernel calls the function, if it has one: an address, or an RDMA device.
        let place = name.split_once(':').map_or("", |(_, place)| place);
        let pci = PciDevice::all_mlx5(host).unwrap_or_default().into_iter().find(|device| {
            device.address.to_string() == place || device.rdma_devices.iter().any(|name| name == place)
        });
        let pcie = pci
            .as_ref()
            .and_then(|device| device.link.as_ref())
            .map(|link| format!("{} x{} of {} x{}", link.speed, link.width, link.max_speed, link.max_width));
        Self {
            vendor_part_id: format!("{:04x}:{:04x}", attr.vendor_id, attr.vendor_part_id),
            fw_ver: attr.fw_ver.clone(),
            psid: attr.board_id.clone(),
            link,
            pcie,
            numa_node: pci.and_then(|device| device.numa_node),
            name,
        }
    }
}
