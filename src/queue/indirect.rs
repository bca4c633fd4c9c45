//! Keys over pieces of other keys: memory here and there under one key, or a pattern that repeats.

use super::{Flags, Paired, PostError, PostList, Ready, Request, Sge};
use crate::{
    mlx5::{
        context::Mkc,
        ids::{Lkey, Rkey},
    },
    wqe::{
        DataSeg, KlmEntry, MkeyMask, RepeatBlockSeg, RepeatEntrySeg, SEGMENT_BYTES, SendOpcode, UmrCtrlSeg,
    },
};
use core::ops::BitOr;

/// Lists come in units of so many octowords.
const LIST_OCTOWORDS: usize = 4;
/// `ctrl.ds` counts 63 segments: control, UMR control, the key's context, and a list of whole units.
const MAX_INLINE_OCTOWORDS: usize = 52;

/// A memory key that leads to pieces of memory under other keys of its protection domain, as work requests say
/// (`mlx5dv_mkey`). Addresses under it count from 0.
///
/// One and the same number is its lkey and its rkey.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndirectKey {
    key: u32,
    max_entries: u32,
}

impl IndirectKey {
    /// Of the key that the control path gave
    /// ([`Control::create_indirect_key`](crate::backend::Control::create_indirect_key)), which has room for so many
    /// entries.
    pub const fn new(key: Rkey, max_entries: u32) -> Self {
        Self { key: key.get(), max_entries }
    }

    /// By this its own requests name it.
    pub const fn lkey(self) -> Lkey {
        Lkey::new(self.key)
    }

    /// By this a peer's requests name it, and [`local_inv`](PostList::local_inv).
    pub const fn rkey(self) -> Rkey {
        Rkey::new(self.key)
    }

    /// Entries that it has room for: pieces, and one more for a pattern.
    pub const fn max_entries(self) -> u32 {
        self.max_entries
    }
}

/// What requests may do to the memory behind an [`IndirectKey`]. The keys of the pieces must allow it too, but what they
/// let peers do does not count. Values are those of `ibv_access_flags`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KeyAccess(u8);

impl KeyAccess {
    /// It is read by one's own requests alone.
    pub const LOCAL_READ: Self = Self(0);
    /// Written by one's own requests.
    pub const LOCAL_WRITE: Self = Self(1);
    /// Written by a peer's RDMA WRITE.
    pub const REMOTE_WRITE: Self = Self(1 << 1);
    /// Read by a peer's RDMA READ.
    pub const REMOTE_READ: Self = Self(1 << 2);
    /// Changed by a peer's atomics.
    pub const REMOTE_ATOMIC: Self = Self(1 << 3);

    const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

impl BitOr for KeyAccess {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// A piece of each cycle of a pattern: `len_bytes` of memory, of which the next cycle's follow after `skip_bytes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Strided {
    /// Key of the region.
    pub lkey: Lkey,
    /// Device address of the first cycle's first byte.
    pub addr: u64,
    /// Bytes of a cycle, at least one.
    pub len_bytes: u16,
    /// Bytes between two cycles'. Together with the length at most 65,535.
    pub skip_bytes: u16,
}

impl<'q, T: Paired> PostList<'q, T> {
    /// Has `key` lead to `pieces`, one after the other (`mlx5dv_wr_mr_list`). Whatever it led to before is forgotten.
    ///
    /// What is posted next and relies on it asks for [`Flags::AFTER_INVALIDATE`] or [`Flags::FENCE`].
    ///
    /// # Errors
    /// As of [all operations](PostList::nop); [`TooManySge`](PostError::TooManySge) for more pieces than the key has room
    /// for, [`InlineTooLong`](PostError::InlineTooLong) for more than the request has (16 bytes each, less 4),
    /// [`OutOfRange`](PostError::OutOfRange) for none and for one of length 0, and
    /// [`MessageTooLong`](PostError::MessageTooLong) for one of more than 2³¹ bytes.
    ///
    /// # Safety
    /// Until the key is [invalidated](Self::local_inv), set anew or destroyed (and that request retired), every piece stays
    /// registered under its key, and mapped; whoever may use the key may read it at any time, and write it as far as
    /// `access` allows.
    #[inline]
    pub unsafe fn umr_list(
        &mut self,
        wr_id: u64,
        key: IndirectKey,
        pieces: &[Sge],
        access: KeyAccess,
        flags: Flags,
    ) -> Result<Request<'_, 'q, Ready, T>, PostError> {
        let mut len_bytes = 0;
        for piece in pieces {
            len_bytes += u64::from(match piece.len_bytes {
                0 => return Err(PostError::OutOfRange),
                n @ 1..=0x8000_0000 => n,
                _ => return Err(PostError::MessageTooLong),
            });
        }
        let entries = pieces.iter().map(|piece| {
            let entry = KlmEntry::new().with_byte_count(piece.len_bytes).with_mkey(piece.lkey);
            entry.with_address(piece.addr).to_bytes()
        });
        self.umr(wr_id, key, len_bytes, access, entries, flags)
    }

