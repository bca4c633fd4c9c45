//! Addresses that are free for mappings.
#![forbid(unsafe_code)]

use crate::{Error, Result};
use std::{collections::BTreeMap, ops::RangeInclusive};

/// Hands out ranges of I/O virtual addresses, first fit, and takes back exactly what it gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IovaAllocator {
    /// Free ranges by first address, with their last address. Neighbours are always joined.
    free: BTreeMap<u64, u64>,
    free_bytes: u64,
    given: BTreeMap<u64, u64>,
}

impl IovaAllocator {
    /// All of `ranges`, rounded inwards to pages of 4 KiB. Page 0 is left out: firmware takes address 0
    /// for none.
    pub fn new(ranges: &[RangeInclusive<u64>]) -> Self {
        const PAGE: u64 = super::PAGE_BYTES as u64;
        let mut allocator = Self { free: BTreeMap::new(), free_bytes: 0, given: BTreeMap::new() };
        for range in ranges {
            let first = range.start().max(&PAGE).checked_next_multiple_of(PAGE);
            // The last page of the space is left out, so that an end always has an address.
            let end = range.end().saturating_add(1) & !(PAGE - 1);
            if let Some(first) = first.filter(|first| *first < end) {
                allocator.insert(first, end - 1);
                allocator.free_bytes += end - first;
            }
        }
        allocator
    }

    /// Takes `len_bytes` at an address that is `residue` modulo `align_bytes`, a power of two.
    pub fn alloc(&mut self, len_bytes: u64, align_bytes: u64, residue: u64) -> Result<u64> {
        let fit = |first: u64, last: u64| {
            let start = first.checked_add(residue.wrapping_sub(first) & (align_bytes - 1))?;
            let end = start.checked_add(len_bytes - 1)?;
            (end <= last).then_some((start, end))
        };
        let found = if len_bytes == 0 || !align_bytes.is_power_of_two() {
            None
        } else {
            self.free.iter().find_map(|(&first, &last)| fit(first, last).map(|range| (first, last, range)))
        };
        let Some((first, last, (start, end))) = found else {
            return Err(Error::OutOfIova {
                wanted_bytes: len_bytes,
                align_bytes,
                free_bytes: self.free_bytes,
            });
        };
        self.free.remove(&first);
        if first < start {
            self.free.insert(first, start - 1);
        }
        if end < last {
            self.free.insert(end + 1, last);
        }
        self.free_bytes -= len_bytes;
        self.given.insert(start, len_bytes);
        Ok(start)
    }

    /// Takes back what [`alloc`](Self::alloc) gave.
    ///
    /// # Panics
    /// If `start` and `len_bytes` are not exactly what it gave.
    pub fn free(&mut self, start: u64, len_bytes: u64) {
        let given = self.given.remove(&start);
        assert_eq!(given, Some(len_bytes), "0x{start:x}: given {given:?} bytes, {len_bytes} come back");
        self.insert(start, start + (len_bytes - 1));
        self.free_bytes += len_bytes;
    }

    /// Bytes that are free.
    pub fn free_bytes(&self) -> u64 {
        self.free_bytes
    }

    /// Adds a free range, joined with its neighbours.
    fn insert(&mut self, mut first: u64, mut last: u64) {
        if let Some((&below, &below_last)) = self.free.range(..first).next_back()
            && below_last + 1 == first
        {
            self.free.remove(&below);
            first = below;
        }
        if let Some(above_last) = last.checked_add(1).and_then(|above| self.free.remove(&above)) {
            last = above_last;
        }
        self.free.insert(first, last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Case B8: a million registrations of odd sizes leave the free space as it was.
    #[test]
    fn mr_reg_dereg_1e6() {
        let mut allocator = IovaAllocator::new(&[0x1_0000..=0xfedf_ffff, 0xfef0_0000..=(1 << 39) - 1]);
        let before = allocator.clone();
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed
        };
        let mut live: Vec<(u64, u64)> = Vec::new();
        for _ in 0..1_000_000 {
            if live.len() > 60 || (!live.is_empty() && random() % 2 == 0) {
                let (start, len) = live.swap_remove(random() as usize % live.len());
                allocator.free(start, len);
            } else {
                let len = (random() % 0x4000 + 1) * 4096;
                let align = 4096 << (random() % 10);
                let residue = (random() % align) & !4095;
                let start = allocator.alloc(len, align, residue).unwrap();
                assert_eq!(start % align, residue);
                live.push((start, len));
            }
        }
        for (start, len) in live {
            allocator.free(start, len);
        }
        assert_eq!(allocator, before);
    }

    #[test]
    fn ranges_are_respected_and_never_overlap() {
        let mut allocator = IovaAllocator::new(&[0..=0x2fff, 0x8000..=0x9ffe]);
        assert_eq!(allocator.free_bytes(), 0x3000);
        let mut given: Vec<_> = (0..3).map(|_| allocator.alloc(0x1000, 0x1000, 0).unwrap()).collect();
        given.sort_unstable();
        assert_eq!(given, [0x1000, 0x2000, 0x8000]);
        let full = allocator.alloc(1, 0x1000, 0).unwrap_err().to_string();
        assert!(full.contains("(0 free in all)"), "{full}");
        for start in given {
            allocator.free(start, 0x1000);
        }
        assert!(allocator.alloc(0x2000, 0x1000, 0).is_ok());
    }

    #[test]
    fn the_whole_address_space_can_be_given() {
        let mut allocator = IovaAllocator::new(&[0..=u64::MAX]);
        let free = allocator.free_bytes();
        let start = allocator.alloc(free, 4096, 0).unwrap();
        assert_eq!((start, allocator.free_bytes()), (4096, 0));
        allocator.free(start, free);
        assert_eq!(allocator.free_bytes(), free);
    }

    #[test]
    #[should_panic(expected = "come back")]
    fn a_wrong_length_does_not_come_back() {
        let mut allocator = IovaAllocator::new(&[0..=0xf_ffff]);
        let start = allocator.alloc(0x2000, 0x1000, 0).unwrap();
        allocator.free(start, 0x1000);
    }
}
