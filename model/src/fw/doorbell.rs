//! UAR pages: what a store to one means.
//!
//! In a trapped page each store is seen with its bytes. A plain page is memory: each register is swapped for
//! a value that no driver writes, so that equal doorbells are seen too; but a second doorbell can overwrite
//! the first before it is seen, so on any change the doorbell records of every queue on the page are looked
//! at. A record alone, without any store to the page, starts nothing. Event queues have no record.
#![forbid(unsafe_code)]

use super::{
    Function,
    alloc::FIRST_UAR,
    blue_flame::{BlueFlame, N_BUFFERS, buffer_at, buffer_offset, ctrl_of},
    qp::Qp,
};
use crate::{
    pci::PAGE_BYTES,
    strict::{Queue, Rule, Violation},
    trace::Kind,
};
use mlx5_direct::{
    mlx5::uar::{CQ_DOORBELL, CqDoorbell, EQ_DOORBELL_ARM, EQ_DOORBELL_NOARM, EqDoorbell},
    mlx5::{init_segment::NicInterface, layout::Layout},
};

/// What a register holds that nobody has written: no driver writes it (reserved bits are set).
const UNTOUCHED64: u64 = 0xffff_ffff_ffff_fff7;
const UNTOUCHED32: u32 = 0xffff_fff7;

impl Function {
    /// Puts the watched registers of all pages into the untouched state.
    pub(super) fn prime_registers(&mut self) {
        for uar in self.watched_pages().collect::<Vec<_>>() {
            self.prime_page(uar);
        }
    }

    pub(super) fn prime_page(&mut self, uar: u32) {
        if !self.is_watched(uar) {
            return;
        }
        let base = u64::from(uar) * PAGE_BYTES;
        for place in Self::words_of_buffers(base).chain([base + CQ_DOORBELL as u64]) {
            self.bar.store64(place, UNTOUCHED64);
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
        for uar in self.watched_pages().collect::<Vec<_>>() {
            busy |= self.poll_page(uar);
        }
        busy
    }

    pub(super) fn take_register64(&self, at: u64) -> Option<u64> {
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
            let at = base + buffer_offset(buffer) as u64;
            if let Some(value) = self.take_register64(at).map(u64::to_be_bytes) {
                busy = true;
                let wqe = self.take_copy(at, value);
                self.send_doorbell(uar, buffer, value, wqe);
                self.look_at_send_records(uar);
            }
        }
        if let Some(value) = self.take_register64(base + CQ_DOORBELL as u64) {
            busy = true;
            self.cq_doorbell(uar, value.to_be_bytes());
            self.look_at_arm_records(uar);
        }
        busy | self.poll_eq_registers(uar)
    }

    /// The registers of a plain page's event queues.
    pub(super) fn poll_eq_registers(&mut self, uar: u32) -> bool {
        let base = u64::from(uar) * PAGE_BYTES;
        let mut busy = false;
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
                self.arm_cq_by_record(number, word);
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
        match (at, bytes.len()) {
            (CQ_DOORBELL, 8) => self.cq_doorbell(uar, bytes.try_into().unwrap_or_default()),
            (EQ_DOORBELL_ARM, 4) => self.eq_register(uar, bytes.try_into().unwrap_or_default(), true),
            (EQ_DOORBELL_NOARM, 4) => self.eq_register(uar, bytes.try_into().unwrap_or_default(), false),
            (_, len) => match buffer_at(at) {
                Some(buffer) => self.buffer_store(uar, buffer, at - buffer_offset(buffer), bytes),
                None => {
                    let detail = format!("store of {len} bytes at offset 0x{at:x} of UAR page 0x{uar:x}");
                    self.violate(Violation::new(Rule::DoorbellRegister, detail).with_bytes(bytes));
                }
            },
        }
    }

    /// The first 8 bytes of a BlueFlame buffer: those of the last WQE's control segment. `wqe` is that WQE, if all of
    /// it came.
    pub(super) fn send_doorbell(&mut self, uar: u32, buffer: usize, value: [u8; 8], wqe: Vec<u8>) {
        self.finish_copy(uar, buffer);
        let ctrl = ctrl_of(value);
        let number = ctrl.qpn().get();
        let n_wqebbs = u16::from(ctrl.ds()).div_ceil(4);
        if let Some(page) = self.uars.get_mut(uar) {
            page.blue_flame[buffer] = BlueFlame::new(&ctrl, wqe);
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
        } else if behind > 0 && !self.is_watched(uar) {
            let detail =
                format!("the doorbell names the WQE that ends at {named}, the record holds {counter}");
            let violation = violation(Rule::DoorbellNamesLastWqe, detail).on(Queue::Sq(number));
            self.violate(violation.at_index(ctrl.wqe_index().into()));
        }
        if counter == known && behind == 0 && !self.is_watched(uar) {
            let detail = format!("the record holds {counter}, for which was rung before");
            let violation = violation(Rule::DoorbellAddsWork, detail).on(Queue::Sq(number));
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
        let violation =
            |rule, detail: String| Violation::new(rule, detail).with_bytes_of(CqDoorbell::DESC, &value);
        let Some(cq) = self.cqs.get(number) else {
            let detail = format!("doorbell for CQ 0x{number:x}, which does not exist");
            return self.violate(violation(Rule::DoorbellQueueExists, detail));
        };
        if cq.uar() != uar {
            let detail = format!("rung on page 0x{uar:x}, the context has page 0x{:x}", cq.uar());
            return self.violate(violation(Rule::DoorbellRightPage, detail).on(Queue::Cq(number)));
        }
        let record = self.dma.load_be32(cq.arm_record());
        if record != Ok(word) && !self.is_watched(uar) {
            let detail = format!("arm word 0x{word:08x}, record {record:08x?}");
            self.violate(violation(Rule::RecordBeforeDoorbell, detail).on(Queue::Cq(number)));
        }
        self.arm_cq(number, word);
    }

    fn eq_register(&mut self, uar: u32, value: [u8; 4], arm: bool) {
        let doorbell = EqDoorbell::from_bytes(value);
        let number = doorbell.eqn().get();
        let violation =
            |rule, detail: String| Violation::new(rule, detail).with_bytes_of(EqDoorbell::DESC, &value);
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
