//! The ways to an IOMMU, and the one past it, as one.

use super::{
    VfioApi,
    container::{Container, Translation},
    iommufd,
    iommufd::Iommufd,
    type1::Type1,
};
use crate::{
    Error, Result,
    host::{Host, PciDevice},
};
use std::{fs::File, io, ops::RangeInclusive, ptr::NonNull};

/// An address space for the functions of one group.
#[derive(Debug)]
pub(super) enum Iommu {
    Type1(Type1),
    Iommufd(Iommufd),
    /// No-IOMMU mode: the functions reach all memory, by its physical addresses.
    None(Container),
}

impl Iommu {
    /// Makes one for the group of `device`, by iommufd where there is that.
    pub(super) fn open(host: &Host, device: &PciDevice, group: u32, api: VfioApi) -> Result<Self> {
        let by_iommufd = match api {
            VfioApi::Auto => iommufd::device_path(host, device).is_some(),
            VfioApi::Group => false,
            VfioApi::Iommufd => true,
            VfioApi::NoIommu => {
                return Container::open(host, device, group, Translation::None).map(Self::None);
            }
        };
        let by_group = || {
            let container = Container::open(host, device, group, Translation::Type1)?;
            Ok(Self::Type1(Type1(container)))
        };
        if !by_iommufd {
            return by_group();
        }
        match Iommufd::open() {
            // It may not be there, and rights are often given to the group's file alone.
            Err(refused) if api == VfioApi::Auto => by_group().map_err(|by_group| match refused {
                Error::Host { source: Some(source), .. } if source.kind() == io::ErrorKind::NotFound => {
                    by_group
                }
                // Either is enough.
                refused => Error::host(refused.to_string(), format!("or, by its group: {by_group}"), None),
            }),
            other => other.map(Self::Iommufd),
        }
    }

    /// Opens a function of the group.
    pub(super) fn device(&self, host: &Host, device: &PciDevice) -> Result<File> {
        match self {
            Self::Type1(Type1(container)) | Self::None(container) => container.device(device.address),
            Self::Iommufd(iommufd) => {
                let path = iommufd::device_path(host, device).ok_or_else(|| {
                    Error::host(
                        format!("the kernel has no file of its own for {}", device.address),
                        "use one of Linux 6.6 or later with CONFIG_VFIO_DEVICE_CDEV, or VfioApi::Group",
                        None,
                    )
                })?;
                iommufd.device(host, device, &path)
            }
        }
    }

    /// The addresses that may be mapped, and the sizes of pages as a mask. Known once a function is open.
    pub(super) fn iova(&self) -> io::Result<(Vec<RangeInclusive<u64>>, u64)> {
        match self {
            Self::Type1(type1) => type1.iova(),
            Self::Iommufd(iommufd) => iommufd.iova(),
            Self::None(_) => Ok((Vec::new(), 4096)),
        }
    }

    /// # Safety
    /// As [`PciFunction::dma_map`](crate::backend::pci::PciFunction::dma_map).
    pub(super) unsafe fn map(&self, iova: u64, memory: NonNull<u8>, len_bytes: usize) -> io::Result<()> {
        match self {
            // SAFETY: promised by the caller.
            Self::Type1(type1) => unsafe { type1.map(iova, memory, len_bytes) },
            // SAFETY: promised by the caller.
            Self::Iommufd(iommufd) => unsafe { iommufd.map(iova, memory, len_bytes) },
            Self::None(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Unmaps; how many bytes were mapped there.
    pub(super) fn unmap(&self, iova: u64, len_bytes: usize) -> io::Result<u64> {
        match self {
            Self::Type1(type1) => type1.unmap(iova, len_bytes),
            Self::Iommufd(iommufd) => iommufd.unmap(iova, len_bytes),
            Self::None(_) => Ok(0),
        }
    }
}
