//! Atomics: what they do to a word of memory, plain or under masks.

use super::{
    host::Rule,
    wqe::{Broken, need},
};
use crate::wire::{AtomicEth, Headers, MaskEth, Opcode};
use mlx5_direct::wqe::{
    AtomicSeg, MaskedCas32Seg, MaskedCas64Seg, MaskedFa32Seg, MaskedFa64Seg, SEGMENT_BYTES, SendOpcode,
};

/// `ctrl.opmod` of an atomic under masks of 4 bytes, and of 8.
const OPMOD_4_BYTES: u8 = 8;
const OPMOD_8_BYTES: u8 = 9;

/// What becomes of the word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    /// The bits of one mask are swapped if those of the other are as expected.
    CompareSwap { swap: u64, compare: u64, swap_mask: u64, compare_mask: u64 },
    /// Fields side by side are added: a carry stops at every bit of `boundary`.
    FetchAdd { add: u64, boundary: u64 },
}

/// An atomic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Atomic {
    /// Length of the word: 4 or 8.
    pub(super) len_bytes: u32,
    is_masked: bool,
    operation: Operation,
}

impl Atomic {
    /// Reads the operands of a WQE, which stand at `at`. Returns them with their length in bytes.
    pub(super) fn read(
        opcode: SendOpcode,
        opmod: u8,
        bytes: &[u8],
        at: usize,
    ) -> Result<(Self, usize), Broken> {
        let masked = |len_bytes, operation| Self { len_bytes, is_masked: true, operation };
        let atomic = match (opcode, opmod) {
            (SendOpcode::ATOMIC_CS | SendOpcode::ATOMIC_FA, 0) => {
                let operands = AtomicSeg::from_bytes(need(bytes, at, "atomic")?);
                Self::plain(opcode == SendOpcode::ATOMIC_CS, operands.swap_add(), operands.compare())
            }
            (SendOpcode::ATOMIC_MASKED_CS, OPMOD_4_BYTES) => {
                let operands = MaskedCas32Seg::from_bytes(need(bytes, at, "masked atomic")?);
                let operation = Operation::CompareSwap {
                    swap: operands.swap().into(),
                    compare: operands.compare().into(),
                    swap_mask: operands.swap_mask().into(),
                    compare_mask: operands.compare_mask().into(),
                };
                masked(4, operation)
            }
            (SendOpcode::ATOMIC_MASKED_CS, OPMOD_8_BYTES) => {
                let operands = MaskedCas64Seg::from_bytes(need(bytes, at, "masked atomic")?);
                let operation = Operation::CompareSwap {
                    swap: operands.swap(),
                    compare: operands.compare(),
                    swap_mask: operands.swap_mask(),
                    compare_mask: operands.compare_mask(),
                };
                return Ok((masked(8, operation), 2 * SEGMENT_BYTES));
            }
            (SendOpcode::ATOMIC_MASKED_FA, OPMOD_4_BYTES) => {
                let operands = MaskedFa32Seg::from_bytes(need(bytes, at, "masked atomic")?);
                let (add, boundary) = (operands.add().into(), operands.field_boundary().into());
                masked(4, Operation::FetchAdd { add, boundary })
            }
            (SendOpcode::ATOMIC_MASKED_FA, OPMOD_8_BYTES) => {
                let operands = MaskedFa64Seg::from_bytes(need(bytes, at, "masked atomic")?);
                let (add, boundary) = (operands.add(), operands.field_boundary());
                masked(8, Operation::FetchAdd { add, boundary })
            }
            _ => {
                let text =
                    format!("opmod {opmod} for opcode 0x{:02x}: it says how wide an atomic is", opcode.0);
                return Err((Rule::WqeOpmod, text));
            }
        };
        Ok((atomic, SEGMENT_BYTES))
    }

    const fn plain(swaps: bool, swap_or_add: u64, compare: u64) -> Self {
        let operation = match swaps {
            true => Operation::CompareSwap {
                swap: swap_or_add,
                compare,
                swap_mask: u64::MAX,
                compare_mask: u64::MAX,
            },
            false => Operation::FetchAdd { add: swap_or_add, boundary: 0 },
        };
        Self { len_bytes: 8, is_masked: false, operation }
    }

    /// The opcode of the packet that asks for it.
    pub(super) const fn opcode(&self) -> Opcode {
        match (self.operation, self.is_masked) {
            (Operation::CompareSwap { .. }, false) => Opcode::COMPARE_SWAP,
            (Operation::FetchAdd { .. }, false) => Opcode::FETCH_ADD,
            (Operation::CompareSwap { .. }, true) => Opcode::MASKED_COMPARE_SWAP,
            (Operation::FetchAdd { .. }, true) => Opcode::MASKED_FETCH_ADD,
        }
    }

