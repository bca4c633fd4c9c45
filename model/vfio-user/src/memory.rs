//! The client's memory, mapped into this process for the function's DMA.
#![allow(unsafe_code)]

use memmap2::{MmapOptions, MmapRaw};
use mlx5_model::{ModelFunction, mem::MAX_MAPPINGS};
use std::{collections::BTreeMap, fs::File, io, ptr::NonNull, sync::Arc};

/// What one DMA_MAP message gave.
#[derive(Debug)]
struct Mapping {
    last: u64,
    /// `None`: it came without a file descriptor, so the device cannot reach it.
    _memory: Option<MmapRaw>,
}

/// The memory of one client. Each mapping is alive as long as the function's map names it.
#[derive(Debug)]
pub(crate) struct ClientMemory {
    function: Arc<ModelFunction>,
    mappings: BTreeMap<u64, Mapping>,
}

fn refused(kind: io::ErrorKind, iova: u64, len_bytes: u64, why: impl std::fmt::Display) -> io::Error {
    io::Error::new(kind, format!("memory at IOVA 0x{iova:x}, 0x{len_bytes:x} bytes: {why}"))
}

fn last_of(iova: u64, len_bytes: u64) -> io::Result<u64> {
    len_bytes.checked_sub(1).and_then(|n| iova.checked_add(n)).ok_or_else(|| {
        let why = "the range is empty or leaves the address space";
        refused(io::ErrorKind::InvalidInput, iova, len_bytes, why)
    })
}

impl ClientMemory {
    pub(crate) fn new(function: Arc<ModelFunction>) -> Self {
        Self { function, mappings: BTreeMap::new() }
    }

    /// Lets the function reach `len_bytes` of `file` from `offset` on through address `iova`.
    pub(crate) fn map(
        &mut self,
        iova: u64,
        len_bytes: u64,
        file: Option<(&File, u64)>,
        writable: bool,
    ) -> io::Result<()> {
        let last = last_of(iova, len_bytes)?;
        if let Some((at, _)) = self.mappings.range(..=last).next_back().filter(|(_, m)| m.last >= iova) {
            let why = format!("the range overlaps the mapping at IOVA 0x{at:x}; unmap that first");
            return Err(refused(io::ErrorKind::AlreadyExists, iova, len_bytes, why));
        }
        if self.mappings.len() == MAX_MAPPINGS {
            let why = format!("the client holds {MAX_MAPPINGS} mappings, the limit");
            return Err(refused(io::ErrorKind::StorageFull, iova, len_bytes, why));
        }
        let memory =
            file.map(|(file, offset)| self.reach(iova, len_bytes, file, offset, writable)).transpose()?;
        self.mappings.insert(iova, Mapping { last, _memory: memory });
        Ok(())
    }

    fn reach(
        &self,
        iova: u64,
        len_bytes: u64,
        file: &File,
        offset: u64,
        writable: bool,
    ) -> io::Result<MmapRaw> {
        let meta = file.metadata()?;
        if meta.is_file() && offset.checked_add(len_bytes).is_none_or(|end| end > meta.len()) {
            let why = format!("the file has {} bytes, fewer than offset 0x{offset:x} and that", meta.len());
            return Err(refused(io::ErrorKind::InvalidInput, iova, len_bytes, why));
        }
        let len = usize::try_from(len_bytes)
            .map_err(|error| refused(io::ErrorKind::InvalidInput, iova, len_bytes, error))?;
        let mut options = MmapOptions::new();
        options.offset(offset).len(len);
        let memory = if writable { options.map_raw(file) } else { options.map_raw_read_only(file) };
        let memory = memory
            .map_err(|error| refused(error.kind(), iova, len_bytes, format!("it was not mapped: {error}")))?;
        let base = NonNull::new(memory.as_mut_ptr())
            .ok_or_else(|| refused(io::ErrorKind::Other, iova, len_bytes, "it was mapped at address 0"))?;
        // SAFETY: `base` is shared memory of `len_bytes`, writable if `writable`, to which no reference is
        // ever made. `unmap` and `clear` take it out of the map before the mapping is dropped, and so does
        // the drop of `self`.
        let mapped = unsafe { self.function.dma().map(iova, base, len_bytes, writable) };
        mapped.map_err(|error| refused(io::ErrorKind::InvalidInput, iova, len_bytes, error))?;
        Ok(memory)
    }

    /// Takes back every mapping inside the range, of which there must be one.
    pub(crate) fn unmap(&mut self, iova: u64, len_bytes: u64) -> io::Result<()> {
        let last = last_of(iova, len_bytes)?;
        let touched = |(at, m): (&u64, &Mapping)| (m.last >= iova).then_some((*at, m.last));
        let inside: Vec<_> = self.mappings.range(..=last).rev().map_while(touched).collect();
        if let Some((at, _)) = inside.iter().find(|(at, end)| *at < iova || *end > last) {
            let why = format!("the range would cut the mapping at IOVA 0x{at:x}; unmap it whole");
            return Err(refused(io::ErrorKind::InvalidInput, iova, len_bytes, why));
        }
        if inside.is_empty() {
            let why = "nothing is mapped in the range";
            return Err(refused(io::ErrorKind::NotFound, iova, len_bytes, why));
        }
        let unmapped = self.function.dma().unmap(iova, len_bytes);
        unmapped.map_err(|error| refused(io::ErrorKind::InvalidInput, iova, len_bytes, error))?;
        for (at, _) in inside {
            self.mappings.remove(&at);
        }
        Ok(())
    }

    /// Takes everything back.
    pub(crate) fn clear(&mut self) {
        self.function.dma().clear();
        self.mappings.clear();
    }
}

impl Drop for ClientMemory {
    fn drop(&mut self) {
        self.clear();
    }
}
