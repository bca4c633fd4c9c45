//! Memory registrations.

use super::{Object, PdEntry, VerbsControl, done, ffi::IbvMr, lock, made, take};
use crate::{
    Error, Result,
    backend::{Access, Keys, MrParams, dma::HostMemory},
    mlx5::ids::{Lkey, Rkey},
};
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct MrEntry {
    pub(super) mr: Object<IbvMr>,
    _pd: Arc<PdEntry>,
    /// Stays mapped until the kernel has let go of it.
    _memory: Arc<HostMemory>,
}

impl VerbsControl {
    pub(super) fn make_mr(&self, params: &MrParams) -> Result<Keys> {
        params.access.check_mr()?;
        if params.access.contains(Access::REMOTE_INVALIDATE) {
            return Err(Error::Unsupported {
                capability: "REMOTE_INVALIDATE",
                reason: "the kernel lets peers invalidate memory windows and fast registrations only; leave it out"
                    .into(),
            });
        }
        let pd = self.pd(params.pd)?;
        let (base, len_bytes) = (params.memory.base(), params.memory.len_bytes());
        let start_addr = params.checked_start_addr()?;
        // SAFETY: the memory is valid for its length, and lives in the table until it is deregistered.
        let mr = unsafe {
            (self.device.library().ibv_reg_mr_iova2)(
                pd.pd.as_ptr(),
                base.as_ptr().cast(),
                len_bytes,
                start_addr,
                params.access.0,
            )
        };
        let what = || {
            format!(
                "registering {len_bytes} bytes at {base:p} as 0x{start_addr:x} for {:?} (ulimit -l tells how much \
                 may be locked)",
                params.access
            )
        };
        let mr = Object(made(what, mr)?);
        // SAFETY: just made; the keys do not change.
        let (lkey, rkey) = unsafe { ((*mr.as_ptr()).lkey, (*mr.as_ptr()).rkey) };
        let entry = MrEntry { mr, _pd: pd, _memory: Arc::clone(&params.memory) };
        lock(&self.mrs).insert(Lkey::new(lkey), entry);
        Ok(Keys { lkey: Lkey::new(lkey), rkey: Rkey::new(rkey) })
    }

    pub(super) fn end_mr(&self, lkey: Lkey) -> Result<()> {
        let entry = take(&self.mrs, lkey, "memory registration with lkey", lkey.get())?;
        // SAFETY: a registration that is in no table any more, so that this is done once.
        let result = unsafe { (self.device.library().ibv_dereg_mr)(entry.mr.as_ptr()) };
        let result = done(|| format!("deregistering memory with lkey 0x{:x}", lkey.get()), result);
        if result.is_err() {
            lock(&self.mrs).insert(lkey, entry);
        }
        result
    }
}
