//! Memory that the device reaches: where it comes from, and under which address.

mod iova;

pub use iova::IovaAllocator;

use super::pci::PciFunction;
use crate::{Error, Result, doorbell};
use memmap2::{Advice, MmapOptions, MmapRaw};
use std::{
    fmt,
    fs::File,
    io,
    num::NonZero,
    os::fd::{AsFd, FromRawFd},
    ptr,
    ptr::NonNull,
    sync::{Arc, Mutex, PoisonError},
};

/// The device's page, and the unit of every mapping.
pub const PAGE_BYTES: usize = 4096;

/// Pages that memory is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PageSize {
    /// The system's usual pages.
    #[default]
    Default,
    /// Huge pages of 2 MiB, which the system must have in reserve (`vm.nr_hugepages`).
    Huge2M,
}

/// Host memory that the device may write at any time.
///
/// No reference into it is ever made: it is reached by copies through raw pointers.
pub struct HostMemory {
    base: NonNull<u8>,
    len_bytes: usize,
    /// What is mapped at `base`, if that is a file's memory.
    file: Option<File>,
    /// Unmaps the memory on drop, if it is ours.
    _owned: Option<MmapRaw>,
}

// SAFETY: a range of addresses. What is reached through it is reached by raw copies whose callers take
// races with the device, or with each other, for what they are: values, never references.
unsafe impl Send for HostMemory {}
// SAFETY: as above.
unsafe impl Sync for HostMemory {}

impl HostMemory {
    /// Zeroed memory of `len_bytes`, in pages that hold nothing else.
    pub fn alloc(len_bytes: usize, page_size: PageSize) -> Result<Arc<Self>> {
        Self::map(len_bytes, page_size, |options, _| Ok((MmapRaw::from(options.map_anon()?), None)))
    }

    /// The same, as the memory of a file without a name: another process that is sent the file can map it. It
    /// takes a file descriptor.
    pub fn alloc_in_file(len_bytes: usize, page_size: PageSize) -> Result<Arc<Self>> {
        Self::map(len_bytes, page_size, |options, map_bytes| {
            let huge = if page_size == PageSize::Huge2M { libc::MFD_HUGETLB | libc::MFD_HUGE_2MB } else { 0 };
            // SAFETY: a C string, and no other memory is passed.
            let fd = unsafe { libc::memfd_create(c"mlx5".as_ptr(), libc::MFD_CLOEXEC | huge) };
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: the descriptor was just made and nobody else owns it.
            let file = unsafe { File::from_raw_fd(fd) };
            file.set_len(map_bytes as u64)?;
            Ok((options.map_raw(&file)?, Some(file)))
        })
    }

    fn map(
        len_bytes: usize,
        page_size: PageSize,
        map: impl FnOnce(&MmapOptions, usize) -> io::Result<(MmapRaw, Option<File>)>,
    ) -> Result<Arc<Self>> {
        let page_bytes = if page_size == PageSize::Huge2M { 2 << 20 } else { PAGE_BYTES };
        if len_bytes == 0 || len_bytes > isize::MAX as usize - page_bytes {
            return Err(Error::invalid(format!(
                "memory of {len_bytes} bytes: give 1 to {} bytes",
                isize::MAX as usize - page_bytes
            )));
        }
        let map_bytes = len_bytes.next_multiple_of(page_bytes);
        let mut options = MmapOptions::new();
        options.len(map_bytes);
        if page_size == PageSize::Huge2M {
            options.huge(Some(21)); // log2 of 2 MiB
        }
        let (map, file) = map(&options, map_bytes).map_err(|source| {
            let pages = match page_size {
                PageSize::Default => String::new(),
                PageSize::Huge2M => format!(
                    " on {} huge pages of 2 MiB (reserve them with sysctl vm.nr_hugepages)",
                    map_bytes / page_bytes
                ),
            };
            Error::os(format!("mapping {map_bytes} bytes{pages}"), source)
        })?;
        // A fork would otherwise move pages away from under the device: on the next write, whichever process
        // writes first gets a copy.
        map.advise(Advice::DontFork).map_err(|source| Error::os("keeping memory out of forks", source))?;
        // A mapping is never at address 0.
        let base = NonNull::new(map.as_mut_ptr()).unwrap_or(NonNull::dangling());
        Ok(Arc::new(Self { base, len_bytes, file, _owned: Some(map) }))
    }

