//! Memory keys: what CREATE_MKEY makes, and SEND with invalidate undoes.
#![forbid(unsafe_code)]

use super::{
    Function,
    buffer::extent,
    caps,
    devx::UmemPart,
    dispatch::{Input, Output, done, out},
    pages::Cost,
    refusal::Refusal,
    signature::Signing,
};
use crate::exec::KeyFault;
use mlx5_direct::{
    mlx5::{
        cmd::{
            CreateMkeyIn, CreateMkeyOut, DestroyMkeyIn, QueryMkeyIn, QueryMkeyOut, QuerySpecialContextsOut,
        },
        context::{Mkc, MkcAccessMode},
        ids::{Lkey, Pdn, Qpn},
    },
    wqe::{KlmEntry, MttEntry},
};
use std::ops::Range;

/// Most units of 16 bytes that a key's translation may have: 4 GiB of them.
const MAX_OCTOWORDS: u32 = 1 << 28;

/// First mkey index: the ones before it are the device's own.
pub(crate) const FIRST_INDEX: u32 = 0x400;
/// Keys of QUERY_SPECIAL_CONTEXTS.
const RESERVED_LKEY: u32 = 0x200;
pub(super) const NULL_MKEY: u32 = 0x300;

/// The unit of translation lists: two MTTs or one KLM.
pub(super) type Octoword = [u8; 16];

/// A memory key.
#[derive(Debug)]
pub(crate) struct Mkey {
    pub(crate) context: Mkc,
    /// The translation, as it was given; what lies beyond was never written.
    octowords: Vec<Octoword>,
    /// Pages as CREATE_MKEY got them: the lowest and the highest byte. A UMR may have led the key elsewhere since.
    extent: (u64, u64),
    /// How long it may become.
    n_octowords_max: u32,
    pub(super) signing: Signing,
    cost: Cost,
}

/// Address of the page that an entry names.
pub(super) fn page_address(entry: MttEntry) -> u64 {
    entry.ptag() << 2
}

/// Gives the pages that two entries name both permissions.
fn make_present(octoword: &mut Octoword) {
    for bytes in octoword.as_chunks_mut::<8>().0 {
        if *bytes != [0; 8] {
            *bytes = MttEntry::from_bytes(*bytes).with_rd_en(true).with_wr_en(true).to_bytes();
        }
    }
}

impl Mkey {
    /// Pages of `list` are there whatever it says, if `present`.
    fn new(input: &CreateMkeyIn, list: &[u8], present: bool) -> Result<Self, Refusal> {
        let context = input.memory_key_mkey_entry();
        let mode = context.access_mode();
        let (start, len) = (context.start_addr(), context.len());
        if !context.length64() && (len > 1 << caps::LOG_MAX_MRW_SZ || start.checked_add(len).is_none()) {
            return Err(Refusal::MKEY_LENGTH);
        }
        if mode.0 > MkcAccessMode::KSM.0 && mode != MkcAccessMode::MEMIC {
            return Err(Refusal::ACCESS_MODE);
        }
        let n_octowords_max = context.translations_octword_size();
        if n_octowords_max > MAX_OCTOWORDS {
            return Err(Refusal::MKEY_OCTWORDS);
        }
        // A list may follow a free key too; without one, a UMR will write it.
        let n_given = input.translations_octword_actual_size() as usize;
        let translated = !matches!(mode, MkcAccessMode::PA | MkcAccessMode::MEMIC);
        let listed = translated && (!context.free() || input.pg_access());
        let mut octowords = match listed {
            true => list.as_chunks::<16>().0.get(..n_given).ok_or(Refusal::LIST_SHORT)?.to_vec(),
            false => Vec::new(),
        };
        if present && mode == MkcAccessMode::MTT {
            octowords.iter_mut().for_each(make_present);
        }
        // Translations are kept in units of 64 bytes: Linux gives a key for 4 pages a list of 8.
        let n_octowords_max = n_octowords_max.max(octowords.len() as u32).next_multiple_of(4);
        let cost = Cost::mkey(2 * n_octowords_max as usize);
        let mut mkey =
            Self { context, octowords, extent: (1, 0), n_octowords_max, signing: Signing::default(), cost };
        if mode == MkcAccessMode::MTT && !context.free() {
            mkey.extent = mkey.check_pages()?;
        }
        Ok(mkey)
    }

    /// Whether the page list of a new key is long enough and made of pages: their extent.
    fn check_pages(&self) -> Result<(u64, u64), Refusal> {
        let log_page = self.context.log_page_size();
        if !(12..=31).contains(&log_page) {
            return Err(Refusal::PAGE_SIZE);
        }
        let inside = self.context.start_addr() % (1 << log_page);
        let n_pages = (inside + self.context.len()).div_ceil(1 << log_page) as usize;
        let announced = self.context.translations_octword_size() as usize >= n_pages.div_ceil(2);
        if !announced || self.octowords.len() < n_pages.div_ceil(2) || self.context.length64() {
            return Err(Refusal::MKEY_TRANSLATION);
        }
        let pages: Vec<u64> = (0..n_pages).map(|n| self.page(n as u64).unwrap_or(0)).collect();
        match pages.iter().all(|page| page.is_multiple_of(1 << log_page)) {
            true => Ok(extent(&pages, 1 << log_page)),
            false => Err(Refusal::PAS_ALIGNMENT),
        }
    }

