//! The function as the host of a QP's transport engine.
#![forbid(unsafe_code)]

use super::Function;
use crate::{
    exec::{
        Counter, Cqe, Host, KeyFault, Need, PageFault, QpEvent, Right, Ring, RingFault, RoceKind, Rule,
        SharedQueue, SharedWqe, SourceAddress, Station, TagMemory, TagOutcome, TakenTag, UmrFault,
        UmrRequest, Wake,
    },
    strict::{self, Queue, Violation},
    trace::Kind,
};
use mlx5_direct::cqe::{CqeOpcode, RequesterCqe, TmListCqe};
use mlx5_direct::mlx5::{
    context::{RoceL3Type, RoceVersion},
    eqe::{EqeQpSrq, EventQueueType, EventType},
    ids::{Cqn, Pdn, Qpn},
};
use mlx5_direct::wqe::{CtrlSeg, SEGMENT_BYTES, SetPsvSeg, TmSeg};
use std::fmt;

/// The function while one of its engines runs.
pub(crate) struct FunctionHost<'a> {
    pub(crate) function: &'a mut Function,
}

impl From<Rule> for strict::Rule {
    fn from(rule: Rule) -> Self {
        match rule {
            Rule::SendQueueOverrun | Rule::ReceiveQueueOverrun => Self::ProducerWithinRing,
            Rule::DoorbellState => Self::PostInRightState,
            Rule::WqeIndex => Self::WqeIndexMatchesPosition,
            Rule::WqeQpn => Self::WqeQpnMatchesQueue,
            Rule::DsTooSmall | Rule::DsTooLarge => Self::DsCoversSegments,
            Rule::WqeBeyondDoorbell => Self::DoorbellNamesLastWqe,
            Rule::WqeOpcode | Rule::WqeOpmod => Self::OpcodeKnown,
            Rule::WqeReserved => Self::ReservedBits,
            Rule::WqeFlags => Self::FlagsKnown,
            Rule::WqeInline => Self::InlineWhereAllowed,
            Rule::AtomicLength => Self::AtomicLength,
            Rule::UmrList => Self::UmrListFits,
            Rule::MessageTooLong => Self::MessageWithinLimit,
            Rule::ReadTooLong => Self::ReadWithinLimit,
            Rule::NoReadResources => Self::ReadsAllowed,
            Rule::AddressVector => Self::AddressVector,
            Rule::SourceAddressEmpty => Self::SourceAddressSet,
            Rule::TagList => Self::TagListSound,
            Rule::TagCount => Self::TagCountWithin,
        }
    }
}

impl FunctionHost<'_> {
    /// A key that the QP's own software named wrongly is its mistake; one that a peer named is the peer's,
    /// and the protocol answers it.
    /// A page that is absent is neither, if the driver pages.
    fn local_fault(&mut self, right: &Right, addr: u64, len_bytes: u64, fault: KeyFault) -> KeyFault {
        let fault = match fault {
            KeyFault::Absent if self.function.hears_page_faults() => return fault,
            KeyFault::Absent => KeyFault::Translation,
            _ => fault,
        };
        if fault == KeyFault::Translation {
            let detail = format!("key 0x{:x}: pages at 0x{addr:x}, {len_bytes} bytes, not mapped", right.key);
            let violation = Violation::new(strict::Rule::DmaUnmapInUse, detail);
            self.function.violate(violation.on(Queue::Sq(right.qpn.get())));
        } else if matches!(right.need, Need::LocalRead | Need::LocalWrite) {
            self.function.note(|| {
                format!("QP {}: lkey 0x{:x}, 0x{addr:x}, {len_bytes} bytes: {fault:?}", right.qpn, right.key)
            });
        }
        fault
    }
}

impl FunctionHost<'_> {
    /// The WQE at `index` as the ring has it, as long as its control segment says; empty if that cannot be read.
    fn posted_wqe(&self, qpn: Qpn, index: u16) -> Vec<u8> {
        let mut head = [0; SEGMENT_BYTES];
        let read = |at: u16, into: &mut [u8]| {
            let qp = self.function.qps.get(qpn.get());
            qp.is_some_and(|qp| qp.read_send_ring(&self.function.dma, at, 0, into))
        };
        if !read(index, &mut head) {
            return Vec::new();
        }
        let mut wqe = vec![0; SEGMENT_BYTES * usize::from(CtrlSeg::from_bytes(head).ds().max(1))];
        if read(index, &mut wqe) { wqe } else { head.to_vec() }
    }

    /// A send completion tells software that WQEs up to this one may be overwritten: none may be by now.
    fn check_retired(&mut self, cqe: &[u8; 64]) {
        let cqe = RequesterCqe::from_bytes(*cqe);
        // The requests of a list of tags complete in a kind of their own.
        let is_request = match cqe.opcode() {
            CqeOpcode::REQ | CqeOpcode::REQ_ERR => true,
            CqeOpcode::NO_PACKET => TmListCqe::from_bytes(cqe.to_bytes()).app_op().is_list_operation(),
            _ => false,
        };
        if !is_request {
            return;
        }
        let (number, last) = (cqe.qpn().get(), cqe.wqe_counter());
        let Some(qp) = self.function.qps.get_mut(number) else { return };
        // A CQE names the first WQEBB of its WQE; the others are retired with the next completion.
        if let Some((index, wqebb)) = qp.retire(&self.function.dma, last) {
            let detail = format!("WQEBB {index} was overwritten before its WQE completed");
            let violation = Violation::new(strict::Rule::SlotReusedEarly, detail).on(Queue::Sq(number));
            self.function.violate(violation.at_index(index.into()).with_wqe(&wqebb));
        }
    }
}

