//! Devices by name, and all that this computer has.
#![forbid(unsafe_code)]

use crate::{
    Context, Error, Result,
    backend::{
        pci::{VFIO_DRIVERS, VfioFunction, VfioOptions, VfioUserFunction},
        prm::OpenOptions,
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
    /// `vfio-user:/run/mlx5.sock`: a function that another process serves there.
    VfioUser(PathBuf),
}

impl DeviceName {
    /// The forms that there are.
    pub const FORMS: &[&str] = &["vfio:0000:01:00.0", "vfio-user:PATH"];

    /// Opens the device.
    ///
    /// # Errors
    /// What the computer is not set up for, with a remedy; what the device refuses.
    pub fn open(&self, options: &OpenOptions) -> Result<Context> {
        match self {
            Self::Vfio(address) => {
                let function = VfioFunction::open(*address, &VfioOptions::default())?;
                Context::open(function, options.clone())
            }
            Self::VfioUser(path) => {
                let function = VfioUserFunction::connect(path).map_err(|source| {
                    let problem = format!("vfio-user socket {}", path.display());
                    Error::host(problem, "serve one: mlx5 model serve --socket PATH", source)
                })?;
                Context::open(function, options.clone())
            }
        }
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vfio(address) => write!(f, "vfio:{address}"),
            Self::VfioUser(path) => write!(f, "vfio-user:{}", path.display()),
        }
    }
}

impl FromStr for DeviceName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.split_once(':') {
            Some(("vfio", address)) => {
                address.parse().map(Self::Vfio).map_err(|error| Error::invalid(format!("{error}")))
            }
            Some(("vfio-user", path)) if !path.is_empty() => Ok(Self::VfioUser(path.into())),
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
        Listed { name: over_vfio.then_some(DeviceName::Vfio(pci.address)), pci }
    });
    Ok(listed.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let name: DeviceName = "vfio:01:00.0".parse().unwrap();
        assert_eq!(name.to_string(), "vfio:0000:01:00.0");
        for bad in ["vfio", "vfio:", "vfio:1", "vfio-user:", "mlx5_0", "", "vfio-noiommu:0000:01:00.0"] {
            let error = bad.parse::<DeviceName>().unwrap_err().to_string();
            assert!(error.contains("write"), "{bad}: {error}");
        }
    }
}
