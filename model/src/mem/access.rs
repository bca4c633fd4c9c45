//! Reads, writes and atomics through the map.
//!
//! The driver touches the same memory at the same time, as it would with a card. Accesses are relaxed
//! atomics of up to 8 bytes, so a race gives old or new bytes and nothing worse.

use super::{DmaFault, DmaMap, Mapping};
use std::{
    collections::BTreeMap,
    ptr::NonNull,
    sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence},
};

/// Calls `visit` with each piece of memory that an access touches, in order, and the bytes before it.
fn walk(
    mappings: &BTreeMap<u64, Mapping>,
    iova: u64,
    len_bytes: usize,
    write: bool,
    mut visit: impl FnMut(NonNull<u8>, usize, usize),
) -> Result<(), DmaFault> {
    let mut done = 0;
    while done < len_bytes {
        let at = iova.wrapping_add(done as u64);
        let fault = DmaFault { iova: at, len_bytes, read_only: false };
        let (&base, mapping) = mappings.range(..=at).next_back().ok_or(fault)?;
        let inside = at - base;
        if inside >= mapping.len_bytes {
            return Err(fault);
        }
        if write && !mapping.writable {
            return Err(DmaFault { read_only: true, ..fault });
        }
        let n = ((mapping.len_bytes - inside).min((len_bytes - done) as u64)) as usize;
        // SAFETY: `inside` < `len_bytes` of the mapping, which `DmaMap::map` was promised to be memory.
        visit(unsafe { mapping.memory.add(inside as usize) }, done, n);
        done += n;
    }
    Ok(())
}

/// # Safety
/// `from` is `into.len()` bytes of memory under the promise of `DmaMap::map`.
unsafe fn load(from: NonNull<u8>, into: &mut [u8]) {
    let mut at = 0;
    while at < into.len() {
        // SAFETY: `at` is inside the memory promised by the caller.
        let ptr = unsafe { from.add(at) };
        if ptr.addr().get() % 8 == 0 && into.len() - at >= 8 {
            // SAFETY: aligned, 8 bytes inside, accessed atomically by everyone on this side.
            let word = unsafe { AtomicU64::from_ptr(ptr.as_ptr().cast()) }.load(Ordering::Relaxed);
            into[at..at + 8].copy_from_slice(&word.to_ne_bytes());
            at += 8;
        } else {
            // SAFETY: one byte inside.
            into[at] = unsafe { AtomicU8::from_ptr(ptr.as_ptr()) }.load(Ordering::Relaxed);
            at += 1;
        }
    }
}

/// # Safety
/// `to` is `from.len()` bytes of writable memory under the promise of `DmaMap::map`.
unsafe fn store(to: NonNull<u8>, from: &[u8]) {
    let mut at = 0;
    while at < from.len() {
        // SAFETY: `at` is inside the memory promised by the caller.
        let ptr = unsafe { to.add(at) };
        if ptr.addr().get() % 8 == 0
            && let Some(word) = from[at..].first_chunk()
        {
            let word = u64::from_ne_bytes(*word);
            // SAFETY: aligned, 8 bytes inside, accessed atomically by everyone on this side.
            unsafe { AtomicU64::from_ptr(ptr.as_ptr().cast()) }.store(word, Ordering::Relaxed);
            at += 8;
        } else {
            // SAFETY: one byte inside.
            unsafe { AtomicU8::from_ptr(ptr.as_ptr()) }.store(from[at], Ordering::Relaxed);
            at += 1;
        }
    }
}

impl DmaMap {
    /// Whether the device may read (or write) the whole range.
    ///
    /// # Errors
    /// The first byte that it may not.
    pub fn check(&self, iova: u64, len_bytes: usize, write: bool) -> Result<(), DmaFault> {
        walk(&self.read_lock(), iova, len_bytes, write, |_, _, _| ())
    }

    /// Reads `into.len()` bytes.
    ///
    /// # Errors
    /// Part of it is not mapped; `into` is then partly written.
    pub fn read(&self, iova: u64, into: &mut [u8]) -> Result<(), DmaFault> {
        let mappings = self.read_lock();
        walk(&mappings, iova, into.len(), false, |memory, done, n| {
            // SAFETY: `walk` gives `n` bytes of mapped memory, and the read lock keeps them mapped.
            unsafe { load(memory, &mut into[done..done + n]) };
        })
    }

