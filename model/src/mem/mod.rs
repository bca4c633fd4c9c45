//! The device's view of memory: I/O virtual addresses over memory of this process.
//!
//! Contiguous addresses need not be contiguous memory: every access walks the map. Accesses hold the map's
//! lock for reading and `unmap` takes it for writing, so when `unmap` returns no access is under way.

mod access;

use std::{
    collections::BTreeMap,
    fmt,
    ops::RangeInclusive,
    ptr::NonNull,
    sync::{PoisonError, RwLock, RwLockReadGuard},
};

/// Mappings that one function may hold: 4 GiB page by page.
pub const MAX_MAPPINGS: usize = 1 << 20;

/// The addresses that may be mapped: below and above the window that message-signalled interrupts take.
pub const IOVA_RANGES: [RangeInclusive<u64>; 2] = [0..=0xfedf_ffff, 0xfef0_0000..=(1 << 48) - 1];

/// An access that the map does not allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DmaFault {
    /// First address that is not reachable.
    pub iova: u64,
    /// Length in bytes of the whole access.
    pub len_bytes: usize,
    /// The address is mapped, but not for writing.
    pub read_only: bool,
}

impl fmt::Display for DmaFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { iova, len_bytes, read_only } = self;
        let why = if *read_only { "is mapped read-only" } else { "is not mapped" };
        write!(f, "IOVA 0x{iova:x}, of an access of {len_bytes} bytes, {why}")
    }
}

/// Why a mapping was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MapError {
    /// Empty, or past the end of the address space.
    BadRange,
    /// Outside [`IOVA_RANGES`].
    Reserved,
    /// Overlaps an existing mapping, which starts here.
    Exists(u64),
    /// [`MAX_MAPPINGS`] reached.
    Full,
    /// The range to unmap would cut the mapping that starts here.
    Cuts(u64),
    /// Nothing is mapped there.
    NotMapped,
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadRange => f.write_str("the range is empty or leaves the address space"),
            Self::Reserved => f.write_str("the range leaves the IOVA ranges of the device"),
            Self::Exists(iova) => write!(f, "the range overlaps the mapping at IOVA 0x{iova:x}"),
            Self::Full => write!(f, "the device holds {MAX_MAPPINGS} mappings, its limit"),
            Self::Cuts(iova) => write!(f, "the range would cut the mapping at IOVA 0x{iova:x}"),
            Self::NotMapped => f.write_str("nothing is mapped in the range"),
        }
    }
}

impl std::error::Error for MapError {}

#[derive(Clone, Copy)]
struct Mapping {
    memory: NonNull<u8>,
    len_bytes: u64,
    writable: bool,
}

// SAFETY: a mapping is an address and a length; what may be done there is promised to `DmaMap::map`,
// for any thread.
unsafe impl Send for Mapping {}
// SAFETY: as above; a `Mapping` itself is never changed once made.
unsafe impl Sync for Mapping {}

/// The mappings of one function.
#[derive(Default)]
pub struct DmaMap {
    mappings: RwLock<BTreeMap<u64, Mapping>>,
}

impl fmt::Debug for DmaMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DmaMap").field("n_mappings", &self.n_mappings()).finish()
    }
}

impl DmaMap {
    fn read_lock(&self) -> RwLockReadGuard<'_, BTreeMap<u64, Mapping>> {
        self.mappings.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of mappings.
    pub fn n_mappings(&self) -> usize {
        self.read_lock().len()
    }

    /// Bytes that are mapped.
    pub fn mapped_bytes(&self) -> u64 {
        self.read_lock().values().map(|mapping| mapping.len_bytes).sum()
    }

    /// Maps `len_bytes` of memory at `iova`.
    ///
    /// # Errors
    /// [`MapError`]; nothing is mapped then.
    ///
    /// # Safety
    /// The memory stays mapped and readable (and writable, if `writable`) until [`unmap`](Self::unmap) of it
    /// returns, and no Rust reference to it lives while the device may write it.
    pub unsafe fn map(
        &self,
        iova: u64,
        memory: NonNull<u8>,
        len_bytes: u64,
        writable: bool,
    ) -> Result<(), MapError> {
        let last = len_bytes.checked_sub(1).and_then(|n| iova.checked_add(n)).ok_or(MapError::BadRange)?;
        if !IOVA_RANGES.iter().any(|range| range.contains(&iova) && range.contains(&last)) {
            return Err(MapError::Reserved);
        }
        let mut mappings = self.mappings.write().unwrap_or_else(PoisonError::into_inner);
        if let Some((&at, before)) = mappings.range(..=last).next_back()
            && at + (before.len_bytes - 1) >= iova
        {
            return Err(MapError::Exists(at));
        }
        if mappings.len() == MAX_MAPPINGS {
            return Err(MapError::Full);
        }
        mappings.insert(iova, Mapping { memory, len_bytes, writable });
        Ok(())
    }

    /// Takes back every mapping inside the range, and returns how many bytes that were.
    ///
    /// # Errors
    /// [`MapError::Cuts`] if the range would cut a mapping, [`MapError::BadRange`]; nothing is unmapped then.
    pub fn unmap(&self, iova: u64, len_bytes: u64) -> Result<u64, MapError> {
        let last = len_bytes.checked_sub(1).and_then(|n| iova.checked_add(n)).ok_or(MapError::BadRange)?;
        let mut mappings = self.mappings.write().unwrap_or_else(PoisonError::into_inner);
        if let Some((&at, before)) = mappings.range(..iova).next_back()
            && at + (before.len_bytes - 1) >= iova
        {
            return Err(MapError::Cuts(at));
        }
        let inside: Vec<u64> = mappings.range(iova..=last).map(|(&at, _)| at).collect();
        if let Some(&at) = inside.last()
            && at + (mappings[&at].len_bytes - 1) > last
        {
            return Err(MapError::Cuts(at));
        }
        Ok(inside.iter().filter_map(|at| mappings.remove(at)).map(|mapping| mapping.len_bytes).sum())
    }

