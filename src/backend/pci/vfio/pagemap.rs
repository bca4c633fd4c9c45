//! Physical addresses of this process's huge pages, as Linux tells root.
#![forbid(unsafe_code)]

use super::problem;
use crate::{
    Result,
    backend::{
        dma::{HUGE_PAGE_BYTES, PAGE_BYTES},
        pci::PhysicalMemory,
    },
};
use std::{fs::File, io, os::unix::fs::FileExt};

/// Frame number of each page of this process.
const PAGEMAP: &str = "/proc/self/pagemap";
/// What each frame is used for.
const KPAGEFLAGS: &str = "/proc/kpageflags";

/// Bits of a word of `pagemap`.
const PRESENT: u64 = 1 << 63;
const FRAME: u64 = (1 << 55) - 1;

/// Bit of a word of `kpageflags`: a page of hugetlbfs, which stays where it is (`KPF_HUGE`). Transparent huge pages do not.
const HUGE: u64 = 1 << 17;

/// The kernel's tables.
#[derive(Debug)]
pub(super) struct Pagemap {
    pagemap: File,
    kpageflags: File,
}

impl Pagemap {
    pub(super) fn open() -> Result<Self> {
        let open = |path| File::open(path).map_err(|source| problem::physical(path, source));
        Ok(Self { pagemap: open(PAGEMAP)?, kpageflags: open(KPAGEFLAGS)? })
    }
}

/// Word `n` of a table.
fn word(table: &File, n: u64) -> io::Result<u64> {
    let mut bytes = [0; 8];
    table.read_exact_at(&mut bytes, n * 8)?;
    Ok(u64::from_ne_bytes(bytes))
}

impl PhysicalMemory for Pagemap {
    fn address_of(&self, page: usize) -> io::Result<u64> {
        let entry = word(&self.pagemap, (page / PAGE_BYTES) as u64)?;
        let frame = entry & FRAME;
        if entry & PRESENT != 0 && frame == 0 {
            return Err(io::Error::other(format!("{PAGEMAP} tells addresses to root only: run as root")));
        }
        let physical = frame * PAGE_BYTES as u64;
        if entry & PRESENT == 0
            || word(&self.kpageflags, frame)? & HUGE == 0
            || !physical.is_multiple_of(HUGE_PAGE_BYTES as u64)
        {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "it is not in a huge page of 2 MiB that is there: without an IOMMU the device reaches no other memory; \
                 use Pd::alloc_mr, or memory of hugetlbfs that has been written to",
            ));
        }
        Ok(physical)
    }
}
