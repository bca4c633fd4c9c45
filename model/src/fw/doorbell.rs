//! UAR pages: what a store to one means.
//!
//! Trapped, each store is seen with its bytes. Mapped, pages are plain memory: each register is swapped for
//! a value that no driver writes, so that equal doorbells are seen too; but a second doorbell can overwrite
//! the first before it is seen, so on any change the doorbell records of every queue on the page are looked
//! at. A record alone, without any store to the page, starts nothing.
#![forbid(unsafe_code)]

use super::{Function, alloc::FIRST_UAR, caps::LOG_BF_REG_SIZE, qp::Qp};
use crate::{
    pci::PAGE_BYTES,
    strict::{Queue, Rule, Violation},
    trace::Kind,
};
use mlx5_direct::{
    mlx5::init_segment::NicInterface,
    mlx5::uar::{
        BF_OFFSET, BFREGS_PER_UAR, CQ_DOORBELL, CqDoorbell, EQ_DOORBELL_ARM, EQ_DOORBELL_NOARM, EqDoorbell,
    },
    wqe::CtrlSeg,
};

/// What a register holds that nobody has written: no driver writes it (reserved bits are set).
const UNTOUCHED64: u64 = 0xffff_ffff_ffff_fff7;
const UNTOUCHED32: u32 = 0xffff_fff7;
/// A BlueFlame register has two buffers.
const BUFFER_BYTES: usize = 1 << (LOG_BF_REG_SIZE - 1);
const N_BUFFERS: usize = BFREGS_PER_UAR * 2;
const LINE_BYTES: usize = 64;
const WQEBB_BYTES: usize = 64;

/// What was stored to one BlueFlame buffer since the last doorbell at its start.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct BlueFlame {
    qpn: u32,
    wqe_index: u16,
    /// Bytes of the WQE, in whole lines.
    limit_bytes: usize,
    filled_bytes: usize,
}

fn buffer_offset(buffer: usize) -> usize {
    BF_OFFSET + buffer * BUFFER_BYTES
}

impl Function {
    /// Puts the watched registers of all pages into the untouched state.
    pub(super) fn prime_registers(&mut self) {
        for uar in self.uars.iter().map(|(uar, _)| uar).collect::<Vec<_>>() {
            self.prime_page(uar);
        }
    }

    pub(super) fn prime_page(&mut self, uar: u32) {
        if !self.watching {
            return;
        }
        let base = u64::from(uar) * PAGE_BYTES;
        for offset in [CQ_DOORBELL].into_iter().chain((0..N_BUFFERS).map(buffer_offset)) {
            self.bar.store64(base + offset as u64, UNTOUCHED64);
        }
        for offset in [EQ_DOORBELL_ARM, EQ_DOORBELL_NOARM] {
            self.bar.store32(base + offset as u64, UNTOUCHED32);
        }
    }

    /// Looks at mapped registers; true if any was written.
    pub(super) fn poll_registers(&mut self) -> bool {
        let mut busy = false;
        if self.watching_init_segment {
            use super::init_segment::CMD_DOORBELL;
            // The doorbell first: whoever rings has stored the queue's address before.
            let rung = if self.bar.load32(CMD_DOORBELL) == 0 { 0 } else { self.bar.swap32(CMD_DOORBELL, 0) };
            busy |= self.take_mapped_cmdq_addr();
            if rung != 0 {
                busy = true;
                self.ring_mapped_commands(rung);
            }
        }
        for uar in self.uars.iter().map(|(uar, _)| uar).collect::<Vec<_>>() {
            busy |= self.poll_page(uar);
        }
        busy
    }

    fn take_register64(&self, at: u64) -> Option<u64> {
        let touched = self.bar.load64(at) != UNTOUCHED64;
        touched.then(|| self.bar.swap64(at, UNTOUCHED64))
    }

    fn take_register32(&self, at: u64) -> Option<u32> {
        let touched = self.bar.load32(at) != UNTOUCHED32;
        touched.then(|| self.bar.swap32(at, UNTOUCHED32))
    }

    fn poll_page(&mut self, uar: u32) -> bool {
        let base = u64::from(uar) * PAGE_BYTES;
        let mut busy = false;
        for buffer in 0..N_BUFFERS {
            if let Some(value) = self.take_register64(base + buffer_offset(buffer) as u64) {
                busy = true;
                self.send_doorbell(uar, buffer, value.to_be_bytes());
                self.look_at_send_records(uar);
            }
        }
        if let Some(value) = self.take_register64(base + CQ_DOORBELL as u64) {
            busy = true;
            self.cq_doorbell(uar, value.to_be_bytes());
            self.look_at_arm_records(uar);
        }
        for (offset, arm) in [(EQ_DOORBELL_ARM, true), (EQ_DOORBELL_NOARM, false)] {
            if let Some(value) = self.take_register32(base + offset as u64) {
                busy = true;
                self.eq_register(uar, value.to_be_bytes(), arm);
                if arm {
                    // An EQ has no record: one whose doorbell was overwritten is armed too.
                    for number in self.eqs_on_page(uar) {
                        self.arm_eq(number);
                    }
                }
            }
        }
        busy
    }

