//! BAR0: a memfd, so that pages of it can be mapped more than once.

use super::config_space::BAR_LEN_BYTES;
use crate::mem::DmaMap;
use memmap2::{MmapOptions, MmapRaw};
use std::{
    fs::File,
    io,
    os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd},
    ptr::NonNull,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
};

/// Size of a page of BAR0.
pub const PAGE_BYTES: u64 = 4096;

/// BAR0 of one function, as the model sees it.
#[derive(Debug)]
pub(crate) struct BarMemory {
    file: File,
    map: MmapRaw,
    /// The same bytes, for accesses of any width.
    memory: DmaMap,
}

impl BarMemory {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: the name is a C string; the result is checked.
        let fd = unsafe { libc::memfd_create(c"mlx5-model-bar0".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a fresh descriptor that nobody else owns.
        let file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
        file.set_len(BAR_LEN_BYTES)?;
        let map = MmapOptions::new().len(BAR_LEN_BYTES as usize).map_raw(&file)?;
        let memory = DmaMap::default();
        let base = NonNull::new(map.as_mut_ptr()).unwrap_or(NonNull::dangling());
        // SAFETY: the mapping is memory, lives as long as `memory` beside it, and no reference to it is made.
        unsafe { memory.map(0, base, BAR_LEN_BYTES, true) }.map_err(io::Error::other)?;
        Ok(Self { file, map, memory })
    }

    /// All of BAR0 as memory, by offset.
    pub(crate) fn memory(&self) -> &DmaMap {
        &self.memory
    }

    /// The memfd: BAR0 at offset 0.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    fn at(&self, offset: u64, len_bytes: u64) -> NonNull<u8> {
        assert!(offset.checked_add(len_bytes).is_some_and(|end| end <= BAR_LEN_BYTES));
        // SAFETY: inside the mapping, as just checked.
        let ptr = unsafe { self.map.as_mut_ptr().add(offset as usize) };
        NonNull::new(ptr).unwrap_or(NonNull::dangling())
    }

    fn word32(&self, offset: u64) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4), "register offset 0x{offset:x}");
        // SAFETY: aligned and inside the mapping, which lives as long as `self`; only atomics touch it.
        unsafe { AtomicU32::from_ptr(self.at(offset, 4).as_ptr().cast()) }
    }

    fn word64(&self, offset: u64) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8), "register offset 0x{offset:x}");
        // SAFETY: aligned and inside the mapping, which lives as long as `self`; only atomics touch it.
        unsafe { AtomicU64::from_ptr(self.at(offset, 8).as_ptr().cast()) }
    }

    /// Big-endian word.
    pub(crate) fn load32(&self, offset: u64) -> u32 {
        u32::from_be(self.word32(offset).load(Ordering::Acquire))
    }

    /// Big-endian word.
    pub(crate) fn store32(&self, offset: u64, value: u32) {
        self.word32(offset).store(value.to_be(), Ordering::Release);
    }

    /// Swaps a big-endian word.
    pub(crate) fn swap32(&self, offset: u64, value: u32) -> u32 {
        u32::from_be(self.word32(offset).swap(value.to_be(), Ordering::AcqRel))
    }

    /// Big-endian double word.
    pub(crate) fn load64(&self, offset: u64) -> u64 {
        u64::from_be(self.word64(offset).load(Ordering::Acquire))
    }

    /// Big-endian double word.
    pub(crate) fn store64(&self, offset: u64, value: u64) {
        self.word64(offset).store(value.to_be(), Ordering::Release);
    }

    /// Swaps a big-endian double word.
    pub(crate) fn swap64(&self, offset: u64, value: u64) -> u64 {
        u64::from_be(self.word64(offset).swap(value.to_be(), Ordering::AcqRel))
    }

    /// Reads bytes; past the end all ones.
    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) {
        for (at, byte) in (offset..).zip(into) {
            let word = if at < BAR_LEN_BYTES { self.load32(at & !3) } else { u32::MAX };
            *byte = word.to_be_bytes()[(at % 4) as usize];
        }
    }
}
