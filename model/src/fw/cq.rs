//! Completion queues.
#![forbid(unsafe_code)]

use super::{
    Function,
    buffer::Buffer,
    caps,
    compression::Session,
    cq_moderation::Moderation,
    devx::{BufferSource, UmemPart},
    dispatch::{Input, Output, done, out},
    eq::broken_entry,
    pages::Cost,
    refusal::Refusal,
};
use crate::{
    exec::{Cqe, Wake},
    fault::EntryFate,
    strict::{Queue, Rule, Violation},
    trace::Kind,
};
use mlx5_direct::cqe::{CqeOpcode, ErrorCqe};
use mlx5_direct::mlx5::{
    cmd::{CreateCqIn, CreateCqOut, DestroyCqIn, QueryCqIn, QueryCqOut},
    context::{CqState, CqStatus, Cqc, CqeSize, MiniCqeFormat},
    eqe::{CqErrorSyndrome, EqeCqErr, EventType},
    ids::Cqn,
    layout::Layout,
    record::{CQ_ARM_DB, CQ_SET_CI, CqArm},
};

/// First CQ number: a CQ doorbell is never all zeros.
pub(crate) const FIRST_CQN: u32 = 0x80;
/// Counters of a CQ are this wide in its doorbell record.
const COUNTER_MASK: u32 = 0xff_ffff;
/// Software may count in so many bits, which tell slot and lap of no more than [`LOG_SHORT_CQ`] slots: DPDK does for its send
/// queues (`mlx5_txq_data.cq_ci`), and behind the sessions that it reads one at a time (`rxq_zip.cq_ci`).
const SHORT_COUNTER_MASK: u32 = 0xffff;
const LOG_SHORT_CQ: u8 = 15;
pub(super) const CQE_BYTES: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Armed {
    No,
    Any,
    Solicited,
}

/// A record of zeros reads the same before the first arm and after it, so whether software armed may be a guess.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FirstArm {
    Known,
    Guessed,
    /// The first arm came again after the guess had its event, and was taken: software may count an event more.
    Again,
}

/// A completion queue.
#[derive(Debug)]
pub(crate) struct Cq {
    pub(super) context: Cqc,
    pub(super) buffer: Buffer,
    pub(super) producer: u32,
    /// Consumer index last read from the doorbell record.
    consumer: u32,
    /// Counter after the last solicited completion.
    solicited: Option<u32>,
    armed: Armed,
    /// Number that the next valid arm carries.
    arm_sn: u8,
    /// Arm word last seen.
    pub(crate) arm_seen: Option<u32>,
    first_arm: FirstArm,
    pub(super) overrun: bool,
    moderation: Moderation,
    /// Completions that are not written yet.
    pub(super) session: Session,
    /// Counter when the last event was made.
    notified: u32,
    /// Queue pairs that complete here.
    pub(crate) n_users: u32,
}

impl Cq {
    pub(crate) fn uar(&self) -> u32 {
        self.context.uar_page().get()
    }

    pub(crate) fn arm_record(&self) -> u64 {
        self.context.dbr_addr() + CQ_ARM_DB as u64
    }

    pub(super) fn stride_bytes(&self) -> u64 {
        if self.context.cqe_sz() == CqeSize::STRIDE_64 { 64 } else { 128 }
    }

    pub(super) fn n_slots(&self) -> u32 {
        1 << self.context.log_cq_size()
    }

    /// CQEs that software has not said to have consumed.
    pub(super) fn n_outstanding(&self) -> u32 {
        self.producer.wrapping_sub(self.consumer)
    }
}

/// A CQE that a fault makes one of a failure.
fn failed_cqe(fate: Option<EntryFate>, cqe: [u8; CQE_BYTES]) -> [u8; CQE_BYTES] {
    let Some(EntryFate::Fail(syndrome, vendor)) = fate else { return cqe };
    let was = ErrorCqe::from_bytes(cqe);
    let is_send = matches!(was.opcode(), CqeOpcode::REQ | CqeOpcode::REQ_ERR);
    let opcode = if is_send { CqeOpcode::REQ_ERR } else { CqeOpcode::RESP_ERR };
    was.with_syndrome(syndrome).with_vendor_err_synd(vendor).with_opcode(opcode).to_bytes()
}

