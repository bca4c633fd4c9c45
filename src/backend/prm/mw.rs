//! Memory windows: memory keys that are free until a work request binds them.
#![forbid(unsafe_code)]

use super::{Core, PrmControl, mr::next_variant};
use crate::{
    Error, Result,
    mlx5::{
        cmd::{Command, CreateMkeyIn, DestroyMkeyIn},
        context::{Mkc, MkcAccessMode},
        ids::{Pdn, Rkey},
    },
};

impl PrmControl {
    /// As `mlx5_ib_alloc_mw` does: one piece of another key, in a list that comes in fours.
    pub(super) fn create_window(&self, pd: Pdn) -> Result<Rkey> {
        let core = &*self.core;
        core.tables.has_pd(pd)?;
        if !self.caps.general.imaicl() {
            return Err(Error::Unsupported {
                capability: "imaicl",
                reason: "this device binds no memory windows of type 2".into(),
            });
        }
        let variant = next_variant();
        let context = Mkc::new()
            .with_free(true)
            .with_access_mode(MkcAccessMode::KLMS)
            .with_umr_en(true)
            // Peers close what was opened to them; binding does not say so again.
            .with_en_rinval(true)
            .with_lr(true)
            .with_qpn(Mkc::ANY_QP)
            .with_mkey_7_0(variant)
            .with_pd(pd)
            .with_translations_octword_size(4);
        let out = core.cmd.call(&CreateMkeyIn::request().with_memory_key_mkey_entry(context))?;
        let rkey = Rkey::new(out.mkey_index() << 8 | u32::from(variant));
        core.tables.add_mw(rkey);
        Ok(rkey)
    }
}

pub(super) fn destroy(core: &Core, rkey: Rkey) -> Result<()> {
    core.tables.remove_mw(rkey)?;
    let result = core.cmd.call(&DestroyMkeyIn::request().with_mkey_index(rkey.get() >> 8));
    if result.is_err() {
        core.tables.add_mw(rkey);
    }
    result.map(|_| ())
}
