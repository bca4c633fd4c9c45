//! Memory keys.
#![forbid(unsafe_code)]

use super::{Core, PrmControl, cmd_queue::Lane, lock, tables::take};
use crate::{
    Error, Result,
    backend::{Access, Keys, MrParams, dma::PAGE_BYTES},
    mistake::mistake,
    mlx5::{
        cmd::{Command, CreateMkeyIn, DestroyMkeyIn},
        context::{Mkc, MkcAccessMode},
        ids::{Lkey, Rkey},
    },
};
use std::sync::{
    Arc,
    atomic::{AtomicU8, Ordering},
};

/// Present bits of a translation entry: the device may read and write the page. What a key allows is in its
/// context.
const MTT_READ_WRITE: u64 = 3;

/// Variant byte of the next key: a key that is used after its end then differs from its successor.
static NEXT_VARIANT: AtomicU8 = AtomicU8::new(1);

pub(super) fn next_variant() -> u8 {
    NEXT_VARIANT.fetch_add(1, Ordering::Relaxed)
}

impl PrmControl {
    pub(super) fn create_mkey(&self, params: &MrParams) -> Result<Keys> {
        let core = &*self.core;
        params.access.check_mr()?;
        core.tables.has_pd(params.pd)?;
        let len_bytes = params.memory.len_bytes() as u64;
        if len_bytes == 0 || len_bytes > self.attr.max_mr_size {
            return Err(Error::invalid(format!(
                "memory region of {len_bytes} bytes: give 1 to {} (max_mr_size)",
                self.attr.max_mr_size
            )));
        }
        let start_addr = params.checked_start_addr()?;
        // The I/O address has to agree with the start address modulo the device's page.
        let log_page = core.dma.log_page_size(&params.memory, start_addr);
        let page_bytes = 1_u64 << log_page;
        let residue = start_addr & (page_bytes - 1) & !(PAGE_BYTES as u64 - 1);
        let region = core.dma.map(Arc::clone(&params.memory), page_bytes, residue)?;
        let mut list: Vec<u64> = region.pages(len_bytes as usize, page_bytes as usize).collect();
        list.iter_mut().for_each(|page| *page |= MTT_READ_WRITE);
        let octwords = (list.len() as u32).div_ceil(2);
        list.resize(octwords as usize * 2, 0);

        let variant = next_variant();
        let access = params.access;
        let relaxed = access.contains(Access::RELAXED_ORDERING);
        let context = Mkc::new()
            .with_access_mode(MkcAccessMode::MTT)
            .with_umr_en(true)
            .with_lr(true)
            .with_lw(access.contains(Access::LOCAL_WRITE))
            .with_rr(access.contains(Access::REMOTE_READ))
            .with_rw(access.contains(Access::REMOTE_WRITE))
            .with_a(access.contains(Access::REMOTE_ATOMIC))
            .with_en_rinval(access.contains(Access::REMOTE_INVALIDATE))
            .with_relaxed_ordering_write(relaxed && self.caps.general.relaxed_ordering_write())
            .with_relaxed_ordering_read(relaxed && self.caps.general.relaxed_ordering_read())
            .with_qpn(Mkc::ANY_QP)
            .with_mkey_7_0(variant)
            .with_pd(params.pd)
            .with_start_addr(start_addr)
            .with_len(len_bytes << if mistake!(KeyLongerThanList) { 8 } else { 0 })
            .with_translations_octword_size(octwords)
            .with_log_page_size(log_page as u8);
        let input = CreateMkeyIn::request()
            .with_pg_access(true)
            .with_memory_key_mkey_entry(context)
            .with_translations_octword_actual_size(octwords);
        let list: Vec<u8> = list.into_iter().flat_map(u64::to_be_bytes).collect();
        let out = match core.cmd.exec(Lane::Regular, &input, &list, 0) {
            Ok((out, _)) => out,
            Err(error) => return Err(core.failed(error, [region])),
        };
        let key = out.mkey_index() << 8 | u32::from(variant);
        lock(&core.tables.mrs).insert(Lkey::new(key), region);
        Ok(Keys { lkey: Lkey::new(key), rkey: Rkey::new(key) })
    }
}

pub(super) fn destroy(core: &Core, lkey: Lkey) -> Result<()> {
    let region = take(&core.tables.mrs, lkey, "memory registration with lkey", lkey.get())?;
    if mistake!(KeyLeaked) {
        core.bury(region);
        return Ok(());
    }
    if mistake!(MemoryFirst) {
        drop(region);
        return core.cmd.call(&DestroyMkeyIn::request().with_mkey_index(lkey.get() >> 8)).map(|_| ());
    }
    let result = core.cmd.call(&DestroyMkeyIn::request().with_mkey_index(lkey.get() >> 8));
    if result.is_err() {
        lock(&core.tables.mrs).insert(lkey, region);
    }
    result.map(|_| ())
}
