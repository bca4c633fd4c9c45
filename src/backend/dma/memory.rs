//! Memory that the device reaches, and where it comes from.

use super::{
    HUGE_PAGE_BYTES, PAGE_BYTES, PageSize,
    huge::{HugePart, HugePool},
};
use crate::{Error, Result, doorbell};
use memmap2::{Advice, MmapOptions, MmapRaw};
use std::{
    fmt,
    fs::File,
    io,
    os::fd::FromRawFd,
    ptr::{self, NonNull},
    sync::Arc,
};

/// Host memory that the device may write at any time.
///
/// No reference into it is ever made: it is reached by copies through raw pointers.
pub struct HostMemory {
    base: NonNull<u8>,
    len_bytes: usize,
    /// What is mapped at `base`, if that is a file's memory.
    file: Option<File>,
    _owner: Owner,
}

/// What lets go of memory when it is dropped.
enum Owner {
    /// The application, which has promised to keep it.
    Lender,
    /// A mapping.
    Mapping { _map: MmapRaw },
    /// A part of huge pages.
    Part { _part: HugePart },
}

// SAFETY: a range of addresses. What is reached through it is reached by raw copies whose callers take
// races with the device, or with each other, for what they are: values, never references.
unsafe impl Send for HostMemory {}
// SAFETY: as above.
unsafe impl Sync for HostMemory {}

/// Memory that was mapped, and the file that it is of.
pub(super) type Mapped = (MmapRaw, Option<File>);

/// Memory of no file.
pub(super) fn anonymous(options: &MmapOptions, _: usize) -> io::Result<Mapped> {
    Ok((MmapRaw::from(options.map_anon()?), None))
}

/// Refuses sizes that there cannot be.
pub(super) fn check_len(len_bytes: usize, page_bytes: usize) -> Result<()> {
    let most_bytes = isize::MAX as usize - page_bytes;
    if (1..=most_bytes).contains(&len_bytes) {
        return Ok(());
    }
    Err(Error::invalid(format!("memory of {len_bytes} bytes: give 1 to {most_bytes} bytes")))
}

/// Maps pages that `len_bytes` fit in, as `how` does it, given their size.
pub(super) fn map(
    len_bytes: usize,
    page_size: PageSize,
    how: impl FnOnce(&MmapOptions, usize) -> io::Result<Mapped>,
) -> Result<Mapped> {
    let page_bytes = if page_size == PageSize::Huge2M { HUGE_PAGE_BYTES } else { PAGE_BYTES };
    check_len(len_bytes, page_bytes)?;
    let map_bytes = len_bytes.next_multiple_of(page_bytes);
    let mut options = MmapOptions::new();
    options.len(map_bytes);
    if page_size == PageSize::Huge2M {
        options.huge(Some(HUGE_PAGE_BYTES.ilog2() as u8));
    }
    let mapped = how(&options, map_bytes).map_err(|source| {
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
    let kept = mapped.0.advise(Advice::DontFork);
    kept.map_err(|source| Error::os("keeping memory out of forks", source))?;
    Ok(mapped)
}

impl HostMemory {
    /// Zeroed memory of `len_bytes`, in pages that hold nothing else.
    pub fn alloc(len_bytes: usize, page_size: PageSize) -> Result<Arc<Self>> {
        Self::map(len_bytes, page_size, anonymous)
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

    /// The same, as a part of `pool`'s huge pages, at a multiple of `align_bytes`, a power of two up to theirs.
    pub(super) fn alloc_in_pool(
        pool: &Arc<HugePool>,
        len_bytes: usize,
        align_bytes: usize,
    ) -> Result<Arc<Self>> {
        let part = pool.alloc(len_bytes, align_bytes)?;
        Ok(Arc::new(Self { base: part.base(), len_bytes, file: None, _owner: Owner::Part { _part: part } }))
    }

    /// The file whose memory it is.
    pub(super) fn file(&self) -> Option<&File> {
        self.file.as_ref()
    }

    fn map(
        len_bytes: usize,
        page_size: PageSize,
        how: impl FnOnce(&MmapOptions, usize) -> io::Result<Mapped>,
    ) -> Result<Arc<Self>> {
        let (map, file) = map(len_bytes, page_size, how)?;
        // A mapping is never at address 0.
        let base = NonNull::new(map.as_mut_ptr()).unwrap_or(NonNull::dangling());
        Ok(Arc::new(Self { base, len_bytes, file, _owner: Owner::Mapping { _map: map } }))
    }

    /// The application's own memory.
    ///
    /// # Safety
    /// `base` is valid for reads and writes of `len_bytes`, and stays so until the value is dropped and
    /// every registration of it has ended. While the device may write the memory, no Rust reference to
    /// those bytes lives.
    pub unsafe fn lend(base: NonNull<u8>, len_bytes: usize) -> Arc<Self> {
        Arc::new(Self { base, len_bytes, file: None, _owner: Owner::Lender })
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