impl Function {
    pub(super) fn create_cq(&mut self, input: &Input<'_>) -> Output {
        let (input, list) = input.get_with_list::<CreateCqIn>()?;
        let context = input.cq_context();
        if context.log_cq_size() > caps::LOG_MAX_CQ_SZ {
            return Err(Refusal::QUEUE_SIZE);
        }
        if context.cqe_sz().0 > CqeSize::STRIDE_128_PAD.0 {
            return Err(Refusal::CQE_SIZE);
        }
        let is_known = !matches!(context.mini_cqe_res_format(), MiniCqeFormat::FTAG_STRIDX);
        if context.cqe_comp_en() && !(is_known && context.cqe_comp_layout() == 0) {
            return Err(Refusal::CQE_COMPRESSION);
        }
        if !self.eqs.contains(context.c_eqn().get()) {
            return Err(Refusal::NO_SUCH_EQ);
        }
        if !self.uars.contains(context.uar_page().get()) {
            return Err(Refusal::NO_SUCH_UAR);
        }
        let record = context.dbr_umem_valid().then_some(context.dbr_umem_id());
        let dbr_addr = self.record_address(record, context.dbr_addr())?;
        let stride_bytes = if context.cqe_sz() == CqeSize::STRIDE_64 { 64 } else { 128 };
        let umem = UmemPart { id: input.cq_umem_id(), offset_bytes: input.cq_umem_offset() };
        let source = BufferSource {
            log_page_size: context.log_page_size(),
            page_offset: context.page_offset(),
            list,
            umem: input.cq_umem_valid().then_some(umem),
        };
        let buffer = self.buffer(source, stride_bytes << context.log_cq_size(), true)?;
        // Whoever owns a umem may fill it later, before the first completion: rdma-core's DevX case does.
        if !input.cq_umem_valid() {
            self.check_filled("CQ", &buffer, stride_bytes, |last| last >> 4 != 0xf && last & 1 == 0)?;
        }
        self.charge(Cost::CQ)?;
        let cq = Cq {
            context: context.with_dbr_addr(dbr_addr).with_status(CqStatus::OK).with_st(CqState::FIRED),
            buffer,
            producer: 0,
            consumer: 0,
            solicited: None,
            armed: Armed::No,
            arm_sn: 0,
            arm_seen: None,
            first_arm: FirstArm::Known,
            overrun: false,
            moderation: Moderation::default(),
            session: Session::default(),
            notified: 0,
            n_users: 0,
        };
        let number = self.cqs.insert(cq)?;
        if let Some(eq) = self.eqs.get_mut(context.c_eqn().get()) {
            eq.n_users += 1;
        }
        // A CQ does not hold its UAR page: Linux frees that of a process before the CQs which the process left.
        out(CreateCqOut::new().with_cqn(Cqn::new(number)))
    }

    /// A doorbell record must be an aligned, mapped pair of words.
    pub(super) fn check_record(&self, iova: u64) -> Result<(), Refusal> {
        let fine = iova.is_multiple_of(8) && self.dma.check(iova, 8, false).is_ok();
        if fine { Ok(()) } else { Err(Refusal::RECORD) }
    }

    pub(super) fn query_cq(&mut self, input: &Input<'_>) -> Output {
        let number = input.get::<QueryCqIn>()?.cqn().get();
        let cq = self.cqs.get(number).ok_or(Refusal::NO_SUCH_OBJECT)?;
        let st = match cq.armed {
            Armed::No => CqState::FIRED,
            Armed::Any => CqState::NOTIFICATION_REQUEST_ARMED,
            Armed::Solicited => CqState::SOLICITED_NOTIFICATION_REQUEST_ARMED,
        };
        let context = cq
            .context
            .with_st(st)
            .with_status(if cq.overrun { CqStatus::CQ_OVERFLOW } else { CqStatus::OK })
            .with_producer_counter(cq.producer & COUNTER_MASK)
            .with_consumer_counter(cq.consumer & COUNTER_MASK)
            .with_last_notified_index(cq.notified & COUNTER_MASK)
            .with_last_solicit_index(cq.solicited.unwrap_or(0) & COUNTER_MASK);
        out(QueryCqOut::new().with_cq_context(context))
    }

    pub(super) fn destroy_cq(&mut self, input: &Input<'_>) -> Output {
        let number = input.get::<DestroyCqIn>()?.cqn().get();
        let n_users = self.cqs.get(number).ok_or(Refusal::NO_SUCH_OBJECT)?.n_users;
        if n_users != 0 {
            return Err(self.in_use("CQ", number, n_users));
        }
        if let Some(cq) = self.cqs.remove(number)
            && let Some(eq) = self.eqs.get_mut(cq.context.c_eqn().get())
        {
            eq.n_users -= 1;
        }
        self.cq_timers.remove(&number);
        self.cq_sessions.remove(&number);
        self.refund(Cost::CQ);
        done()
    }

