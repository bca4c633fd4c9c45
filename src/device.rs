//! Devices by name, and all that this computer has.
#![forbid(unsafe_code)]

use crate::{
    Context, Error, Result,
    backend::{
        pci::{VFIO_DRIVERS, VfioApi, VfioFunction, VfioOptions, VfioUserFunction},
        prm::OpenOptions,
        verbs::VerbsControl,
    },
    host::{Host, PciAddress, PciDevice},
};
use std::{fmt, path::PathBuf, str::FromStr};

/// How a device is reached, as command lines write it.
///
/// ```no_run
/// # fn f() -> mlx5_direct::Result<()> {
/// let name: mlx5_direct::device::DeviceName = "vfio:0000:01:00.0".parse()?;
/// let context = name.open(&Default::default())?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceName {
    /// `vfio:0000:01:00.0`: a PCI function that is bound to vfio-pci.
    Vfio(PciAddress),
    /// `vfio-noiommu:0000:01:00.0`: the same without an IOMMU ([`VfioApi::NoIommu`]): nothing keeps the card from any
    /// memory.
    VfioNoIommu(PciAddress),
    /// `vfio-user:/run/mlx5.sock`: a function that another process serves there.
    VfioUser(PathBuf),
    /// `verbs:mlx5_0`: a device that its kernel driver keeps, by the name that the kernel's RDMA gives it.
    Verbs(String),
}

impl DeviceName {
    /// The forms that there are.
    pub const FORMS: &[&str] =
        &["vfio:0000:01:00.0", "vfio-noiommu:0000:01:00.0", "vfio-user:PATH", "verbs:mlx5_0"];

    /// Opens the device. `options` are for devices that are brought up here; the kernel has its own.
    ///
    /// # Errors
    /// What the computer is not set up for, with a remedy; what the device refuses.
    pub fn open(&self, options: &OpenOptions) -> Result<Context> {
        match self {
            Self::Vfio(address) => {
                let function = VfioFunction::open(*address, &VfioOptions::default())?;
                Context::open(function, options.clone())
            }
            Self::VfioNoIommu(address) => {
                let vfio = VfioOptions { api: VfioApi::NoIommu, ..VfioOptions::default() };
                Context::open(VfioFunction::open(*address, &vfio)?, options.clone())
            }
            Self::VfioUser(path) => {
                let function = VfioUserFunction::connect(path).map_err(|source| {
                    let problem = format!("vfio-user socket {}", path.display());
                    Error::host(problem, "serve one: mlx5 model serve --socket PATH", source)
                })?;
                Context::open(function, options.clone())
            }
            Self::Verbs(name) => Ok(Context::on(VerbsControl::open(name)?)),
        }
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vfio(address) => write!(f, "vfio:{address}"),
            Self::VfioNoIommu(address) => write!(f, "vfio-noiommu:{address}"),
            Self::VfioUser(path) => write!(f, "vfio-user:{}", path.display()),
            Self::Verbs(name) => write!(f, "verbs:{name}"),
        }
    }
}

impl FromStr for DeviceName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let pci = |address: &str| address.parse().map_err(|error| Error::invalid(format!("{error}")));
        match text.split_once(':') {
            Some(("vfio", address)) => pci(address).map(Self::Vfio),
            Some(("vfio-noiommu", address)) => pci(address).map(Self::VfioNoIommu),
            Some(("vfio-user", path)) if !path.is_empty() => Ok(Self::VfioUser(path.into())),
            Some(("verbs", name)) if !name.is_empty() => Ok(Self::Verbs(name.into())),
            _ => Err(Error::invalid(format!("`{text}` names no device: write {}", Self::FORMS.join(" or ")))),
        }
    }
}

/// A function of this computer that is an mlx5 device.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Listed {
    /// The function.
    pub pci: PciDevice,
    /// How it can be opened as it is bound now; `None` if it cannot.
    pub name: Option<DeviceName>,
}

/// All mlx5 devices of `host`, each function once.
pub fn list(host: &Host) -> Result<Vec<Listed>> {
    let found = PciDevice::all_mlx5(host);
    let found = found.map_err(|source| Error::os("reading /sys/bus/pci/devices", source))?;
    let listed = found.into_iter().map(|pci| {
        let over_vfio = pci.driver.as_deref().is_some_and(|driver| VFIO_DRIVERS.contains(&driver));
        let name = match over_vfio {
            true if pci.is_in_noiommu_mode(host) => Some(DeviceName::VfioNoIommu(pci.address)),
            true => Some(DeviceName::Vfio(pci.address)),
            false => verbs_name(host, pci.address),
        };
        Listed { name, pci }
    });
    Ok(listed.collect())
}

/// What the kernel's RDMA calls a function, if it has taken it.
fn verbs_name(host: &Host, address: PciAddress) -> Option<DeviceName> {
    let names = host.names(&format!("/sys/bus/pci/devices/{address}/infiniband")).ok()?;
    names.into_iter().next().map(DeviceName::Verbs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let name: DeviceName = "vfio:01:00.0".parse().unwrap();
        assert_eq!(name.to_string(), "vfio:0000:01:00.0");
        let name: DeviceName = "verbs:mlx5_0".parse().unwrap();
        assert_eq!(name, DeviceName::Verbs("mlx5_0".into()));
        let name: DeviceName = "vfio-noiommu:0000:01:00.0".parse().unwrap();
        assert_eq!(name.to_string(), "vfio-noiommu:0000:01:00.0");
        for bad in ["vfio", "vfio:", "vfio:1", "vfio-noiommu:1", "vfio-user:", "verbs:", "mlx5_0", ""] {
            let error = bad.parse::<DeviceName>().unwrap_err().to_string();
            assert!(error.contains("write"), "{bad}: {error}");
        }
    }

    #[test]
    fn a_function_of_the_kernels_rdma_has_the_name_of_its_device() {
        let root = std::env::temp_dir().join(format!("mlx5-verbs-name-{}", std::process::id()));
        std::fs::create_dir_all(root.join("sys/bus/pci/devices/0000:01:00.0/infiniband/rocep1s0")).unwrap();
        let (host, address) = (Host::at(&root), "0000:01:00.0".parse().unwrap());
        assert_eq!(verbs_name(&host, address), Some(DeviceName::Verbs("rocep1s0".into())));
        assert_eq!(verbs_name(&host, "0000:01:00.1".parse().unwrap()), None);
        std::fs::remove_dir_all(&root).unwrap();
    }
}
