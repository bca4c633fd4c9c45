//! Huge pages, and parts of them. Their physical addresses stay as they are: the kernel neither swaps nor compacts them.

use super::{
    HUGE_PAGE_BYTES, IovaAllocator, PAGE_BYTES, PageSize,
    memory::{self, Mapped},
};
use crate::Result;
use memmap2::{MmapOptions, MmapRaw};
use std::{
    io,
    ptr::NonNull,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// How huge pages are mapped.
type How = fn(&MmapOptions, usize) -> io::Result<Mapped>;

/// Huge pages of 2 MiB that this process holds, taken from the system as they are needed.
#[derive(Debug)]
pub(super) struct HugePool {
    how: How,
    chunks: Mutex<Vec<Chunk>>,
}

/// Huge pages in a row, and which addresses in them are free.
#[derive(Debug)]
struct Chunk {
    map: MmapRaw,
    free: IovaAllocator,
}

/// A part of a pool, which goes back when it is dropped.
#[derive(Debug)]
pub(super) struct HugePart {
    pool: Arc<HugePool>,
    base: NonNull<u8>,
    len_bytes: u64,
}

impl HugePool {
    pub(super) fn new() -> Arc<Self> {
        Self::of(memory::anonymous)
    }

    /// A pool of what `how` maps: memory in which as many huge pages fit as are asked for.
    pub(super) fn of(how: How) -> Arc<Self> {
        Arc::new(Self { how, chunks: Mutex::default() })
    }

    fn chunks(&self) -> MutexGuard<'_, Vec<Chunk>> {
        self.chunks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Zeroed pages of 4 KiB that hold nothing else, at a multiple of `align_bytes`, a power of two up to 2 MiB.
    pub(super) fn alloc(self: &Arc<Self>, len_bytes: usize, align_bytes: usize) -> Result<HugePart> {
        memory::check_len(len_bytes, HUGE_PAGE_BYTES)?;
        let (n_bytes, align_bytes) = (len_bytes.next_multiple_of(PAGE_BYTES) as u64, align_bytes as u64);
        let mut chunks = self.chunks();
        let fit = |chunk: &mut Chunk| {
            Some((chunk.free.alloc(n_bytes, align_bytes, 0).ok()?, chunk.map.as_mut_ptr()))
        };
        let (start, chunk) = match chunks.iter_mut().find_map(fit) {
            Some(found) => found,
            None => {
                let mut chunk = self.chunk(len_bytes)?;
                let start = chunk.free.alloc(n_bytes, align_bytes, 0)?;
                let base = chunk.map.as_mut_ptr();
                chunks.push(chunk);
                (start, base)
            }
        };
        drop(chunks);
        let base = chunk.with_addr(start as usize);
        // Before anybody asks where the pages are: now they are there.
        // SAFETY: inside the chunk, and nobody else's; a chunk lives as long as its pool.
        unsafe { base.write_bytes(0, n_bytes as usize) };
        // A mapping is never at address 0.
        let base = NonNull::new(base).unwrap_or(NonNull::dangling());
        Ok(HugePart { pool: Arc::clone(self), base, len_bytes: n_bytes })
    }

    fn chunk(&self, len_bytes: usize) -> Result<Chunk> {
        let (map, _) = memory::map(len_bytes, PageSize::Huge2M, self.how)?;
        let first = map.as_mut_ptr().addr() as u64;
        let last = first + (map.len() as u64 - 1);
        Ok(Chunk { map, free: IovaAllocator::new(&[first..=last]) })
    }

    /// Bytes of the pages held that are free.
    pub(super) fn free_bytes(&self) -> u64 {
        self.chunks().iter().map(|chunk| chunk.free.free_bytes()).sum()
    }
}

impl HugePart {
    /// First byte.
    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }
}

// SAFETY: an address in memory that the pool keeps mapped; it is not reached through this type.
unsafe impl Send for HugePart {}
// SAFETY: as above.
unsafe impl Sync for HugePart {}

impl Drop for HugePart {
    fn drop(&mut self) {
        let start = self.base.addr().get() as u64;
        let mut chunks = self.pool.chunks();
        let mine = chunks.iter_mut().find(|chunk| {
            let first = chunk.map.as_mut_ptr().addr() as u64;
            (first..first + chunk.map.len() as u64).contains(&start)
        });
        if let Some(chunk) = mine {
            chunk.free.free(start, self.len_bytes);
        }
    }
}
