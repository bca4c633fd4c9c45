//! A container: an IOMMU for the functions in it, and its ioctls.

use crate::{
    Answer,
    card::StandIn,
    complain, descriptor, give,
    host::Translation,
    ioctls::*,
    physical::{self, HUGE_PAGE_BYTES},
    take,
};
use mlx5_model::mem::{DmaMap, IOVA_RANGES, MAX_MAPPINGS, MapError};
use std::{
    ffi::c_int,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};
use vfio_bindings::bindings::vfio::*;

/// IOMMUs that this is one of. The second unmaps whole mappings only, and so do both here.
const IOMMU_TYPES: [u32; 2] = [VFIO_TYPE1_IOMMU, VFIO_TYPE1v2_IOMMU];
/// Pages of 4 KiB and all multiples.
const PAGE_SIZES: u64 = !0xfff;
const PAGE_MASK: u64 = 0xfff;

/// An opened `/dev/vfio/vfio`.
#[derive(Debug)]
pub(crate) struct Container {
    fd: OwnedFd,
    /// As it was set; 0 until then.
    iommu: AtomicU32,
    /// What is mapped; the functions in the container follow it.
    pub(crate) dma: DmaMap,
}

impl Container {
    pub(crate) fn new() -> Result<Self, c_int> {
        let fd = descriptor::memfd(c"mlx5-vfio-container")?;
        Ok(Self { fd, iommu: AtomicU32::new(0), dma: DmaMap::default() })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(crate) fn has_iommu(&self) -> bool {
        self.iommu.load(Ordering::Relaxed) != 0
    }

    /// Whether it is for groups of no-IOMMU mode: then all physical memory is the card's.
    pub(crate) fn is_physical(&self) -> bool {
        self.iommu.load(Ordering::Relaxed) == VFIO_NOIOMMU_IOMMU
    }

    /// As it was when it was opened.
    pub(crate) fn reset(&self) {
        self.iommu.store(0, Ordering::Relaxed);
        self.dma.clear();
    }
}

fn errno(error: MapError) -> c_int {
    match error {
        MapError::Exists(_) => libc::EEXIST,
        MapError::Full => libc::ENOSPC,
        _ => libc::EINVAL,
    }
}

/// Whether the whole range is mapped in this process, as pinning it finds out.
pub(crate) fn is_mapped(memory: u64, len_bytes: u64) -> bool {
    const CHUNK_BYTES: u64 = 64 << 20;
    let mut residency = vec![0u8; (len_bytes.min(CHUNK_BYTES) / 4096) as usize];
    (0..len_bytes).step_by(CHUNK_BYTES as usize).all(|at| {
        let n = (len_bytes - at).min(CHUNK_BYTES);
        // SAFETY: a byte for each of the range's pages; an address that is not mapped is answered by ENOMEM.
        let result = unsafe { libc::mincore((memory + at) as *mut _, n as usize, residency.as_mut_ptr()) };
        result == 0
    })
}

impl StandIn {
    /// An ioctl of `/dev/vfio/vfio`.
    ///
    /// # Safety
    /// `argument` is what the ioctl's definition asks for.
    pub(crate) unsafe fn container_ioctl(
        &self,
        container: &Arc<Container>,
        request: u32,
        argument: *mut u8,
    ) -> Answer {
        let number = argument.addr() as u32;
        match request {
            GET_API_VERSION => Ok(VFIO_API_VERSION as c_int),
            CHECK_EXTENSION => {
                let known = [VFIO_DMA_CC_IOMMU, VFIO_UNMAP_ALL];
                let noiommu = self.host.iommu == Translation::NoIommu && number == VFIO_NOIOMMU_IOMMU;
                Ok((known.contains(&number) || IOMMU_TYPES.contains(&number) || noiommu).into())
            }
            SET_IOMMU => self.set_iommu(container, number),
            IOMMU_GET_INFO | IOMMU_MAP_DMA | IOMMU_UNMAP_DMA if !container.has_iommu() => Err(libc::EINVAL),
            IOMMU_GET_INFO | IOMMU_MAP_DMA | IOMMU_UNMAP_DMA if container.is_physical() => Err(libc::ENOTTY),
            // SAFETY: promised by the caller.
            IOMMU_GET_INFO => unsafe { info(container, argument) },
            // SAFETY: promised by the caller.
            IOMMU_MAP_DMA => unsafe { self.map_dma(container, argument) },
            // SAFETY: promised by the caller.
            IOMMU_UNMAP_DMA => unsafe { self.unmap_dma(container, argument) },
            _ => {
                complain(&format!("ioctl 0x{request:x} of the VFIO container is not done"));
                Err(libc::ENOTTY)
            }
        }
    }

