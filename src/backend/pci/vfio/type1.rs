//! A container's IOMMU of type 1: addresses, mapped page by page.

use super::{
    container::Container,
    ioctl::{IOMMU_GET_INFO, IOMMU_MAP_DMA, IOMMU_UNMAP_DMA, Info, call},
};
use crate::backend::pci::IOVA_RANGES_OF_X86;
use std::{io, ops::RangeInclusive, os::fd::AsFd, ptr::NonNull};
use vfio_bindings::bindings::vfio::*;

/// A container whose IOMMU is of type 1 (version 2).
#[derive(Debug)]
pub(super) struct Type1(pub(super) Container);

impl Type1 {
    /// The addresses that may be mapped, and the sizes of the IOMMU's pages as a mask.
    pub(super) fn iova(&self) -> io::Result<(Vec<RangeInclusive<u64>>, u64)> {
        let least_bytes = size_of::<vfio_iommu_type1_info>();
        // SAFETY: this ioctl takes a `vfio_iommu_type1_info`.
        let info = unsafe { Info::ask(self.0.as_fd(), IOMMU_GET_INFO, least_bytes, &[]) }?;
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
        unsafe { call(self.0.as_fd(), IOMMU_MAP_DMA, (&raw mut map).cast()) }.map(|_| ())
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
        unsafe { call(self.0.as_fd(), IOMMU_UNMAP_DMA, (&raw mut unmap).cast()) }?;
        Ok(unmap.size)
    }
}
