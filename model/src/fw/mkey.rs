//! Memory keys: creation, and what an access through one may touch.
#![forbid(unsafe_code)]

use super::{
    Function, caps,
    dispatch::{Input, Output, done, out},
    pages::Cost,
    refusal::Refusal,
};
use crate::exec::{KeyFault, Need, Right};
use mlx5_direct::mlx5::{
    cmd::{CreateMkeyIn, CreateMkeyOut, DestroyMkeyIn, QueryMkeyIn, QueryMkeyOut, QuerySpecialContextsOut},
    context::{Mkc, MkcAccessMode},
    ids::{Lkey, Pdn, Qpn},
};

/// First mkey index: the ones before it are the device's own.
pub(crate) const FIRST_INDEX: u32 = 0x400;
/// Keys of QUERY_SPECIAL_CONTEXTS.
const RESERVED_LKEY: u32 = 0x200;
const NULL_MKEY: u32 = 0x300;

/// Bits of an MTT that are not address.
const MTT_FLAGS: u64 = 3;

/// A memory key.
#[derive(Debug)]
pub(crate) struct Mkey {
    pub(crate) context: Mkc,
    /// Page addresses, for keys with translation.
    pages: Vec<u64>,
    cost: Cost,
}

impl Mkey {
    fn new(input: &CreateMkeyIn, list: &[u8]) -> Result<Self, Refusal> {
        let context = input.memory_key_mkey_entry();
        let mode = context.access_mode();
        let (start, len) = (context.start_addr(), context.len());
        if !context.length64() && (len > 1 << caps::LOG_MAX_MRW_SZ || start.checked_add(len).is_none()) {
            return Err(Refusal::MKEY_LENGTH);
        }
        let mut pages = Vec::new();
        match mode {
            MkcAccessMode::PA => {}
            MkcAccessMode::MTT if context.free() => {}
            MkcAccessMode::MTT => {
                let log_page = context.log_page_size();
                if !(12..=31).contains(&log_page) {
                    return Err(Refusal::PAGE_SIZE);
                }
                let octwords = input.translations_octword_actual_size() as usize;
                let entries = list.get(..octwords * 16).ok_or(Refusal::LIST_SHORT)?.as_chunks::<8>().0;
                let n_pages = (start % (1 << log_page) + len).div_ceil(1 << log_page) as usize;
                // `pg_access` is about paging on demand: Linux leaves it 0 with a list, where the device cannot page.
                let covers = entries.len() >= n_pages
                    && context.translations_octword_size() as usize >= n_pages.div_ceil(2);
                if !covers || context.length64() {
                    return Err(Refusal::MKEY_TRANSLATION);
                }
                let page = |entry: &[u8; 8]| u64::from_be_bytes(*entry) & !MTT_FLAGS;
                pages = entries[..n_pages].iter().map(page).collect();
                if pages.iter().any(|page| page % (1 << log_page) != 0) {
                    return Err(Refusal::PAS_ALIGNMENT);
                }
            }
            _ => return Err(Refusal::ACCESS_MODE),
        }
        let cost = Cost::mkey(pages.len());
        Ok(Self { context, pages, cost })
    }

    /// Checks everything about an access but whether its pages are mapped.
    fn check(&self, right: &Right, addr: u64, len_bytes: u64) -> Result<(), KeyFault> {
        let context = &self.context;
        if u32::from(context.mkey_7_0()) != right.key & 0xff {
            return Err(KeyFault::Unknown);
        }
        if context.free() {
            return Err(KeyFault::Free);
        }
        if context.pd() != right.pd {
            return Err(KeyFault::Pd);
        }
        if context.qpn() != Mkc::ANY_QP && context.qpn() != right.qpn {
            return Err(KeyFault::Qp);
        }
        let allowed = match right.need {
            Need::LocalRead => context.lr(),
            Need::LocalWrite => context.lw(),
            Need::RemoteRead => context.rr(),
            Need::RemoteWrite => context.rw(),
            Need::RemoteAtomic => context.a(),
        };
        if !allowed {
            return Err(KeyFault::Access);
        }
        if context.length64() {
            return addr.checked_add(len_bytes - 1).map(drop).ok_or(KeyFault::Bounds);
        }
        let inside = addr
            .checked_sub(context.start_addr())
            .and_then(|offset| offset.checked_add(len_bytes))
            .is_some_and(|end| end <= context.len());
        if inside { Ok(()) } else { Err(KeyFault::Bounds) }
    }