    /// The headers of that packet.
    pub(super) const fn headers(&self, addr: u64, rkey: u32) -> (AtomicEth, MaskEth) {
        let len_bytes = self.len_bytes;
        match self.operation {
            Operation::CompareSwap { swap, compare, swap_mask, compare_mask } => (
                AtomicEth { addr, rkey, swap_or_add: swap, compare },
                MaskEth { len_bytes, swap_or_boundary: swap_mask, compare: compare_mask },
            ),
            Operation::FetchAdd { add, boundary } => (
                AtomicEth { addr, rkey, swap_or_add: add, compare: 0 },
                MaskEth { len_bytes, swap_or_boundary: boundary, compare: 0 },
            ),
        }
    }

    /// What a packet asks for, if it is a sound atomic.
    pub(super) fn of(headers: &Headers) -> Option<Self> {
        let eth = headers.atomic?;
        let opcode = headers.bth.opcode.operation();
        let Some(masks) = headers.masks else {
            return Some(Self::plain(opcode == Opcode::COMPARE_SWAP, eth.swap_or_add, eth.compare));
        };
        let operation = match opcode {
            Opcode::MASKED_COMPARE_SWAP => Operation::CompareSwap {
                swap: eth.swap_or_add,
                compare: eth.compare,
                swap_mask: masks.swap_or_boundary,
                compare_mask: masks.compare,
            },
            _ => Operation::FetchAdd { add: eth.swap_or_add, boundary: masks.swap_or_boundary },
        };
        let is_sound = matches!(masks.len_bytes, 4 | 8);
        is_sound.then_some(Self { len_bytes: masks.len_bytes, is_masked: true, operation })
    }

    /// What the word becomes; of one of 4 bytes, the lower half counts.
    pub(super) const fn apply(&self, old: u64) -> u64 {
        match self.operation {
            Operation::CompareSwap { swap, compare, swap_mask, compare_mask } => {
                if (old ^ compare) & compare_mask == 0 { old & !swap_mask | swap & swap_mask } else { old }
            }
            Operation::FetchAdd { add, boundary } => {
                // Below the uppermost bits of the fields nothing can be carried past those; they are added by themselves.
                let lower = (old & !boundary).wrapping_add(add & !boundary);
                lower ^ (old ^ add) & boundary
            }
        }
    }

    /// The old value as it comes to the requester's memory: 8 bytes in the host's order, as
    /// `atomic_req_8b_endianness_mode` says, and 4 bytes in that of the network.
    pub(super) fn result(&self, old: u64) -> ([u8; 8], usize) {
        let mut bytes = old.to_ne_bytes();
        if self.len_bytes == 4 {
            bytes[..4].copy_from_slice(&(old as u32).to_be_bytes());
        }
        (bytes, self.len_bytes as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn add(old: u64, add: u64, boundary: u64) -> u64 {
        let operation = Operation::FetchAdd { add, boundary };
        Atomic { len_bytes: 8, is_masked: true, operation }.apply(old)
    }

    #[test]
    fn carries_stop_at_the_boundary_of_a_field() {
        assert_eq!(add(u64::MAX, 2, 0), 1, "no boundary: one field, which wraps");
        let halves = 1 << 63 | 1 << 31;
        assert_eq!(add(0x0000_0007_ffff_ffff, 0x0000_0001_0000_0001, halves), 0x0000_0008_0000_0000);
        assert_eq!(add(0x0000_0007_ffff_ffff, 0x0000_0001_0000_0001, 0), 0x0000_0009_0000_0000);
        assert_eq!(add(0xffff_ffff_0000_0000, 0x0000_0001_0000_0000, halves), 0);
        assert_eq!(add(0b1100, 0b1010, u64::MAX), 0b0110, "fields of one bit: exclusive or");
    }

    /// Against adding field by field.
    #[test]
    fn fields_of_every_width() {
        for width in 1..64 {
            let boundary =
                (0..64).filter(|bit| (bit + 1) % width == 0).fold(0, |mask, bit| mask | 1u64 << bit);
            for seed in 1..50u64 {
                let (old, more) =
                    (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15), seed.wrapping_mul(0xd1b5_4a32_d192_ed03));
                let mut wanted = 0;
                for start in (0..64).step_by(width) {
                    let mask = (1u64 << width) - 1;
                    let sum = (old >> start & mask).wrapping_add(more >> start & mask) & mask;
                    wanted |= sum << start;
                }
                assert_eq!(add(old, more, boundary), wanted, "width {width}, {old:x} + {more:x}");
            }
        }
    }

    #[test]
    fn masks_choose_what_is_compared_and_what_is_swapped() {
        let swap = |old, compare, compare_mask| {
            let operation = Operation::CompareSwap { swap: 0x1111, compare, swap_mask: 0x0ff0, compare_mask };
            Atomic { len_bytes: 8, is_masked: true, operation }.apply(old)
        };
        assert_eq!(swap(0xabcd, 0xa00d, 0xf00f), 0xa11d);
        assert_eq!(swap(0xabcd, 0xa00c, 0xf00f), 0xabcd);
        assert_eq!(swap(0xabcd, 0, 0), 0xa11d, "nothing compared: always");
    }
}
