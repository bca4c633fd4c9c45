//! iommufd: an address space of its own (`/dev/iommu`), to which devices are attached that are opened one by one
//! (`/dev/vfio/devices/vfioN`). Linux 6.6 and later.

use super::{
    container,
    ioctl::{self, call},
    problem,
};
use crate::{
    Error, Result,
    host::{Host, PciDevice},
};
use std::{
    fs::File,
    io,
    ops::RangeInclusive,
    os::fd::{AsFd, AsRawFd},
    ptr::NonNull,
};

const IOMMU: &str = "/dev/iommu";

const MAP_FIXED_IOVA: u32 = 1;
const MAP_WRITEABLE: u32 = 2;
const MAP_READABLE: u32 = 4;

// The structures of `linux/iommufd.h`, and those of `linux/vfio.h` in the size that they had first.

#[repr(C)]
#[derive(Debug, Default)]
struct IoasAlloc {
    size: u32,
    flags: u32,
    out_ioas_id: u32,
}

#[repr(C)]
#[derive(Debug, Default)]
struct IoasIovaRanges {
    size: u32,
    ioas_id: u32,
    num_iovas: u32,
    reserved: u32,
    allowed_iovas: u64,
    out_iova_alignment: u64,
}

#[repr(C)]
#[derive(Debug, Default)]
struct IoasMap {
    size: u32,
    flags: u32,
    ioas_id: u32,
    reserved: u32,
    user_va: u64,
    length: u64,
    iova: u64,
}

#[repr(C)]
#[derive(Debug, Default)]
struct IoasUnmap {
    size: u32,
    ioas_id: u32,
    iova: u64,
    length: u64,
}

#[repr(C)]
#[derive(Debug, Default)]
struct BindIommufd {
    argsz: u32,
    flags: u32,
    iommufd: i32,
    out_devid: u32,
}

#[repr(C)]
#[derive(Debug, Default)]
struct AttachIommufdPt {
    argsz: u32,
    flags: u32,
    pt_id: u32,
}

/// The size of a structure, which is its first word.
const fn size<T>() -> u32 {
    size_of::<T>() as u32
}

/// An address space.
#[derive(Debug)]
pub(super) struct Iommufd {
    file: File,
    ioas_id: u32,
}

/// The file of a function, if its kernel has one for each device.
pub(super) fn device_path(host: &Host, device: &PciDevice) -> Option<String> {
    let folder = format!("/sys/bus/pci/devices/{}/vfio-dev", device.address);
    let name = host.names(&folder).ok()?.into_iter().find(|name| name.starts_with("vfio"))?;
    Some(format!("/dev/vfio/devices/{name}"))
}

impl Iommufd {
    /// Makes an address space.
    pub(super) fn open() -> Result<Self> {
        let file = container::open(IOMMU).map_err(|source| problem::open(IOMMU, source))?;
        let mut alloc = IoasAlloc { size: size::<IoasAlloc>(), ..IoasAlloc::default() };
        // SAFETY: this ioctl takes an `iommu_ioas_alloc`.
        let made = unsafe { call(file.as_fd(), ioctl::IOAS_ALLOC, (&raw mut alloc).cast()) };
        made.map_err(|source| Error::os("IOMMU_IOAS_ALLOC", source))?;
        Ok(Self { file, ioas_id: alloc.out_ioas_id })
    }