    /// Has `key` lead to `repeat_count` cycles, each of which has a part of every piece (`mlx5dv_wr_mr_interleaved`):
    /// columns of a matrix, or what blocks hold without their checksums. Whatever it led to before is forgotten.
    ///
    /// # Errors
    /// As of [`umr_list`](Self::umr_list), where the pattern itself is one more entry;
    /// [`OutOfRange`](PostError::OutOfRange) also for no cycle, and for a length and a skip that together do not fit.
    ///
    /// # Safety
    /// As of [`umr_list`](Self::umr_list), of all cycles.
    #[inline]
    pub unsafe fn umr_interleaved(
        &mut self,
        wr_id: u64,
        key: IndirectKey,
        repeat_count: u32,
        pieces: &[Strided],
        access: KeyAccess,
        flags: Flags,
    ) -> Result<Request<'_, 'q, Ready, T>, PostError> {
        let mut cycle_bytes = 0u32;
        for piece in pieces {
            if piece.len_bytes == 0 || piece.len_bytes.checked_add(piece.skip_bytes).is_none() {
                return Err(PostError::OutOfRange);
            }
            // So many pieces that it does not fit are refused below.
            cycle_bytes = cycle_bytes.saturating_add(piece.len_bytes.into());
        }
        if repeat_count == 0 || pieces.is_empty() {
            return Err(PostError::OutOfRange);
        }
        let head = RepeatBlockSeg::new()
            .with_byte_count_per_cycle(cycle_bytes)
            .with_op(KlmEntry::REPEAT.get())
            .with_repeat_count(repeat_count)
            .with_num_entries(pieces.len() as u16);
        let entries = pieces.iter().map(|piece| {
            RepeatEntrySeg::new()
                .with_stride(piece.len_bytes + piece.skip_bytes)
                .with_byte_count(piece.len_bytes)
                .with_mkey(piece.lkey)
                .with_va(piece.addr)
                .to_bytes()
        });
        let entries = Entries { head: Some(head.to_bytes()), rest: entries };
        self.umr(wr_id, key, u64::from(cycle_bytes) * u64::from(repeat_count), access, entries, flags)
    }

    /// As [`umr_list`](Self::umr_list), of a list that is in memory and as long as the key has room for: `n_entries`
    /// [`KlmEntry`]s from device address `list.addr` on, which name `len_bytes`. `list.len_bytes` is not looked at: the
    /// device reads entries in fours.
    ///
    /// # Errors
    /// As of [`umr_list`](Self::umr_list), but that nothing is too long for the request.
    ///
    /// # Safety
    /// As of [`umr_list`](Self::umr_list), of what the entries name, which are in mapped memory under `list.lkey`, a multiple of
    /// four of them, zeros behind the last, and are not written until the request is retired.
    #[inline]
    #[allow(clippy::too_many_arguments)]
    pub unsafe fn umr_list_in_memory(
        &mut self,
        wr_id: u64,
        key: IndirectKey,
        list: Sge,
        n_entries: u32,
        len_bytes: u64,
        access: KeyAccess,
        flags: Flags,
    ) -> Result<Request<'_, 'q, Ready, T>, PostError> {
        let n_octowords = key.n_octowords(n_entries as usize)?;
        let list_bytes = n_octowords as u32 * SEGMENT_BYTES as u32;
        let data = DataSeg::new().with_byte_count(list_bytes).with_lkey(list.lkey).with_addr(list.addr);
        let (umr, context) = key.change(n_octowords, len_bytes, access);
        self.request::<Ready>(SendOpcode::UMR, wr_id, flags, key.key, None)?
            .umr(&umr.with_inline(false), [context.to_bytes()])?
            .list([data.to_bytes()].into_iter(), 1)
    }