    /// Where the byte at `addr` is, and how many bytes from there on are in one piece.
    fn translate(&self, addr: u64) -> (u64, u64) {
        if self.pages.is_empty() {
            return (addr, u64::MAX - addr);
        }
        let log_page = self.context.log_page_size();
        let page_bytes = 1u64 << log_page;
        // The first page of the list is the one that holds `start_addr`.
        let from_first = addr - (self.context.start_addr() & !(page_bytes - 1));
        let inside = from_first % page_bytes;
        (self.pages[(from_first >> log_page) as usize] + inside, page_bytes - inside)
    }
}

impl Function {
    pub(super) fn create_mkey(&mut self, input: &Input<'_>) -> Output {
        let (input, list) = input.get_with_list::<CreateMkeyIn>()?;
        if input.mkey_umem_valid() {
            return Err(Refusal::UMEM);
        }
        let mkey = Mkey::new(&input, list)?;
        let (pd, cost) = (mkey.context.pd().get(), mkey.cost);
        self.pds.hold(pd, Refusal::NO_SUCH_PD)?;
        let created = self.charge(cost).and_then(|()| {
            let index = self.mkeys.insert(mkey);
            if index.is_err() {
                self.refund(cost);
            }
            index
        });
        if created.is_err() {
            self.pds.release(pd);
        }
        out(CreateMkeyOut::new().with_mkey_index(created?))
    }

    pub(super) fn query_mkey(&mut self, input: &Input<'_>) -> Output {
        let index = input.get::<QueryMkeyIn>()?.mkey_index();
        let mkey = self.mkeys.get(index).ok_or(Refusal::NO_SUCH_OBJECT)?;
        out(QueryMkeyOut::new().with_memory_key_mkey_entry(mkey.context))
    }

    pub(super) fn destroy_mkey(&mut self, input: &Input<'_>) -> Output {
        let index = input.get::<DestroyMkeyIn>()?.mkey_index();
        let mkey = self.mkeys.remove(index).ok_or(Refusal::NO_SUCH_OBJECT)?;
        self.pds.release(mkey.context.pd().get());
        self.refund(mkey.cost);
        done()
    }

    pub(super) fn query_special_contexts(&mut self, _: &Input<'_>) -> Output {
        out(QuerySpecialContextsOut::new()
            .with_resd_lkey(Lkey::new(RESERVED_LKEY))
            .with_null_mkey(Lkey::new(NULL_MKEY)))
    }

    fn mkey(&self, key: u32) -> Result<&Mkey, KeyFault> {
        self.mkeys.get(key >> 8).ok_or(KeyFault::Unknown)
    }

    /// Whether `right` covers the range.
    pub(super) fn check_key(&self, right: &Right, addr: u64, len_bytes: u64) -> Result<(), KeyFault> {
        self.mkey(right.key)?.check(right, addr, len_bytes)
    }

    /// Calls `visit` with IOVA, bytes before and length of each piece of a range, after checking it.
    pub(super) fn walk_key(
        &self,
        right: &Right,
        addr: u64,
        len_bytes: usize,
        mut visit: impl FnMut(u64, usize, usize) -> Result<(), crate::mem::DmaFault>,
    ) -> Result<(), KeyFault> {
        let mkey = self.mkey(right.key)?;
        mkey.check(right, addr, len_bytes as u64)?;
        let mut done = 0;
        while done < len_bytes {
            let (iova, piece) = mkey.translate(addr + done as u64);
            let n = piece.min((len_bytes - done) as u64) as usize;
            visit(iova, done, n).map_err(|_| KeyFault::Translation)?;
            done += n;
        }
        Ok(())
    }

    /// Frees the key that a peer named in a SEND with invalidate.
    pub(super) fn invalidate_key(&mut self, rkey: u32, pd: Pdn, qpn: Qpn) -> Result<(), KeyFault> {
        let mkey = self.mkeys.get_mut(rkey >> 8).ok_or(KeyFault::Unknown)?;
        let context = &mut mkey.context;
        if u32::from(context.mkey_7_0()) != rkey & 0xff {
            return Err(KeyFault::Unknown);
        }
        if context.free() {
            return Err(KeyFault::Free);
        }
        if context.pd() != pd {
            return Err(KeyFault::Pd);
        }
        if context.qpn() != Mkc::ANY_QP && context.qpn() != qpn {
            return Err(KeyFault::Qp);
        }
        if !context.en_rinval() {
            return Err(KeyFault::Access);
        }
        context.set_free(true);
        Ok(())
    }
}
