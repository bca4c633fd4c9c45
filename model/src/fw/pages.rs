//! Memory that firmware borrows from the host, page by page.
#![forbid(unsafe_code)]

use super::{
    Function, Phase,
    dispatch::{Input, Output, done, out},
    refusal::Refusal,
};
use crate::{
    mem::DmaMap,
    strict::{Rule, Violation},
};
use mlx5_direct::mlx5::{
    cmd::{ManagePagesIn, ManagePagesOpMod, ManagePagesOut, QueryPagesIn, QueryPagesOpMod, QueryPagesOut},
    eqe::{EqePageReq, EventType},
};
use std::{collections::BTreeSet, ops::Range};
use zerocopy::IntoBytes;

const PAGE_BYTES: u64 = 4096;
/// Pages to boot and to initialise with.
const BOOT_PAGES: usize = 24;
const INIT_PAGES: usize = 40;
/// Free pages below which firmware asks for more, how many at a time, and above which it gives back.
const LOW_PAGES: usize = 8;
const CHUNK_PAGES: usize = 32;
const HIGH_PAGES: usize = 96;

/// 64ths of a page that an object costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cost(pub(crate) usize);

impl Cost {
    pub(crate) const QP: Self = Self(16);
    pub(crate) const CQ: Self = Self(8);
    pub(crate) const EQ: Self = Self(8);
    pub(crate) const OTHER: Self = Self(1);

    /// An mkey with this many translation entries.
    pub(crate) const fn mkey(n_entries: usize) -> Self {
        Self(1 + n_entries / 8)
    }
}

/// Pages owned, and what they are used for.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    owned: BTreeSet<u64>,
    used_64ths: usize,
    /// Pages that the last object lacked: one may cost more than is asked for at a time.
    n_lacking: usize,
    requested: bool,
    /// The host had none to give when last asked.
    denied: bool,
}

impl Pages {
    pub(crate) fn n_owned(&self) -> usize {
        self.owned.len()
    }

    /// The first page in a range of addresses.
    pub(super) fn first_owned(&self, range: &Range<u64>) -> Option<u64> {
        self.owned.range((range.start & !(PAGE_BYTES - 1))..range.end).next().copied()
    }

    /// Whether the host was asked for pages and has not answered.
    pub(super) fn are_coming(&self) -> bool {
        self.requested && !self.denied
    }

    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }

    fn n_base(&self) -> usize {
        BOOT_PAGES + INIT_PAGES
    }

    fn n_used(&self, phase: Phase) -> usize {
        if phase == Phase::Initialised {
            self.n_base() - CHUNK_PAGES + self.used_64ths.div_ceil(64)
        } else {
            0
        }
    }

    pub(crate) fn check_init(&self) -> Result<(), Refusal> {
        if self.owned.len() < BOOT_PAGES {
            return Err(Refusal::BOOT_PAGES_MISSING);
        }
        if self.owned.len() < self.n_base() {
            return Err(Refusal::INIT_PAGES_MISSING);
        }
        Ok(())
    }

    /// Pages wanted at a stage, negative if some can be taken back.
    fn wanted(&self, stage: QueryPagesOpMod, phase: Phase) -> Option<i32> {
        let target = match stage {
            QueryPagesOpMod::BOOT_PAGES => BOOT_PAGES,
            QueryPagesOpMod::INIT_PAGES => self.n_base(),
            QueryPagesOpMod::REGULAR_PAGES if phase == Phase::Initialised => {
                let free = self.owned.len().saturating_sub(self.n_used(phase));
                if self.n_lacking > 0 {
                    return Some((self.n_lacking + LOW_PAGES) as i32);
                }
                return Some(match free {
                    0..LOW_PAGES => (CHUNK_PAGES - free) as i32,
                    HIGH_PAGES.. => (HIGH_PAGES / 2) as i32 - free as i32,
                    _ => 0,
                });
            }
            QueryPagesOpMod::REGULAR_PAGES => 0,
            _ => return None,
        };
        Some(target.saturating_sub(self.owned.len()) as i32)
    }

    fn give(&mut self, dma: &DmaMap, list: &[[u8; 8]]) -> Result<(), Refusal> {
        let mut added = BTreeSet::new();
        for page in list.iter().map(|entry| u64::from_be_bytes(*entry)) {
            if page % PAGE_BYTES != 0 {
                return Err(Refusal::PAGE_ALIGNMENT);
            }
            if dma.check(page, PAGE_BYTES as usize, true).is_err() {
                return Err(Refusal::PAGE_NOT_MAPPED);
            }
            if self.owned.contains(&page) || !added.insert(page) {
                return Err(Refusal::PAGE_TWICE);
            }
        }
        self.owned.append(&mut added);
        Ok(())
    }

    fn take(&mut self, n_asked: usize, phase: Phase) -> Vec<u64> {
        let n_free = self.owned.len() - self.n_used(phase).min(self.owned.len());
        (0..n_asked.min(n_free)).map_while(|_| self.owned.pop_last()).collect()
    }
}