    /// Writes a CQE, with its owner bit, and sees to the event.
    pub(super) fn post_completion(&mut self, number: u32, cqe: &Cqe, wake: Wake) {
        self.read_cq_consumer(number);
        let Some(cq) = self.cqs.get_mut(number) else { return };
        if cq.overrun {
            return;
        }
        if cq.n_outstanding() + cq.session.len() >= cq.n_slots() && !cq.context.oi() {
            self.end_session(number);
            return self.overrun(number, &cqe.bytes);
        }
        let fate = self.faults.completion(self.index);
        if fate == Some(EntryFate::Lost) {
            return self.note(|| format!("fault: CQ 0x{number:x}: a CQE is not written"));
        }
        if fate.is_none() && self.waits_for_others(number, cqe, wake) {
            return;
        }
        self.end_session(number);
        self.write_cqe(number, cqe, fate);
        self.completions_are_there(number, 1, wake, fate != Some(EntryFate::Silent));
    }

    /// Sees to the event of `n` completions that were written; there is none of a silent one.
    pub(super) fn completions_are_there(&mut self, number: u32, n: u32, wake: Wake, is_loud: bool) {
        let now = self.clock.now_ns();
        let Some(cq) = self.cqs.get_mut(number) else { return };
        cq.moderation.count(n, now);
        if wake == Wake::Solicited {
            cq.solicited = Some(cq.producer);
        }
        let wanted = match cq.armed {
            Armed::No => false,
            Armed::Any => true,
            Armed::Solicited => wake == Wake::Solicited,
        };
        if wanted && is_loud {
            let breaks = wake == Wake::Solicited && cq.context.scqe_break_moderation_en();
            self.cq_event_due(number, breaks);
        }
    }

    /// Looks at the consumer index in the CQ's record.
    pub(super) fn read_cq_consumer(&mut self, number: u32) {
        let Some(cq) = self.cqs.get_mut(number) else { return };
        let record = cq.context.dbr_addr() + CQ_SET_CI as u64;
        if let Ok(consumer) = self.dma.load_be32(record) {
            let is_short = consumer <= SHORT_COUNTER_MASK && cq.context.log_cq_size() <= LOG_SHORT_CQ;
            let mask = if is_short { SHORT_COUNTER_MASK } else { COUNTER_MASK };
            let consumed = consumer.wrapping_sub(cq.consumer) & mask;
            if consumed <= cq.n_outstanding() {
                cq.consumer = cq.consumer.wrapping_add(consumed);
            } else {
                let detail = format!("consumer {consumer}: was {}, producer {}", cq.consumer, cq.producer);
                self.violate_on(Queue::Cq(number), Rule::CqConsumerForward, detail);
            }
        }
    }

    /// Writes a CQE to the next slot, for which there is room.
    pub(super) fn write_cqe(&mut self, number: u32, cqe: &Cqe, fate: Option<EntryFate>) {
        let Some(cq) = self.cqs.get_mut(number) else { return };
        let producer = cq.producer;
        cq.producer = producer.wrapping_add(1);
        let mut bytes = cqe.bytes;
        bytes[CQE_BYTES - 1] = bytes[CQE_BYTES - 1] & !1 | (producer >> cq.context.log_cq_size() & 1) as u8;
        let bytes = failed_cqe(fate, broken_entry(fate, bytes));
        self.write_slot(number, producer, cqe.before, &bytes);
    }

    /// Writes the slot of `index`: 64 bytes, and those before them where slots have 128.
    pub(super) fn write_slot(
        &mut self,
        number: u32,
        index: u32,
        before: Option<[u8; CQE_BYTES]>,
        bytes: &[u8; CQE_BYTES],
    ) {
        let Some(cq) = self.cqs.get(number) else { return };
        let slot = if cq.context.cc() { 0 } else { u64::from(index & (cq.n_slots() - 1)) };
        // In a 128-byte slot the CQE is the second half.
        let at = slot * cq.stride_bytes() + (cq.stride_bytes() - CQE_BYTES as u64);
        let iova = cq.buffer.iova(at);
        // Padded, the whole slot is written whether there are data or not.
        let is_padded = cq.context.cqe_sz() == CqeSize::STRIDE_128_PAD;
        let before = before.or(is_padded.then_some([0; CQE_BYTES]));
        let before_iova = before.and_then(|_| cq.buffer.iova(at.checked_sub(CQE_BYTES as u64)?));
        self.record(Kind::Cqe, bytes, || format!("CQ 0x{number:x}, index {index}"));
        let written = before_iova.zip(before).map_or(Ok(()), |(iova, data)| self.dma.publish(iova, &data));
        let written = written.and_then(|()| iova.map_or(Ok(()), |iova| self.dma.publish(iova, bytes)));
        if let Err(fault) = written {
            self.violate_on(Queue::Cq(number), Rule::DmaUnmapInUse, format!("CQE not written: {fault}"));
        }
    }