    fn set_iommu(&self, container: &Arc<Container>, iommu: u32) -> Answer {
        if container.has_iommu() || !self.groups().iter().any(|group| group.is_in(container)) {
            return Err(libc::EINVAL);
        }
        let types: &[u32] = match self.host.iommu {
            Translation::NoIommu => &[VFIO_NOIOMMU_IOMMU],
            _ => &IOMMU_TYPES,
        };
        if !types.contains(&iommu) {
            let types: Vec<_> = types.iter().map(u32::to_string).collect();
            complain(&format!("VFIO_SET_IOMMU: type {iommu}; this IOMMU is of type {}", types.join(" or ")));
            return Err(libc::ENODEV);
        }
        container.iommu.store(iommu, Ordering::Relaxed);
        self.memory_came(&physical::all());
        Ok(0)
    }

    /// Huge pages are there from now on, with these physical addresses: functions in no-IOMMU mode reach them.
    pub(crate) fn memory_came(&self, pages: &[(u64, NonNull<u8>)]) {
        self.for_physical(|map| {
            for &(address, memory) in pages {
                // SAFETY: the page stays until it is unmapped, and `memory_went` is called then. Two groups of one
                // container come here with the same pages: the second finds them there.
                let _ = unsafe { map.map(address, memory, HUGE_PAGE_BYTES as u64, true) };
            }
        });
    }

    /// Huge pages of these physical addresses are gone.
    pub(crate) fn memory_went(&self, pages: &[u64]) {
        self.for_physical(|map| {
            for &address in pages {
                // Not there any more if two groups share the container.
                let _ = map.unmap(address, HUGE_PAGE_BYTES as u64);
            }
        });
    }

    /// Does something to the memory of each container in no-IOMMU mode, and to that of its functions.
    fn for_physical(&self, act: impl Fn(&DmaMap)) {
        for (index, group) in self.groups().iter().enumerate() {
            let Some(container) = group.container.as_ref().filter(|container| container.is_physical()) else {
                continue;
            };
            act(&container.dma);
            self.members(index).iter().for_each(|device| act(device.function.dma()));
        }
    }

    /// # Safety
    /// `argument` is the address of a `vfio_iommu_type1_dma_map`; the memory in it stays until it is unmapped,
    /// as VFIO asks of every program.
    unsafe fn map_dma(&self, container: &Arc<Container>, argument: *mut u8) -> Answer {
        // SAFETY: promised by the caller.
        let map: vfio_iommu_type1_dma_map = unsafe { take(argument) };
        let vfio_iommu_type1_dma_map { argsz, flags, vaddr, iova, size } = map;
        if (argsz as usize) < size_of_val(&map) {
            return Err(libc::EINVAL);
        }
        if flags & !(VFIO_DMA_MAP_FLAG_READ | VFIO_DMA_MAP_FLAG_WRITE) != 0 {
            complain(&format!("VFIO_IOMMU_MAP_DMA: flags 0x{flags:x}; only read and write are done"));
            return Err(libc::EINVAL);
        }
        if flags == 0 || (iova | vaddr | size) & PAGE_MASK != 0 || vaddr.checked_add(size).is_none() {
            return Err(libc::EINVAL);
        }
        // The groups' lock also keeps two mappings from being made at the same time.
        let groups = self.groups();
        let memory = NonNull::new(vaddr as *mut u8).filter(|_| is_mapped(vaddr, size)).ok_or(libc::EFAULT)?;
        let writable = flags & VFIO_DMA_MAP_FLAG_WRITE != 0;
        // Locked memory is counted if it is limited, as the kernel counts it against RLIMIT_MEMLOCK.
        if self.host.memlock_bytes != u64::MAX
            && container.dma.mapped_bytes() + size > self.host.memlock_bytes
        {
            return Err(libc::ENOMEM);
        }
        let own = groups.iter().enumerate().filter(|(_, group)| group.is_in(container));
        let own = own.flat_map(|(index, _)| self.members(index));
        let maps = [&container.dma].into_iter().chain(own.map(|device| device.function.dma()));
        for map in maps {
            // SAFETY: promised by the caller.
            let result = unsafe { map.map(iova, memory, size, writable) };
            // The first map is the container's, and the others are equal to it.
            result.map_err(|error| {
                match error {
                    MapError::Full => complain(&format!("VFIO_IOMMU_MAP_DMA: {error} (ENOSPC)")),
                    _ => complain(&format!("VFIO_IOMMU_MAP_DMA: IOVA 0x{iova:x}, 0x{size:x} bytes: {error}")),
                }
                errno(error)
            })?;
        }
        Ok(0)
    }