impl Host for FunctionHost<'_> {
    fn now(&self) -> u64 {
        self.function.clock.now_ns()
    }

    fn read_ring(
        &mut self,
        qpn: Qpn,
        ring: Ring,
        offset_bytes: usize,
        into: &mut [u8],
    ) -> Result<(), RingFault> {
        let qp = self.function.qps.get(qpn.get()).ok_or(RingFault)?;
        let result = qp.read_ring(&self.function.dma, ring, offset_bytes as u64, into);
        let is_as_posted = ring == Ring::Send || qp.is_receive_as_posted(offset_bytes, into);
        result.map_err(|fault| {
            let queue = if ring == Ring::Send { Queue::Sq(qpn.get()) } else { Queue::Rq(qpn.get()) };
            self.function.violate_on(queue, strict::Rule::DmaUnmapInUse, format!("ring: {fault}"));
            RingFault
        })?;
        if !is_as_posted {
            let detail =
                format!("the receive WQE at +0x{offset_bytes:x} of the ring was overwritten while posted");
            let violation = Violation::new(strict::Rule::SlotReusedEarly, detail).on(Queue::Rq(qpn.get()));
            self.function.violate(violation.with_bytes(into));
        }
        let kind = if ring == Ring::Send { Kind::SendWqe } else { Kind::RecvWqe };
        self.function.record(kind, into, || format!("QP {qpn}, ring offset 0x{offset_bytes:x}"));
        Ok(())
    }

    fn take_pushed(&mut self, qpn: Qpn, index: u16) -> Option<Vec<u8>> {
        let wqe = self.function.take_pushed(qpn.get(), index)?;
        self.function.record(Kind::SendWqe, &wqe, || format!("QP {qpn}, WQEBB {index}, by BlueFlame"));
        Some(wqe)
    }

    fn receive_counter(&mut self, qpn: Qpn) -> u16 {
        let record = self.function.qps.get(qpn.get()).and_then(super::qp::Qp::receive_record);
        match record.map(|record| self.function.dma.load_be32(record)) {
            Some(Ok(word)) => {
                if let Some(qp) = self.function.qps.get_mut(qpn.get()) {
                    qp.take_receive_shadow(&self.function.dma, word as u16);
                }
                word as u16
            }
            Some(Err(fault)) => {
                let detail = format!("doorbell record: {fault}");
                self.function.violate_on(Queue::Rq(qpn.get()), strict::Rule::DmaUnmapInUse, detail);
                0
            }
            None => 0,
        }
    }

    fn withholds_receive(&mut self) -> bool {
        self.function.faults.receive_is_missing(self.function.index)
    }

    fn shared_is_posted(&mut self, number: u32) -> bool {
        self.function.srq_posted(number) > 0
    }

    fn take_shared(&mut self, number: u32, wqe: &mut [u8]) -> SharedWqe {
        self.function.take_srq_wqe(number, wqe)
    }

    fn xrc_queue(&self, number: u32, xrcd: u32) -> Option<SharedQueue> {
        self.function.xrc_queue(number, xrcd)
    }

    fn change_tags(
        &mut self,
        number: u32,
        operation: &TmSeg,
        memory: TagMemory,
    ) -> Result<TagOutcome, (Rule, String)> {
        self.function.change_tags(number, operation, memory)
    }

    fn take_tag(&mut self, number: u32, tag: u64) -> Option<TakenTag> {
        self.function.take_tag(number, tag)
    }

    fn release_tag(&mut self, number: u32, index: u16) {
        self.function.release_tag(number, index);
    }

    fn count_unexpected(&mut self, number: u32) {
        self.function.count_unexpected(number);
    }

    fn check(&mut self, right: &Right, addr: u64, len: u64) -> Result<(), KeyFault> {
        let result = match self.function.recipe(right.key) {
            Some(recipe) => self.function.check_signed(right, recipe, addr, len),
            None => self.function.check_key(right, addr, len),
        };
        result.map_err(|fault| self.local_fault(right, addr, len, fault))
    }

    fn read(&mut self, right: &Right, addr: u64, into: &mut [u8]) -> Result<(), KeyFault> {
        let result = match self.function.recipe(right.key) {
            Some(recipe) => self.function.read_signed(right, recipe, addr, into),
            None => self.function.read_key(right, addr, into),
        };
        result.map_err(|fault| self.local_fault(right, addr, into.len() as u64, fault))
    }

    fn write(&mut self, right: &Right, addr: u64, from: &[u8]) -> Result<(), KeyFault> {
        let result = match self.function.recipe(right.key) {
            Some(recipe) => self.function.write_signed(right, recipe, addr, from),
            None => self.function.write_key(right, addr, from),
        };
        result.map_err(|fault| self.local_fault(right, addr, from.len() as u64, fault))
    }

    fn atomic(
        &mut self,
        right: &Right,
        addr: u64,
        len_bytes: u32,
        update: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, KeyFault> {
        let result = match self.function.recipe(right.key) {
            // Of a word no signature can be kept.
            Some(_) => Err(KeyFault::Access),
            None => self.function.update_key(right, addr, len_bytes as usize, update),
        };
        result.map_err(|fault| self.local_fault(right, addr, len_bytes.into(), fault))
    }

    fn invalidate(&mut self, rkey: u32, pd: Pdn, qpn: Qpn) -> Result<(), KeyFault> {
        self.function.invalidate_key(rkey, pd, qpn)
    }

    fn set_psv(&mut self, pd: Pdn, segment: &SetPsvSeg) -> bool {
        self.function.set_psv(pd, segment)
    }

    fn take_signature_failure(&mut self, qpn: Qpn) -> bool {
        self.function.qps.get_mut(qpn.get()).is_some_and(|qp| std::mem::take(&mut qp.signature_failed))
    }

    fn umr(&mut self, request: &UmrRequest<'_>) -> Result<(), UmrFault> {
        self.function.umr(request)
    }

    fn page_fault(&mut self, fault: &PageFault) -> bool {
        self.function.page_fault(fault)
    }

    fn post_cqe(&mut self, cqn: Cqn, cqe: &Cqe, wake: Wake) {
        self.check_retired(&cqe.bytes);
        self.function.post_completion(cqn.get(), cqe, wake);
    }

    fn event(&mut self, qpn: Qpn, event: QpEvent) {
        // One initiator's mistake is no event of the target, which serves others.
        if self.function.dcts.contains(qpn.get()) {
            return;
        }
        let data = EqeQpSrq::new().with_queue_type(EventQueueType::QP).with_qp_srq_n(qpn.get());
        self.function.event(EventType(event as u8), 0, data.to_bytes());
    }

    fn qkey_violation(&mut self) {
        self.function.count_qkey_violation();
    }

    fn count(&mut self, qpn: Qpn, counter: Counter) {
        self.function.count(qpn.get(), counter);
    }

    fn transmit(&mut self, frame: &[u8]) {
        self.function.record(Kind::Packet, frame, || "sent".into());
        self.function.count_rdma_sent(frame);
        self.function.outbox.push_back(frame.to_vec());
    }

    fn source_address(&self, gid_index: u8) -> Option<SourceAddress> {
        if self.function.is_infiniband() {
            return self.function.ib_source_address(gid_index);
        }
        let entry = self.function.roce_addresses.get(usize::from(gid_index))?;
        let gid = entry.source_l3_address();
        if gid == [0; 16] || !self.function.vport.roce_enabled() {
            return None;
        }
        let kind = match (entry.roce_version(), entry.roce_l3_type()) {
            (RoceVersion::VERSION_1, _) => RoceKind::V1,
            (_, RoceL3Type::L3_TYPE_IPV4) => RoceKind::V2Ipv4,
            _ => RoceKind::V2Ipv6,
        };
        let vlan_id = entry.vlan_valid().then(|| entry.vlan_id());
        Some(SourceAddress { station: Station::Ethernet { mac: entry.source_mac(), vlan_id }, gid, kind })
    }

    fn violation(&mut self, qpn: Qpn, index: Option<u16>, rule: Rule, detail: fmt::Arguments<'_>) {
        let queue = match rule {
            Rule::ReceiveQueueOverrun => Queue::Rq(qpn.get()),
            _ => Queue::Sq(qpn.get()),
        };
        let mut violation = Violation::new(rule.into(), detail.to_string()).on(queue);
        if let Some(index) = index {
            violation = violation.at_index(index.into()).with_wqe(&self.posted_wqe(qpn, index));
        }
        self.function.violate(violation);
    }
}
