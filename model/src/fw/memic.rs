//! MEMIC: memory on the device, at the end of BAR0, that memory keys reach too.
#![forbid(unsafe_code)]

use super::{
    Function,
    dispatch::{Input, Output, done, out},
    refusal::Refusal,
};
use crate::pci::BAR_LEN_BYTES;
use mlx5_direct::mlx5::{
    caps::DeviceMemCap,
    cmd::{AllocMemicIn, AllocMemicOut, DeallocMemicIn},
    context::Mkc,
};
use std::{collections::BTreeMap, ops::Range};

/// Where it is in BAR0.
pub(crate) const MEMIC: Range<u64> = BAR_LEN_BYTES - (256 << 10)..BAR_LEN_BYTES;
const LOG_MIN_ALLOC_BYTES: u8 = 6;
const LOG_MAX_ALIGNMENT: u8 = 6;

/// What QUERY_HCA_CAP says of it.
pub(super) fn capabilities() -> DeviceMemCap {
    let len_bytes = (MEMIC.end - MEMIC.start) as u32;
    DeviceMemCap::new()
        .with_memic(true)
        .with_log_min_memic_alloc_size(LOG_MIN_ALLOC_BYTES)
        .with_log_max_memic_addr_alignment(LOG_MAX_ALIGNMENT)
        .with_memic_bar_start_addr(MEMIC.start)
        .with_memic_bar_size(len_bytes)
        .with_max_memic_size(len_bytes)
}

/// Pieces in use: lengths by offset in BAR0.
#[derive(Debug, Default)]
pub(super) struct Pieces(BTreeMap<u64, u64>);

impl Pieces {
    /// A piece that a range from `start` on would overlap.
    fn overlap(&self, start: u64, len_bytes: u64) -> Option<Range<u64>> {
        let (&at, &len) = self.0.range(..start + len_bytes).next_back()?;
        (at + len > start).then(|| at..at + len)
    }

    /// Whether a range is inside one piece.
    fn hold(&self, start: u64, len_bytes: u64) -> bool {
        self.0
            .range(..=start)
            .next_back()
            .is_some_and(|(&at, &len)| start.checked_add(len_bytes).is_some_and(|end| end <= at + len))
    }

    /// The lowest free place of the range.
    fn place(&self, range: Range<u64>, len_bytes: u64, alignment: u64) -> Option<u64> {
        let mut at = range.start.next_multiple_of(alignment);
        while at.checked_add(len_bytes)? <= range.end {
            match self.overlap(at, len_bytes) {
                Some(taken) => at = taken.end.next_multiple_of(alignment),
                None => return Some(at),
            }
        }
        None
    }
}

impl Function {
    pub(super) fn alloc_memic(&mut self, input: &Input<'_>) -> Output {
        let input: AllocMemicIn = input.get()?;
        let (start, len_bytes) = (input.range_start_addr(), u64::from(input.memic_size()));
        let end = start.checked_add(input.range_size().into()).ok_or(Refusal::MEMIC_RANGE)?;
        if start < MEMIC.start || end > MEMIC.end {
            return Err(Refusal::MEMIC_RANGE);
        }
        if len_bytes == 0 || !len_bytes.is_multiple_of(1 << LOG_MIN_ALLOC_BYTES) {
            return Err(Refusal::MEMIC_SIZE);
        }
        if input.log_memic_addr_alignment() > LOG_MAX_ALIGNMENT {
            return Err(Refusal::MEMIC_ALIGNMENT);
        }
        let alignment = 64 << input.log_memic_addr_alignment();
        let place = self.memic_pieces.place(start..end, len_bytes, alignment);
        // Linux tries the next range after this status, and no other.
        let at = place.ok_or(Refusal::MEMIC_FULL)?;
        self.memic_pieces.0.insert(at, len_bytes);
        out(AllocMemicOut::new().with_memic_start_addr(at))
    }

    pub(super) fn dealloc_memic(&mut self, input: &Input<'_>) -> Output {
        let input: DeallocMemicIn = input.get()?;
        let at = input.memic_start_addr();
        if self.memic_pieces.0.get(&at) != Some(&input.memic_size().into()) {
            return Err(Refusal::NO_SUCH_OBJECT);
        }
        self.memic_pieces.0.remove(&at);
        done()
    }

    /// Whether a key of this kind names memory that was given out.
    pub(super) fn holds_memic(&self, context: &Mkc) -> bool {
        self.memic_pieces.hold(context.start_addr(), context.len())
    }

    /// A driver's store into BAR0, if it is for this memory.
    pub(super) fn memic_store(&mut self, offset: u64, bytes: &[u8]) -> bool {
        MEMIC.contains(&offset) && self.bar.memory().write(offset, bytes).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_placed_where_there_is_room() {
        let mut pieces = Pieces::default();
        assert_eq!(pieces.place(0x100..0x400, 0x40, 0x40), Some(0x100));
        pieces.0.insert(0x100, 0x40);
        pieces.0.insert(0x200, 0x80);
        assert_eq!(pieces.place(0x100..0x400, 0x40, 0x40), Some(0x140));
        assert_eq!(pieces.place(0x100..0x400, 0x100, 0x40), Some(0x280));
        assert_eq!(pieces.place(0x100..0x400, 0x200, 0x40), None);
        assert!(pieces.hold(0x210, 0x70) && !pieces.hold(0x210, 0x71) && !pieces.hold(0x1ff, 1));
        assert!(!pieces.hold(0x200, u64::MAX));
    }
}