    /// Whether the key leads to a byte in a range of addresses, by the list that it was made with.
    pub(super) fn touches(&self, range: &Range<u64>) -> bool {
        let (first, last) = self.extent;
        if self.context.free() || last < range.start || range.end <= first {
            return false;
        }
        // Pages may be larger than what the key has of them.
        let page_bytes = 1u64 << self.context.log_page_size();
        let inside = self.context.start_addr() % page_bytes;
        let end = inside + self.context.len();
        (0..end.div_ceil(page_bytes)).any(|n| {
            let (from, to) = ((n * page_bytes).max(inside), ((n + 1) * page_bytes).min(end));
            let place = |at: u64| self.page(n).map(|page| page.saturating_add(at - n * page_bytes));
            place(from).zip(place(to)).is_some_and(|(from, to)| from < range.end && range.start < to)
        })
    }

    /// Entry `n` of the page list, if it was given.
    pub(super) fn mtt(&self, n: u64) -> Option<MttEntry> {
        let octoword = self.octowords.get(n as usize / 2)?;
        Some(MttEntry::from_bytes(octoword.as_chunks::<8>().0[n as usize % 2]))
    }

    /// Address of page `n`, if there is one.
    fn page(&self, n: u64) -> Option<u64> {
        self.mtt(n).filter(|entry| *entry != MttEntry::new()).map(page_address)
    }

    /// Entry `n` of a list of pieces.
    pub(super) fn octoword(&self, n: usize) -> Option<Octoword> {
        self.octowords.get(n).copied()
    }

    /// Entry `n` of a list of pieces.
    pub(super) fn klm(&self, n: usize) -> Option<KlmEntry> {
        self.octoword(n).map(KlmEntry::from_bytes)
    }

    /// Whether the key's translation goes on to `end`.
    pub(super) fn has_room(&self, end_octowords: u64) -> bool {
        end_octowords <= u64::from(self.n_octowords_max)
    }

    pub(super) const fn n_octowords_max(&self) -> u32 {
        self.n_octowords_max
    }

    /// Replaces part of the translation, for which there is room.
    pub(super) fn set_octowords(&mut self, offset: usize, list: &[Octoword]) {
        let end = offset + list.len();
        self.extent = (1, 0);
        if self.octowords.len() < end {
            self.octowords.resize(end, Octoword::default());
        }
        self.octowords[offset..end].copy_from_slice(list);
    }

    /// Whether `key` has the key's variant, and the key is in the hands of this QP.
    pub(super) fn check_owner(&self, key: u32, pd: Pdn, qpn: Qpn) -> Result<(), KeyFault> {
        let context = &self.context;
        if u32::from(context.mkey_7_0()) != key & 0xff {
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
        Ok(())
    }
}

impl Function {
    pub(super) fn create_mkey(&mut self, input: &Input<'_>) -> Output {
        let (input, list) = input.get_with_list::<CreateMkeyIn>()?;
        let from_umem;
        let list = match input.mkey_umem_valid() {
            false => list,
            true => {
                from_umem = self.mkey_umem_list(&input)?;
                &from_umem
            }
        };
        // Without `pg_access` a list has nothing but addresses, and a umem's pages are pinned.
        let present = !input.pg_access() || input.mkey_umem_valid();
        let mkey = Mkey::new(&input, list, present)?;
        if mkey.context.access_mode() == MkcAccessMode::MEMIC && !self.holds_memic(&mkey.context) {
            return Err(Refusal::MKEY_MEMIC);
        }
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

    /// The page list of a key over a umem.
    fn mkey_umem_list(&self, input: &CreateMkeyIn) -> Result<Vec<u8>, Refusal> {
        let log_page = input.memory_key_mkey_entry().log_page_size();
        if !(12..=31).contains(&log_page) {
            return Err(Refusal::PAGE_SIZE);
        }
        let part = UmemPart { id: input.mkey_umem_id(), offset_bytes: input.mkey_umem_offset() };
        let context = input.memory_key_mkey_entry();
        let n_pages = (context.start_addr() % (1 << log_page) + context.len()).div_ceil(1 << log_page);
        let mut list: Vec<u8> =
            self.umem_pages(part, log_page, n_pages)?.into_iter().flat_map(u64::to_be_bytes).collect();
        list.resize(list.len().max(input.translations_octword_actual_size() as usize * 16), 0);
        Ok(list)
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

    /// Frees the key that a peer named in a SEND with invalidate.
    pub(super) fn invalidate_key(&mut self, rkey: u32, pd: Pdn, qpn: Qpn) -> Result<(), KeyFault> {
        let mkey = self.mkeys.get_mut(rkey >> 8).ok_or(KeyFault::Unknown)?;
        mkey.check_owner(rkey, pd, qpn)?;
        if !mkey.context.en_rinval() {
            return Err(KeyFault::Access);
        }
        mkey.context.set_free(true);
        Ok(())
    }
}