    /// Opens a function at `path` and attaches it.
    pub(super) fn device(&self, host: &Host, device: &PciDevice, path: &str) -> Result<File> {
        let file = container::open(path).map_err(|source| problem::open(path, source))?;
        let mut bind = BindIommufd {
            argsz: size::<BindIommufd>(),
            iommufd: self.file.as_raw_fd(),
            ..BindIommufd::default()
        };
        // SAFETY: this ioctl takes a `vfio_device_bind_iommufd`.
        let bound = unsafe { call(file.as_fd(), ioctl::DEVICE_BIND_IOMMUFD, (&raw mut bind).cast()) };
        bound.map_err(|source| match (source.raw_os_error(), problem::companions_in_use(host, device)) {
            (_, Some((text, remedy))) => Error::host(text, remedy, source),
            (Some(libc::EPERM), None) => problem::unsafe_interrupts(source),
            // Whoever has the function open already, by its own file or by its group.
            (Some(libc::EBUSY | libc::EINVAL), None) => {
                problem::open(path, io::Error::from_raw_os_error(libc::EBUSY))
            }
            _ => problem::device(device.address, source),
        })?;
        let mut attach = AttachIommufdPt { argsz: size::<AttachIommufdPt>(), flags: 0, pt_id: self.ioas_id };
        // SAFETY: this ioctl takes a `vfio_device_attach_iommufd_pt`.
        let attached =
            unsafe { call(file.as_fd(), ioctl::DEVICE_ATTACH_IOMMUFD_PT, (&raw mut attach).cast()) };
        attached.map_err(|source| problem::device(device.address, source))?;
        Ok(file)
    }

    /// The addresses that may be mapped, and the sizes of pages as a mask. Known once a device is attached.
    pub(super) fn iova(&self) -> io::Result<(Vec<RangeInclusive<u64>>, u64)> {
        let mut ranges = vec![[0_u64; 2]; 16];
        loop {
            let mut ask = IoasIovaRanges {
                size: size::<IoasIovaRanges>(),
                ioas_id: self.ioas_id,
                num_iovas: ranges.len() as u32,
                allowed_iovas: ranges.as_mut_ptr().expose_provenance() as u64,
                ..IoasIovaRanges::default()
            };
            // SAFETY: this ioctl takes an `iommu_ioas_iova_ranges`, and writes `num_iovas` pairs at most.
            match unsafe { call(self.file.as_fd(), ioctl::IOAS_IOVA_RANGES, (&raw mut ask).cast()) } {
                Ok(_) => {
                    ranges.truncate(ask.num_iovas as usize);
                    let ranges = ranges.iter().map(|[first, last]| *first..=*last).collect();
                    // The least page and all larger ones.
                    return Ok((ranges, ask.out_iova_alignment.max(1).wrapping_neg()));
                }
                Err(error)
                    if error.raw_os_error() == Some(libc::EMSGSIZE)
                        && ask.num_iovas as usize > ranges.len() =>
                {
                    ranges.resize(ask.num_iovas as usize, [0; 2]);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// # Safety
    /// As [`PciFunction::dma_map`](crate::backend::pci::PciFunction::dma_map).
    pub(super) unsafe fn map(&self, iova: u64, memory: NonNull<u8>, len_bytes: usize) -> io::Result<()> {
        let mut map = IoasMap {
            size: size::<IoasMap>(),
            flags: MAP_FIXED_IOVA | MAP_WRITEABLE | MAP_READABLE,
            ioas_id: self.ioas_id,
            reserved: 0,
            user_va: memory.addr().get() as u64,
            length: len_bytes as u64,
            iova,
        };
        // SAFETY: this ioctl takes an `iommu_ioas_map`; the memory is the caller's promise.
        unsafe { call(self.file.as_fd(), ioctl::IOAS_MAP, (&raw mut map).cast()) }.map(|_| ())
    }

    /// Unmaps; how many bytes were mapped there.
    pub(super) fn unmap(&self, iova: u64, len_bytes: usize) -> io::Result<u64> {
        let mut unmap =
            IoasUnmap { size: size::<IoasUnmap>(), ioas_id: self.ioas_id, iova, length: len_bytes as u64 };
        // SAFETY: this ioctl takes an `iommu_ioas_unmap`.
        unsafe { call(self.file.as_fd(), ioctl::IOAS_UNMAP, (&raw mut unmap).cast()) }?;
        Ok(unmap.length)
    }
}
