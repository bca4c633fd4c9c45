//! Keys over pieces of other keys.

use crate::{
    Pd, Result,
    mlx5::ids::{Lkey, Rkey},
    queue::{IndirectKey, Remote},
};

/// A memory key over pieces of memory under other keys: a list of them, or a pattern that repeats, as work requests say.
/// Requests of its own side and of peers name the pieces by one key, and count from 0. Ended on drop.
///
/// ```no_run
/// # use mlx5_direct::{Mr, Pd, Qp, queue::Flags};
/// # fn f(pd: &Pd, qp: &mut Qp, a: &Mr, b: &Mr) -> Result<(), Box<dyn std::error::Error>> {
/// use mlx5_direct::queue::{KeyAccess, Sge};
/// let both = pd.create_indirect_mr(4)?;
/// let pieces = [a, b].map(|mr| Sge { lkey: mr.lkey(), addr: mr.addr(), len_bytes: 4096 });
/// let mut list = qp.post_list();
/// // SAFETY: `a` and `b` live longer than `both`.
/// unsafe { list.umr_list(1, both.key(), &pieces, KeyAccess::REMOTE_READ, Flags::SIGNALED)? }.finish();
/// list.ring();
/// // … and once it is done, the peer is told `both.remote(0)`, behind which are 8192 bytes.
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct IndirectMr {
    key: IndirectKey,
    pd: Pd,
}

impl Pd {
    /// Makes a key that leads to nothing yet, with room for `n_entries` pieces.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for more than the device takes (`log_max_klm_list_size`).
    pub fn create_indirect_mr(&self, n_entries: u32) -> Result<IndirectMr> {
        let key = self.context().control().create_indirect_key(self.pdn(), n_entries)?;
        Ok(IndirectMr { key: IndirectKey::new(key, n_entries), pd: self.clone() })
    }
}

impl IndirectMr {
    /// Its name, for [`umr_list`](crate::queue::PostList::umr_list) and
    /// [`umr_interleaved`](crate::queue::PostList::umr_interleaved).
    pub fn key(&self) -> IndirectKey {
        self.key
    }

    /// By this its own requests name it.
    pub fn lkey(&self) -> Lkey {
        self.key.lkey()
    }

    /// By this a peer's requests name it.
    pub fn rkey(&self) -> Rkey {
        self.key.rkey()
    }

    /// The byte at `offset_bytes` of what it leads to, as a peer's requests name it.
    pub fn remote(&self, offset_bytes: u64) -> Remote {
        Remote { addr: offset_bytes, rkey: self.rkey() }
    }
}

impl Drop for IndirectMr {
    fn drop(&mut self) {
        // A device that refuses is at fault; the key names memory that is registered as long as was promised.
        let _ = self.pd.context().control().destroy_indirect_key(self.rkey());
    }
}
