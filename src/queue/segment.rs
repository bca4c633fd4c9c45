//! What a request names, and how it is written into a ring.

use crate::{
    mlx5::ids::{Lkey, Rkey},
    wqe::DataSeg,
};

/// A place in a peer's registered memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remote {
    /// Address in the peer's region.
    pub addr: u64,
    /// The peer's key for it.
    pub rkey: Rkey,
}

/// A piece of local registered memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sge {
    /// Key of the region.
    pub lkey: Lkey,
    /// Device address of the first byte.
    pub addr: u64,
    /// Length in bytes, at most 2³¹.
    pub len_bytes: u32,
}

impl Sge {
    /// As a data segment; 2³¹ bytes are written as 0.
    #[inline(always)]
    pub(super) fn segment(self) -> DataSeg {
        DataSeg::new().with_byte_count(self.len_bytes).with_lkey(self.lkey).with_addr(self.addr)
    }
}

/// Stores a 16-byte segment as two words.
///
/// # Safety
/// `at` is valid for writes of 16 bytes and 16-byte aligned.
#[inline(always)]
pub(super) unsafe fn store(at: *mut u8, segment: [u8; 16]) {
    let [low, high] = halves(segment);
    // SAFETY: by the caller's promise. Plain stores: the device does not look before the doorbell record,
    // and the barrier before that keeps them here.
    unsafe {
        at.cast::<u64>().write(low);
        at.cast::<u64>().add(1).write(high);
    }
}

/// A segment as the two words that it is in memory.
#[inline(always)]
pub(super) fn halves(segment: [u8; 16]) -> [u64; 2] {
    let word = u128::from_ne_bytes(segment);
    if cfg!(target_endian = "little") {
        [word as u64, (word >> 64) as u64]
    } else {
        [(word >> 64) as u64, word as u64]
    }
}
