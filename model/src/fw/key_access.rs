//! What an access through a memory key reaches: checks, then addresses, through keys that name other keys.
#![forbid(unsafe_code)]

use super::{
    Function, caps,
    mkey::{Mkey, NULL_MKEY, page_address},
};
use crate::{
    exec::{KeyFault, Need, Right},
    mem::DmaFault,
};
use mlx5_direct::{
    mlx5::context::MkcAccessMode,
    wqe::{KlmEntry, RepeatBlockSeg, RepeatEntrySeg},
};

/// Where a piece of a range is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// At this IOVA.
    Memory(u64),
    /// In memory on the device, at this offset of BAR0.
    Device(u64),
    /// Nowhere: reads give zeros, writes are swallowed.
    Null,
}

/// What covers a part of a range.
#[derive(Clone, Copy)]
enum Cover<'a> {
    Key(&'a Mkey),
    /// The null mkey.
    Null,
    /// The null mkey inside another, of a driver that pages: it has not given the part a key yet.
    Absent,
}

/// A part of a range that one key without children covers.
struct Leaf<'a> {
    cover: Cover<'a>,
    addr: u64,
    /// Bytes of the range before it.
    at: u64,
    len_bytes: u64,
}

/// Part of a range that an entry of a KLM list covers.
struct Part {
    key: u32,
    addr: u64,
    at: u64,
    len_bytes: u64,
}

impl Need {
    /// What is needed of a key that is reached through another one. The outer key's rights are those that a
    /// peer needs; memory behind a window is only opened to its owner.
    const fn behind_another(self) -> Self {
        match self {
            Self::LocalRead | Self::RemoteRead => Self::LocalRead,
            Self::LocalWrite | Self::RemoteWrite | Self::RemoteAtomic => Self::LocalWrite,
        }
    }

    const fn writes(self) -> bool {
        matches!(self.behind_another(), Self::LocalWrite)
    }
}

impl Mkey {
    /// Checks everything about an access but what the translation leads to.
    fn check(&self, right: &Right, addr: u64, len_bytes: u64) -> Result<(), KeyFault> {
        self.check_owner(right.key, right.pd, right.qpn)?;
        let context = &self.context;
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
            .checked_sub(self.first_addr())
            .and_then(|offset| offset.checked_add(len_bytes))
            .is_some_and(|end| end <= context.len());
        if inside { Ok(()) } else { Err(KeyFault::Bounds) }
    }

    /// The lowest address that requests name. Keys of memory on the device count from 0: their start is a place.
    fn first_addr(&self) -> u64 {
        let on_device = self.context.access_mode() == MkcAccessMode::MEMIC;
        if on_device { 0 } else { self.context.start_addr() }
    }

    /// Entry and offset within it of the byte at `addr`, in a list of entries of one size. The first page is the one that
    /// holds `start_addr`; a key's first piece begins there.
    fn fixed_entry(&self, addr: u64) -> (u64, u64) {
        let entry_bytes = 1u64 << self.context.log_page_size();
        let first = match self.context.access_mode() {
            MkcAccessMode::KSM => self.context.start_addr(),
            _ => self.context.start_addr() & !(entry_bytes - 1),
        };
        let from_first = addr.wrapping_sub(first);
        (from_first >> self.context.log_page_size(), from_first % entry_bytes)
    }

    /// Where the byte at `addr` is, and how many bytes from there on are in one piece.
    fn translate(&self, addr: u64, need: Need) -> Result<(Place, u64), KeyFault> {
        match self.context.access_mode() {
            MkcAccessMode::PA => return Ok((Place::Memory(addr), u64::MAX - addr)),
            MkcAccessMode::MEMIC => return Ok((Place::Device(self.context.start_addr() + addr), u64::MAX)),
            _ => {}
        }
        let (n, inside) = self.fixed_entry(addr);
        let entry = self.mtt(n).ok_or(KeyFault::Translation)?;
        if !(if need.writes() { entry.wr_en() } else { entry.rd_en() }) {
            return Err(KeyFault::Absent);
        }
        Ok((Place::Memory(page_address(entry) + inside), (1u64 << self.context.log_page_size()) - inside))
    }

