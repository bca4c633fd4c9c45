//! Memory keys that lead to nothing until a work request sets them: memory windows, and keys over pieces of others.
#![forbid(unsafe_code)]

use super::{Core, PrmControl, mr::next_variant};
use crate::{
    Error, Result,
    backend::params::at_most,
    mlx5::{
        cmd::{Command, CreateMkeyIn, DestroyMkeyIn},
        context::{Mkc, MkcAccessMode},
        ids::{Pdn, Rkey},
    },
};

/// Lists come in units of so many octowords.
const LIST_OCTOWORDS: u32 = 4;

impl PrmControl {
    /// As `mlx5_ib_alloc_mw` does: one piece of another key, in a list that comes in fours.
    pub(super) fn create_window(&self, pd: Pdn) -> Result<Rkey> {
        self.core.tables.has_pd(pd)?;
        if !self.caps.general.imaicl() {
            return Err(Error::Unsupported {
                capability: "imaicl",
                reason: "this device binds no memory windows of type 2".into(),
            });
        }
        // Peers close what was opened to them; binding does not say so again.
        self.create_free_key(
            Mkc::new().with_en_rinval(true).with_translations_octword_size(LIST_OCTOWORDS),
            pd,
        )
    }

    /// As `mlx5dv_create_mkey` does.
    pub(super) fn create_indirect(&self, pd: Pdn, n_entries: u32) -> Result<Rkey> {
        self.core.tables.has_pd(pd)?;
        let caps = &self.caps.general;
        at_most("entries of an indirect key", n_entries, 1 << caps.log_max_klm_list_size())?;
        let n_octowords = n_entries.max(1).next_multiple_of(LIST_OCTOWORDS);
        self.create_free_key(Mkc::new().with_translations_octword_size(n_octowords), pd)
    }

    /// A free key that UMRs may change.
    fn create_free_key(&self, context: Mkc, pd: Pdn) -> Result<Rkey> {
        let core = &*self.core;
        let variant = next_variant();
        let context = context
            .with_free(true)
            .with_access_mode(MkcAccessMode::KLMS)
            .with_umr_en(true)
            .with_lr(true)
            .with_qpn(Mkc::ANY_QP)
            .with_mkey_7_0(variant)
            .with_pd(pd);
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
