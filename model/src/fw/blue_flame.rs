//! BlueFlame: WQEs that software copies into a UAR page together with their doorbell.
//!
//! A card that gets the whole of one at once executes what it got, and else reads the ring, where the same WQE is. A
//! plain page is memory, so what is stored to it comes whole, as through a write-combining mapping; in a trapped page
//! each store comes by itself, as through an uncached one.
#![forbid(unsafe_code)]

use super::{Function, caps::LOG_BF_REG_SIZE, qp::Qp};
use crate::strict::{Queue, Rule, Violation};
use mlx5_direct::{
    mlx5::uar::{BF_OFFSET, BFREGS_PER_UAR},
    wqe::{CtrlSeg, SendOpcode},
};
use std::{hint, mem};

/// A BlueFlame register has two buffers.
const BUFFER_BYTES: usize = 1 << (LOG_BF_REG_SIZE - 1);
pub(crate) const N_BUFFERS: usize = BFREGS_PER_UAR * 2;
const LINE_BYTES: usize = 64;
const WQEBB_BYTES: usize = 64;
/// Where the byte of a control segment is that asks for a completion.
const FM_CE_SE: usize = 11;
/// Turns of a spin in which the next word of a copy comes that is under way.
const SPINS_FOR_WORD: u32 = 1000;

/// What was stored to one BlueFlame buffer since the last doorbell at its start.
#[derive(Debug, Default, Clone)]
pub(crate) struct BlueFlame {
    qpn: u32,
    wqe_index: u16,
    is_nop: bool,
    /// Bytes of the WQE, in whole lines.
    limit_bytes: usize,
    filled_bytes: usize,
    /// The WQE, if all of it came at once and it was not executed yet.
    wqe: Vec<u8>,
}

impl BlueFlame {
    /// What a doorbell begins; `wqe` is the WQE if all of it came, else empty.
    pub(super) fn new(ctrl: &CtrlSeg, wqe: Vec<u8>) -> Self {
        Self {
            qpn: ctrl.qpn().get(),
            wqe_index: ctrl.wqe_index(),
            is_nop: ctrl.opcode() == SendOpcode::NOP,
            limit_bytes: usize::from(ctrl.ds()).div_ceil(4) * WQEBB_BYTES,
            filled_bytes: 8,
            wqe,
        }
    }

    /// Where the bytes of the WQE from `offset` on are not what the ring has. Linux asks for completions in the copies
    /// of NOPs only, and not in the ring, to find out which of the two is executed (`mlx5_ib_test_wc`).
    fn first_difference(&self, offset: usize, copied: &[u8], ring: &[u8]) -> Option<usize> {
        let differs = |at: &usize| copied[*at] != ring[*at] && !(self.is_nop && offset + at == FM_CE_SE);
        (0..copied.len()).find(differs)
    }
}

pub(super) fn buffer_offset(buffer: usize) -> usize {
    BF_OFFSET + buffer * BUFFER_BYTES
}

/// The buffer that a byte of a UAR page is in.
pub(super) fn buffer_at(at: usize) -> Option<usize> {
    (BF_OFFSET..buffer_offset(N_BUFFERS)).contains(&at).then(|| (at - BF_OFFSET) / BUFFER_BYTES)
}

/// The control segment of which these are the first bytes.
pub(super) fn ctrl_of(first: [u8; 8]) -> CtrlSeg {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&first);
    CtrlSeg::from_bytes(bytes)
}

impl Function {
    /// Places of all words of a page's buffers, in BAR0.
    pub(super) fn words_of_buffers(base: u64) -> impl Iterator<Item = u64> {
        (base + BF_OFFSET as u64..base + buffer_offset(N_BUFFERS) as u64).step_by(8)
    }

    /// The WQE of which the first 8 bytes were just taken from a plain page, at `at` of BAR0. Empty if they were a
    /// doorbell alone, or if the rest does not come.
    pub(super) fn take_copy(&mut self, at: u64, first: [u8; 8]) -> Vec<u8> {
        let ctrl = ctrl_of(first);
        let limit_bytes = BlueFlame::new(&ctrl, Vec::new()).limit_bytes;
        if limit_bytes > BUFFER_BYTES {
            return Vec::new();
        }
        let mut wqe = first.to_vec();
        for place in (at..at + limit_bytes as u64).step_by(8).skip(1) {
            // Once the second word is there, the others are on their way.
            let spins = if wqe.len() > first.len() { SPINS_FOR_WORD } else { 0 };
            let word = (0..=spins).find_map(|_| {
                hint::spin_loop();
                self.take_register64(place)
            });
            // A gap stays one, and what is behind it is taken out of the way of the next copy.
            if let Some(word) = word
                && wqe.len() as u64 == place - at
            {
                wqe.extend(word.to_be_bytes());
            }
        }
        if wqe.len() != limit_bytes {
            return Vec::new();
        }
        self.count_blue_flame(ctrl.opcode() == SendOpcode::NOP);
        wqe
    }