    /// Calls `visit` with every part of a checked range of an indirect key.
    fn parts(
        &self,
        addr: u64,
        len_bytes: u64,
        visit: &mut dyn FnMut(Part) -> Result<(), KeyFault>,
    ) -> Result<(), KeyFault> {
        if self.context.access_mode() == MkcAccessMode::KSM {
            let mut at = 0;
            while at < len_bytes {
                let (n, inside) = self.fixed_entry(addr + at);
                let entry = self.klm(n as usize).ok_or(KeyFault::Bounds)?;
                let len = ((1u64 << self.context.log_page_size()) - inside).min(len_bytes - at);
                visit(Part {
                    key: entry.mkey().get(),
                    addr: entry.address().wrapping_add(inside),
                    at,
                    len_bytes: len,
                })?;
                at += len;
            }
            return Ok(());
        }
        let mut walk = Walk { skip: addr - self.context.start_addr(), at: 0, len_bytes, visit };
        let mut n = 0;
        while walk.at < walk.len_bytes {
            let entry = self.klm(n).ok_or(KeyFault::Bounds)?;
            n += match entry.mkey() {
                KlmEntry::REPEAT => walk.repeated(self, n, RepeatBlockSeg::from_bytes(entry.to_bytes()))?,
                key => {
                    walk.piece(key.get(), entry.address(), entry.byte_count().into())?;
                    1
                }
            };
        }
        Ok(())
    }
}

/// A walk over pieces of any length.
struct Walk<'a> {
    /// Bytes still before the range.
    skip: u64,
    /// Bytes of the range visited.
    at: u64,
    len_bytes: u64,
    visit: &'a mut dyn FnMut(Part) -> Result<(), KeyFault>,
}

impl Walk<'_> {
    fn piece(&mut self, key: u32, addr: u64, piece_bytes: u64) -> Result<(), KeyFault> {
        if self.skip >= piece_bytes {
            self.skip -= piece_bytes;
            return Ok(());
        }
        let len_bytes = (piece_bytes - self.skip).min(self.len_bytes - self.at);
        if len_bytes > 0 {
            (self.visit)(Part { key, addr: addr.wrapping_add(self.skip), at: self.at, len_bytes })?;
        }
        (self.skip, self.at) = (0, self.at + len_bytes);
        Ok(())
    }

    /// Walks a repeated block, whose head is entry `n`. Returns the entries that it takes.
    fn repeated(&mut self, mkey: &Mkey, n: usize, block: RepeatBlockSeg) -> Result<usize, KeyFault> {
        let entries: Option<Vec<RepeatEntrySeg>> = (n + 1..=n + usize::from(block.num_entries()))
            .map(|n| mkey.octoword(n).map(RepeatEntrySeg::from_bytes))
            .collect();
        let entries = entries.ok_or(KeyFault::Bounds)?;
        let cycle_bytes: u64 = entries.iter().map(|entry| u64::from(entry.byte_count())).sum();
        if cycle_bytes == 0 {
            return Ok(1 + entries.len());
        }
        // Whole cycles before the range are not walked.
        let first = (self.skip / cycle_bytes).min(block.repeat_count().into());
        self.skip -= first * cycle_bytes;
        for cycle in first..block.repeat_count().into() {
            if self.at == self.len_bytes {
                break;
            }
            for entry in &entries {
                let addr = entry.va().wrapping_add(cycle * u64::from(entry.stride()));
                self.piece(entry.mkey().get(), addr, entry.byte_count().into())?;
            }
        }
        Ok(1 + entries.len())
    }
}

