//! Regions of a device: BAR0 and config space, as offsets in its descriptor, and what of BAR0 may be mapped.

use super::ioctl::{DEVICE_GET_REGION_INFO, Info};
use crate::{
    backend::{dma::PAGE_BYTES, pci::mapped::MappedPages},
    host::{Host, PciAddress},
};
use memmap2::MmapOptions;
use std::{
    fs::{File, OpenOptions},
    io,
    ops::Range,
    os::fd::AsFd,
};
use vfio_bindings::bindings::vfio::*;

/// A region of the device's descriptor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Region {
    pub(super) offset: u64,
    pub(super) len_bytes: u64,
    /// What of it may be mapped, as offsets in the region.
    mappable: Vec<Range<u64>>,
}

impl Region {
    /// What the kernel says of region `index`.
    pub(super) fn of(device: &File, index: u32) -> io::Result<Self> {
        let least_bytes = size_of::<vfio_region_info>();
        // SAFETY: this ioctl takes a `vfio_region_info`, of which `index` is the third word.
        let info = unsafe { Info::ask(device.as_fd(), DEVICE_GET_REGION_INFO, least_bytes, &[0, index]) }?;
        let (flags, len_bytes) = (info.u32(4), info.u64(16));
        let first_capability = if flags & VFIO_REGION_INFO_FLAG_CAPS == 0 { 0 } else { info.u32(12) };
        let mappable = if flags & VFIO_REGION_INFO_FLAG_MMAP == 0 {
            Vec::new()
        } else if let Some(at) = info.capability(first_capability, VFIO_REGION_INFO_CAP_SPARSE_MMAP) {
            // Header, number of areas padded to 64 bits, then offset and size of each.
            let area = |n: usize| (info.u64(at + 16 + 16 * n), info.u64(at + 24 + 16 * n));
            let areas = (0..info.u32(at + 8) as usize).map(area);
            // Cut to the region: what lies outside is nobody's.
            areas.map(|(from, n)| from..from.saturating_add(n).min(len_bytes)).collect()
        } else {
            std::iter::once(0..len_bytes).collect()
        };
        Ok(Self { offset: info.u64(24), len_bytes, mappable })
    }

    /// Whether all of `range` may be mapped.
    fn may_map(&self, range: &Range<u64>) -> bool {
        self.mappable.iter().any(|area| area.start <= range.start && range.end <= area.end)
    }
}

/// BAR0: registers by read and write, UAR pages by mapping.
#[derive(Debug)]
pub(super) struct Bar0 {
    pub(super) region: Region,
    /// The same memory with write-combining, as sysfs offers it for BARs that are prefetchable. VFIO itself maps
    /// uncached only. Not on x86: there, VFIO's own uncached mapping of the whole BAR makes every later one uncached
    /// too, without a word (`is_new_memtype_allowed`), and one that came first would make VFIO's combine.
    combining: Option<File>,
}

impl Bar0 {
    pub(super) fn new(region: Region, host: &Host, address: PciAddress, write_combining: bool) -> Self {
        let path = host.path(&format!("/sys/bus/pci/devices/{address}/resource0_wc"));
        // Root's to open, and on some machines not there: then it is uncached.
        let open = || OpenOptions::new().read(true).write(true).open(path).ok();
        let wanted = write_combining && !cfg!(any(target_arch = "x86", target_arch = "x86_64"));
        Self { region, combining: wanted.then(open).flatten() }
    }

    /// Maps pages, with write-combining if that can be had.
    pub(super) fn map(&self, device: &File, offset: u64, len_bytes: usize) -> io::Result<MappedPages> {
        let refused = |text: String| io::Error::new(io::ErrorKind::InvalidInput, text);
        let page = PAGE_BYTES as u64;
        let end = offset.checked_add(len_bytes as u64).filter(|end| *end <= self.region.len_bytes);
        let Some(end) = end
            .filter(|_| offset.is_multiple_of(page) && len_bytes.is_multiple_of(PAGE_BYTES) && len_bytes > 0)
        else {
            return Err(refused(format!(
                "offset 0x{offset:x} and length 0x{len_bytes:x} must be multiples of 0x{page:x} inside BAR0's \
                 0x{:x} bytes",
                self.region.len_bytes
            )));
        };
        let range = offset..end;
        if !self.region.may_map(&range) {
            return Err(refused(format!(
                "the kernel lets no program map {range:#x?} of BAR0, only {:#x?}: doorbells cannot be rung",
                self.region.mappable
            )));
        }
        if let Some(file) = &self.combining
            && let Ok(map) = MmapOptions::new().offset(offset).len(len_bytes).map_raw(file)
        {
            return MappedPages::new(map, true);
        }
        let map = MmapOptions::new().offset(self.region.offset + offset).len(len_bytes).map_raw(device)?;
        MappedPages::new(map, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_mapped() {
        let region =
            Region { offset: 0, len_bytes: 0x10_0000, mappable: vec![0x1000..0x3000, 0x8000..0x10_0000] };
        assert!(region.may_map(&(0x1000..0x3000)) && region.may_map(&(0xf_f000..0x10_0000)));
        assert!(!region.may_map(&(0..0x1000)) && !region.may_map(&(0x2000..0x4000)));
        assert!(!region.may_map(&(0x2000..0x9000)));
    }
}
