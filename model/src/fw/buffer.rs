//! A queue's buffer: a page list, and where in the first page it starts.
#![forbid(unsafe_code)]

use super::refusal::Refusal;
use crate::mem::{DmaFault, DmaMap};
use std::ops::Range;

/// `log_page_size` of contexts is less this.
const LOG_MIN_PAGE: u8 = 12;
/// Lower bits of a umem's pages: may be read, may be written.
const PERMISSIONS: u64 = 3;

fn page_bytes(log_page_size: u8) -> Result<u64, Refusal> {
    match log_page_size + LOG_MIN_PAGE {
        log @ ..=31 => Ok(1 << log),
        _ => Err(Refusal::PAGE_SIZE),
    }
}

/// The lowest and the highest byte of pages; an empty range of none.
pub(super) fn extent(pages: &[u64], page_bytes: u64) -> (u64, u64) {
    let (first, last) = (pages.iter().min(), pages.iter().max());
    first.zip(last).map_or((1, 0), |(first, last)| (*first, last + (page_bytes - 1)))
}

/// Memory of a queue, as its context and page list describe it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Buffer {
    pages: Vec<u64>,
    /// The lowest and the highest byte of its pages.
    extent: (u64, u64),
    log_page_bytes: u8,
    offset_bytes: u64,
    pub(crate) len_bytes: u64,
}

impl Buffer {
    /// From `log_page_size` (less 12), `page_offset` (in 64ths of the page) and the list behind the input.
    ///
    /// Every page must be mapped, for writing if `write`.
    pub(crate) fn new(
        dma: &DmaMap,
        log_page_size: u8,
        page_offset: u8,
        len_bytes: u64,
        list: &[u8],
        write: bool,
    ) -> Result<Self, Refusal> {
        let page_bytes = page_bytes(log_page_size)?;
        let offset_bytes = u64::from(page_offset) * (page_bytes / 64);
        let n_pages = (offset_bytes + len_bytes).div_ceil(page_bytes) as usize;
        let (entries, _) = list.as_chunks::<8>();
        let entries = entries.get(..n_pages).ok_or(Refusal::LIST_SHORT)?;
        let pages = entries.iter().map(|entry| u64::from_be_bytes(*entry)).collect();
        let buffer = Self { len_bytes, ..Self::checked(pages, log_page_size, offset_bytes)? };
        buffer.check_mapped(dma, write)?;
        Ok(buffer)
    }

    /// All of these pages from `offset_bytes` in the first of them on, with permissions in their lower bits.
    pub(crate) fn of_pages(list: &[[u8; 8]], log_page_size: u8, offset_bytes: u64) -> Result<Self, Refusal> {
        let pages = list.iter().map(|entry| u64::from_be_bytes(*entry) & !PERMISSIONS).collect();
        Self::checked(pages, log_page_size, offset_bytes)
    }

    /// Part of the buffer, all of which must be mapped.
    pub(crate) fn part(
        &self,
        dma: &DmaMap,
        at_bytes: u64,
        len_bytes: u64,
        write: bool,
    ) -> Result<Self, Refusal> {
        if at_bytes.checked_add(len_bytes).is_none_or(|end| end > self.len_bytes) {
            return Err(Refusal::UMEM);
        }
        let part = Self { offset_bytes: self.offset_bytes + at_bytes, len_bytes, ..self.clone() };
        part.check_mapped(dma, write)?;
        Ok(part)
    }

    fn checked(pages: Vec<u64>, log_page_size: u8, offset_bytes: u64) -> Result<Self, Refusal> {
        let page_bytes = page_bytes(log_page_size)?;
        if pages.iter().any(|page| page % page_bytes != 0) {
            return Err(Refusal::PAS_ALIGNMENT);
        }
        let len_bytes = (pages.len() as u64 * page_bytes).saturating_sub(offset_bytes);
        let extent = extent(&pages, page_bytes);
        Ok(Self { pages, extent, log_page_bytes: log_page_size + LOG_MIN_PAGE, offset_bytes, len_bytes })
    }

    /// Whether it has a byte in a range of addresses.
    pub(crate) fn touches(&self, range: &Range<u64>) -> bool {
        let (first, last) = self.extent;
        if last < range.start || range.end <= first {
            return false;
        }
        let mut touched = false;
        let walk = self.pieces(0, self.len_bytes, |iova, len_bytes| {
            touched |= iova < range.end && range.start < iova.saturating_add(len_bytes);
            Ok(())
        });
        walk.is_ok() && touched
    }

    fn check_mapped(&self, dma: &DmaMap, write: bool) -> Result<(), Refusal> {
        self.pieces(0, self.len_bytes, |iova, len_bytes| dma.check(iova, len_bytes as usize, write))
            .map_err(|_| Refusal::QUEUE_NOT_MAPPED)
    }

    /// Calls `visit` with address and length of every piece of a range.
    pub(crate) fn pieces(
        &self,
        at_bytes: u64,
        len_bytes: u64,
        mut visit: impl FnMut(u64, u64) -> Result<(), DmaFault>,
    ) -> Result<(), DmaFault> {
        let page_bytes = 1u64 << self.log_page_bytes;
        let mut done = 0;
        while done < len_bytes {
            let at = self.offset_bytes + at_bytes + done;
            let inside = at % page_bytes;
            let n = (page_bytes - inside).min(len_bytes - done);
            let outside = DmaFault { iova: 0, len_bytes: len_bytes as usize, read_only: false };
            let page = self.pages.get((at >> self.log_page_bytes) as usize).ok_or(outside)?;
            visit(page + inside, n)?;
            done += n;
        }
        Ok(())
    }

    /// Reads part of the buffer.
    pub(crate) fn read(&self, dma: &DmaMap, at_bytes: u64, into: &mut [u8]) -> Result<(), DmaFault> {
        let mut done = 0;
        self.pieces(at_bytes, into.len() as u64, |iova, n| {
            let piece = &mut into[done..done + n as usize];
            done += piece.len();
            dma.read(iova, piece)
        })
    }

    /// Address of an entry that lies in one page, as entries of queues do.
    pub(crate) fn iova(&self, at_bytes: u64) -> Option<u64> {
        let at = self.offset_bytes + at_bytes;
        let page = self.pages.get((at >> self.log_page_bytes) as usize)?;
        Some(page + at % (1 << self.log_page_bytes))
    }
}
