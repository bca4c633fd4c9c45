//! Memory windows: allocated by the kernel, bound by our own requests.

use super::{
    Object, PdEntry, VerbsControl, done,
    ffi::{IBV_MW_TYPE_2, IbvMw},
    lock, made, take,
};
use crate::{
    Error, Result,
    mlx5::ids::{Pdn, Rkey},
};
use std::{ffi::c_int, sync::Arc};

#[derive(Debug)]
pub(super) struct MwEntry {
    mw: Object<IbvMw>,
    /// The library's function that ends it.
    dealloc: unsafe extern "C" fn(*mut IbvMw) -> c_int,
    _pd: Arc<PdEntry>,
}

impl VerbsControl {
    pub(super) fn make_mw(&self, pd: Pdn) -> Result<Rkey> {
        let pd = self.pd(pd)?;
        // SAFETY: an open context, whose functions do not change.
        let ops = unsafe { (*self.device.context()).ops };
        let (Some(alloc), Some(dealloc)) = (ops.alloc_mw, ops.dealloc_mw) else {
            return Err(Error::Unsupported {
                capability: "imaicl",
                reason: format!("the library of {} makes no memory windows", self.device.name()),
            });
        };
        // SAFETY: a protection domain of this context.
        let mw = unsafe { alloc(pd.pd.as_ptr(), IBV_MW_TYPE_2) };
        let mw = Object(made(|| "allocating a memory window of type 2".into(), mw)?);
        // SAFETY: just made; the library does not change the key, for it never binds the window.
        let rkey = Rkey::new(unsafe { (*mw.as_ptr()).rkey });
        lock(&self.mws).insert(rkey, MwEntry { mw, dealloc, _pd: pd });
        Ok(rkey)
    }

    pub(super) fn end_mw(&self, rkey: Rkey) -> Result<()> {
        let entry = take(&self.mws, rkey, "memory window with rkey", rkey.get())?;
        // SAFETY: a window that is in no table any more, so that this is done once.
        let result = unsafe { (entry.dealloc)(entry.mw.as_ptr()) };
        let result = done(|| format!("freeing the memory window with rkey 0x{:x}", rkey.get()), result);
        if result.is_err() {
            lock(&self.mws).insert(rkey, entry);
        }
        result
    }
}
