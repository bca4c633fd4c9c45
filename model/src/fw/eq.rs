//! Event queues.
#![forbid(unsafe_code)]

use super::{
    Function,
    buffer::Buffer,
    caps,
    dispatch::{Input, Output, done, out},
    pages::Cost,
    refusal::Refusal,
};
use crate::{
    fault::{EntryFate, garbage},
    strict::{Queue, Rule, Violation},
    trace::Kind,
};
use mlx5_direct::mlx5::{
    cmd::{CreateEqIn, CreateEqOut, DestroyEqIn, QueryEqIn, QueryEqOut},
    context::{EqState, EqStatus, Eqc},
    eqe::{Eqe, EqeCmd, EqeComp, EqePortState, EventType, PortChange},
    ids::{Cqn, Eqn},
};

const EQE_BYTES: u64 = 64;
/// Slots of a new queue that are looked at: enough for any test, and a 4M-slot queue is made in no time.
const MAX_SLOTS_CHECKED: u64 = 4096;
/// Counters of an EQ are this wide.
const COUNTER_MASK: u32 = 0xff_ffff;

/// An event queue.
#[derive(Debug)]
pub(crate) struct EventQueue {
    context: Eqc,
    request: CreateEqIn,
    buffer: Buffer,
    producer: u32,
    consumer: u32,
    armed: bool,
    /// Its memory was seen to be filled.
    checked: bool,
    /// Completion queues that report here.
    pub(crate) n_users: u32,
}

impl EventQueue {
    pub(crate) fn uar(&self) -> u32 {
        self.context.uar_page().get()
    }

    pub(super) fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    fn n_slots(&self) -> u32 {
        1 << self.context.log_eq_size()
    }
}

/// An entry of a queue as a fault lets it be written.
pub(super) fn broken_entry(fate: Option<EntryFate>, mut entry: [u8; 64]) -> [u8; 64] {
    match fate {
        Some(EntryFate::Garbage(seed)) => garbage(seed.unwrap_or(0), &entry),
        Some(EntryFate::Owner) => {
            entry[63] ^= 1;
            entry
        }
        _ => entry,
    }
}

impl Function {
    pub(super) fn create_eq(&mut self, input: &Input<'_>) -> Output {
        let (input, list) = input.get_with_list::<CreateEqIn>()?;
        let context = input.eq_context_entry();
        if context.log_eq_size() > caps::LOG_MAX_EQ_SZ {
            return Err(Refusal::QUEUE_SIZE);
        }
        if context.intr() >= self.config.n_vectors {
            return Err(Refusal::VECTOR);
        }
        let uar = context.uar_page().get();
        if !self.uars.contains(uar) {
            return Err(Refusal::NO_SUCH_UAR);
        }
        let exclusive = [EventType::CMD, EventType::PAGE_REQUEST];
        let taken =
            |event| input.has_event(event) && self.eqs.iter().any(|(_, eq)| eq.request.has_event(event));
        if exclusive.into_iter().any(taken) {
            return Err(Refusal::EVENT_TAKEN);
        }
        let len_bytes = EQE_BYTES << context.log_eq_size();
        let (log_page, offset) = (context.log_page_size(), context.page_offset());
        let buffer = Buffer::new(&self.dma, log_page, offset, len_bytes, list, true)?;
        self.charge(Cost::EQ)?;
        let eq = EventQueue {
            context: context.with_st(EqState::FIRED).with_status(EqStatus::OK),
            request: input,
            buffer,
            producer: 0,
            consumer: 0,
            armed: false,
            checked: false,
            n_users: 0,
        };
        let number = self.eqs.insert(eq)?;
        if let Some(page) = self.uars.get_mut(uar) {
            page.n_users += 1;
        }
        out(CreateEqOut::new().with_eq_number(Eqn::new(number)))
    }

    /// Fresh queue memory must look owned by hardware, or the first poll takes garbage for an entry: no last
    /// byte of an entry may be one that `reads_valid` in the first lap.
    pub(super) fn check_filled(
        &mut self,
        what: &str,
        buffer: &Buffer,
        stride_bytes: u64,
        reads_valid: fn(u8) -> bool,
    ) -> Result<(), Refusal> {
        for slot in 0..(buffer.len_bytes / stride_bytes).min(MAX_SLOTS_CHECKED) {
            let mut last = [0];
            buffer
                .read(&self.dma, (slot + 1) * stride_bytes - 1, &mut last)
                .map_err(|_| Refusal::QUEUE_NOT_MAPPED)?;
            if reads_valid(last[0]) {
                let detail = format!("last byte of {what} slot {slot} is 0x{:02x} in a new queue", last[0]);
                self.violate(Violation::new(Rule::RingInitialised, detail).at_index(slot as u32));
                break;
            }
        }
        Ok(())
    }