impl Function {
    pub(super) fn query_pages(&mut self, input: &Input<'_>) -> Output {
        let input: QueryPagesIn = input.get()?;
        if input.function_id() != 0 {
            return Err(Refusal::FUNCTION_ID);
        }
        let wanted = self.pages.wanted(input.op_mod(), self.phase).ok_or(Refusal::BAD_OP_MOD)?;
        out(QueryPagesOut::new().with_num_pages(wanted as u32))
    }

    pub(super) fn manage_pages(&mut self, input: &Input<'_>) -> Output {
        let (head, list) = input.get_with_list::<ManagePagesIn>()?;
        let n_entries = head.input_num_entries() as usize;
        if head.function_id() != 0 {
            return Err(Refusal::FUNCTION_ID);
        }
        match head.op_mod() {
            ManagePagesOpMod::GIVE => {
                let list = list.as_chunks().0.get(..n_entries).ok_or(Refusal::LIST_SHORT)?;
                let result = self.pages.give(&self.dma, list);
                if result == Err(Refusal::PAGE_NOT_MAPPED) {
                    let detail = "MANAGE_PAGES gives a page that is not mapped for reading and writing";
                    self.violate(Violation::new(Rule::DmaWritable, detail).with_bytes(list.as_flattened()));
                }
                result?;
                (self.pages.requested, self.pages.denied, self.pages.n_lacking) = (false, false, 0);
                self.commands.resume();
                done()
            }
            ManagePagesOpMod::CANT_GIVE => {
                (self.pages.requested, self.pages.denied, self.pages.n_lacking) = (false, true, 0);
                self.commands.resume();
                done()
            }
            ManagePagesOpMod::TAKE => {
                let head = ManagePagesOut::new();
                let room = input.output_len_bytes.saturating_sub(head.as_bytes().len()) / 8;
                let taken = self.pages.take(n_entries.min(room), self.phase);
                self.pages.requested = false;
                // A command that came meanwhile waits for pages, which are to be asked for now.
                self.commands.resume();
                let mut output = head.with_output_num_entries(taken.len() as u32).as_bytes().to_vec();
                output.extend(taken.iter().flat_map(|page| page.to_be_bytes()));
                Ok(output)
            }
            _ => Err(Refusal::BAD_OP_MOD),
        }
    }

    /// Takes what an object costs, and asks for more pages in time.
    pub(super) fn charge(&mut self, cost: Cost) -> Result<(), Refusal> {
        self.pages.used_64ths += cost.0;
        self.pages.n_lacking = self.pages.n_used(self.phase).saturating_sub(self.pages.owned.len());
        let enough = self.pages.n_lacking == 0;
        if !enough {
            self.pages.used_64ths -= cost.0;
        }
        self.balance_pages();
        if enough { Ok(()) } else { Err(Refusal::NO_PAGES) }
    }

    /// Gives back what an object cost.
    pub(super) fn refund(&mut self, cost: Cost) {
        self.pages.used_64ths = self.pages.used_64ths.saturating_sub(cost.0);
        self.balance_pages();
    }

    /// Asks the host for pages, or to take some back.
    fn balance_pages(&mut self) {
        let wanted = self.pages.wanted(QueryPagesOpMod::REGULAR_PAGES, self.phase).unwrap_or(0);
        if wanted == 0 || self.pages.requested {
            return;
        }
        let event = EqePageReq::new().with_num_pages(wanted as u32);
        self.pages.requested = self.event(EventType::PAGE_REQUEST, 0, event.to_bytes());
    }
}
