//! Keys over pieces of others: as they are drawn, for us, and for libmlx5.

use crate::{
    random::Random,
    rival::{device::Qp, ffi::*},
};
use mlx5_direct::{
    mlx5::ids::{Lkey, Rkey},
    queue::{Flags, IndirectKey, KeyAccess, Paired, PostError, PostList, Sge, Strided},
};

/// A key, and what it shall lead to.
#[derive(Debug, Clone)]
pub(crate) struct Indirect {
    key: u32,
    /// `IBV_ACCESS_…`.
    access: u32,
    layout: Layout,
}

#[derive(Debug, Clone)]
enum Layout {
    List(Vec<IbvSge>),
    Interleaved { repeat_count: u32, pieces: Vec<Mlx5dvMrInterleaved> },
}

/// Entries that the key has room for: what inline data of [`MAX_INLINE_BYTES`](crate::request::MAX_INLINE_BYTES) are.
const MAX_ENTRIES: usize = (crate::request::MAX_INLINE_BYTES + 4) / 16;

/// Bytes that the key leads to. libmlx5 44 counts them in an `int`, and the key is as long as no memory is if they are more.
const MAX_BYTES: usize = (1 << 31) - 1;

impl Indirect {
    pub(crate) fn draw(random: &mut Random, is_list: bool) -> Self {
        let layout = if is_list {
            let n = 1 + random.below(MAX_ENTRIES);
            let sge = |random: &mut Random| {
                let length = 1 + random.below(MAX_BYTES / MAX_ENTRIES) as u32;
                IbvSge { addr: random.next(), length, lkey: random.next() as u32 }
            };
            Layout::List((0..n).map(|_| sge(random)).collect())
        } else {
            let n = 1 + random.below(MAX_ENTRIES - 1);
            let piece = |random: &mut Random| {
                let bytes_count = 1 + random.below(0xffff) as u32;
                let bytes_skip = random.below(0x1_0000 - bytes_count as usize) as u32;
                Mlx5dvMrInterleaved {
                    addr: random.next(),
                    bytes_count,
                    bytes_skip,
                    lkey: random.next() as u32,
                }
            };
            let pieces: Vec<_> = (0..n).map(|_| piece(random)).collect();
            let cycle_bytes: u32 = pieces.iter().map(|piece| piece.bytes_count).sum();
            let repeat_count = 1 + random.below(MAX_BYTES / cycle_bytes as usize) as u32;
            Layout::Interleaved { repeat_count, pieces }
        };
        // The variant is 0, which libmlx5 wants of keys whose devices cannot change it.
        let key = (random.next() as u32) << 8;
        Self { key, access: random.below(16) as u32, layout }
    }

    pub(crate) fn ours<T: Paired>(&self, list: &mut PostList<'_, T>, flags: Flags) -> Result<(), PostError> {
        let key = IndirectKey::new(Rkey::new(self.key), MAX_ENTRIES as u32);
        let mut access = KeyAccess::LOCAL_READ;
        for (flag, ours) in [
            (IBV_ACCESS_LOCAL_WRITE, KeyAccess::LOCAL_WRITE),
            (IBV_ACCESS_REMOTE_WRITE, KeyAccess::REMOTE_WRITE),
            (IBV_ACCESS_REMOTE_READ, KeyAccess::REMOTE_READ),
            (IBV_ACCESS_REMOTE_ATOMIC, KeyAccess::REMOTE_ATOMIC),
        ] {
            if self.access & flag != 0 {
                access = access | ours;
            }
        }
        match &self.layout {
            Layout::List(sges) => {
                let pieces: Vec<_> = sges
                    .iter()
                    .map(|sge| Sge { lkey: Lkey::new(sge.lkey), addr: sge.addr, len_bytes: sge.length })
                    .collect();
                // SAFETY: no device reads the ring.
                unsafe { list.umr_list(1, key, &pieces, access, flags)? }.finish();
            }
            Layout::Interleaved { repeat_count, pieces } => {
                let pieces: Vec<_> = pieces
                    .iter()
                    .map(|piece| Strided {
                        lkey: Lkey::new(piece.lkey),
                        addr: piece.addr,
                        len_bytes: piece.bytes_count as u16,
                        skip_bytes: piece.bytes_skip as u16,
                    })
                    .collect();
                // SAFETY: no device reads the ring.
                unsafe { list.umr_interleaved(1, key, *repeat_count, &pieces, access, flags)? }.finish();
            }
        }
        Ok(())
    }

    /// By libmlx5, within `ibv_wr_start` and `ibv_wr_complete`, whose flags say that the list is inline.
    ///
    /// # Safety
    /// A request may be added to the queue pair, which was made for such.
    pub(crate) unsafe fn post(&self, qp: &Qp) {
        let mut mkey =
            Mlx5Mkey { lkey: self.key, rkey: self.key, num_desc: MAX_ENTRIES as u16, ..Default::default() };
        let (ex, mkey) = (qp.dv_ex, &raw mut mkey);
        // SAFETY: the caller's promise; libmlx5 keeps nothing of what it is given.
        unsafe {
            match &self.layout {
                Layout::List(sges) => {
                    ((*ex).wr_mr_list)(ex, mkey, self.access, sges.len() as u16, sges.as_ptr());
                }
                Layout::Interleaved { repeat_count, pieces } => {
                    let n = pieces.len() as u16;
                    ((*ex).wr_mr_interleaved)(ex, mkey, self.access, *repeat_count, n, pieces.as_ptr());
                }
            }
        }
    }
}
