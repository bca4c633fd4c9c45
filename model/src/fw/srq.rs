//! Shared receive queues, RMPs, those of XRC and XRQs: a list of WQEs that any queue pair may take the next of.
//!
//! The WQEs are one array, and each names the index of the one after it. The device begins at 0 and goes from
//! WQE to WQE; software appends to the list what it got back. An RMP may be a ring instead. The doorbell record counts WQEs
//! posted.
#![forbid(unsafe_code)]

use super::{
    Function,
    buffer::Buffer,
    caps,
    dispatch::{Input, Output, done, out},
    refusal::Refusal,
    wq::WqState,
    xrq::Xrq,
};
use crate::{
    exec::{SharedQueue, SharedWqe},
    strict::{Queue, Rule, Violation},
    trace,
};
use mlx5_direct::{
    mlx5::{
        cmd::{
            ArmXrcSrqIn, CreateRmpIn, CreateRmpOut, CreateXrcSrqIn, CreateXrcSrqOut, DestroyRmpIn,
            DestroyXrcSrqIn, ModifyRmpIn, QueryRmpIn, QueryRmpOut, QueryXrcSrqIn, QueryXrcSrqOut,
        },
        context::{Qpc, Rmpc, RqType, ServiceType, Wq, WqType, XrcSrqc},
        eqe::{EqeQpSrq, EventType},
        ids::{Cqn, Pdn, UserIndex},
        record::RCV_DBR,
    },
    wqe::SrqNextSeg,
};

/// A `user_index` that asks for CQEs of version 0, which name the queue itself.
const NO_USER_INDEX: u32 = 0xff_ffff;
/// `state` of an XRC SRQ that works, and of one that does not.
const XRC_GOOD: u8 = 0;
const XRC_ERROR: u8 = 1;

/// Which kind of object it is.
#[derive(Debug)]
pub(super) enum Context {
    Rmp(Rmpc),
    Xrc(XrcSrqc),
    Xrq(Box<Xrq>),
}

/// The kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Rmp,
    Xrc,
    Xrq,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Rmp => "RMP",
            Self::Xrc => "XRC SRQ",
            Self::Xrq => "XRQ",
        }
    }
}

/// A shared receive queue.
#[derive(Debug)]
pub(crate) struct Srq {
    context: Context,
    /// RQs and QPs that receive from it.
    pub(crate) n_users: u32,
    buffer: Buffer,
    record: u64,
    log_stride_bytes: u8,
    n_wqes: u32,
    /// Index of the next WQE of the list.
    head: u16,
    /// WQEs taken, and those known to be posted; both from the start.
    consumed: u64,
    posted: u64,
    /// By index: how many were posted when it was taken last.
    posted_at_take: Vec<Option<u64>>,
    /// An event is due when fewer are left; 0 if none is asked for.
    limit: u16,
    in_error: bool,
}

impl Srq {
    pub(super) fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    fn new(context: Context, buffer: Buffer, record: u64, log_stride_bytes: u8, log_size: u8) -> Self {
        let n_wqes = 1 << log_size;
        Self {
            context,
            n_users: 0,
            buffer,
            record,
            log_stride_bytes,
            n_wqes,
            head: 0,
            consumed: 0,
            posted: 0,
            posted_at_take: vec![None; n_wqes as usize],
            limit: 0,
            in_error: false,
        }
    }

    fn n_posted(&self) -> u64 {
        self.posted - self.consumed
    }

    fn pd(&self) -> Pdn {
        match &self.context {
            Context::Rmp(context) => context.wq().pd(),
            Context::Xrc(context) => context.pd(),
            Context::Xrq(xrq) => xrq.context.wq().pd(),
        }
    }

    /// Its WQEs are taken in the order of the ring. They have a next segment all the same, which means nothing.
    fn is_cyclic(&self) -> bool {
        matches!(&self.context, Context::Rmp(context) if context.wq().wq_type() == WqType::TYPE_CYCLIC)
    }

    fn xrc(&self) -> Option<&XrcSrqc> {
        match &self.context {
            Context::Xrc(context) => Some(context),
            _ => None,
        }
    }

    pub(super) fn xrq(&self) -> Option<&Xrq> {
        match &self.context {
            Context::Xrq(xrq) => Some(xrq),
            _ => None,
        }
    }

    pub(super) fn xrq_mut(&mut self) -> Option<&mut Xrq> {
        match &mut self.context {
            Context::Xrq(xrq) => Some(xrq),
            _ => None,
        }
    }