impl Function {
    /// Checks a range, and calls `visit` with each part of it that one key without children covers.
    fn resolve(
        &self,
        right: &Right,
        (addr, at, len_bytes): (u64, u64, u64),
        depth: u8,
        visit: &mut dyn FnMut(Leaf<'_>) -> Result<(), KeyFault>,
    ) -> Result<(), KeyFault> {
        if right.key == NULL_MKEY {
            let absent = depth > 0 && self.hears_page_faults();
            let cover = if absent { Cover::Absent } else { Cover::Null };
            return visit(Leaf { cover, addr, at, len_bytes });
        }
        let mkey = self.mkeys.get(right.key >> 8).ok_or(KeyFault::Unknown)?;
        mkey.check(right, addr, len_bytes)?;
        if !matches!(mkey.context.access_mode(), MkcAccessMode::KLMS | MkcAccessMode::KSM) {
            return visit(Leaf { cover: Cover::Key(mkey), addr, at, len_bytes });
        }
        if depth == caps::MAX_INDIRECTION {
            return Err(KeyFault::Indirection);
        }
        let need = right.need.behind_another();
        mkey.parts(addr, len_bytes, &mut |part| {
            let right = Right { key: part.key, need, ..*right };
            self.resolve(&right, (part.addr, at + part.at, part.len_bytes), depth + 1, visit)
        })
    }

    /// Whether `right` covers the range.
    pub(super) fn check_key(&self, right: &Right, addr: u64, len_bytes: u64) -> Result<(), KeyFault> {
        self.resolve(right, (addr, 0, len_bytes), 0, &mut |_| Ok(()))
    }

    /// Calls `visit` with place, bytes before and length of each piece of a range, after checking it.
    fn walk_key(
        &self,
        right: &Right,
        addr: u64,
        len_bytes: usize,
        mut visit: impl FnMut(Place, usize, usize) -> Result<(), DmaFault>,
    ) -> Result<(), KeyFault> {
        self.resolve(right, (addr, 0, len_bytes as u64), 0, &mut |leaf| {
            let (at, len) = (leaf.at as usize, leaf.len_bytes as usize);
            let mkey = match leaf.cover {
                Cover::Key(mkey) => mkey,
                Cover::Null => return visit(Place::Null, at, len).map_err(|_| KeyFault::Translation),
                Cover::Absent => return Err(KeyFault::Absent),
            };
            let mut done = 0;
            while done < len {
                let (place, piece) = mkey.translate(leaf.addr + done as u64, right.need)?;
                let n = piece.min((len - done) as u64) as usize;
                visit(place, at + done, n).map_err(|_| KeyFault::Translation)?;
                done += n;
            }
            Ok(())
        })
    }

    /// Checks and reads.
    pub(super) fn read_key(&self, right: &Right, addr: u64, into: &mut [u8]) -> Result<(), KeyFault> {
        self.walk_key(right, addr, into.len(), |place, at, n| match place {
            Place::Memory(iova) => self.dma.read(iova, &mut into[at..at + n]),
            Place::Device(offset) => self.bar.memory().read(offset, &mut into[at..at + n]),
            Place::Null => {
                into[at..at + n].fill(0);
                Ok(())
            }
        })
    }

    /// Checks and writes, wholly or not at all.
    pub(super) fn write_key(&self, right: &Right, addr: u64, from: &[u8]) -> Result<(), KeyFault> {
        self.walk_key(right, addr, from.len(), |place, _, n| match place {
            Place::Memory(iova) => self.dma.check(iova, n, true),
            Place::Device(_) | Place::Null => Ok(()),
        })?;
        self.walk_key(right, addr, from.len(), |place, at, n| match place {
            Place::Memory(iova) => self.dma.write(iova, &from[at..at + n]),
            Place::Device(offset) => self.bar.memory().write(offset, &from[at..at + n]),
            Place::Null => Ok(()),
        })
    }

    /// Checks, and updates a word of 4 or 8 bytes in one step. Returns the old value.
    pub(super) fn update_key(
        &self,
        right: &Right,
        addr: u64,
        len_bytes: usize,
        update: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, KeyFault> {
        let mut old = 0;
        self.walk_key(right, addr, len_bytes, |place, _, _| {
            match place {
                Place::Memory(iova) => old = self.dma.fetch_update(iova, len_bytes, update)?,
                Place::Device(offset) => old = self.bar.memory().fetch_update(offset, len_bytes, update)?,
                Place::Null => {}
            }
            Ok(())
        })?;
        Ok(old)
    }
}
