//! Doorbell records: words of host memory in which a queue publishes its counter.

use crate::{mistake::mistake, mlx5::be::Be32};
use core::ptr::NonNull;
use volatile_register::WO;

/// One word of a doorbell record, and the right to write it.
#[derive(Debug)]
pub struct DoorbellRecord {
    word: NonNull<WO<Be32>>,
}

// SAFETY: the word belongs to this value alone, on whatever thread it is.
unsafe impl Send for DoorbellRecord {}

impl DoorbellRecord {
    /// Takes a word of a doorbell record.
    ///
    /// # Safety
    /// `word` stays valid for writes as long as the value lives, and nobody else in this process writes it.
    /// The device may read it at any time.
    pub unsafe fn new(word: NonNull<Be32>) -> Self {
        Self { word: word.cast() }
    }

    /// Publishes a counter.
    #[inline(always)]
    pub fn write(&mut self, counter: u32) {
        let counter = if mistake!(RecordSwapped) { counter.swap_bytes() } else { counter };
        // SAFETY: valid and ours by the contract of `new`; a write-only cell, which the device only reads.
        unsafe { self.word.as_ref().write(Be32::new(counter)) }
    }
}