    /// # Safety
    /// `argument` is the address of a `vfio_iommu_type1_dma_unmap`.
    unsafe fn unmap_dma(&self, container: &Arc<Container>, argument: *mut u8) -> Answer {
        // SAFETY: promised by the caller.
        let mut unmap: vfio_iommu_type1_dma_unmap = unsafe { take(argument) };
        if (unmap.argsz as usize) < size_of_val(&unmap) {
            return Err(libc::EINVAL);
        }
        let (iova, size) = match unmap.flags {
            0 if (unmap.iova | unmap.size) & PAGE_MASK != 0 => return Err(libc::EINVAL),
            0 => (unmap.iova, unmap.size),
            VFIO_DMA_UNMAP_FLAG_ALL if unmap.iova == 0 && unmap.size == 0 => (0, u64::MAX),
            VFIO_DMA_UNMAP_FLAG_ALL => return Err(libc::EINVAL),
            flags => {
                complain(&format!("VFIO_IOMMU_UNMAP_DMA: flags 0x{flags:x} are not done"));
                return Err(libc::EINVAL);
            }
        };
        let groups = self.groups();
        for (index, group) in groups.iter().enumerate() {
            if group.is_in(container) {
                for device in self.members(index) {
                    device.function.dma().unmap(iova, size).map_err(errno)?;
                }
            }
        }
        unmap.size = container.dma.unmap(iova, size).map_err(errno)?;
        // SAFETY: promised by the caller.
        unsafe { give(argument, unmap) };
        Ok(0)
    }
}

/// IOMMU_GET_INFO: page sizes, and as capabilities the IOVA ranges and how many mappings more there may be.
///
/// # Safety
/// `argument` is the address of a `vfio_iommu_type1_info` with room for `argsz` bytes.
unsafe fn info(container: &Container, argument: *mut u8) -> Answer {
    /// Bytes up to `iova_pgsizes`, which every version of the structure has.
    const LEAST_BYTES: u32 = 16;
    const HEAD_BYTES: u32 = size_of::<vfio_iommu_type1_info>() as u32;
    // SAFETY: promised by the caller.
    let room: u32 = unsafe { take(argument) };
    if room < LEAST_BYTES {
        return Err(libc::EINVAL);
    }
    // Two headers of 8 bytes; ranges are counted in 32 bits, padded to 64.
    let avail_at = HEAD_BYTES;
    let ranges_at = avail_at + 16;
    let len_bytes = ranges_at + 16 + 16 * IOVA_RANGES.len() as u32;
    let fits = room >= len_bytes;
    let flags = VFIO_IOMMU_INFO_PGSIZES | VFIO_IOMMU_INFO_CAPS;
    let cap_offset = if fits { avail_at } else { 0 };
    let mut bytes = Vec::with_capacity(len_bytes as usize);
    let words = [len_bytes, flags, PAGE_SIZES as u32, (PAGE_SIZES >> 32) as u32, cap_offset, 0];
    bytes.extend(words.into_iter().flat_map(u32::to_ne_bytes));
    let header = |id: u32, next: u32| {
        [&(id as u16).to_ne_bytes()[..], &1u16.to_ne_bytes(), &next.to_ne_bytes()].concat()
    };
    let n_left = (MAX_MAPPINGS - container.dma.n_mappings()) as u32;
    bytes.extend(header(VFIO_IOMMU_TYPE1_INFO_DMA_AVAIL, ranges_at));
    bytes.extend([n_left, 0].into_iter().flat_map(u32::to_ne_bytes));
    bytes.extend(header(VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE, 0));
    bytes.extend([IOVA_RANGES.len() as u32, 0].into_iter().flat_map(u32::to_ne_bytes));
    let ends = IOVA_RANGES.iter().flat_map(|range| [*range.start(), *range.end()]);
    bytes.extend(ends.flat_map(u64::to_ne_bytes));
    let n = if fits { len_bytes } else { room.min(HEAD_BYTES) } as usize;
    // SAFETY: the caller's room is `argsz` bytes, and `n` is not more.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), argument, n) };
    Ok(0)
}