    /// Changes a key to what `entries` say, which are in the request.
    #[inline]
    fn umr(
        &mut self,
        wr_id: u64,
        key: IndirectKey,
        len_bytes: u64,
        access: KeyAccess,
        entries: impl ExactSizeIterator<Item = [u8; SEGMENT_BYTES]>,
        flags: Flags,
    ) -> Result<Request<'_, 'q, Ready, T>, PostError> {
        let n_octowords = key.n_octowords(entries.len())?;
        // As libmlx5 counts it.
        let room_bytes = self.queue.max_inline_bytes as usize + 4;
        if entries.len() > MAX_INLINE_OCTOWORDS || entries.len() * SEGMENT_BYTES > room_bytes {
            return Err(PostError::InlineTooLong);
        }
        let (umr, context) = key.change(n_octowords, len_bytes, access);
        self.request::<Ready>(SendOpcode::UMR, wr_id, flags, key.key, None)?
            .umr(&umr, [context.to_bytes()])?
            .list(entries, n_octowords)
    }
}

impl IndirectKey {
    /// Octowords of a list of so many entries.
    fn n_octowords(self, n_entries: usize) -> Result<usize, PostError> {
        match n_entries {
            0 => Err(PostError::OutOfRange),
            n if n > self.max_entries as usize => Err(PostError::TooManySge),
            n => Ok(n.next_multiple_of(LIST_OCTOWORDS)),
        }
    }

    /// The segments that change it.
    fn change(self, n_octowords: usize, len_bytes: u64, access: KeyAccess) -> (UmrCtrlSeg, Mkc) {
        let fields = MkeyMask::FREE
            .and(MkeyMask::KEY)
            .and(MkeyMask::LEN)
            .and(MkeyMask::LW)
            .and(MkeyMask::RR)
            .and(MkeyMask::RW)
            .and(MkeyMask::A);
        let umr =
            UmrCtrlSeg::new().with_inline(true).with_klm_octowords(n_octowords as u16).with_mkey_mask(fields);
        let context = Mkc::new()
            .with_lw(access.has(KeyAccess::LOCAL_WRITE))
            .with_rw(access.has(KeyAccess::REMOTE_WRITE))
            .with_rr(access.has(KeyAccess::REMOTE_READ))
            .with_a(access.has(KeyAccess::REMOTE_ATOMIC))
            .with_qpn(Mkc::ANY_QP)
            .with_mkey_7_0(self.key as u8)
            .with_len(len_bytes);
        (umr, context)
    }
}

/// Entries with one before them. (Of `chain` nobody knows the length.)
struct Entries<I> {
    head: Option<[u8; SEGMENT_BYTES]>,
    rest: I,
}

impl<I: Iterator<Item = [u8; SEGMENT_BYTES]>> Iterator for Entries<I> {
    type Item = [u8; SEGMENT_BYTES];

    fn next(&mut self) -> Option<Self::Item> {
        self.head.take().or_else(|| self.rest.next())
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let (low, high) = self.rest.size_hint();
        let head = usize::from(self.head.is_some());
        (low + head, high.map(|n| n + head))
    }
}

impl<I: ExactSizeIterator<Item = [u8; SEGMENT_BYTES]>> ExactSizeIterator for Entries<I> {}
