//! Folders that are ours, as `opendir`, `readdir` and `closedir` show them.

use std::{
    ffi::c_void,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

/// An opened folder. Its address stands for the `DIR *`.
#[derive(Debug)]
pub(crate) struct Listing {
    names: Vec<String>,
    at: usize,
    entry: libc::dirent64,
}

/// Addresses of those that are open, and how many there are: `readdir` asks often.
static OPEN: Mutex<Vec<usize>> = Mutex::new(Vec::new());
static N_OPEN: AtomicUsize = AtomicUsize::new(0);

/// Opens a folder with these names in it.
pub(crate) fn open(names: Vec<String>) -> *mut c_void {
    // SAFETY: all-zero bytes are a valid entry.
    let entry = unsafe { std::mem::zeroed() };
    let listing = Box::into_raw(Box::new(Listing { names, at: 0, entry }));
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    open.push(listing.addr());
    N_OPEN.store(open.len(), Ordering::Release);
    listing.cast()
}

/// Whether `dir` is one of ours.
pub(crate) fn is_ours(dir: *const c_void) -> bool {
    N_OPEN.load(Ordering::Acquire) > 0
        && OPEN.lock().unwrap_or_else(PoisonError::into_inner).contains(&dir.addr())
}

/// The next entry; null at the end.
///
/// # Safety
/// `dir` is open and [ours](is_ours), and used by one thread at a time.
pub(crate) unsafe fn next(dir: *mut c_void) -> *mut libc::dirent64 {
    // SAFETY: made by `open`, not closed yet, and this thread's.
    let listing = unsafe { &mut *dir.cast::<Listing>() };
    let Some(name) = listing.names.get(listing.at) else { return std::ptr::null_mut() };
    listing.at += 1;
    let entry = &mut listing.entry;
    // No file has number 0.
    (entry.d_ino, entry.d_off, entry.d_type) = (listing.at as u64, listing.at as i64, libc::DT_UNKNOWN);
    entry.d_reclen = size_of::<libc::dirent64>() as u16;
    let room = entry.d_name.len() - 1;
    let n = name.len().min(room);
    for (to, from) in entry.d_name.iter_mut().zip(name.bytes().take(n).chain(std::iter::once(0))) {
        *to = from.cast_signed();
    }
    entry
}

/// Closes it.
///
/// # Safety
/// `dir` is open and [ours](is_ours), and not used again.
pub(crate) unsafe fn close(dir: *mut c_void) {
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    open.retain(|addr| *addr != dir.addr());
    N_OPEN.store(open.len(), Ordering::Release);
    drop(open);
    // SAFETY: made by `open` from a box, and given up by the caller.
    drop(unsafe { Box::from_raw(dir.cast::<Listing>()) });
}
