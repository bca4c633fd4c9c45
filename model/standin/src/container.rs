//! ioctls of the container and of a group.

use crate::{
    Answer,
    card::{Kind, StandIn},
    complain, give, take,
};
use mlx5_model::mem::{IOVA_RANGES, MAX_MAPPINGS, MapError};
use std::{ffi::c_int, ptr::NonNull};
use vfio_bindings::bindings::vfio::*;

/// Number of VFIO's ioctl `n`.
pub(crate) const fn number(n: u32) -> u32 {
    (VFIO_TYPE as u32) << 8 | (VFIO_BASE + n)
}

const GET_API_VERSION: u32 = number(0);
const CHECK_EXTENSION: u32 = number(1);
const SET_IOMMU: u32 = number(2);
const GROUP_GET_STATUS: u32 = number(3);
const GROUP_SET_CONTAINER: u32 = number(4);
const GROUP_UNSET_CONTAINER: u32 = number(5);
const GROUP_GET_DEVICE_FD: u32 = number(6);
const IOMMU_GET_INFO: u32 = number(12);
const IOMMU_MAP_DMA: u32 = number(13);
const IOMMU_UNMAP_DMA: u32 = number(14);

/// IOMMUs that this is one of. The second unmaps whole mappings only, and so do both here.
const IOMMU_TYPES: [u32; 2] = [VFIO_TYPE1_IOMMU, VFIO_TYPE1v2_IOMMU];
/// Pages of 4 KiB and all multiples.
const PAGE_SIZES: u64 = !0xfff;
/// `VFIO_IOMMU_TYPE1_INFO_DMA_AVAIL`.
const CAP_DMA_AVAIL: u16 = 3;

fn errno(error: MapError) -> c_int {
    match error {
        MapError::Exists(_) => libc::EEXIST,
        MapError::Full => libc::ENOSPC,
        _ => libc::EINVAL,
    }
}

impl StandIn {
    /// An ioctl of `/dev/vfio/vfio`.
    ///
    /// # Safety
    /// `argument` is what the ioctl's definition asks for.
    pub(crate) unsafe fn container_ioctl(&self, request: u32, argument: *mut u8) -> Answer {
        match request {
            GET_API_VERSION => Ok(VFIO_API_VERSION as c_int),
            CHECK_EXTENSION => {
                let extension = argument.addr() as u32;
                Ok((extension == VFIO_DMA_CC_IOMMU || IOMMU_TYPES.contains(&extension)).into())
            }
            SET_IOMMU => self.set_iommu(argument.addr() as u32),
            // SAFETY: promised by the caller.
            IOMMU_GET_INFO => unsafe { info(argument) },
            // SAFETY: promised by the caller.
            IOMMU_MAP_DMA => unsafe { self.map_dma(argument) },
            // SAFETY: promised by the caller.
            IOMMU_UNMAP_DMA => unsafe { self.unmap_dma(argument) },
            _ => {
                complain(&format!("ioctl 0x{request:x} of the VFIO container is not done"));
                Err(libc::ENOTTY)
            }
        }
    }

    fn set_iommu(&self, iommu: u32) -> Answer {
        let mut progress = self.progress();
        match iommu {
            _ if progress.attached == 0 => Err(libc::EINVAL),
            _ if IOMMU_TYPES.contains(&iommu) => {
                progress.iommu = true;
                Ok(0)
            }
            _ => {
                complain(&format!("VFIO_SET_IOMMU: type {iommu}; this IOMMU is of type 1 or 3"));
                Err(libc::ENODEV)
            }
        }
    }

    /// # Safety
    /// `argument` is the address of a `vfio_iommu_type1_dma_map`; the memory in it stays until it is unmapped,
    /// as VFIO asks of every program.
    unsafe fn map_dma(&self, argument: *mut u8) -> Answer {
        // SAFETY: promised by the caller.
        let map: vfio_iommu_type1_dma_map = unsafe { take(argument) };
        if map.flags & !(VFIO_DMA_MAP_FLAG_READ | VFIO_DMA_MAP_FLAG_WRITE) != 0 {
            complain(&format!("VFIO_IOMMU_MAP_DMA: flags 0x{:x}; only read and write are known", map.flags));
            return Err(libc::EINVAL);
        }
        let memory = NonNull::new(map.vaddr as *mut u8).ok_or(libc::EFAULT)?;
        if (map.iova | map.vaddr | map.size) & 0xfff != 0 {
            return Err(libc::EINVAL);
        }
        let writable = map.flags & VFIO_DMA_MAP_FLAG_WRITE != 0;
        for (at, device) in self.devices.iter().enumerate() {
            // SAFETY: promised by the caller.
            let result = unsafe { device.function.dma().map(map.iova, memory, map.size, writable) };
            if let Err(error) = result {
                for before in &self.devices[..at] {
                    // It was mapped a moment ago, so it can be unmapped.
                    let _ = before.function.dma().unmap(map.iova, map.size);
                }
                complain(&format!(
                    "VFIO_IOMMU_MAP_DMA: IOVA 0x{:x}, 0x{:x} bytes: {error}",
                    map.iova, map.size
                ));
                return Err(errno(error));
            }
        }
        Ok(0)
    }