    fn count_blue_flame(&mut self, is_nop: bool) {
        self.n_blue_flames += u64::from(!is_nop);
    }

    /// Takes the WQE at `index` of a QP, if all of it came with its doorbell. In a plain page two copies can mix before
    /// they are seen: what is not as the ring has it was none.
    pub(super) fn take_pushed(&mut self, qpn: u32, index: u16) -> Option<Vec<u8>> {
        let qp = self.qps.get(qpn)?;
        let copies = &mut self.uars.get_mut(qp.uar())?.blue_flame;
        let is_it =
            |copy: &&mut BlueFlame| copy.qpn == qpn && copy.wqe_index == index && !copy.wqe.is_empty();
        let copy = copies.iter_mut().find(is_it)?;
        let wqe = mem::take(&mut copy.wqe);
        let mut ring = vec![0; wqe.len()];
        let is_copy = qp.read_send_ring(&self.dma, index, 0, &mut ring)
            && copy.first_difference(0, &wqe, &ring).is_none();
        is_copy.then_some(wqe)
    }

    /// A trapped store into a BlueFlame buffer: a doorbell at its start, and copies of the WQE behind it.
    pub(super) fn buffer_store(&mut self, uar: u32, buffer: usize, offset: usize, bytes: &[u8]) {
        if let (0, Some(value)) = (offset, bytes.first_chunk()) {
            self.send_doorbell(uar, buffer, *value, Vec::new());
        } else if offset == 0 {
            let detail =
                format!("store of {} bytes at the start of a BlueFlame buffer: 8 or more", bytes.len());
            self.violate(Violation::new(Rule::DoorbellRegister, detail).with_bytes(bytes));
            return;
        }
        if offset != 0 || bytes.len() > 8 {
            self.blue_flame_copy(uar, buffer, offset, bytes);
        } else if let Some(page) = self.uars.get_mut(uar) {
            page.blue_flame[buffer].filled_bytes = bytes.len();
        }
    }

    /// Compares what was copied with the ring.
    fn blue_flame_copy(&mut self, uar: u32, buffer: usize, offset: usize, bytes: &[u8]) {
        let Some(copy) = self.uars.get_mut(uar).map(|page| &mut page.blue_flame[buffer]) else { return };
        let expected = if offset == 0 { 0 } else { copy.filled_bytes };
        let end = offset + bytes.len();
        let fits = end <= copy.limit_bytes && offset == expected;
        copy.filled_bytes = end;
        let copy = copy.clone();
        let (qpn, wqe_index, limit_bytes) = (copy.qpn, copy.wqe_index, copy.limit_bytes);
        if !fits {
            let detail = format!(
                "{} bytes at {offset} of the buffer: {expected} were copied so far, the WQE has {limit_bytes}",
                bytes.len()
            );
            let violation = Violation::new(Rule::BlueFlameWholeLines, detail).on(Queue::Sq(qpn));
            return self.violate(violation.at_index(wqe_index.into()).with_bytes(bytes));
        }
        if end == limit_bytes {
            self.count_blue_flame(copy.is_nop);
        }
        let mut ring = vec![0; bytes.len()];
        let read = |qp: &Qp| qp.read_send_ring(&self.dma, wqe_index, offset as u64, &mut ring);
        if self.qps.get(qpn).is_some_and(read)
            && let Some(first) = copy.first_difference(offset, bytes, &ring)
        {
            let detail = format!(
                "byte {} of the WQE: ring 0x{:02x}, copied 0x{:02x}",
                offset + first,
                ring[first],
                bytes[first]
            );
            let violation = Violation::new(Rule::BlueFlameMatchesRing, detail).on(Queue::Sq(qpn));
            self.violate(violation.at_index(wqe_index.into()).with_bytes(bytes));
        }
    }

    /// A copy that was begun must be whole lines when the buffer is used again.
    pub(super) fn finish_copy(&mut self, uar: u32, buffer: usize) {
        let Some(copy) = self.uars.get(uar).map(|page| &page.blue_flame[buffer]) else { return };
        if copy.filled_bytes > 8 && copy.filled_bytes % LINE_BYTES != 0 {
            let (qpn, wqe_index) = (copy.qpn, copy.wqe_index);
            let detail = format!("{} bytes were copied", copy.filled_bytes);
            let violation = Violation::new(Rule::BlueFlameWholeLines, detail).on(Queue::Sq(qpn));
            self.violate(violation.at_index(wqe_index.into()));
        }
    }
}