    /// The application's own memory.
    ///
    /// # Safety
    /// `base` is valid for reads and writes of `len_bytes`, and stays so until the value is dropped and
    /// every registration of it has ended. While the device may write the memory, no Rust reference to
    /// those bytes lives.
    pub unsafe fn lend(base: NonNull<u8>, len_bytes: usize) -> Arc<Self> {
        Arc::new(Self { base, len_bytes, file: None, _owned: None })
    }

    /// First byte.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Size in bytes.
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    fn at(&self, offset_bytes: usize, len_bytes: usize) -> *mut u8 {
        let end = offset_bytes.checked_add(len_bytes);
        assert!(
            end.is_some_and(|end| end <= self.len_bytes),
            "{len_bytes} bytes at offset {offset_bytes} of memory of {} bytes",
            self.len_bytes
        );
        // SAFETY: inside the memory, just checked.
        unsafe { self.base.as_ptr().add(offset_bytes) }
    }

    /// Copies `bytes` to `offset_bytes`. Ordering towards the device is the caller's, and so is that no two
    /// threads touch the same bytes.
    ///
    /// # Panics
    /// If they do not fit.
    pub(crate) fn write(&self, offset_bytes: usize, bytes: &[u8]) {
        let to = self.at(offset_bytes, bytes.len());
        // SAFETY: `to` is valid for the length, and a borrowed slice is never device memory.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) }
    }

    /// Copies from `offset_bytes` into `bytes`, after whatever was read from device memory before.
    ///
    /// # Panics
    /// If the memory ends before.
    pub(crate) fn read(&self, offset_bytes: usize, bytes: &mut [u8]) {
        let from = self.at(offset_bytes, bytes.len());
        // SAFETY: `from` is valid for the length, and a borrowed slice is never device memory.
        unsafe { ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len()) }
    }

    /// Fills `len_bytes` at `offset_bytes`.
    ///
    /// # Panics
    /// If they do not fit.
    pub(crate) fn fill(&self, offset_bytes: usize, len_bytes: usize, byte: u8) {
        let to = self.at(offset_bytes, len_bytes);
        // SAFETY: valid for the length.
        unsafe { ptr::write_bytes(to, byte, len_bytes) }
    }

    /// One load of the big-endian word at `offset_bytes`, before all later reads of device memory.
    ///
    /// # Panics
    /// If it is outside or not aligned.
    pub fn read_be32_acquire(&self, offset_bytes: usize) -> u32 {
        let from = self.at(offset_bytes, 4).cast::<u32>();
        assert!(from.is_aligned());
        // SAFETY: valid, aligned, and the volatile load is one access.
        let word = u32::from_be(unsafe { from.read_volatile() });
        // What the device wrote before this word is read after it.
        doorbell::after_owner_test();
        word
    }

    /// One store of a big-endian word at `offset_bytes`, after all earlier writes to device memory.
    ///
    /// # Panics
    /// If it is outside or not aligned.
    pub fn write_be32_release(&self, offset_bytes: usize, word: u32) {
        let to = self.at(offset_bytes, 4).cast::<u32>();
        assert!(to.is_aligned());
        doorbell::before_doorbell_record();
        // SAFETY: valid, aligned, and the volatile store is one access.
        unsafe { to.write_volatile(word.to_be()) }
    }
}

impl fmt::Debug for HostMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostMemory({:p}, {} bytes)", self.base, self.len_bytes)
    }
}

/// The addresses of one function: maps memory for it.
#[derive(Debug)]
pub struct DmaSpace {
    function: Arc<dyn PciFunction>,
    iova: Mutex<IovaAllocator>,
}

impl DmaSpace {
    /// The whole space of `function`.
    pub fn new(function: Arc<dyn PciFunction>) -> Arc<Self> {
        let iova = Mutex::new(IovaAllocator::new(&function.iova_ranges()));
        Arc::new(Self { function, iova })
    }