    /// Takes over the mappings of another function that the same IOMMU serves, in place of its own.
    ///
    /// # Safety
    /// As [`map`](Self::map), for each of them.
    pub unsafe fn follow(&self, other: &Self) {
        let mappings = other.read_lock().clone();
        *self.mappings.write().unwrap_or_else(PoisonError::into_inner) = mappings;
    }

    /// Takes back everything.
    pub fn clear(&self) {
        self.mappings.write().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leak(len_bytes: usize) -> NonNull<u8> {
        NonNull::from(Box::leak(vec![0u64; len_bytes / 8].into_boxed_slice())).cast()
    }

    fn map(dma: &DmaMap, iova: u64, memory: NonNull<u8>, len: u64, writable: bool) -> Result<(), MapError> {
        // SAFETY: the memory is leaked.
        unsafe { dma.map(iova, memory, len, writable) }
    }

    #[test]
    fn contiguous_iova_is_not_contiguous_memory() {
        let dma = DmaMap::default();
        for page in (0..20_000u64).rev() {
            let memory = leak(16);
            map(&dma, 0x10_0000 + page * 16, memory, 16, true).unwrap();
        }
        let bytes: Vec<u8> = (0..=255).cycle().take(100_000).collect();
        dma.write(0x10_0007, &bytes).unwrap();
        let mut back = vec![0; bytes.len()];
        dma.read(0x10_0007, &mut back).unwrap();
        assert_eq!(back, bytes);
        assert_eq!(dma.unmap(0x10_0000, 20_000 * 16), Ok(20_000 * 16));
        assert_eq!(dma.n_mappings(), 0);
    }

    #[test]
    fn refusals() {
        let dma = DmaMap::default();
        let memory = leak(4096);
        map(&dma, 0x1000, memory, 0x1000, false).unwrap();
        assert_eq!(map(&dma, 0x1fff, memory, 1, true), Err(MapError::Exists(0x1000)));
        assert_eq!(map(&dma, 0x800, memory, 0x801, true), Err(MapError::Exists(0x1000)));
        assert_eq!(map(&dma, 0x2000, memory, 0, true), Err(MapError::BadRange));
        assert_eq!(map(&dma, u64::MAX, memory, 2, true), Err(MapError::BadRange));
        assert_eq!(map(&dma, 0xfedf_ff00, memory, 0x200, true), Err(MapError::Reserved));
        assert_eq!(dma.unmap(0x1800, 0x800), Err(MapError::Cuts(0x1000)));
        assert_eq!(dma.unmap(0x1000, 0x800), Err(MapError::Cuts(0x1000)));
        assert_eq!(dma.unmap(0x3000, 0x800), Ok(0));
    }

    #[test]
    fn faults_name_the_address() {
        let dma = DmaMap::default();
        map(&dma, 0x1000, leak(4096), 0x1000, false).unwrap();
        let mut bytes = [0; 32];
        let fault = DmaFault { iova: 0x2000, len_bytes: 32, read_only: false };
        assert_eq!(dma.read(0x1ff0, &mut bytes), Err(fault));
        let fault = DmaFault { iova: 0x1000, len_bytes: 32, read_only: true };
        assert_eq!(dma.write(0x1000, &bytes), Err(fault));
        assert_eq!(dma.check(0x1000, 0x1000, true), Err(DmaFault { len_bytes: 0x1000, ..fault }));
        assert_eq!(dma.check(0x1000, 0x1000, false), Ok(()));
        assert!(dma.check(u64::MAX, 2, false).is_err());
    }

    #[test]
    fn a_write_that_cannot_be_whole_changes_nothing() {
        let dma = DmaMap::default();
        map(&dma, 0x1000, leak(16), 16, true).unwrap();
        assert!(dma.write(0x1008, &[1; 16]).is_err());
        let mut back = [9; 16];
        dma.read(0x1000, &mut back).unwrap();
        assert_eq!(back, [0; 16]);
    }

    #[test]
    fn atomics_and_publishing() {
        let dma = DmaMap::default();
        map(&dma, 0x1000, leak(128), 128, true).unwrap();
        dma.write(0x1008, &7u64.to_ne_bytes()).unwrap();
        assert_eq!(dma.fetch_update(0x1008, 8, &mut |old| old + 3), Ok(7));
        assert_eq!(dma.fetch_update(0x1008, 8, &mut |old| old), Ok(10));
        dma.write(0x1010, &[0xff; 8]).unwrap();
        assert_eq!(dma.fetch_update(0x1014, 4, &mut |old| old + 2), Ok(0xffff_ffff));
        let mut halves = [0; 8];
        dma.read(0x1010, &mut halves).unwrap();
        assert_eq!((&halves[..4], &halves[4..]), (&[0xff; 4][..], &1u32.to_ne_bytes()[..]));
        assert!(dma.fetch_update(0x1012, 4, &mut |old| old).is_err(), "not aligned");
        dma.publish(0x1040, &[0x5a; 64]).unwrap();
        assert_eq!(dma.load_be32(0x107c), Ok(0x5a5a_5a5a));
    }
}
