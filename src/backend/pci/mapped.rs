//! Pages of BAR0 in this process, whoever maps them.

use super::BarMapping;
use memmap2::MmapRaw;
use std::{io, ptr::NonNull};

/// Mapped pages of BAR0.
#[derive(Debug)]
pub(super) struct MappedPages {
    base: NonNull<u8>,
    write_combining: bool,
    _map: MmapRaw,
}

impl MappedPages {
    pub(super) fn new(map: MmapRaw, write_combining: bool) -> io::Result<Self> {
        let base = NonNull::new(map.as_mut_ptr()).ok_or_else(|| io::Error::other("mapped at address 0"))?;
        Ok(Self { base, write_combining, _map: map })
    }
}

// SAFETY: `base` points into `_map`, device memory that every thread may store to; nothing else is here.
unsafe impl Send for MappedPages {}
// SAFETY: as above; the methods only copy the pointer.
unsafe impl Sync for MappedPages {}

impl BarMapping for MappedPages {
    fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn write_combining(&self) -> bool {
        self.write_combining
    }
}
