//! The computer around the card, as `MLX5_MODEL_HOST` has it: what may be wrong with it, as kernels answer then.

use std::{str::FromStr, sync::OnceLock, time::Duration};

/// What stands between the card and memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Translation {
    /// An IOMMU.
    Iommu,
    /// Nothing, and VFIO has no group for the card.
    Off,
    /// Nothing, and VFIO makes groups up: no-IOMMU mode.
    NoIommu,
}

/// How the computer is set up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Host {
    /// Whether there is an IOMMU.
    pub(crate) iommu: Translation,
    /// Huge pages of 2 MiB that there are in no-IOMMU mode.
    pub(crate) huge_pages: usize,
    /// Whether both functions of a card are in one group, or each in its own.
    pub(crate) one_group: bool,
    /// The driver that the functions are bound to; `None` for none.
    pub(crate) driver: Option<String>,
    /// Whether all that is in the group is VFIO's.
    pub(crate) viable: bool,
    /// What the group's file answers to `open`: 0, or an errno.
    pub(crate) group_errno: i32,
    /// Whether there is `/dev/iommu`, and a file of its own for each device.
    pub(crate) iommufd: bool,
    /// Bytes that may be locked for DMA.
    pub(crate) memlock_bytes: u64,
    /// Vendor id, if it is not to be the card's.
    pub(crate) vendor: Option<u16>,
    /// When the card is pulled out, counted from when it was opened.
    pub(crate) unplug: Option<Duration>,
    /// When the kernel wants the functions back, counted likewise. Without it, the kernel never asks.
    pub(crate) reclaim: Option<Duration>,
}

impl Default for Host {
    fn default() -> Self {
        Self {
            iommu: Translation::Iommu,
            huge_pages: 256,
            one_group: false,
            driver: Some("vfio-pci".into()),
            viable: true,
            group_errno: 0,
            iommufd: false,
            memlock_bytes: u64::MAX,
            vendor: None,
            unplug: None,
            reclaim: None,
        }
    }
}

impl FromStr for Host {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut host = Self::default();
        for pair in text.split(',').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let bad = || format!("`{pair}` is not known");
            let number = || value.parse::<u64>().map_err(|_| bad());
            match (key, value) {
                ("iommu", "on") => host.iommu = Translation::Iommu,
                ("iommu", "off") => host.iommu = Translation::Off,
                ("iommu", "none") => host.iommu = Translation::NoIommu,
                ("hugepages", _) => host.huge_pages = number()? as usize,
                ("groups", "one" | "each") => host.one_group = value == "one",
                ("driver", "none") => host.driver = None,
                ("driver", name) if !name.is_empty() => host.driver = Some(name.into()),
                ("viable", "yes" | "no") => host.viable = value == "yes",
                ("group", "free") => host.group_errno = 0,
                ("group", "busy") => host.group_errno = libc::EBUSY,
                ("group", "denied") => host.group_errno = libc::EACCES,
                ("iommufd", "on" | "off") => host.iommufd = value == "on",
                ("memlock", _) => host.memlock_bytes = number()?,
                ("vendor", _) => host.vendor = Some(u16::from_str_radix(value, 16).map_err(|_| bad())?),
                ("unplug", _) => host.unplug = Some(Duration::from_millis(number()?)),
                ("reclaim", _) => host.reclaim = Some(Duration::from_millis(number()?)),
                _ => return Err(bad()),
            }
        }
        Ok(host)
    }
}

/// What the environment says.
pub(crate) fn host() -> Result<&'static Host, &'static str> {
    static HOST: OnceLock<Result<Host, String>> = OnceLock::new();
    let host = HOST.get_or_init(|| {
        let text = std::env::var("MLX5_MODEL_HOST").unwrap_or_default();
        text.parse().map_err(|error| format!("MLX5_MODEL_HOST: {error}"))
    });
    host.as_ref().map_err(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options() {
        let host: Host = "driver=mlx5_core,groups=one,memlock=65536,vendor=8086,unplug=20".parse().unwrap();
        assert_eq!(host.driver.as_deref(), Some("mlx5_core"));
        assert_eq!((host.one_group, host.memlock_bytes, host.vendor), (true, 65536, Some(0x8086)));
        assert_eq!(host.unplug, Some(Duration::from_millis(20)));
        assert_eq!("".parse(), Ok(Host::default()));
        for bad in ["x", "iommu=maybe", "memlock=much", "driver=", "vendor=x"] {
            assert!(bad.parse::<Host>().unwrap_err().contains(bad), "{bad}");
        }
    }
}