    const fn kind(&self) -> Kind {
        match self.context {
            Context::Rmp(_) => Kind::Rmp,
            Context::Xrc(_) => Kind::Xrc,
            Context::Xrq(_) => Kind::Xrq,
        }
    }

    pub(super) const fn is_in_error(&self) -> bool {
        self.in_error
    }

    /// Its description with what has come of it.
    pub(super) fn progress(&self, wq: Wq) -> Wq {
        wq.with_lwm(self.limit).with_hw_counter(self.consumed as u32).with_sw_counter(self.posted as u32)
    }

    /// As a queue pair or DC target sees it whose receives complete by `cqn` and `user_index`. An XRQ has its own of both.
    fn shared(&self, number: u32, cqn: Cqn, user_index: UserIndex) -> SharedQueue {
        let (cqn, user_index, tag_matching) = match self.xrq() {
            Some(xrq) => (xrq.context.cqn(), xrq.context.user_index(), xrq.matches_tags()),
            None => (cqn, user_index, false),
        };
        // With CQEs of version 0 the queue's number stands where its user index would.
        let user_index = match user_index.get() {
            NO_USER_INDEX => UserIndex::new(number),
            _ => user_index,
        };
        SharedQueue { number, pd: self.pd(), cqn, user_index, tag_matching }
    }
}

impl Function {
    /// WQEs posted and not taken.
    pub(super) fn srq_posted(&mut self, number: u32) -> u64 {
        let Some(srq) = self.srqs.get_mut(number).filter(|srq| !srq.in_error) else { return 0 };
        match self.dma.load_be32(srq.record) {
            Ok(word) => srq.posted += u64::from((word as u16).wrapping_sub(srq.posted as u16)),
            Err(fault) => {
                self.fail_srq(number, Rule::DmaUnmapInUse, format!("doorbell record: {fault}"));
                return 0;
            }
        }
        let (n_posted, n_wqes) = (srq.n_posted(), srq.n_wqes);
        // Of a list one stays with software, since it must end at one that is not posted.
        let room = if srq.is_cyclic() { n_wqes } else { n_wqes - 1 };
        if n_posted > u64::from(room) {
            let detail = format!("{n_posted} WQEs are posted, the queue of {n_wqes} has room for {room}");
            self.fail_srq(number, Rule::ProducerWithinRing, detail);
            return 0;
        }
        n_posted
    }

    /// Takes the next WQE of the list, with its next segment.
    pub(super) fn take_srq_wqe(&mut self, number: u32, wqe: &mut [u8]) -> SharedWqe {
        let n_posted = self.srq_posted(number);
        let Some(srq) = self.srqs.get_mut(number).filter(|srq| !srq.in_error) else {
            return SharedWqe::Broken;
        };
        if n_posted == 0 {
            return SharedWqe::Empty;
        }
        let index = srq.head;
        let len_bytes = (1usize << srq.log_stride_bytes).min(wqe.len());
        let wqe = &mut wqe[..len_bytes];
        if let Err(fault) = srq.buffer.read(&self.dma, u64::from(index) << srq.log_stride_bytes, wqe) {
            self.fail_srq(number, Rule::DmaUnmapInUse, format!("WQE {index}: {fault}"));
            return SharedWqe::Broken;
        }
        let (place, posted) = (srq.consumed, srq.posted);
        let taken_before = srq.posted_at_take[usize::from(index)].replace(posted);
        if taken_before.is_some_and(|known| place < known) {
            let detail = format!("WQE {index} comes again as number {place}, and was not posted since");
            self.fail_srq(number, Rule::SharedListSound, detail);
            return SharedWqe::Broken;
        }
        let next = match srq.is_cyclic() {
            true => ((u32::from(index) + 1) % srq.n_wqes) as u16,
            false => wqe.first_chunk().map_or(0, |head| SrqNextSeg::from_bytes(*head).next_wqe_index()),
        };
        if u32::from(next) >= srq.n_wqes {
            let detail = format!("WQE {index} names {next} as the next, the queue has {}", srq.n_wqes);
            self.fail_srq(number, Rule::SharedListSound, detail);
            return SharedWqe::Broken;
        }
        srq.head = next;
        srq.consumed += 1;
        self.record(trace::Kind::RecvWqe, wqe, || format!("SRQ 0x{number:x}, index {index}"));
        self.check_srq_limit(number);
        SharedWqe::Taken { index, len_bytes }
    }

    /// The queue is dead: reported, and told to the driver.
    fn fail_srq(&mut self, number: u32, rule: Rule, detail: String) {
        self.violate(Violation::new(rule, detail).on(Queue::Srq(number)));
        if let Some(srq) = self.srqs.get_mut(number) {
            srq.in_error = true;
        }
        self.srq_event(number, EventType::SRQ_CATAS_ERROR);
    }