    /// An EQ's memory is filled before its first doorbell and before its first event, whichever comes first. Not
    /// before creation: `mlx5dv_devx_create_eq` gives its caller the memory when the EQ is there.
    fn check_fresh_eq(&mut self, number: u32) {
        let Some(eq) = self.eqs.get_mut(number) else { return };
        if !std::mem::replace(&mut eq.checked, true) {
            let buffer = eq.buffer.clone();
            // It was mapped when the EQ was made; what went since is another rule's.
            let _ = self.check_filled("EQ", &buffer, EQE_BYTES, |last| last & 1 == 0);
        }
    }

    pub(super) fn query_eq(&mut self, input: &Input<'_>) -> Output {
        let number = input.get::<QueryEqIn>()?.eq_number().get();
        let eq = self.eqs.get(number).ok_or(Refusal::NO_SUCH_OBJECT)?;
        let context = eq
            .context
            .with_st(if eq.armed { EqState::ARMED } else { EqState::FIRED })
            .with_consumer_counter(eq.consumer & COUNTER_MASK)
            .with_producer_counter(eq.producer & COUNTER_MASK);
        out(QueryEqOut::new().with_eq_context_entry(context))
    }

    pub(super) fn destroy_eq(&mut self, input: &Input<'_>) -> Output {
        let number = input.get::<DestroyEqIn>()?.eq_number().get();
        let n_users = self.eqs.get(number).ok_or(Refusal::NO_SUCH_OBJECT)?.n_users;
        if n_users != 0 {
            return Err(self.in_use("EQ", number, n_users));
        }
        if let Some(eq) = self.eqs.remove(number)
            && let Some(page) = self.uars.get_mut(eq.uar())
        {
            page.n_users -= 1;
        }
        self.refund(Cost::EQ);
        done()
    }

    /// The EQ that gets an event type.
    fn eq_for(&self, event: EventType) -> Option<u32> {
        self.eqs.iter().find(|(_, eq)| eq.request.has_event(event)).map(|(number, _)| number)
    }

    /// Whether a driver pages on demand.
    pub(super) fn hears_page_faults(&self) -> bool {
        self.eq_for(EventType::PAGE_FAULT).is_some()
    }

    pub(super) fn command_eq(&self) -> Option<u32> {
        self.eq_for(EventType::CMD)
    }

    /// Tells that commands in the slots of `vector` are done.
    pub(super) fn command_event(&mut self, vector: u32) {
        self.event(EventType::CMD, 0, EqeCmd::new().with_vector(vector).to_bytes());
    }

    /// An event to whichever EQ asked for its type; false if none did.
    pub(super) fn event(&mut self, event: EventType, sub_type: u8, data: [u8; 28]) -> bool {
        let eq = self.eq_for(event);
        if let Some(number) = eq {
            self.post_eqe(number, event, sub_type, data);
        }
        eq.is_some()
    }

    /// A completion event of a CQ.
    pub(super) fn completion_event(&mut self, eqn: u32, cqn: u32) {
        let data = EqeComp::new().with_cqn(Cqn::new(cqn)).to_bytes();
        self.post_eqe(eqn, EventType::COMP, 0, data);
    }