    /// Writes `from`.
    ///
    /// # Errors
    /// Part of it is not mapped for writing; nothing is written then.
    pub fn write(&self, iova: u64, from: &[u8]) -> Result<(), DmaFault> {
        let mappings = self.read_lock();
        walk(&mappings, iova, from.len(), true, |_, _, _| ())?;
        walk(&mappings, iova, from.len(), true, |memory, done, n| {
            // SAFETY: `walk` gives `n` bytes of writable memory, and the read lock keeps them mapped.
            unsafe { store(memory, &from[done..done + n]) };
        })
    }

    /// Writes an entry whose last 4 bytes hold its ownership: they become visible after all others.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn publish(&self, iova: u64, entry: &[u8]) -> Result<(), DmaFault> {
        let split = entry.len().saturating_sub(4);
        self.check(iova, entry.len(), true)?;
        self.write(iova, &entry[..split])?;
        // Pairs with the driver's read barrier between its test of the ownership and its reading of the rest.
        fence(Ordering::Release);
        let mut word = [0; 4];
        word.copy_from_slice(&entry[split..]);
        self.word32(iova + split as u64, true, |word32| {
            word32.store(u32::from_ne_bytes(word), Ordering::Relaxed);
        })
    }

    /// Calls `access` with an aligned 32-bit word.
    fn word32<T>(&self, iova: u64, write: bool, access: impl FnOnce(&AtomicU32) -> T) -> Result<T, DmaFault> {
        let mappings = self.read_lock();
        let mut ptr = None;
        walk(&mappings, iova, 4, write, |memory, _, n| ptr = Some(memory).filter(|_| n == 4))?;
        let fault = DmaFault { iova, len_bytes: 4, read_only: false };
        let ptr = ptr.filter(|ptr| ptr.addr().get() % 4 == 0).ok_or(fault)?;
        // SAFETY: 4 mapped bytes in one piece, aligned; the read lock keeps them mapped.
        Ok(access(unsafe { AtomicU32::from_ptr(ptr.as_ptr().cast()) }))
    }

    /// Loads an aligned big-endian word, and orders later reads after it.
    ///
    /// # Errors
    /// It is not mapped or not aligned.
    pub fn load_be32(&self, iova: u64) -> Result<u32, DmaFault> {
        self.word32(iova, false, |word| u32::from_be(word.load(Ordering::Acquire)))
    }

    /// Replaces an aligned integer of 4 or 8 bytes, in the host's byte order, by `update` of it, in one atomic step, and
    /// returns the old value.
    ///
    /// # Errors
    /// It is not mapped for writing or not aligned.
    pub fn fetch_update(
        &self,
        iova: u64,
        len_bytes: usize,
        update: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, DmaFault> {
        if len_bytes == 4 {
            return self.word32(iova, true, |word| {
                let mut old = word.load(Ordering::Acquire);
                let mut next = |old: u32| update(old.into()) as u32;
                while let Err(now) =
                    word.compare_exchange(old, next(old), Ordering::AcqRel, Ordering::Acquire)
                {
                    old = now;
                }
                old.into()
            });
        }
        let mappings = self.read_lock();
        let mut ptr = None;
        walk(&mappings, iova, 8, true, |memory, _, n| ptr = Some(memory).filter(|_| n == 8))?;
        let fault = DmaFault { iova, len_bytes: 8, read_only: false };
        let ptr = ptr.filter(|ptr| ptr.addr().get() % 8 == 0).ok_or(fault)?;
        // SAFETY: 8 mapped bytes in one piece, aligned; the read lock keeps them mapped.
        let word = unsafe { AtomicU64::from_ptr(ptr.as_ptr().cast()) };
        let mut old = word.load(Ordering::Acquire);
        while let Err(now) = word.compare_exchange(old, update(old), Ordering::AcqRel, Ordering::Acquire) {
            old = now;
        }
        Ok(old)
    }
}