    fn srq_event(&mut self, number: u32, event: EventType) {
        self.event(event, 0, EqeQpSrq::new().with_qp_srq_n(number).to_bytes());
    }

    /// Tells once that fewer WQEs are left than asked for.
    fn check_srq_limit(&mut self, number: u32) {
        let Some(srq) = self.srqs.get_mut(number) else { return };
        if srq.n_posted() < u64::from(srq.limit) {
            srq.limit = 0;
            self.srq_event(number, EventType::SRQ_RQ_LIMIT);
        }
    }

    pub(super) fn arm_srq(&mut self, number: u32, limit: u16) -> Result<(), Refusal> {
        let srq = self.srqs.get_mut(number).ok_or(Refusal::NO_SUCH_OBJECT)?;
        if u32::from(limit) >= srq.n_wqes {
            return Err(Refusal::SRQ_LIMIT);
        }
        srq.limit = limit;
        // It may be below already.
        self.srq_posted(number);
        self.check_srq_limit(number);
        Ok(())
    }

    /// The shared receive queue of a QP with this context; an XRC target has that which each request names, and a DC initiator
    /// names one and receives nothing.
    pub(super) fn shared_queue_of(&self, context: &Qpc) -> Option<SharedQueue> {
        if context.rq_type() != RqType::SRQ_RQ || matches!(context.st(), ServiceType::XRC | ServiceType::DCI)
        {
            return None;
        }
        self.shared_queue(context.srqn_rmpn_xrqn(), context.cqn_rcv(), context.user_index())
    }

    /// The shared receive queue `number`, for receives that complete by `cqn` and `user_index`.
    pub(super) fn shared_queue(&self, number: u32, cqn: Cqn, user_index: UserIndex) -> Option<SharedQueue> {
        self.srqs.get(number).map(|srq| srq.shared(number, cqn, user_index))
    }

    /// The shared receive queue `number`, if it is of this XRC domain.
    pub(super) fn xrc_queue(&self, number: u32, xrcd: u32) -> Option<SharedQueue> {
        let srq = self.srqs.get(number)?;
        let context = srq.xrc().filter(|context| context.xrcd() == xrcd)?;
        Some(srq.shared(number, context.cqn(), context.user_index()))
    }

    pub(super) fn create_rmp(&mut self, input: &Input<'_>) -> Output {
        let (input, list) = input.get_with_list::<CreateRmpIn>()?;
        let context = input.ctx();
        let wq = context.wq();
        if WqState::from_wire(context.state()) != Some(WqState::Ready) {
            return Err(Refusal::WQ_STATE);
        }
        let (buffer, record) = self.wq_memory(&wq, list)?;
        let (stride, size) = (wq.log_wq_stride(), wq.log_wq_sz());
        let number = self.insert_srq(Context::Rmp(context), buffer, record, stride, size)?;
        out(CreateRmpOut::new().with_rmpn(number))
    }

    pub(super) fn insert_srq(
        &mut self,
        context: Context,
        buffer: Buffer,
        record: u64,
        log_stride_bytes: u8,
        log_size: u8,
    ) -> Result<u32, Refusal> {
        let srq = Srq::new(context, buffer, record + RCV_DBR as u64, log_stride_bytes, log_size);
        let pd = srq.pd().get();
        self.pds.hold(pd, Refusal::NO_SUCH_PD)?;
        self.srqs.insert(srq).inspect_err(|_| self.pds.release(pd))
    }

    pub(super) fn query_rmp(&mut self, input: &Input<'_>) -> Output {
        let number = input.get::<QueryRmpIn>()?.rmpn();
        self.srq_posted(number);
        let srq = self.srqs.get(number).ok_or(Refusal::NO_SUCH_OBJECT)?;
        let Context::Rmp(context) = &srq.context else { return Err(Refusal::NO_SUCH_OBJECT) };
        let state = if srq.in_error { WqState::Error } else { WqState::Ready };
        let context = context.with_state(state.to_wire()).with_wq(srq.progress(context.wq()));
        out(QueryRmpOut::new().with_rmp_context(context))
    }

