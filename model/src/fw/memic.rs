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
    cmd::{
        AllocMemicIn, AllocMemicOut, DeallocMemicIn, MemicOperation, ModifyMemicIn, ModifyMemicOpMod,
        ModifyMemicOut,
    },
    context::Mkc,
};
use std::{collections::BTreeMap, ops::Range};

const MEMIC_BYTES: u64 = 256 << 10;
/// Where it is in BAR0.
pub(crate) const MEMIC: Range<u64> = BAR_LEN_BYTES - MEMIC_BYTES..BAR_LEN_BYTES;
/// Operations that an access can be, in the order of their windows.
const N_OPERATIONS: u64 = 2;
/// Second addresses, before it: as many bytes for each operation.
pub(crate) const OPERATIONS: Range<u64> = MEMIC.start - N_OPERATIONS * MEMIC_BYTES..MEMIC.start;
/// Widths that operations take: of wider ones than a byte nothing public says which byte comes first.
const ONE_BYTE: u8 = 1;
const LOG_MIN_ALLOC_BYTES: u8 = 6;
const LOG_MAX_ALIGNMENT: u8 = 6;

/// What QUERY_HCA_CAP says of it.
pub(super) fn capabilities() -> DeviceMemCap {
    let len_bytes = MEMIC_BYTES as u32;
    DeviceMemCap::new()
        .with_memic(true)
        .with_log_min_memic_alloc_size(LOG_MIN_ALLOC_BYTES)
        .with_log_max_memic_addr_alignment(LOG_MAX_ALIGNMENT)
        .with_memic_bar_start_addr(MEMIC.start)
        .with_memic_bar_size(len_bytes)
        .with_max_memic_size(len_bytes)
        .with_memic_operations((1 << N_OPERATIONS) - 1)
        .with_increment_size_sup(ONE_BYTE)
        .with_test_and_set_size_sup(ONE_BYTE)
}

/// A piece in use.
#[derive(Debug)]
struct Piece {
    len_bytes: u64,
    /// Operations for which it has a second address, a bit each.
    operations: u8,
}

/// Pieces in use, by offset in BAR0.
#[derive(Debug, Default)]
pub(super) struct Pieces(BTreeMap<u64, Piece>);

impl Pieces {
    /// A piece that a range from `start` on would overlap.
    fn overlap(&self, start: u64, len_bytes: u64) -> Option<Range<u64>> {
        let (&at, piece) = self.0.range(..start + len_bytes).next_back()?;
        (at + piece.len_bytes > start).then(|| at..at + piece.len_bytes)
    }

    /// Whether a range is inside one piece.
    fn hold(&self, start: u64, len_bytes: u64) -> bool {
        self.around(start).is_some_and(|(at, piece)| {
            start.checked_add(len_bytes).is_some_and(|end| end <= at + piece.len_bytes)
        })
    }

    /// The last piece that begins at an offset or before, and where.
    fn around(&self, offset: u64) -> Option<(u64, &Piece)> {
        self.0.range(..=offset).next_back().map(|(&at, piece)| (at, piece))
    }

    fn insert(&mut self, at: u64, len_bytes: u64) {
        self.0.insert(at, Piece { len_bytes, operations: 0 });
    }

    /// What an access of one byte to a second address does, and where.
    fn operation(&self, offset: u64) -> Option<(MemicOperation, u64)> {
        let from_first = offset.checked_sub(OPERATIONS.start)?;
        let operation = MemicOperation((from_first / MEMIC_BYTES) as u8);
        let at = MEMIC.start + from_first % MEMIC_BYTES;
        let (start, piece) = self.around(at)?;
        (at < start + piece.len_bytes && piece.operations & 1 << operation.0 != 0).then_some((operation, at))
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
        self.memic_pieces.insert(at, len_bytes);
        out(AllocMemicOut::new().with_memic_start_addr(at))
    }

    pub(super) fn dealloc_memic(&mut self, input: &Input<'_>) -> Output {
        let input: DeallocMemicIn = input.get()?;
        let at = input.memic_start_addr();
        let piece = self.memic_pieces.0.get(&at).ok_or(Refusal::NO_SUCH_OBJECT)?;
        if piece.len_bytes != u64::from(input.memic_size()) {
            return Err(Refusal::NO_SUCH_OBJECT);
        }
        if piece.operations != 0 {
            return Err(Refusal::MEMIC_OPERATIONS_LEFT);
        }
        self.memic_pieces.0.remove(&at);
        done()
    }

