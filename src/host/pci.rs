//! PCI functions, as sysfs tells of them.

use super::{Host, NOIOMMU_GROUP};
use crate::mlx5::pci::VENDOR_ID;
use std::{fmt, io, str::FromStr};

const DEVICES: &str = "/sys/bus/pci/devices";

/// Where a PCI function is: `0000:01:00.0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    domain: u32,
    bus: u8,
    device: u8,
    function: u8,
}

/// A text that is no PCI address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotAnAddress(String);

impl fmt::Display for NotAnAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is not the address of a PCI function: write 0000:01:00.0, as lspci -D prints it",
            self.0
        )
    }
}

impl std::error::Error for NotAnAddress {}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domain, bus, device, function } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function}")
    }
}

impl FromStr for PciAddress {
    type Err = NotAnAddress;

    /// With or without the domain, which is 0000 on most computers.
    fn from_str(text: &str) -> Result<Self, NotAnAddress> {
        let parse = || {
            let hex = |digits: &str, n: std::ops::RangeInclusive<usize>| {
                let good = n.contains(&digits.len()) && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
                if good { u32::from_str_radix(digits, 16).ok() } else { None }
            };
            let (rest, function) = text.rsplit_once('.')?;
            let (rest, device) = rest.rsplit_once(':')?;
            let (domain, bus) = rest.split_once(':').unwrap_or(("0000", rest));
            Some(Self {
                domain: hex(domain, 4..=8)?,
                bus: hex(bus, 2..=2)? as u8,
                device: hex(device, 2..=2).filter(|device| *device < 32)? as u8,
                function: hex(function, 1..=1).filter(|function| *function < 8)? as u8,
            })
        };
        parse().ok_or_else(|| NotAnAddress(text.into()))
    }
}

/// Speed and width of a PCIe link, now and at most.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PcieLink {
    /// As sysfs says it: `16.0 GT/s PCIe`.
    pub speed: String,
    /// Lanes.
    pub width: u32,
    /// The most that the card can.
    pub max_speed: String,
    /// The most lanes that the card has.
    pub max_width: u32,
}

impl PcieLink {
    /// Gigatransfers a second in text of sysfs.
    fn rate(speed: &str) -> f64 {
        speed.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0.0)
    }

    /// Whether it is slower or narrower than the card can.
    pub fn is_reduced(&self) -> bool {
        self.width < self.max_width || Self::rate(&self.speed) < Self::rate(&self.max_speed)
    }
}

/// A PCI function of this computer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PciDevice {
    /// Where it is.
    pub address: PciAddress,
    /// Vendor id.
    pub vendor: u16,
    /// Device id.
    pub device: u16,
    /// Class, subclass and programming interface.
    pub class: u32,
    /// The driver that it is bound to.
    pub driver: Option<String>,
    /// Number of the IOMMU group that it is in; `None` without an IOMMU.
    pub iommu_group: Option<u32>,
    /// Names that the kernel's RDMA drivers give it: `mlx5_0`.
    pub rdma_devices: Vec<String>,
    /// Network interfaces on it.
    pub net_devices: Vec<String>,
    /// NUMA node; `None` if the computer has one only, or does not say.
    pub numa_node: Option<u32>,
    /// PCIe link; `None` if sysfs does not tell.
    pub link: Option<PcieLink>,
}

impl PciDevice {
    /// The function at `address`; `None` if there is none.
    pub fn find(host: &Host, address: PciAddress) -> Option<Self> {
        let file = |name: &str| host.text(&format!("{DEVICES}/{address}/{name}"));
        let hex = |name| u32::from_str_radix(file(name)?.trim_start_matches("0x"), 16).ok();
        let link = |name: &str| host.link_name(&format!("{DEVICES}/{address}/{name}"));
        let names = |name: &str| host.names(&format!("{DEVICES}/{address}/{name}")).unwrap_or_default();
        let width = |name| file(name)?.parse().ok();
        let pcie = || {
            Some(PcieLink {
                // A function that is part of the root complex has no link.
                speed: file("current_link_speed").filter(|speed| !speed.starts_with("Unknown"))?,
                width: width("current_link_width")?,
                max_speed: file("max_link_speed")?,
                max_width: width("max_link_width")?,
            })
        };
        Some(Self {
            address,
            vendor: hex("vendor")? as u16,
            device: hex("device")? as u16,
            class: hex("class").unwrap_or(0),
            driver: link("driver"),
            iommu_group: link("iommu_group").and_then(|number| number.parse().ok()),
            rdma_devices: names("infiniband"),
            net_devices: names("net"),
            // -1 for none.
            numa_node: file("numa_node").and_then(|node| node.parse().ok()),
            link: pcie(),
        })
    }