    pub(super) fn modify_rmp(&mut self, input: &Input<'_>) -> Output {
        let input: ModifyRmpIn = input.get()?;
        let srq = self.srqs.get(input.rmpn()).filter(|srq| srq.kind() == Kind::Rmp);
        let state =
            if srq.ok_or(Refusal::NO_SUCH_OBJECT)?.in_error { WqState::Error } else { WqState::Ready };
        let from = WqState::from_wire(input.rmp_state());
        if from != Some(state) || WqState::from_wire(input.ctx().state()) != Some(state) {
            return Err(Refusal::WQ_STATE);
        }
        if input.bitmask().lwm() {
            self.arm_srq(input.rmpn(), input.ctx().wq().lwm())?;
        }
        done()
    }

    pub(super) fn destroy_rmp(&mut self, input: &Input<'_>) -> Output {
        let number = input.get::<DestroyRmpIn>()?.rmpn();
        self.remove_srq(number, Kind::Rmp)?;
        done()
    }

    /// Ends the queue, and returns what it was.
    pub(super) fn remove_srq(&mut self, number: u32, kind: Kind) -> Result<Context, Refusal> {
        let srq = self.srqs.get(number).filter(|srq| srq.kind() == kind);
        let n_users = srq.ok_or(Refusal::NO_SUCH_OBJECT)?.n_users;
        if n_users != 0 {
            return Err(self.in_use(kind.name(), number, n_users));
        }
        let srq = self.srqs.remove(number).ok_or(Refusal::NO_SUCH_OBJECT)?;
        self.pds.release(srq.pd().get());
        Ok(srq.context)
    }

    pub(super) fn create_xrc_srq(&mut self, input: &Input<'_>) -> Output {
        let (input, list) = input.get_with_list::<CreateXrcSrqIn>()?;
        let context = input.xrc_srq_context_entry();
        if input.xrc_srq_umem_valid() || context.dbr_umem_valid() {
            return Err(Refusal::UMEM);
        }
        if context.log_xrc_srq_size() > caps::LOG_MAX_SRQ_SZ {
            return Err(Refusal::QUEUE_SIZE);
        }
        let log_stride_bytes = context.log_rq_stride() + 4;
        let len_bytes = 1u64 << (log_stride_bytes + context.log_xrc_srq_size());
        let (log_page, offset) = (context.log_page_size(), context.page_offset());
        let buffer = Buffer::new(&self.dma, log_page, offset, len_bytes, list, false)?;
        let low = u64::from(context.db_record_addr_l()) << 2;
        let record = u64::from(context.db_record_addr_h()) << 32 | low;
        self.check_record(record)?;
        if !self.cqs.contains(context.cqn().get()) {
            return Err(Refusal::NO_SUCH_CQ);
        }
        self.xrcds.hold(context.xrcd(), Refusal::NO_SUCH_OBJECT)?;
        let kind = Context::Xrc(context);
        let number = self
            .insert_srq(kind, buffer, record, log_stride_bytes, context.log_xrc_srq_size())
            .inspect_err(|_| self.xrcds.release(context.xrcd()))?;
        if let Some(cq) = self.cqs.get_mut(context.cqn().get()) {
            cq.n_users += 1;
        }
        out(CreateXrcSrqOut::new().with_xrc_srqn(number))
    }

    pub(super) fn query_xrc_srq(&mut self, input: &Input<'_>) -> Output {
        let number = input.get::<QueryXrcSrqIn>()?.xrc_srqn();
        let n_posted = self.srq_posted(number) as u16;
        let srq = self.srqs.get(number).ok_or(Refusal::NO_SUCH_OBJECT)?;
        let context = srq.xrc().ok_or(Refusal::NO_SUCH_OBJECT)?;
        let state = if srq.in_error { XRC_ERROR } else { XRC_GOOD };
        let context = context.with_state(state).with_lwm(srq.limit).with_wqe_cnt(n_posted);
        out(QueryXrcSrqOut::new().with_xrc_srq_context_entry(context))
    }

    pub(super) fn arm_xrc_srq(&mut self, input: &Input<'_>) -> Output {
        let input: ArmXrcSrqIn = input.get()?;
        self.srqs.get(input.xrc_srqn()).and_then(Srq::xrc).ok_or(Refusal::NO_SUCH_OBJECT)?;
        self.arm_srq(input.xrc_srqn(), input.lwm())?;
        done()
    }

    pub(super) fn destroy_xrc_srq(&mut self, input: &Input<'_>) -> Output {
        let number = input.get::<DestroyXrcSrqIn>()?.xrc_srqn();
        if let Context::Xrc(context) = self.remove_srq(number, Kind::Xrc)? {
            self.xrcds.release(context.xrcd());
            if let Some(cq) = self.cqs.get_mut(context.cqn().get()) {
                cq.n_users -= 1;
            }
        }
        done()
    }
}
