//! Requests that change a memory key: a UMR control segment, a memory key context, and what the key leads to.

use super::{
    Flags, Paired, PostError, PostList, Ready, Request, Sge, Transport, View, Window, WindowAccess,
    segment::store,
};
use crate::{
    mistake::mistake,
    mlx5::{
        context::Mkc,
        ids::{Qpn, Rkey},
    },
    wqe::{KlmEntry, MkeyMask, SEGMENT_BYTES, SendOpcode, UmrCtrlSeg, WQEBB_BYTES},
};

impl<'q, T: Paired> PostList<'q, T> {
    /// Invalidates a key of this queue pair's protection domain: no access through it passes from then on, and its
    /// memory may be used for something else once this is retired. Takes two WQEBBs.
    ///
    /// What is posted next and must see the key gone asks for [`Flags::AFTER_INVALIDATE`] or [`Flags::FENCE`].
    #[inline(always)]
    pub fn local_inv(
        &mut self,
        wr_id: u64,
        rkey: Rkey,
        flags: Flags,
    ) -> Result<Request<'_, 'q, Ready, T>, PostError> {
        let umr = UmrCtrlSeg::new()
            .with_inline(true)
            .with_translation_offset_en(true)
            .with_check_qpn(true)
            .with_mkey_mask(MkeyMask::FREE.and(MkeyMask::QPN).and(MkeyMask::KEY));
        // Whoever it belonged to.
        let context = Mkc::new().with_free(true).with_qpn(Mkc::ANY_QP);
        self.request::<Ready>(SendOpcode::UMR, wr_id, flags, rkey.get(), None)?
            .umr(&umr, [context.to_bytes()])
    }

    /// Binds a memory window that is open to nothing (`IBV_WR_BIND_MW`, type 2): the peer of this queue pair, and no
    /// other, may access what `view` names, under the window's [new rkey](Window::rkey). Takes three WQEBBs.
    ///
    /// The window closes when this end [invalidates](Self::local_inv) the rkey or the peer does
    /// ([`send_inval`](PostList::send_inval)), and can then be bound anew. A window that is open already fails the
    /// request (`MW_BIND_ERR`), and with it the queue pair.
    ///
    /// What is posted next and relies on the window being open, such as the SEND that tells the peer its rkey, asks for
    /// [`Flags::AFTER_INVALIDATE`] or [`Flags::FENCE`].
    ///
    /// # Errors
    /// As of [all operations](PostList::nop); [`NotLeased`](PostError::NotLeased),
    /// [`OutOfRange`](PostError::OutOfRange) (nothing at all is no view either), and
    /// [`MessageTooLong`](PostError::MessageTooLong) for a view of more than 2³¹ bytes. The window keeps its rkey then.
    #[inline(always)]
    pub fn bind_mw(
        &mut self,
        wr_id: u64,
        window: &mut Window,
        view: &View,
        flags: Flags,
    ) -> Result<Request<'_, 'q, Ready, T>, PostError> {
        let sge = view.check(self.queue.id)?;
        self.bind(wr_id, window, sge, view.access(), Some(self.queue.qpn), flags)
    }

    /// Binds a memory window of type 1 (`ibv_bind_mw`), bound or not: whoever has a queue pair of its protection domain as
    /// peer may access `memory`, under the window's [new rkey](Window::rkey). Takes three WQEBBs.
    ///
    /// # Errors
    /// As of [`bind_mw`](Self::bind_mw), but for the lease.
    ///
    /// # Safety
    /// Until the window is [closed](Self::close_mw_type_1), bound anew or destroyed (and that request retired), `memory` stays
    /// registered under its key, and mapped; peers may read and write it at any time, as far as `access` allows.
    #[inline(always)]
    pub unsafe fn bind_mw_type_1(
        &mut self,
        wr_id: u64,
        window: &mut Window,
        memory: Sge,
        access: WindowAccess,
        flags: Flags,
    ) -> Result<Request<'_, 'q, Ready, T>, PostError> {
        match memory.len_bytes {
            0 => Err(PostError::OutOfRange),
            1..=0x8000_0000 => self.bind(wr_id, window, memory, access, None, flags),
            _ => Err(PostError::MessageTooLong),
        }
    }

    /// Closes a memory window of type 1 (`ibv_bind_mw` of length 0), under a new rkey. Takes two WQEBBs.
    ///
    /// # Errors
    /// As of [all operations](PostList::nop). The window keeps its rkey then.
    #[inline(always)]
    pub fn close_mw_type_1(
        &mut self,
        wr_id: u64,
        window: &mut Window,
        flags: Flags,
    ) -> Result<Request<'_, 'q, Ready, T>, PostError> {
        let umr = UmrCtrlSeg::new()
            .with_inline(true)
            .with_translation_offset_en(true)
            .with_mkey_mask(MkeyMask::FREE.and(MkeyMask::KEY));
        let (old, new) = (window.rkey(), window.next_rkey());
        let context = Mkc::new().with_free(true).with_qpn(Mkc::ANY_QP).with_mkey_7_0(new.get() as u8);
        let request = self
            .request::<Ready>(SendOpcode::UMR, wr_id, flags, old.get(), None)?
            .umr(&umr, [context.to_bytes()])?;
        window.rename(new);
        Ok(request)
    }