    /// Send doorbells that were overwritten: the records tell. That of a QP which does not send yet, or not any
    /// more, says nothing: software zeroes it after 2RST.
    fn look_at_send_records(&mut self, uar: u32) {
        let on_page = |(number, qp): (u32, &Qp)| {
            (qp.uar() == uar && qp.has_send_queue() && qp.sends())
                .then(|| (number, qp.send_record(), qp.producer))
        };
        let mut queues: Vec<_> = self.qps.iter().filter_map(on_page).collect();
        let sqs = self.sqs.iter().filter(|(_, sq)| sq.uar() == uar && sq.is_ready());
        queues.extend(sqs.map(|(number, sq)| (number, sq.send_record(), sq.producer)));
        for (number, record, known) in queues {
            let Ok(word) = self.dma.load_be32(record) else { continue };
            if word as u16 != known {
                self.start_send_queue(number, word as u16);
            }
        }
    }

    /// CQ doorbells that were overwritten. A first arm may be the word 0.
    fn look_at_arm_records(&mut self, uar: u32) {
        for number in self.cqs_on_page(uar) {
            let Some(cq) = self.cqs.get(number) else { continue };
            let seen = cq.arm_seen;
            if let Ok(word) = self.dma.load_be32(cq.arm_record())
                && seen != Some(word)
            {
                self.arm_cq(number, word);
            }
        }
    }

    /// A store to a UAR page whose bytes are known.
    pub(super) fn uar_store(&mut self, offset: u64, bytes: &[u8]) {
        let uar = (offset / PAGE_BYTES) as u32;
        let at = (offset % PAGE_BYTES) as usize;
        self.record(Kind::Doorbell, bytes, || format!("UAR page 0x{uar:x} + 0x{at:x}"));
        if self.iseg.nic_interface() == NicInterface::DISABLED {
            // After a fast teardown drivers above the one that did it go on ringing for a while: nobody listens.
            return;
        }
        if uar < FIRST_UAR || !self.uars.contains(uar) {
            let detail = format!("store of {} bytes to UAR page 0x{uar:x}", bytes.len());
            return self.violate(Violation::new(Rule::DoorbellAllocatedPage, detail).with_bytes(bytes));
        }
        let in_buffers = (BF_OFFSET..BF_OFFSET + N_BUFFERS * BUFFER_BYTES).contains(&at);
        match (at, bytes.len()) {
            (CQ_DOORBELL, 8) => self.cq_doorbell(uar, bytes.try_into().unwrap_or_default()),
            (EQ_DOORBELL_ARM, 4) => self.eq_register(uar, bytes.try_into().unwrap_or_default(), true),
            (EQ_DOORBELL_NOARM, 4) => self.eq_register(uar, bytes.try_into().unwrap_or_default(), false),
            _ if in_buffers => self.buffer_store(uar, at - BF_OFFSET, bytes),
            (_, len) => {
                let detail = format!("store of {len} bytes at offset 0x{at:x} of UAR page 0x{uar:x}");
                self.violate(Violation::new(Rule::DoorbellRegister, detail).with_bytes(bytes));
            }
        }
    }