    fn overrun(&mut self, number: u32, cqe: &[u8; CQE_BYTES]) {
        let Some(cq) = self.cqs.get_mut(number) else { return };
        cq.overrun = true;
        let (producer, consumer, n_slots) = (cq.producer, cq.consumer, cq.n_slots());
        let detail = format!("completion lost: {n_slots} slots, producer {producer}, consumer {consumer}");
        let violation = Violation::new(Rule::CqOverrun, detail).on(Queue::Cq(number)).at_index(producer);
        self.violate(violation.with_bytes(cqe));
        let data = EqeCqErr::new().with_cqn(Cqn::new(number)).with_syndrome(CqErrorSyndrome::CQ_OVERRUN);
        self.event(EventType::CQ_ERROR, 0, data.to_bytes());
    }

    /// An armed CQ has what it is armed for: an event now, or when moderation lets it.
    fn cq_event_due(&mut self, number: u32, at_once: bool) {
        let Some(cq) = self.cqs.get(number) else { return };
        let due_ns = cq.moderation.due_ns(&cq.context);
        if at_once || due_ns <= self.clock.now_ns() {
            self.fire_cq(number);
        } else {
            self.cq_timers.insert(number, due_ns);
        }
    }

    pub(super) fn fire_cq(&mut self, number: u32) {
        self.cq_timers.remove(&number);
        let now = self.clock.now_ns();
        let Some(cq) = self.cqs.get_mut(number) else { return };
        cq.armed = Armed::No;
        cq.arm_sn = (cq.arm_sn + 1) & 3;
        cq.moderation.restart(now);
        cq.notified = cq.producer;
        let eqn = cq.context.c_eqn().get();
        self.completion_event(eqn, number);
    }

    /// CQ doorbell: asks for an event after the completion that the consumer index names.
    pub(super) fn arm_cq(&mut self, number: u32, word: u32) {
        let Some(cq) = self.cqs.get_mut(number) else { return };
        cq.arm_seen = Some(word);
        let arm = CqArm::from_bytes(word.to_be_bytes());
        let ahead = arm.cmd_sn().wrapping_sub(cq.arm_sn) & 3;
        match (ahead, cq.first_arm) {
            (0, FirstArm::Guessed) if arm.cmd_sn() != 0 => cq.first_arm = FirstArm::Known,
            (0, _) => {}
            // The guess had its event, and software has not counted it, or not yet.
            (3, FirstArm::Guessed) if arm.cmd_sn() == 0 => {
                (cq.arm_sn, cq.first_arm) = (0, FirstArm::Again);
            }
            // It has now.
            (1, FirstArm::Again) => (cq.arm_sn, cq.first_arm) = (arm.cmd_sn(), FirstArm::Known),
            // A repeated arm, from before an event that software has not seen yet.
            (3, _) => return,
            (_, first_arm) => {
                // On a plain page the first arm is a guess.
                if first_arm == FirstArm::Known {
                    let detail = format!("cmd_sn {}, and the next event is {}", arm.cmd_sn(), cq.arm_sn);
                    let violation = Violation::new(Rule::CqArmSequence, detail).on(Queue::Cq(number));
                    self.violate(violation.with_bytes_of(CqArm::DESC, &arm.to_bytes()));
                }
                return;
            }
        }
        let is_after = |counter: u32, other: u32| {
            (1..=COUNTER_MASK / 2).contains(&(counter.wrapping_sub(other) & COUNTER_MASK))
        };
        // What an event told of already is no news, though it is not polled yet (`last_notified_index`).
        let (consumer, told) = (arm.consumer_index(), cq.notified);
        let known = if is_after(told, consumer) { told } else { consumer };
        let newer = |counter: u32| is_after(counter, known);
        let due = if arm.cmd() { cq.solicited.is_some_and(newer) } else { newer(cq.producer) };
        cq.armed = if arm.cmd() && cq.armed != Armed::Any { Armed::Solicited } else { Armed::Any };
        if due {
            self.cq_event_due(number, false);
        }
    }

    /// As [`arm_cq`](Self::arm_cq), by what the arm record says, since a doorbell on a plain page may have been overwritten.
    pub(super) fn arm_cq_by_record(&mut self, number: u32, word: u32) {
        if let Some(cq) = self.cqs.get_mut(number)
            && cq.arm_seen.is_none()
            && word == 0
        {
            cq.first_arm = FirstArm::Guessed;
        }
        self.arm_cq(number, word);
    }

    /// Numbers of the CQs on a UAR page.
    pub(super) fn cqs_on_page(&self, uar: u32) -> Vec<u32> {
        self.cqs.iter().filter(|(_, cq)| cq.uar() == uar).map(|(number, _)| number).collect()
    }
}
