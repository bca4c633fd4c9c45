//! Binding a memory window: as it is drawn, for us, and for libmlx5.

use crate::{random::Random, rival::ffi::*};
use mlx5_direct::{
    mlx5::ids::{Lkey, Rkey},
    queue::{Bindable, Flags, Paired, PostError, PostList, QueueId, Sge, Window, WindowAccess},
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
    pub(crate) is_type_1: bool,
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
        let is_type_1 = random.one_in(2);
        let len_bytes = match random.below(4) {
            // Closes it. One of type 2 is closed by LOCAL_INV here.
            0 if is_type_1 => 0,
            0 => 1 << 31,
            1 => 1 + random.below(100) as u64,
            _ => 1 + random.below(1 << 31) as u64,
        };
        // `ibv_bind_mw` has no such windows of type 1.
        let zero_based = if !is_type_1 && random.one_in(3) { IBV_ACCESS_ZERO_BASED } else { 0 };
        let (rkey, lkey) = (random.next() as u32, random.next() as u32);
        Self { rkey, lkey, addr: random.next(), len_bytes, access: rights | zero_based, is_type_1 }
    }

    /// The same over so many bytes.
    pub(crate) fn over(self, len_bytes: u64) -> Self {
        Self { len_bytes, is_type_1: false, ..self }
    }

    /// By us, for the queue pair with this identity.
    pub(crate) fn post<T: Paired>(
        &self,
        list: &mut PostList<'_, T>,
        flags: Flags,
        owner: QueueId,
    ) -> Result<(), PostError> {
        let (mut window, access) = (Window::new(Rkey::new(self.rkey)), self.ours());
        let lkey = Lkey::new(self.lkey);
        if self.is_type_1 && self.len_bytes == 0 {
            list.close_mw_type_1(1, &mut window, flags)?.finish();
        } else if self.is_type_1 {
            let memory = Sge { lkey, addr: self.addr, len_bytes: self.len_bytes as u32 };
            // SAFETY: no device reads the ring.
            unsafe { list.bind_mw_type_1(1, &mut window, memory, access, flags)? }.finish();
        } else {
            // SAFETY: no device reads the ring.
            let memory = unsafe { Bindable::new(owner, lkey, self.addr, self.len_bytes) };
            list.bind_mw(1, &mut window, &memory.view(0..self.len_bytes, access), flags)?.finish();
        }
        assert_eq!(window.rkey().get(), self.theirs().new_rkey);
        Ok(())
    }

    /// Where libmlx5 leaves the key's context as it was.
    pub(crate) fn left_alone(&self) -> Vec<std::ops::Range<usize>> {
        match self.len_bytes {
            0 => vec![65..68, 72..128],
            _ => vec![65..66, 67..68, 72..80, 96..128],
        }
    }

    fn ours(&self) -> WindowAccess {
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
        access
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
            kind: if self.is_type_1 { IBV_MW_TYPE_1 } else { IBV_MW_TYPE_2 },
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
