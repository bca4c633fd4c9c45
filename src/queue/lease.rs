//! Memory that may be named in a request without `unsafe`.

use super::PostError;
use crate::mlx5::ids::Lkey;
use core::{
    ops::Range,
    sync::atomic::{AtomicU64, Ordering},
};

/// Tells one queue pair of this process from every other, past ones included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct QueueId(u64);

impl QueueId {
    /// A number never given before.
    pub fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Registered memory that one queue pair may name without `unsafe`.
///
/// Whoever made the lease keeps the memory registered as long as the queue pair can refer to it.
#[derive(Debug, Clone, Copy)]
pub struct Lease {
    owner: QueueId,
    lkey: Lkey,
    addr: u64,
    len_bytes: u64,
}

impl Lease {
    /// Leases `len_bytes` from device address `addr` on to queue pair `owner`.
    ///
    /// # Safety
    /// Until `owner`'s queues are destroyed, the range stays registered under `lkey`, its memory stays
    /// mapped, and no Rust reference to it lives: the device may read and write it at any time.
    pub unsafe fn new(owner: QueueId, lkey: Lkey, addr: u64, len_bytes: u64) -> Self {
        Self { owner, lkey, addr, len_bytes }
    }

    /// Length of the leased memory in bytes.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// A part of it, to be named in a receive request. Checked when it is posted.
    pub fn slice(self, range: Range<u64>) -> LeaseSlice {
        LeaseSlice { lease: self, range: (range.start, range.end) }
    }

    /// Address and length of `range`, if `owner` may name it.
    #[inline(always)]
    pub(super) fn check(&self, owner: QueueId, range: Range<u64>) -> Result<(Lkey, u64, u32), PostError> {
        if self.owner != owner {
            return Err(PostError::NotLeased);
        }
        if range.start > range.end || range.end > self.len_bytes {
            return Err(PostError::OutOfRange);
        }
        let Ok(len) = u32::try_from(range.end - range.start) else {
            return Err(PostError::MessageTooLong);
        };
        // Cannot overflow: the whole leased range is registered memory.
        Ok((self.lkey, self.addr.wrapping_add(range.start), len))
    }
}

/// A part of a [`Lease`].
#[derive(Debug, Clone, Copy)]
pub struct LeaseSlice {
    lease: Lease,
    range: (u64, u64),
}

impl LeaseSlice {
    #[inline(always)]
    pub(super) fn check(&self, owner: QueueId) -> Result<(Lkey, u64, u32), PostError> {
        self.lease.check(owner, self.range.0..self.range.1)
    }
}