    /// # Safety
    /// `argument` is the address of a `vfio_iommu_type1_dma_unmap`.
    unsafe fn unmap_dma(&self, argument: *mut u8) -> Answer {
        // SAFETY: promised by the caller.
        let mut unmap: vfio_iommu_type1_dma_unmap = unsafe { take(argument) };
        let (iova, size) = match unmap.flags {
            0 => (unmap.iova, unmap.size),
            VFIO_DMA_UNMAP_FLAG_ALL if unmap.iova == 0 && unmap.size == 0 => (0, u64::MAX),
            flags => {
                complain(&format!("VFIO_IOMMU_UNMAP_DMA: flags 0x{flags:x} are not done"));
                return Err(libc::EINVAL);
            }
        };
        let mut n_bytes = 0;
        for device in &self.devices {
            n_bytes = device.function.dma().unmap(iova, size).map_err(errno)?;
        }
        unmap.size = n_bytes;
        // SAFETY: promised by the caller.
        unsafe { give(argument, unmap) };
        Ok(0)
    }

    /// An ioctl of `/dev/vfio/N`.
    ///
    /// # Safety
    /// `argument` is what the ioctl's definition asks for.
    pub(crate) unsafe fn group_ioctl(&self, index: usize, request: u32, argument: *mut u8) -> Answer {
        let mut progress = self.progress();
        let bit = 1 << index;
        match request {
            GROUP_GET_STATUS => {
                // SAFETY: promised by the caller.
                let mut status: vfio_group_status = unsafe { take(argument) };
                status.flags = VFIO_GROUP_FLAGS_VIABLE;
                if progress.attached & bit != 0 {
                    status.flags |= VFIO_GROUP_FLAGS_CONTAINER_SET;
                }
                // SAFETY: promised by the caller.
                unsafe { give(argument, status) };
                Ok(0)
            }
            GROUP_SET_CONTAINER => {
                // SAFETY: promised by the caller.
                let container: c_int = unsafe { take(argument) };
                if !matches!(crate::card::kind(container), Some((_, Kind::Container))) {
                    return Err(libc::EBADF);
                }
                progress.attached |= bit;
                Ok(0)
            }
            GROUP_UNSET_CONTAINER => {
                progress.attached &= !bit;
                progress.iommu &= progress.attached != 0;
                if progress.attached == 0 {
                    self.devices.iter().for_each(|device| device.function.dma().clear());
                }
                Ok(0)
            }
            GROUP_GET_DEVICE_FD if progress.attached & bit == 0 || !progress.iommu => {
                complain("VFIO_GROUP_GET_DEVICE_FD: GROUP_SET_CONTAINER and SET_IOMMU come first");
                Err(libc::EINVAL)
            }
            GROUP_GET_DEVICE_FD => {
                // A device is reset when it is opened. How often it is open is not counted, since copies and
                // closing of a descriptor are libc's: open it once at a time.
                self.devices.get(index).ok_or(libc::ENODEV)?.open()?;
                self.descriptor(Kind::Device(index))
            }
            _ => {
                complain(&format!("ioctl 0x{request:x} of a VFIO group is not done"));
                Err(libc::ENOTTY)
            }
        }
    }
}

/// IOMMU_GET_INFO: page sizes, and as capabilities the IOVA ranges and the number of mappings.
///
/// # Safety
/// `argument` is the address of a `vfio_iommu_type1_info` with room for `argsz` bytes.
unsafe fn info(argument: *mut u8) -> Answer {
    // SAFETY: promised by the caller.
    let mut info: vfio_iommu_type1_info = unsafe { take(argument) };
    let head_len_bytes = size_of::<vfio_iommu_type1_info>() as u32;
    // Two headers of 8 bytes; ranges are counted in 32 bits, padded to 64.
    let avail_at = head_len_bytes;
    let ranges_at = avail_at + 16;
    let len_bytes = ranges_at + 16 + 16 * IOVA_RANGES.len() as u32;
    let room = info.argsz;
    info.flags = VFIO_IOMMU_INFO_PGSIZES | VFIO_IOMMU_INFO_CAPS;
    info.iova_pgsizes = PAGE_SIZES;
    info.cap_offset = if room >= len_bytes { avail_at } else { 0 };
    info.argsz = len_bytes;
    if room < 16 {
        return Err(libc::EINVAL);
    }
    let mut bytes = Vec::with_capacity(len_bytes as usize);
    for word in [info.argsz, info.flags, PAGE_SIZES as u32, (PAGE_SIZES >> 32) as u32, info.cap_offset, 0] {
        bytes.extend(word.to_ne_bytes());
    }
    let header =
        |id: u16, next: u32| [&id.to_ne_bytes()[..], &1u16.to_ne_bytes(), &next.to_ne_bytes()].concat();
    bytes.extend(header(CAP_DMA_AVAIL, ranges_at));
    bytes.extend([MAX_MAPPINGS as u32, 0].iter().flat_map(|word| word.to_ne_bytes()));
    bytes.extend(header(VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE as u16, 0));
    bytes.extend([IOVA_RANGES.len() as u32, 0].iter().flat_map(|word| word.to_ne_bytes()));
    bytes.extend(
        IOVA_RANGES.iter().flat_map(|range| [*range.start(), *range.end()]).flat_map(u64::to_ne_bytes),
    );
    let n = bytes.len().min(if room >= len_bytes { len_bytes } else { room.min(head_len_bytes) } as usize);
    // SAFETY: the caller's room is `argsz` bytes, and `n` is not more.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), argument, n) };
    Ok(0)
}
