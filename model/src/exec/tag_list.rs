//! The list of tags of an XRQ.
//!
//! Entries have numbers, which software gives out: each APPEND fills the entry that the one before named, and names the next.
//! Tags are tried in the order in which they were added. A message that takes none is unexpected, and software may at that
//! moment be adding the tag that it would have taken. So tags that are added before software has told that it knows of all
//! unexpected messages match nothing, until it has.

use super::host::Rule;
use mlx5_direct::wqe::{DataSeg, TmOp, TmSeg};

/// Memory for the message of a tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TagMemory {
    /// Local key.
    pub lkey: u32,
    /// Where.
    pub addr: u64,
    /// In bytes; 0 for a message without data.
    pub len_bytes: u32,
}

impl From<DataSeg> for TagMemory {
    fn from(data: DataSeg) -> Self {
        let len_bytes = if data.is_terminator() { 0 } else { data.len_bytes() };
        Self { lkey: data.lkey().get(), addr: data.addr(), len_bytes }
    }
}

/// A tag that a message has taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TakenTag {
    /// Its entry, which is in use until the message is done ([`TagList::release`]).
    pub index: u16,
    /// Where the data go.
    pub memory: TagMemory,
}

/// What came of an operation on the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TagOutcome {
    /// REMOVE found the tag.
    pub success: bool,
    /// Unexpected messages so far, as a counter of 16 bits.
    pub n_unexpected: u16,
}

/// A tag in the list.
#[derive(Debug, Clone, Copy)]
struct Tag {
    index: u16,
    tag: u64,
    mask: u64,
    memory: TagMemory,
    /// Software knew of all unexpected messages when it was added, or has told since.
    matches: bool,
}

/// The list, and the counts of unexpected messages.
#[derive(Debug)]
pub struct TagList {
    /// In the order in which they are tried.
    tags: Vec<Tag>,
    /// By entry: it is in the list, or a message has taken it and is not done.
    in_use: Vec<bool>,
    next_index: u16,
    n_unexpected: u16,
    n_known: u16,
}

impl TagList {
    /// An empty list of 2^`log_size` entries.
    pub fn new(log_size: u8) -> Self {
        let in_use = vec![false; 1 << log_size];
        Self { tags: Vec::new(), in_use, next_index: 0, n_unexpected: 0, n_known: 0 }
    }

    /// `append_next_index`: the entry that the next APPEND fills.
    pub fn next_index(&self) -> u16 {
        self.next_index
    }

    /// `hw_phase_cnt`: unexpected messages.
    pub fn n_unexpected(&self) -> u16 {
        self.n_unexpected
    }

    /// `sw_phase_cnt`: those that software has told of.
    pub fn n_known(&self) -> u16 {
        self.n_known
    }

    /// Does what a WQE asks; `memory` is that of an APPEND.
    ///
    /// # Errors
    /// The rule that it breaks, with the numbers. Nothing is changed then.
    pub fn apply(&mut self, operation: &TmSeg, memory: TagMemory) -> Result<TagOutcome, (Rule, String)> {
        let index = operation.index();
        let n_entries = self.in_use.len();
        if operation.op() != TmOp::NOP && usize::from(index) >= n_entries {
            return Err((Rule::TagList, format!("entry {index} of a list of {n_entries}")));
        }
        let ahead = operation.sw_cnt().wrapping_sub(self.n_unexpected) as i16;
        if operation.sw_cnt_valid() && ahead > 0 {
            let (told, came) = (operation.sw_cnt(), self.n_unexpected);
            let text = format!("sw_cnt {told}: {came} unexpected messages have come");
            return Err((Rule::TagCount, text));
        }
        let success = match operation.op() {
            TmOp::NOP => true,
            TmOp::APPEND => {
                self.append(operation, memory)?;
                true
            }
            TmOp::REMOVE => self.remove(index),
            other => return Err((Rule::TagList, format!("operation {} is unknown", other.0))),
        };
        if operation.sw_cnt_valid() {
            self.n_known = operation.sw_cnt();
        }
        if self.n_known == self.n_unexpected {
            self.tags.iter_mut().for_each(|tag| tag.matches = true);
        }
        Ok(TagOutcome { success, n_unexpected: self.n_unexpected })
    }

    fn append(&mut self, operation: &TmSeg, memory: TagMemory) -> Result<(), (Rule, String)> {
        let (index, next) = (self.next_index, operation.index());
        for (which, entry) in [("the entry to fill", index), ("the next one", next)] {
            if self.in_use[usize::from(entry)] {
                return Err((Rule::TagList, format!("APPEND: {which}, {entry}, is in use")));
            }
        }
        if next == index {
            return Err((Rule::TagList, format!("APPEND: the next entry, {next}, is the one to fill")));
        }
        let (tag, mask) = (operation.append_tag(), operation.append_mask());
        self.tags.push(Tag { index, tag, mask, memory, matches: false });
        self.in_use[usize::from(index)] = true;
        self.next_index = next;
        Ok(())
    }

    fn remove(&mut self, index: u16) -> bool {
        let Some(at) = self.tags.iter().position(|tag| tag.index == index) else { return false };
        self.tags.remove(at);
        self.release(index);
        true
    }

    /// Takes the first tag that fits a message's. Without one, the message will be unexpected.
    pub fn take(&mut self, tag: u64) -> Option<TakenTag> {
        let fits = |entry: &Tag| entry.matches && (entry.tag ^ tag) & entry.mask == 0;
        let at = self.tags.iter().position(fits)?;
        let Tag { index, memory, .. } = self.tags.remove(at);
        Some(TakenTag { index, memory })
    }

    /// An unexpected message has come.
    pub fn count_unexpected(&mut self) {
        self.n_unexpected = self.n_unexpected.wrapping_add(1);
    }

    /// The message that took a tag is done.
    pub fn release(&mut self, index: u16) {
        if let Some(in_use) = self.in_use.get_mut(usize::from(index)) {
            *in_use = false;
        }
    }
}
