//! Binding a memory window: as it is drawn, for us, and for libmlx5.

use crate::{random::Random, rival::ffi::*};
use mlx5_direct::{
    mlx5::ids::{Lkey, Rkey},
    queue::{Bindable, QueueId, View, Window, WindowAccess},
};
use std::ptr;

/// A window, and what it shall open.
#[derive(Debug, Clone)]
pub(crate) struct Bind {
    /// The window's key so far. The new one is what comes after it.
    rkey: u32,
    lkey: u32,
    addr: u64,
    len_bytes: u64,
    /// `IBV_ACCESS_…`.
    access: u32,
}

/// What libmlx5 reads of a window and of the memory behind it. Nothing else of them is looked at.
pub(crate) struct Theirs {
    pub(crate) mw: Box<IbvMw>,
    _mr: Box<IbvMr>,
    pub(crate) new_rkey: u32,
    pub(crate) info: IbvMwBindInfo,
}

impl Bind {
    pub(crate) fn draw(random: &mut Random) -> Self {
        let rights = [IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_ATOMIC];
        let rights = rights.into_iter().filter(|_| random.one_in(2)).sum::<u32>();
        let len_bytes = match random.below(4) {
            0 => 1 << 31,
            1 => 1 + random.below(100) as u64,
            _ => 1 + random.below(1 << 31) as u64,
        };
        let zero_based = if random.one_in(3) { IBV_ACCESS_ZERO_BASED } else { 0 };
        let (rkey, lkey) = (random.next() as u32, random.next() as u32);
        Self { rkey, lkey, addr: random.next(), len_bytes, access: rights | zero_based }
    }

    /// The same over so many bytes.
    pub(crate) fn over(self, len_bytes: u64) -> Self {
        Self { len_bytes, ..self }
    }

    /// For the queue pair with this identity.
    pub(crate) fn ours(&self, owner: QueueId) -> (Window, View) {
        let mut access = WindowAccess::default();
        for (flag, ours) in [
            (IBV_ACCESS_REMOTE_WRITE, WindowAccess::REMOTE_WRITE),
            (IBV_ACCESS_REMOTE_READ, WindowAccess::REMOTE_READ),
            (IBV_ACCESS_REMOTE_ATOMIC, WindowAccess::REMOTE_ATOMIC),
            (IBV_ACCESS_ZERO_BASED, WindowAccess::ZERO_BASED),
        ] {
            if self.access & flag != 0 {
                access = access | ours;
            }
        }
        // SAFETY: no device reads the ring.
        let memory = unsafe { Bindable::new(owner, Lkey::new(self.lkey), self.addr, self.len_bytes) };
        (Window::new(Rkey::new(self.rkey)), memory.view(0..self.len_bytes, access))
    }

    pub(crate) fn theirs(&self) -> Theirs {
        // SAFETY: addresses and integers.
        let mut mr: Box<IbvMr> = Box::new(unsafe { std::mem::zeroed() });
        mr.lkey = self.lkey;
        let mw = IbvMw {
            context: ptr::null_mut(),
            pd: ptr::null_mut(),
            rkey: self.rkey,
            handle: 0,
            kind: IBV_MW_TYPE_2,
        };
        let info = IbvMwBindInfo {
            mr: &raw mut *mr,
            addr: self.addr,
            length: self.len_bytes,
            mw_access_flags: self.access,
        };
        // `ibv_inc_rkey`.
        let new_rkey = self.rkey & !0xff | self.rkey.wrapping_add(1) & 0xff;
        Theirs { mw: Box::new(mw), _mr: mr, new_rkey, info }
    }
}

impl Theirs {
    /// `bind_mw` of `struct ibv_send_wr`.
    pub(crate) fn rest(&self) -> [u64; 6] {
        let info = &self.info;
        [
            (&raw const *self.mw).addr() as u64,
            self.new_rkey.into(),
            info.mr.addr() as u64,
            info.addr,
            info.length,
            info.mw_access_flags.into(),
        ]
    }
}