    /// Binds a window to 1 to 2³¹ bytes: one of type 2 to a queue pair, one of type 1 to none.
    #[inline(always)]
    fn bind(
        &mut self,
        wr_id: u64,
        window: &mut Window,
        sge: Sge,
        access: WindowAccess,
        to: Option<Qpn>,
        flags: Flags,
    ) -> Result<Request<'_, 'q, Ready, T>, PostError> {
        let fields = MkeyMask::FREE
            .and(MkeyMask::KEY)
            .and(MkeyMask::LEN)
            .and(MkeyMask::START_ADDR)
            .and(MkeyMask::LW)
            .and(MkeyMask::RR)
            .and(MkeyMask::RW)
            .and(MkeyMask::A);
        let umr = UmrCtrlSeg::new()
            .with_inline(true)
            .with_translation_offset_en(true)
            // One of type 1 may be bound already.
            .with_check_free(if to.is_some() { UmrCtrlSeg::FAIL_IF_NOT_FREE } else { 0 })
            // The list has one entry, and its unit are four.
            .with_klm_octowords(if mistake!(UmrListOfOne) { 1 } else { 4 })
            .with_mkey_mask(if to.is_some() { fields.and(MkeyMask::QPN) } else { fields });
        let umr =
            if mistake!(UmrMaskUnknown) { umr.with_mkey_mask(fields.and(MkeyMask(1 << 63))) } else { umr };
        let (old, new) = (window.rkey(), window.next_rkey());
        let context = Mkc::new()
            .with_a(access.has_remote_atomic())
            .with_rw(access.has_remote_write())
            .with_rr(access.has_remote_read())
            .with_qpn(to.unwrap_or(Mkc::ANY_QP))
            .with_mkey_7_0(new.get() as u8)
            .with_start_addr(if access.is_zero_based() { 0 } else { sge.addr })
            .with_len(sge.len_bytes.into());
        let entry = KlmEntry::new().with_byte_count(sge.len_bytes).with_mkey(sge.lkey).with_address(sge.addr);
        let mut list = [0; WQEBB_BYTES];
        list[..SEGMENT_BYTES].copy_from_slice(&entry.to_bytes());
        let request = self
            .request::<Ready>(SendOpcode::UMR, wr_id, flags, old.get(), None)?
            .umr(&umr, [context.to_bytes(), list])?;
        window.rename(new);
        Ok(request)
    }
}

impl<T: Transport> Request<'_, '_, Ready, T> {
    /// Adds the UMR control segment, which fills the first WQEBB, and `blocks`, which are the WQEBBs behind it.
    #[inline(always)]
    pub(super) fn umr<const N: usize>(
        mut self,
        umr: &UmrCtrlSeg,
        blocks: [[u8; WQEBB_BYTES]; N],
    ) -> Result<Self, PostError> {
        if self.n_free as usize <= N {
            return Err(PostError::QueueFull);
        }
        for segment in umr.to_bytes().as_chunks::<SEGMENT_BYTES>().0 {
            self = self.header(*segment);
        }
        for block in blocks {
            if self.at == self.list.queue.ring_end {
                self.at = self.list.queue.ring;
            }
            for segment in block.as_chunks::<SEGMENT_BYTES>().0 {
                // SAFETY: in a WQEBB behind the first, of which `N` more are free.
                unsafe {
                    store(self.at, *segment);
                    self.at = self.at.add(SEGMENT_BYTES);
                }
                self.ds += 1;
            }
        }
        Ok(self)
    }

    /// Adds `n` segments behind whole WQEBBs: `entries`, and zeros where there are fewer.
    #[inline]
    pub(super) fn list(
        mut self,
        mut entries: impl Iterator<Item = [u8; SEGMENT_BYTES]>,
        n: usize,
    ) -> Result<Self, PostError> {
        if (self.ds as usize + n).div_ceil(4) > self.n_free as usize {
            return Err(PostError::QueueFull);
        }
        for _ in 0..n {
            if self.ds.is_multiple_of(4) && self.at == self.list.queue.ring_end {
                self.at = self.list.queue.ring;
            }
            // SAFETY: segment `ds` lies in one of the free WQEBBs, which were counted; at the ring's end they go on at its
            // start.
            unsafe {
                store(self.at, entries.next().unwrap_or([0; SEGMENT_BYTES]));
                self.at = self.at.add(SEGMENT_BYTES);
            }
            self.ds += 1;
        }
        Ok(self)
    }
}