    /// A store into a BlueFlame buffer: a doorbell at its start, and copies of the WQE behind it.
    fn buffer_store(&mut self, uar: u32, at: usize, bytes: &[u8]) {
        let (buffer, offset) = (at / BUFFER_BYTES, at % BUFFER_BYTES);
        if let (0, Some(value)) = (offset, bytes.first_chunk()) {
            self.send_doorbell(uar, buffer, *value);
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
        let BlueFlame { qpn, wqe_index, limit_bytes, .. } = *copy;
        if !fits {
            let detail = format!(
                "{} bytes at {offset} of the buffer: {expected} were copied so far, the WQE has {limit_bytes}",
                bytes.len()
            );
            let violation = Violation::new(Rule::BlueFlameWholeLines, detail).on(Queue::Sq(qpn));
            return self.violate(violation.at_index(wqe_index.into()).with_bytes(bytes));
        }
        let mut ring = vec![0; bytes.len()];
        let read = |qp: &Qp| qp.read_send_ring(&self.dma, wqe_index, offset as u64, &mut ring);
        if self.qps.get(qpn).is_some_and(read) && ring != bytes {
            let first = ring.iter().zip(bytes).position(|(ring, copied)| ring != copied).unwrap_or(0);
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
    fn finish_copy(&mut self, uar: u32, buffer: usize) {
        let Some(copy) = self.uars.get(uar).map(|page| page.blue_flame[buffer]) else { return };
        if copy.filled_bytes > 8 && copy.filled_bytes % LINE_BYTES != 0 {
            let detail = format!("{} bytes were copied", copy.filled_bytes);
            let violation = Violation::new(Rule::BlueFlameWholeLines, detail).on(Queue::Sq(copy.qpn));
            self.violate(violation.at_index(copy.wqe_index.into()));
        }
    }

    /// The first 8 bytes of a BlueFlame buffer: those of the last WQE's control segment.
    fn send_doorbell(&mut self, uar: u32, buffer: usize, value: [u8; 8]) {
        self.finish_copy(uar, buffer);
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&value);
        let ctrl = CtrlSeg::from_bytes(bytes);
        let number = ctrl.qpn().get();
        let n_wqebbs = u16::from(ctrl.ds()).div_ceil(4);
        if let Some(page) = self.uars.get_mut(uar) {
            page.blue_flame[buffer] = BlueFlame {
                qpn: number,
                wqe_index: ctrl.wqe_index(),
                limit_bytes: usize::from(n_wqebbs) * WQEBB_BYTES,
                filled_bytes: 8,
            };
        }
        let violation = |rule, detail: String| Violation::new(rule, detail).with_bytes(&value);
        let of_qp = self.qps.get(number).map(|qp| (qp.uar(), qp.producer, qp.send_record()));
        let of_sq = || self.sqs.get(number).map(|sq| (sq.uar(), sq.producer, sq.send_record()));
        let Some((page, known, record)) = of_qp.or_else(of_sq) else {
            let detail = format!("doorbell for QP 0x{number:x}, which does not exist");
            return self.violate(violation(Rule::DoorbellQueueExists, detail));
        };
        if page != uar {
            let detail = format!("rung on page 0x{uar:x}, the context has page 0x{page:x}");
            return self.violate(violation(Rule::DoorbellRightPage, detail).on(Queue::Sq(number)));
        }
        let counter = match self.dma.load_be32(record) {
            Ok(word) => word as u16,
            Err(fault) => {
                let detail = format!("doorbell record: {fault}");
                return self.violate_on(Queue::Sq(number), Rule::DmaUnmapInUse, detail);
            }
        };
        let named = ctrl.wqe_index().wrapping_add(n_wqebbs);
        let behind = counter.wrapping_sub(named) as i16;
        if behind < 0 {
            let detail =
                format!("the record holds {counter}, the doorbell names the WQE that ends at {named}");
            let violation = violation(Rule::RecordBeforeDoorbell, detail).on(Queue::Sq(number));
            self.violate(violation.at_index(ctrl.wqe_index().into()));
        } else if behind > 0 && !self.merging() {
            let detail =
                format!("the doorbell names the WQE that ends at {named}, the record holds {counter}");
            let violation = violation(Rule::DoorbellNamesLastWqe, detail).on(Queue::Sq(number));
            self.violate(violation.at_index(ctrl.wqe_index().into()));
        }
        if (counter.wrapping_sub(known) as i16) < 0 {
            let detail = format!("the record holds {counter}, and held {known} before");
            return self.violate(violation(Rule::ProducerForward, detail).on(Queue::Sq(number)));
        }
        self.start_send_queue(number, counter);
    }

    /// Lets a QP or an SQ execute up to `counter`.
    fn start_send_queue(&mut self, number: u32, counter: u16) {
        if self.sqs.contains(number) {
            return self.ring_sq(number, counter);
        }
        if let Some(qp) = self.qps.get_mut(number) {
            qp.take_shadow(&self.dma, counter);
        }
        self.with_engine(number, |engine, host| engine.doorbell(host, counter));
        self.ready.insert(number);
    }

    fn cq_doorbell(&mut self, uar: u32, value: [u8; 8]) {
        let doorbell = CqDoorbell::from_bytes(value);
        let number = doorbell.cqn().get();
        let word = u32::from_be_bytes(doorbell.arm().to_bytes());
        let violation = |rule, detail: String| Violation::new(rule, detail).with_bytes(&value);
        let Some(cq) = self.cqs.get(number) else {
            let detail = format!("doorbell for CQ 0x{number:x}, which does not exist");
            return self.violate(violation(Rule::DoorbellQueueExists, detail));
        };
        if cq.uar() != uar {
            let detail = format!("rung on page 0x{uar:x}, the context has page 0x{:x}", cq.uar());
            return self.violate(violation(Rule::DoorbellRightPage, detail).on(Queue::Cq(number)));
        }
        let record = self.dma.load_be32(cq.arm_record());
        if record != Ok(word) && !self.merging() {
            let detail = format!("arm word 0x{word:08x}, record {record:08x?}");
            self.violate(violation(Rule::RecordBeforeDoorbell, detail).on(Queue::Cq(number)));
        }
        self.arm_cq(number, word);
    }

    fn eq_register(&mut self, uar: u32, value: [u8; 4], arm: bool) {
        let doorbell = EqDoorbell::from_bytes(value);
        let number = doorbell.eqn().get();
        let violation = |rule, detail: String| Violation::new(rule, detail).with_bytes(&value);
        match self.eqs.get(number).map(super::eq::EventQueue::uar) {
            None => {
                let detail = format!("doorbell for EQ 0x{number:x}, which does not exist");
                self.violate(violation(Rule::DoorbellQueueExists, detail));
            }
            Some(page) if page != uar => {
                let detail = format!("rung on page 0x{uar:x}, the context has page 0x{page:x}");
                self.violate(violation(Rule::DoorbellRightPage, detail).on(Queue::Eq(number)));
            }
            Some(_) => self.eq_doorbell(number, doorbell.consumer_index(), arm),
        }
    }
}
