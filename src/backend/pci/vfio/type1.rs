//! A container with one group in it: the older of VFIO's two ways to an IOMMU, which every kernel has.

use super::{
    ioctl::{
        CHECK_EXTENSION, GET_API_VERSION, GROUP_GET_DEVICE_FD, GROUP_GET_STATUS, GROUP_SET_CONTAINER,
        IOMMU_GET_INFO, IOMMU_MAP_DMA, IOMMU_UNMAP_DMA, Info, SET_IOMMU, call, call_number,
    },
    problem,
};
use crate::{
    Error, Result,
    backend::pci::IOVA_RANGES_OF_X86,
    host::{Host, PciAddress, PciDevice},
};
use std::{
    ffi::CString,
    fs::{File, OpenOptions},
    io,
    ops::RangeInclusive,
    os::fd::{AsFd, AsRawFd, FromRawFd},
    ptr::NonNull,
};
use vfio_bindings::bindings::vfio::*;

const CONTAINER: &str = "/dev/vfio/vfio";

/// A container and its only group.
#[derive(Debug)]
pub(super) struct Type1 {
    container: File,
    group: File,
}

/// Opens a file of `/dev/vfio`.
pub(super) fn open(path: &str) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

impl Type1 {
    /// Opens the group of `device`, and puts it into a new container.
    pub(super) fn open(host: &Host, device: &PciDevice, number: u32) -> Result<Self> {
        let container = open(CONTAINER).map_err(|source| problem::open(CONTAINER, source))?;
        // SAFETY: takes nothing.
        let version = unsafe { call_number(container.as_fd(), GET_API_VERSION, 0) };
        let version = version.map_err(|source| Error::os("VFIO_GET_API_VERSION", source))?;
        if version != VFIO_API_VERSION as i32 {
            return Err(Error::host(
                format!("the kernel speaks version {version} of VFIO, this driver {VFIO_API_VERSION}"),
                "use a kernel of Linux's main line",
                None,
            ));
        }
        // SAFETY: takes a number.
        let has_type1v2 = unsafe { call_number(container.as_fd(), CHECK_EXTENSION, VFIO_TYPE1v2_IOMMU) };
        if !has_type1v2.is_ok_and(|answer| answer > 0) {
            return Err(problem::no_type1(None));
        }
        let path = format!("/dev/vfio/{number}");
        let group = open(&path).map_err(|source| problem::open(&path, source))?;
        let mut status = vfio_group_status { argsz: size_of::<vfio_group_status>() as u32, flags: 0 };
        // SAFETY: this ioctl takes a `vfio_group_status`.
        let asked = unsafe { call(group.as_fd(), GROUP_GET_STATUS, (&raw mut status).cast()) };
        asked.map_err(|source| Error::os("VFIO_GROUP_GET_STATUS", source))?;
        if status.flags & VFIO_GROUP_FLAGS_VIABLE == 0 {
            return Err(problem::not_viable(host, device, number));
        }
        let mut fd = container.as_raw_fd();
        // SAFETY: this ioctl takes the address of a descriptor's number.
        let joined = unsafe { call(group.as_fd(), GROUP_SET_CONTAINER, (&raw mut fd).cast()) };
        joined.map_err(|source| Error::os(format!("putting {path} into a container"), source))?;
        // SAFETY: takes a number.
        let chosen = unsafe { call_number(container.as_fd(), SET_IOMMU, VFIO_TYPE1v2_IOMMU) };
        chosen.map_err(|source| match source.raw_os_error() {
            Some(libc::EPERM) => problem::unsafe_interrupts(source),
            Some(libc::ENODEV) => problem::no_type1(source),
            _ => Error::os("VFIO_SET_IOMMU", source),
        })?;
        Ok(Self { container, group })
    }

    /// Opens a function of the group.
    pub(super) fn device(&self, address: PciAddress) -> Result<File> {
        let name = CString::new(address.to_string()).unwrap_or_default();
        // SAFETY: this ioctl takes a C string, which it only reads.
        let fd = unsafe { call(self.group.as_fd(), GROUP_GET_DEVICE_FD, name.as_ptr().cast_mut().cast()) };
        let fd = fd.map_err(|source| problem::device(address, source))?;
        // SAFETY: a fresh descriptor that nobody else owns.
        Ok(unsafe { File::from_raw_fd(fd) })
    }

    /// The addresses that may be mapped, and the sizes of the IOMMU's pages as a mask.
    pub(super) fn iova(&self) -> io::Result<(Vec<RangeInclusive<u64>>, u64)> {
        let least_bytes = size_of::<vfio_iommu_type1_info>();
        // SAFETY: this ioctl takes a `vfio_iommu_type1_info`.
        let info = unsafe { Info::ask(self.container.as_fd(), IOMMU_GET_INFO, least_bytes, &[]) }?;
        let flags = info.u32(4);
        let page_sizes = if flags & VFIO_IOMMU_INFO_PGSIZES == 0 { 4096 } else { info.u64(8) };
        let first = if flags & VFIO_IOMMU_INFO_CAPS == 0 { 0 } else { info.u32(16) };
        let ranges = match info.capability(first, VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE) {
            // Header, number of ranges padded to 64 bits, then first and last address of each.
            Some(at) => {
                let range = |n: usize| info.u64(at + 16 + 16 * n)..=info.u64(at + 24 + 16 * n);
                (0..info.u32(at + 8) as usize).map(range).collect()
            }
            // An old kernel, which does not tell.
            None => IOVA_RANGES_OF_X86.to_vec(),
        };
        Ok((ranges, page_sizes))
    }

    /// # Safety
    /// As [`PciFunction::dma_map`](crate::backend::pci::PciFunction::dma_map).
    pub(super) unsafe fn map(&self, iova: u64, memory: NonNull<u8>, len_bytes: usize) -> io::Result<()> {
        let mut map = vfio_iommu_type1_dma_map {
            argsz: size_of::<vfio_iommu_type1_dma_map>() as u32,
            flags: VFIO_DMA_MAP_FLAG_READ | VFIO_DMA_MAP_FLAG_WRITE,
            vaddr: memory.addr().get() as u64,
            iova,
            size: len_bytes as u64,
        };
        // SAFETY: this ioctl takes a `vfio_iommu_type1_dma_map`; the memory is the caller's promise.
        unsafe { call(self.container.as_fd(), IOMMU_MAP_DMA, (&raw mut map).cast()) }.map(|_| ())
    }

    /// Unmaps; how many bytes were mapped there.
    pub(super) fn unmap(&self, iova: u64, len_bytes: usize) -> io::Result<u64> {
        let mut unmap = vfio_iommu_type1_dma_unmap {
            argsz: size_of::<vfio_iommu_type1_dma_unmap>() as u32,
            flags: 0,
            iova,
            size: len_bytes as u64,
            ..Default::default()
        };
        // SAFETY: this ioctl takes a `vfio_iommu_type1_dma_unmap`, and with these flags no data behind it.
        unsafe { call(self.container.as_fd(), IOMMU_UNMAP_DMA, (&raw mut unmap).cast()) }?;
        Ok(unmap.size)
    }
}