    /// All functions of this computer that may be mlx5 devices.
    pub fn all_mlx5(host: &Host) -> io::Result<Vec<Self>> {
        let addresses = host.names(DEVICES)?.into_iter().filter_map(|name| name.parse().ok());
        Ok(addresses.filter_map(|address| Self::find(host, address)).filter(Self::is_mlx5).collect())
    }

    /// Whether vendor and class are those of mlx5 devices: network (2) and InfiniBand (0x0207) controllers of Mellanox.
    /// ConnectX-3 and older are driven by mlx4.
    pub fn is_mlx5(&self) -> bool {
        self.vendor == VENDOR_ID && self.class >> 16 == 2 && self.device >= 0x1011
    }

    /// Whether its group is one that VFIO makes up in no-IOMMU mode.
    pub fn is_in_noiommu_mode(&self, host: &Host) -> bool {
        let name = |group| host.text(&format!("/sys/kernel/iommu_groups/{group}/name"));
        self.iommu_group.and_then(name).as_deref() == Some(NOIOMMU_GROUP)
    }

    /// The other functions in its IOMMU group, with the driver of each.
    pub fn companions(&self, host: &Host) -> Vec<(PciAddress, Option<String>)> {
        let Some(group) = self.iommu_group else { return Vec::new() };
        let names = host.names(&format!("/sys/kernel/iommu_groups/{group}/devices")).unwrap_or_default();
        let addresses = names.into_iter().filter_map(|name| name.parse().ok());
        let others = addresses.filter(|address| *address != self.address);
        others.map(|address| (address, host.link_name(&format!("{DEVICES}/{address}/driver")))).collect()
    }

    /// What the function is called in shops.
    pub fn model_name(&self) -> &'static str {
        match self.device {
            0x1011 | 0x1012 => "Connect-IB",
            0x1013 | 0x1014 => "ConnectX-4",
            0x1015 | 0x1016 => "ConnectX-4 Lx",
            0x1017..=0x101a => "ConnectX-5",
            0x101b | 0x101c => "ConnectX-6",
            0x101d => "ConnectX-6 Dx",
            0x101e => "virtual function",
            0x101f => "ConnectX-6 Lx",
            0x1021 => "ConnectX-7",
            0x1023 => "ConnectX-8",
            0xa2d2 | 0xa2d3 => "BlueField",
            0xa2d6 => "BlueField-2",
            0xa2dc => "BlueField-3",
            _ => "mlx5 device",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let parsed = |text: &str| text.parse::<PciAddress>().map(|address| address.to_string());
        assert_eq!(parsed("0000:01:00.0").as_deref(), Ok("0000:01:00.0"));
        assert_eq!(parsed("af:1f.7").as_deref(), Ok("0000:af:1f.7"));
        assert_eq!(parsed("10000:E1:00.1").as_deref(), Ok("10000:e1:00.1"));
        for bad in ["", "0000:01:00", "01:00.8", "01:20.0", "0:01:00.0", "0000:01:00.0 ", "0000:+1:00.0", "x"]
        {
            assert!(parsed(bad).unwrap_err().to_string().contains("lspci -D"), "{bad}");
        }
    }

    #[test]
    fn a_link_that_trained_badly() {
        let link = |speed: &str, width| PcieLink {
            speed: speed.into(),
            width,
            max_speed: "16.0 GT/s PCIe".into(),
            max_width: 16,
        };
        assert!(!link("16.0 GT/s PCIe", 16).is_reduced());
        assert!(link("8.0 GT/s PCIe", 16).is_reduced());
        assert!(link("16.0 GT/s PCIe", 8).is_reduced());
    }
}