    /// Maps the pages that `memory` lies in. The first page's address is `residue`, a multiple of 4 KiB,
    /// modulo `align_bytes`, a power of two: then device pages of that size can translate it.
    pub fn map(
        self: &Arc<Self>,
        memory: Arc<HostMemory>,
        align_bytes: u64,
        residue: u64,
    ) -> Result<DmaRegion> {
        let start = memory.base().addr().get();
        let page_offset = start % PAGE_BYTES;
        let Some(len_bytes) = (page_offset + memory.len_bytes()).checked_next_multiple_of(PAGE_BYTES) else {
            return Err(Error::invalid(format!("memory of {} bytes is too large", memory.len_bytes())));
        };
        let align_bytes = align_bytes.max(PAGE_BYTES as u64);
        let mut allocator = self.iova.lock().unwrap_or_else(PoisonError::into_inner);
        let iova = allocator.alloc(len_bytes as u64, align_bytes, residue)?;
        drop(allocator);
        let page = memory.base().map_addr(|base| NonZero::new(base.get() - page_offset).unwrap_or(base));
        let file = memory.file.as_ref().map(AsFd::as_fd);
        // SAFETY: the region owns a handle to the memory and unmaps it before it lets go. Bytes around
        // lent memory in its first and last page are mapped too, as every registration does; the device
        // reaches only what an mkey or a queue names.
        if let Err(source) = unsafe { self.function.dma_map(iova, page, len_bytes, file) } {
            self.give_back(iova, len_bytes as u64);
            return Err(Error::os(format!("mapping {len_bytes} bytes for DMA at 0x{iova:x}"), source));
        }
        Ok(DmaRegion { space: Arc::clone(self), memory, first_page: iova, len_bytes, page_offset })
    }

    /// Bytes of addresses that are free.
    pub fn free_bytes(&self) -> u64 {
        self.iova.lock().unwrap_or_else(PoisonError::into_inner).free_bytes()
    }

    /// Allocates zeroed pages and maps them at a multiple of `align_bytes`, a power of two.
    pub fn alloc(self: &Arc<Self>, len_bytes: usize, align_bytes: usize) -> Result<DmaRegion> {
        self.map(self.alloc_memory(len_bytes, PageSize::Default)?, align_bytes as u64, 0)
    }

    /// Allocates zeroed memory of the kind that the function can reach, to be mapped later.
    pub fn alloc_memory(&self, len_bytes: usize, page_size: PageSize) -> Result<Arc<HostMemory>> {
        if self.function.needs_files() {
            HostMemory::alloc_in_file(len_bytes, page_size)
        } else {
            HostMemory::alloc(len_bytes, page_size)
        }
    }

    fn give_back(&self, iova: u64, len_bytes: u64) {
        self.iova.lock().unwrap_or_else(PoisonError::into_inner).free(iova, len_bytes);
    }
}

/// Memory that is mapped for the device, until dropped.
#[derive(Debug)]
pub struct DmaRegion {
    space: Arc<DmaSpace>,
    memory: Arc<HostMemory>,
    first_page: u64,
    len_bytes: usize,
    page_offset: usize,
}

impl DmaRegion {
    /// Address of the memory's first byte for the device.
    pub fn iova(&self) -> u64 {
        self.first_page + self.page_offset as u64
    }

    /// The memory.
    pub fn memory(&self) -> &Arc<HostMemory> {
        &self.memory
    }

    /// Addresses of the device pages of `page_bytes`, a power of two, that hold the first `len_bytes`.
    pub fn pages(&self, len_bytes: usize, page_bytes: usize) -> impl Iterator<Item = u64> + use<> {
        let first = self.iova();
        (first & !(page_bytes as u64 - 1)..first + len_bytes as u64).step_by(page_bytes)
    }
}

impl Drop for DmaRegion {
    fn drop(&mut self) {
        match self.space.function.dma_unmap(self.first_page, self.len_bytes) {
            // Only now that the device cannot reach them do the address and the memory become free.
            Ok(()) => self.space.give_back(self.first_page, self.len_bytes as u64),
            // The device may still write the memory: it is never freed.
            Err(_) => std::mem::forget(Arc::clone(&self.memory)),
        }
    }
}
