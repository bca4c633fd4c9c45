//! Physical memory, for no-IOMMU mode: huge pages and their addresses, as `/proc/self/pagemap` and `/proc/kpageflags` tell
//! them, and as the card reaches them. Addresses run backwards, so that a driver that takes two huge pages for neighbours
//! goes wrong. They are made of the computer's usual pages.

use crate::{card, host::Translation, real::real};
use std::{
    collections::BTreeMap,
    ffi::{c_int, c_void},
    ptr::NonNull,
    sync::{Mutex, MutexGuard, PoisonError},
};

const PAGE_BYTES: usize = 4096;
pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;
/// Address after the first huge page.
const TOP: u64 = 1 << 40;

/// Bits of `pagemap` and of `kpageflags`.
const PRESENT: u64 = 1 << 63;
const HUGE: u64 = 1 << 17;

/// The huge pages of this process: physical address by address.
#[derive(Debug, Default)]
struct Pages {
    by_address: BTreeMap<usize, u64>,
    n_ever: u64,
}

static PAGES: Mutex<Pages> = Mutex::new(Pages { by_address: BTreeMap::new(), n_ever: 0 });

fn pages() -> MutexGuard<'static, Pages> {
    PAGES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a mapping with these flags is of huge pages that are ours to make.
pub(crate) fn concerns(flags: c_int) -> bool {
    flags & libc::MAP_HUGETLB != 0 && crate::host::host().is_ok_and(|host| host.iommu == Translation::NoIommu)
}

/// The huge pages there are, with their physical addresses.
pub(crate) fn all() -> Vec<(u64, NonNull<u8>)> {
    let memory = |at: usize| NonNull::new(std::ptr::with_exposed_provenance_mut(at));
    pages().by_address.iter().filter_map(|(&at, &physical)| Some((physical, memory(at)?))).collect()
}

/// Maps huge pages.
pub(crate) fn map(len_bytes: usize, protection: c_int, flags: c_int) -> Result<*mut c_void, c_int> {
    let len_bytes = len_bytes.checked_next_multiple_of(HUGE_PAGE_BYTES).ok_or(libc::EINVAL)?;
    let n_free =
        crate::host::host().map_or(0, |host| host.huge_pages).saturating_sub(pages().by_address.len());
    if len_bytes / HUGE_PAGE_BYTES > n_free
        || flags & libc::MAP_ANONYMOUS == 0
        || flags & libc::MAP_FIXED != 0
    {
        return Err(libc::ENOMEM);
    }
    // The size of huge pages is in the upper bits.
    let flags = flags & !(libc::MAP_HUGETLB | libc::MAP_HUGE_MASK << libc::MAP_HUGE_SHIFT);
    let room_bytes = len_bytes + HUGE_PAGE_BYTES;
    let room = real!(
        c"mmap",
        fn(*mut c_void, usize, c_int, c_int, c_int, i64) -> *mut c_void,
        std::ptr::null_mut(),
        room_bytes,
        protection,
        flags,
        -1,
        0
    );
    if room == libc::MAP_FAILED {
        return Err(libc::ENOMEM);
    }
    let lead_bytes = room.addr().next_multiple_of(HUGE_PAGE_BYTES) - room.addr();
    let base = room.wrapping_byte_add(lead_bytes);
    for (at, n) in [(room, lead_bytes), (base.wrapping_byte_add(len_bytes), HUGE_PAGE_BYTES - lead_bytes)] {
        if n != 0 {
            real!(c"munmap", fn(*mut c_void, usize) -> c_int, at, n);
        }
    }
    let start = base.expose_provenance();
    let mut made = Vec::new();
    let mut pages = pages();
    for at in (start..start + len_bytes).step_by(HUGE_PAGE_BYTES) {
        pages.n_ever += 1;
        let physical = TOP - pages.n_ever * HUGE_PAGE_BYTES as u64;
        pages.by_address.insert(at, physical);
        made.push((physical, NonNull::new(std::ptr::with_exposed_provenance_mut(at)).ok_or(libc::ENOMEM)?));
    }
    drop(pages);
    if let Some(card) = card::opened() {
        card.memory_came(&made);
    }
    Ok(base)
}

/// Forgets huge pages that are unmapped.
pub(crate) fn unmapped(start: usize, len_bytes: usize) {
    let mut pages = pages();
    let gone: Vec<usize> =
        pages.by_address.range(start..start.saturating_add(len_bytes)).map(|(&at, _)| at).collect();
    let gone: Vec<u64> = gone.iter().filter_map(|at| pages.by_address.remove(at)).collect();
    drop(pages);
    if let Some(card) = card::opened().filter(|_| !gone.is_empty()) {
        card.memory_went(&gone);
    }
}

/// Words of a table from `offset` on, each as `word` has it.
fn read(into: &mut [u8], offset: i64, word: impl Fn(u64) -> u64) -> Result<usize, c_int> {
    let first = u64::try_from(offset).map_err(|_| libc::EINVAL)?;
    if !first.is_multiple_of(8) || !into.len().is_multiple_of(8) {
        return Err(libc::EINVAL);
    }
    for (n, bytes) in (first / 8..).zip(into.chunks_exact_mut(8)) {
        bytes.copy_from_slice(&word(n).to_ne_bytes());
    }
    Ok(into.len())
}

/// `/proc/self/pagemap`, as far as huge pages go: all others are not there.
pub(crate) fn read_pagemap(into: &mut [u8], offset: i64) -> Result<usize, c_int> {
    let pages = pages();
    read(into, offset, |page| {
        let at = page as usize * PAGE_BYTES;
        let Some(physical) = pages.by_address.get(&(at - at % HUGE_PAGE_BYTES)) else { return 0 };
        PRESENT | ((physical + (at % HUGE_PAGE_BYTES) as u64) / PAGE_BYTES as u64)
    })
}

/// `/proc/kpageflags`, likewise.
pub(crate) fn read_flags(into: &mut [u8], offset: i64) -> Result<usize, c_int> {
    let pages = pages();
    read(into, offset, |frame| {
        let physical = frame * PAGE_BYTES as u64;
        let huge = physical - physical % HUGE_PAGE_BYTES as u64;
        if pages.by_address.values().any(|at| *at == huge) { HUGE } else { 0 }
    })
}
