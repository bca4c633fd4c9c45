//! The mappings of BAR0 that a program has made itself, through whatever stands for the device's file.

use super::{ModelFunction, PAGE_BYTES, TrappedPages};
use std::{
    io,
    ptr::NonNull,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

/// Those whose stores fault, with their addresses.
#[derive(Debug, Default)]
pub struct Mappings {
    trapped: Mutex<Vec<(usize, TrappedPages)>>,
    /// How many: `munmap` asks often.
    n_trapped: AtomicUsize,
}

impl Mappings {
    /// None.
    pub const fn new() -> Self {
        Self { trapped: Mutex::new(Vec::new()), n_trapped: AtomicUsize::new(0) }
    }

    /// The program has mapped part of a function's BAR0: its doorbells come unseen, or by faults, from now on.
    ///
    /// # Errors
    /// As [`ModelFunction::adopt_mapping`].
    ///
    /// # Safety
    /// `len_bytes` at `base`, to the end of the last page, are that mapping, and may be written; before it is unmapped
    /// [`unmapped`](Self::unmapped) is called.
    pub unsafe fn mapped(
        &self,
        function: &ModelFunction,
        base: *mut u8,
        len_bytes: usize,
        offset: u64,
    ) -> io::Result<()> {
        let base = NonNull::new(base).ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
        let len_bytes = len_bytes.next_multiple_of(PAGE_BYTES as usize);
        // SAFETY: promised by the caller; `unmapped` lets go of what is trapped first.
        let trapped = unsafe { function.adopt_mapping(base, len_bytes, offset)? };
        if !trapped.is_empty() {
            let mut all = self.trapped.lock().unwrap_or_else(PoisonError::into_inner);
            all.push((base.addr().get(), trapped));
            self.n_trapped.store(all.len(), Ordering::Release);
        }
        Ok(())
    }

    /// The program unmaps memory, whatever it is.
    pub fn unmapped(&self, base: usize, len_bytes: usize) {
        if self.n_trapped.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut all = self.trapped.lock().unwrap_or_else(PoisonError::into_inner);
        let range = base..base.saturating_add(len_bytes);
        let gone: Vec<_> = all.extract_if(.., |(at, _)| range.contains(at)).collect();
        self.n_trapped.store(all.len(), Ordering::Release);
        drop(all);
        // May be the card's last owner: not under the lock.
        drop(gone);
    }
}
