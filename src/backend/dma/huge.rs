//! Huge pages, and parts of them. Their physical addresses stay as they are: the kernel neither swaps nor compacts them.

use super::{HUGE_PAGE_BYTES, IovaAllocator, PAGE_BYTES};
use crate::{Error, Result};
use memmap2::{Advice, MmapOptions, MmapRaw};
use std::{
    io,
    ptr::NonNull,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Huge pages of 2 MiB that this process holds, taken from the system as they are needed.
#[derive(Debug)]
pub(super) struct HugePool {
    map: fn(usize) -> io::Result<MmapRaw>,
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

/// Zeroed huge pages that are there from now on.
fn map(len_bytes: usize) -> io::Result<MmapRaw> {
    let mut options = MmapOptions::new();
    options.len(len_bytes).huge(Some(HUGE_PAGE_BYTES.ilog2() as u8)).populate();
    Ok(MmapRaw::from(options.map_anon()?))
}

impl HugePool {
    pub(super) fn new() -> Arc<Self> {
        Self::of(map)
    }

    /// A pool of what `map` gives: memory that starts at a multiple of 2 MiB.
    pub(super) fn of(map: fn(usize) -> io::Result<MmapRaw>) -> Arc<Self> {
        Arc::new(Self { map, chunks: Mutex::default() })
    }

    fn chunks(&self) -> MutexGuard<'_, Vec<Chunk>> {
        self.chunks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Zeroed pages of 4 KiB that hold nothing else, at a multiple of `align_bytes`, a power of two up to 2 MiB.
    pub(super) fn alloc(self: &Arc<Self>, len_bytes: usize, align_bytes: usize) -> Result<HugePart> {
        let most_bytes = isize::MAX as usize - HUGE_PAGE_BYTES;
        if len_bytes == 0 || len_bytes > most_bytes {
            return Err(Error::invalid(format!("memory of {len_bytes} bytes: give 1 to {most_bytes} bytes")));
        }
        let (n_bytes, align_bytes) = (len_bytes.next_multiple_of(PAGE_BYTES) as u64, align_bytes as u64);
        let mut chunks = self.chunks();
        let fit = |chunk: &mut Chunk| {
            Some((chunk.free.alloc(n_bytes, align_bytes, 0).ok()?, chunk.map.as_mut_ptr()))
        };
        let (start, chunk) = match chunks.iter_mut().find_map(fit) {
            Some(found) => found,
            None => {
                let mut chunk = self.chunk(len_bytes.next_multiple_of(HUGE_PAGE_BYTES))?;
                let start = chunk.free.alloc(n_bytes, align_bytes, 0)?;
                let base = chunk.map.as_mut_ptr();
                chunks.push(chunk);
                (start, base)
            }
        };
        drop(chunks);
        let base = chunk.with_addr(start as usize);
        // SAFETY: inside the chunk, and nobody else's; a chunk lives as long as its pool.
        unsafe { base.write_bytes(0, n_bytes as usize) };
        // A mapping is never at address 0.
        let base = NonNull::new(base).unwrap_or(NonNull::dangling());
        Ok(HugePart { pool: Arc::clone(self), base, len_bytes: n_bytes })
    }

    fn chunk(&self, len_bytes: usize) -> Result<Chunk> {
        let map = (self.map)(len_bytes).map_err(|source| {
            let n = len_bytes / HUGE_PAGE_BYTES;
            let text = format!("taking {n} huge pages of 2 MiB (reserve them with sysctl vm.nr_hugepages)");
            Error::os(text, source)
        })?;
        map.advise(Advice::DontFork).map_err(|source| Error::os("keeping memory out of forks", source))?;
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
