//! Memory windows: what they open, and by which name.

use super::{Lease, PostError, QueueId, Sge};
use crate::mlx5::ids::{Lkey, Rkey};
use core::ops::{BitOr, Range};

/// The name of a memory window, as one end of it knows it.
///
/// Every [bind](super::PostList::bind_mw) gives it a new one, whatever becomes of the request: an rkey that a peer was
/// told for an earlier view opens nothing now. After 256 binds the names come again.
#[derive(Debug, PartialEq, Eq)]
pub struct Window {
    rkey: Rkey,
}

impl Window {
    /// Of the key that the control path gave ([`Control::alloc_mw`](crate::backend::Control::alloc_mw)).
    pub const fn new(rkey: Rkey) -> Self {
        Self { rkey }
    }

    /// The key of the last bind, by which the peer names the window.
    pub const fn rkey(&self) -> Rkey {
        self.rkey
    }

    /// The key of the next bind (`ibv_inc_rkey`): the low byte is the user's.
    #[inline(always)]
    pub(super) const fn next_rkey(&self) -> Rkey {
        let rkey = self.rkey.get();
        Rkey::new(rkey & !0xff | rkey.wrapping_add(1) & 0xff)
    }

    #[inline(always)]
    pub(super) fn rename(&mut self, rkey: Rkey) {
        self.rkey = rkey;
    }
}

/// What a memory window lets the peer do, and how it counts addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WindowAccess(u8);

impl WindowAccess {
    /// RDMA WRITE. The memory behind needs `LOCAL_WRITE`; what its own peers may do does not count.
    pub const REMOTE_WRITE: Self = Self(1 << 1);
    /// RDMA READ.
    pub const REMOTE_READ: Self = Self(1 << 2);
    /// Atomics. The memory behind needs `LOCAL_WRITE`.
    pub const REMOTE_ATOMIC: Self = Self(1 << 3);
    /// The peer counts from 0 at the first byte of the view, and does not learn its address.
    pub const ZERO_BASED: Self = Self(1 << 5);

    #[inline(always)]
    const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    #[inline(always)]
    pub(super) const fn has_remote_write(self) -> bool {
        self.has(Self::REMOTE_WRITE)
    }

    #[inline(always)]
    pub(super) const fn has_remote_read(self) -> bool {
        self.has(Self::REMOTE_READ)
    }

    #[inline(always)]
    pub(super) const fn has_remote_atomic(self) -> bool {
        self.has(Self::REMOTE_ATOMIC)
    }

    #[inline(always)]
    pub(super) const fn is_zero_based(self) -> bool {
        self.has(Self::ZERO_BASED)
    }
}

impl BitOr for WindowAccess {
    type Output = Self;
    #[inline(always)]
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Memory leased to a queue pair, of which it may open parts to its peer by memory windows.
#[derive(Debug, Clone, Copy)]
pub struct Bindable {
    lease: Lease,
}

impl Bindable {
    /// Leases `len_bytes` from device address `addr` on to queue pair `owner` and to its peer.
    ///
    /// # Safety
    /// As of [`Lease::new`]; the peer too may read and write the range at any time, as far as windows allow.
    pub unsafe fn new(owner: QueueId, lkey: Lkey, addr: u64, len_bytes: u64) -> Self {
        // SAFETY: the caller's promise.
        Self { lease: unsafe { Lease::new(owner, lkey, addr, len_bytes) } }
    }

    /// Length of the memory in bytes.
    pub fn len_bytes(&self) -> u64 {
        self.lease.len_bytes()
    }

    /// A part of it, to be opened by a window. Checked when that is bound.
    pub fn view(self, range: Range<u64>, access: WindowAccess) -> View {
        View { lease: self.lease, range: (range.start, range.end), access }
    }
}

/// What a memory window is bound to: a part of memory, and what the peer may do there.
#[derive(Debug, Clone, Copy)]
pub struct View {
    lease: Lease,
    range: (u64, u64),
    access: WindowAccess,
}

impl View {
    #[inline(always)]
    pub(super) fn access(&self) -> WindowAccess {
        self.access
    }

    /// The memory, if `owner` may open it, and one entry of a key can name it: 1 to 2³¹ bytes.
    #[inline(always)]
    pub(super) fn check(&self, owner: QueueId) -> Result<Sge, PostError> {
        let (lkey, addr, len_bytes) = self.lease.check(owner, self.range.0..self.range.1)?;
        match len_bytes {
            0 => Err(PostError::OutOfRange),
            1..=0x8000_0000 => Ok(Sge { lkey, addr, len_bytes }),
            _ => Err(PostError::MessageTooLong),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_each_other_and_come_again() {
        let mut window = Window::new(Rkey::new(0x12_34fe));
        for name in [0x12_34ff, 0x12_3400, 0x12_3401] {
            window.rename(window.next_rkey());
            assert_eq!(window.rkey().get(), name);
        }
        for _ in 0..256 {
            window.rename(window.next_rkey());
        }
        assert_eq!(window.rkey().get(), 0x12_3401);
    }

    #[test]
    fn a_view_is_of_its_queue_pair_and_of_1_to_2_gib() {
        let owner = QueueId::next();
        // SAFETY: nothing is ever posted.
        let memory = unsafe { Bindable::new(owner, Lkey::new(9), 0x1000, 1 << 33) };
        let check = |range, owner| memory.view(range, WindowAccess::REMOTE_READ).check(owner);
        assert_eq!(check(5..6, owner), Ok(Sge { lkey: Lkey::new(9), addr: 0x1005, len_bytes: 1 }));
        assert!(check(7..7 + (1 << 31), owner).is_ok());
        for (range, error) in [
            (5..5, PostError::OutOfRange),
            (1 << 33..(1 << 33) + 1, PostError::OutOfRange),
            (7..8 + (1 << 31), PostError::MessageTooLong),
        ] {
            assert_eq!(check(range, owner), Err(error));
        }
        assert_eq!(check(5..6, QueueId::next()), Err(PostError::NotLeased));
    }
}