    fn post_eqe(&mut self, number: u32, event: EventType, sub_type: u8, data: [u8; 28]) {
        self.check_fresh_eq(number);
        if self.is_full_eq(number) {
            let Some(eq) = self.eqs.get(number) else { return };
            let (n_slots, consumer) = (eq.n_slots(), eq.consumer);
            let detail = format!("{event} lost: {n_slots} events are not consumed (consumer {consumer})");
            let violation = Violation::new(Rule::EqOverrun, detail).on(Queue::Eq(number));
            return self.violate(violation.at_index(eq.producer));
        }
        let fate = self.faults.event(self.index, event);
        if fate == Some(EntryFate::Lost) {
            return self.note(|| format!("fault: EQ 0x{number:x}: {event} is not written"));
        }
        let Some(eq) = self.eqs.get_mut(number) else { return };
        let (producer, n_slots) = (eq.producer, eq.n_slots());
        let owner = producer >> eq.context.log_eq_size() & 1 != 0;
        let eqe =
            Eqe::new().with_type_(event).with_sub_type(sub_type).with_event_data(data).with_owner(owner);
        let slot = u64::from(producer & (n_slots - 1));
        let iova = eq.buffer.iova(slot * EQE_BYTES);
        eq.producer = producer.wrapping_add(1);
        let vector = eq.context.intr();
        let fire = std::mem::take(&mut eq.armed);
        let bytes = broken_entry(fate, eqe.to_bytes());
        self.record(Kind::Eqe, &bytes, || format!("EQ 0x{number:x}, index {producer}: {event}"));
        if let Some(Err(fault)) = iova.map(|iova| self.dma.publish(iova, &bytes)) {
            self.violate_on(Queue::Eq(number), Rule::DmaUnmapInUse, format!("EQE not written: {fault}"));
        }
        if fire && fate != Some(EntryFate::Silent) {
            self.irqs.raise(vector);
        }
    }

    /// Whether an event would overwrite one that is not consumed. In a plain page that must be certain: the doorbell
    /// that tells may not be seen yet, or another queue's may have overwritten it, and then the queue counts as empty.
    fn is_full_eq(&mut self, number: u32) -> bool {
        let is_full = |function: &Self| {
            let eq = function.eqs.get(number)?;
            let outstanding = eq.producer.wrapping_sub(eq.consumer) & COUNTER_MASK;
            (outstanding >= eq.n_slots() && !eq.context.oi()).then(|| eq.uar())
        };
        match is_full(self) {
            None => return false,
            Some(uar) if !self.is_watched(uar) => return true,
            Some(uar) => self.poll_eq_registers(uar),
        };
        let Some(uar) = is_full(self) else { return false };
        let is_alone = self.eqs_on_page(uar).len() == 1;
        if !is_alone && let Some(eq) = self.eqs.get_mut(number) {
            eq.consumer = eq.producer;
        }
        is_alone
    }

    /// EQ doorbell: consumer index, and arm if `arm`.
    pub(super) fn eq_doorbell(&mut self, number: u32, consumer: u32, arm: bool) {
        self.check_fresh_eq(number);
        let merging = self.eqs.get(number).is_some_and(|eq| self.is_watched(eq.uar()));
        let Some(eq) = self.eqs.get_mut(number) else { return };
        let consumed = consumer.wrapping_sub(eq.consumer) & COUNTER_MASK;
        let outstanding = eq.producer.wrapping_sub(eq.consumer) & COUNTER_MASK;
        // Merged doorbells may be seen out of order.
        if consumed > outstanding && !merging {
            let detail =
                format!("consumer {consumer}: was {}, producer {}", eq.consumer, eq.producer & COUNTER_MASK);
            self.violate_on(Queue::Eq(number), Rule::EqConsumerForward, detail);
            return;
        }
        if consumed <= outstanding {
            eq.consumer = eq.consumer.wrapping_add(consumed);
        }
        if arm {
            self.arm_eq(number);
        }
    }

    /// Arms an EQ; with unconsumed events it fires at once.
    pub(super) fn arm_eq(&mut self, number: u32) {
        let Some(eq) = self.eqs.get_mut(number) else { return };
        if eq.producer == eq.consumer {
            eq.armed = true;
        } else {
            eq.armed = false;
            let vector = eq.context.intr();
            self.irqs.raise(vector);
        }
    }

    /// Numbers of the EQs on a UAR page.
    pub(super) fn eqs_on_page(&self, uar: u32) -> Vec<u32> {
        self.eqs.iter().filter(|(_, eq)| eq.uar() == uar).map(|(number, _)| number).collect()
    }

    /// The cable was plugged or pulled.
    pub(crate) fn set_link(&mut self, up: bool) {
        if self.vport.set_link(up) {
            self.port_event();
        }
    }

    /// Tells the driver the port's state.
    pub(super) fn port_event(&mut self) {
        self.port_counters.link_downs += u64::from(!self.link_up());
        if self.is_infiniband() {
            return self.ib_link();
        }
        let sub_type = if self.link_up() { PortChange::ACTIVE } else { PortChange::DOWN };
        let data = EqePortState::new().with_port_num(1).to_bytes();
        self.event(EventType::PORT_CHANGE, sub_type.0, data);
    }
}
