//! ioctls of VFIO and iommufd: their numbers, and how they are called.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
};
use vfio_bindings::bindings::vfio::{VFIO_BASE, VFIO_TYPE};

/// `_IO(';', 100 + n)`: VFIO's and iommufd's numbers say neither size nor direction.
const fn vfio(n: u32) -> libc::c_ulong {
    ((VFIO_TYPE as u32) << 8 | (VFIO_BASE + n)) as libc::c_ulong
}

pub(super) const GET_API_VERSION: libc::c_ulong = vfio(0);
pub(super) const CHECK_EXTENSION: libc::c_ulong = vfio(1);
pub(super) const SET_IOMMU: libc::c_ulong = vfio(2);
pub(super) const GROUP_GET_STATUS: libc::c_ulong = vfio(3);
pub(super) const GROUP_SET_CONTAINER: libc::c_ulong = vfio(4);
pub(super) const GROUP_GET_DEVICE_FD: libc::c_ulong = vfio(6);
pub(super) const DEVICE_GET_INFO: libc::c_ulong = vfio(7);
pub(super) const DEVICE_GET_REGION_INFO: libc::c_ulong = vfio(8);
pub(super) const DEVICE_GET_IRQ_INFO: libc::c_ulong = vfio(9);
pub(super) const DEVICE_SET_IRQS: libc::c_ulong = vfio(10);
pub(super) const DEVICE_RESET: libc::c_ulong = vfio(11);
pub(super) const IOMMU_GET_INFO: libc::c_ulong = vfio(12);
pub(super) const IOMMU_MAP_DMA: libc::c_ulong = vfio(13);
pub(super) const IOMMU_UNMAP_DMA: libc::c_ulong = vfio(14);
pub(super) const DEVICE_BIND_IOMMUFD: libc::c_ulong = vfio(18);
pub(super) const DEVICE_ATTACH_IOMMUFD_PT: libc::c_ulong = vfio(19);

/// `_IO(';', 0x80 + n)`.
const fn iommufd(n: u32) -> libc::c_ulong {
    ((VFIO_TYPE as u32) << 8 | (0x80 + n)) as libc::c_ulong
}

pub(super) const IOAS_ALLOC: libc::c_ulong = iommufd(1);
pub(super) const IOAS_IOVA_RANGES: libc::c_ulong = iommufd(4);
pub(super) const IOAS_MAP: libc::c_ulong = iommufd(5);
pub(super) const IOAS_UNMAP: libc::c_ulong = iommufd(6);

/// Calls an ioctl that takes the address of a structure.
///
/// # Safety
/// `argument` is what `request` of such a descriptor takes: valid for reads, for writes if it answers there, and
/// for as many bytes as it says in its `argsz`.
pub(super) unsafe fn call(fd: BorrowedFd<'_>, request: libc::c_ulong, argument: *mut u8) -> io::Result<i32> {
    // SAFETY: promised by the caller.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), request, argument) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Calls an ioctl that takes a number or nothing.
///
/// # Safety
/// `request` of such a descriptor takes no address.
pub(super) unsafe fn call_number(fd: BorrowedFd<'_>, request: libc::c_ulong, number: u32) -> io::Result<i32> {
    // SAFETY: promised by the caller.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), request, libc::c_ulong::from(number)) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// What a GET_INFO ioctl answered: a structure, and behind it capabilities in a chain.
#[derive(Debug)]
pub(super) struct Info {
    /// 64-bit words, so that every structure is aligned.
    words: Vec<u64>,
}

impl Info {
    /// Asks once for how much there is, and again with room for it. `head` are the structure's first words of 32
    /// bits behind `argsz`, as the question has them; `least_bytes` is the whole structure's size.
    ///
    /// # Safety
    /// `request` of such a descriptor takes a structure that begins with `argsz`, and writes no more than that.
    pub(super) unsafe fn ask(
        fd: BorrowedFd<'_>,
        request: libc::c_ulong,
        least_bytes: usize,
        head: &[u32],
    ) -> io::Result<Self> {
        /// No description of ours is longer; the kernel's are some hundred bytes.
        const MOST_BYTES: usize = 1 << 20;
        let mut room = least_bytes;
        loop {
            let mut info = Self { words: vec![0; room.div_ceil(8)] };
            info.put(0, room as u32);
            for (at, word) in head.iter().enumerate() {
                info.put(4 + 4 * at, *word);
            }
            // SAFETY: promised by the caller; the room is what `argsz` says.
            unsafe { call(fd, request, info.words.as_mut_ptr().cast()) }?;
            let needed = info.u32(0) as usize;
            if needed <= room || needed > MOST_BYTES {
                return Ok(info);
            }
            room = needed;
        }
    }

    fn put(&mut self, offset: usize, value: u32) {
        let word = &mut self.words[offset / 8];
        let mut bytes = word.to_ne_bytes();
        bytes[offset % 8..offset % 8 + 4].copy_from_slice(&value.to_ne_bytes());
        *word = u64::from_ne_bytes(bytes);
    }

    /// The 32-bit word at a multiple of 4; 0 behind the end.
    pub(super) fn u32(&self, offset: usize) -> u32 {
        let bytes = self.words.get(offset / 8).copied().unwrap_or(0).to_ne_bytes();
        let half = &bytes[(offset % 8) & 4..][..4];
        u32::from_ne_bytes([half[0], half[1], half[2], half[3]])
    }

    /// The 64-bit word at a multiple of 8; 0 behind the end.
    pub(super) fn u64(&self, offset: usize) -> u64 {
        self.words.get(offset / 8).copied().unwrap_or(0)
    }

    /// Where the capability `id` begins, in the chain that starts at `first`, which is 0 if there is none.
    pub(super) fn capability(&self, first: u32, id: u32) -> Option<usize> {
        let mut at = first as usize;
        // A chain has no more links than there are words, unless it goes in circles.
        for _ in 0..self.words.len() {
            if at == 0 || !at.is_multiple_of(8) || at / 8 >= self.words.len() {
                return None;
            }
            // Id and version of 16 bits each, then the next one's offset.
            if self.u32(at) & 0xffff == id {
                return Some(at);
            }
            at = self.u32(at + 4) as usize;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(words: &[u64]) -> Info {
        Info { words: words.to_vec() }
    }

    #[test]
    fn numbers_are_the_kernels() {
        assert_eq!((GET_API_VERSION, DEVICE_RESET, IOMMU_UNMAP_DMA), (0x3b64, 0x3b6f, 0x3b72));
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn capabilities_in_a_chain() {
        let cap = |id: u64, next: u64| id | 1 << 16 | next << 32;
        let chain = info(&[40, 0, cap(3, 32), 7, cap(1, 0), 9]);
        assert_eq!((chain.capability(16, 3), chain.capability(16, 1)), (Some(16), Some(32)));
        assert_eq!((chain.capability(16, 2), chain.capability(0, 3)), (None, None));
        assert_eq!((chain.u64(24), chain.u32(40), chain.u32(44), chain.u64(80)), (7, 9, 0, 0));
        // What no kernel says ends all the same.
        assert_eq!(info(&[0, cap(1, 8)]).capability(8, 2), None);
        assert_eq!(info(&[0, cap(1, 4000)]).capability(8, 2), None);
        assert_eq!(info(&[0, cap(1, 9)]).capability(8, 2), None);
    }
}