    pub(super) fn modify_memic(&mut self, input: &Input<'_>) -> Output {
        let input: ModifyMemicIn = input.get()?;
        let (at, operation) = (input.memic_start_addr(), input.memic_operation_type());
        if u64::from(operation.0) >= N_OPERATIONS {
            return Err(Refusal::MEMIC_OPERATION);
        }
        let piece = self.memic_pieces.0.get_mut(&at).ok_or(Refusal::NO_SUCH_OBJECT)?;
        let bit = 1 << operation.0;
        match (ModifyMemicOpMod(input.op_mod()), piece.operations & bit != 0) {
            (ModifyMemicOpMod::ALLOC, false) => piece.operations |= bit,
            (ModifyMemicOpMod::DEALLOC, true) => piece.operations &= !bit,
            (ModifyMemicOpMod::ALLOC | ModifyMemicOpMod::DEALLOC, _) => {
                return Err(Refusal::MEMIC_OPERATION_STATE);
            }
            _ => return Err(Refusal::BAD_OP_MOD),
        }
        let window = OPERATIONS.start + u64::from(operation.0) * MEMIC_BYTES;
        out(ModifyMemicOut::new().with_memic_operation_addr(window + (at - MEMIC.start)))
    }

    /// Whether a key of this kind names memory that was given out.
    pub(super) fn holds_memic(&self, context: &Mkc) -> bool {
        self.memic_pieces.hold(context.start_addr(), context.len())
    }

    /// A driver's store into BAR0, if it is for this memory. One that is no operation of the piece is lost.
    pub(super) fn memic_store(&mut self, offset: u64, bytes: &[u8]) -> bool {
        if !OPERATIONS.contains(&offset) {
            return MEMIC.contains(&offset) && self.bar.memory().write(offset, bytes).is_ok();
        }
        if let (Some((MemicOperation::INCREMENT, at)), [more]) = (self.memic_pieces.operation(offset), bytes)
        {
            self.update_memic(at, |old| old.wrapping_add(*more));
        }
        true
    }

    /// A driver's load from BAR0, if it is from a second address. One that is no operation of the piece gives ones.
    pub(super) fn memic_load(&mut self, offset: u64, into: &mut [u8]) -> bool {
        if !OPERATIONS.contains(&offset) {
            return false;
        }
        match (self.memic_pieces.operation(offset), into) {
            (Some((MemicOperation::TEST_AND_SET, at)), [byte]) => *byte = self.update_memic(at, |_| 0xff),
            (_, into) => into.fill(0xff),
        }
        true
    }

    /// Changes a byte of this memory in one step; returns the old one.
    fn update_memic(&self, at: u64, update: impl Fn(u8) -> u8) -> u8 {
        let (word, shift) = (at & !7, 8 * (at % 8));
        let old = self.bar.memory().fetch_update(word, 8, &mut |old| {
            let new = update((old.to_le() >> shift) as u8);
            u64::from_le(old.to_le() & !(0xff << shift) | u64::from(new) << shift)
        });
        // The BAR is memory from its first byte to its last.
        old.map_or(0xff, |old| (old.to_le() >> shift) as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_placed_where_there_is_room() {
        let mut pieces = Pieces::default();
        assert_eq!(pieces.place(0x100..0x400, 0x40, 0x40), Some(0x100));
        pieces.insert(0x100, 0x40);
        pieces.insert(0x200, 0x80);
        assert_eq!(pieces.place(0x100..0x400, 0x40, 0x40), Some(0x140));
        assert_eq!(pieces.place(0x100..0x400, 0x100, 0x40), Some(0x280));
        assert_eq!(pieces.place(0x100..0x400, 0x200, 0x40), None);
        assert!(pieces.hold(0x210, 0x70) && !pieces.hold(0x210, 0x71) && !pieces.hold(0x1ff, 1));
        assert!(!pieces.hold(0x200, u64::MAX));
    }
}
