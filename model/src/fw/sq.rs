//! Send queues of raw Ethernet: their states, and WQEs one after the other. Frames are in `sq_frame`.
#![forbid(unsafe_code)]

use super::{
    Function,
    buffer::Buffer,
    dispatch::{Input, Output, done, out},
    refusal::Refusal,
    wq::WqState,
};
use crate::{
    exec::Wake,
    strict::{Queue, Rule},
    trace::Kind,
};
use mlx5_direct::{
    cqe::{CqeOpcode, CqeSyndrome, ErrorCqe, RequesterCqe},
    mlx5::{
        cmd::{CreateSqIn, CreateSqOut, DestroySqIn, ModifySqIn, QuerySqIn, QuerySqOut},
        context::Sqc,
        ids::Qpn,
        record::SND_DBR,
    },
    wqe::{CompletionMode, CtrlSeg, SEGMENT_BYTES, SendOpcode, WQEBB_BYTES},
};

/// First SQ number. SQs, RQs and QPs have numbers of one space, each a part of it.
pub(crate) const FIRST_SQN: u32 = 0x40_0000;

/// In `modify_bitmask`: the queue's rate, and its queue group.
const SELECT_RATE: u64 = 1;
const SELECT_QUEUE_GROUP: u64 = 1 << 2;

/// A send queue.
#[derive(Debug)]
pub(crate) struct Sq {
    pub(super) context: Sqc,
    buffer: Buffer,
    state: WqState,
    /// Counter that the doorbell gave, and first WQEBB not executed.
    pub(crate) producer: u16,
    consumer: u16,
}

impl Sq {
    pub(crate) fn uar(&self) -> u32 {
        self.context.wq().uar_page().get()
    }

    pub(super) fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    pub(crate) fn send_record(&self) -> u64 {
        self.context.wq().dbr_addr() + SND_DBR as u64
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.state == WqState::Ready
    }

    fn n_wqebbs(&self) -> u32 {
        1 << self.context.wq().log_wq_sz()
    }
}

/// Why a WQE is not executed: the completion's syndrome, and what is wrong if it is the driver's WQE.
pub(super) type Fault = (CqeSyndrome, Option<(Rule, String)>);

impl Function {
    pub(super) fn create_sq(&mut self, input: &Input<'_>) -> Output {
        let (input, list) = input.get_with_list::<CreateSqIn>()?;
        let context = input.ctx();
        let wq = context.wq();
        if WqState::from_wire(context.state()) != Some(WqState::Reset) {
            return Err(Refusal::WQ_STATE);
        }
        if usize::from(wq.log_wq_stride()) != WQEBB_BYTES.ilog2() as usize {
            return Err(Refusal::SQ_STRIDE);
        }
        if context.tis_lst_sz() > 1 {
            return Err(Refusal::SQ_TIS);
        }
        self.rates.check(context.packet_pacing_rate_limit_index())?;
        let (buffer, record) = self.wq_memory(&wq, list)?;
        let context = context.with_wq(wq.with_dbr_addr(record));
        if !self.uars.contains(wq.uar_page().get()) {
            return Err(Refusal::NO_SUCH_UAR);
        }
        if !self.cqs.contains(context.cqn().get()) {
            return Err(Refusal::NO_SUCH_CQ);
        }
        if !self.pds.contains(wq.pd().get()) {
            return Err(Refusal::NO_SUCH_PD);
        }
        if context.tis_lst_sz() != 0 && !self.tiss.contains(context.tis_num_0()) {
            return Err(Refusal::NO_SUCH_OBJECT);
        }
        let sq = Sq { context, buffer, state: WqState::Reset, producer: 0, consumer: 0 };
        let number = self.sqs.insert(sq)?;
        self.hold_sq_parts(&context, 1);
        out(CreateSqOut::new().with_sqn(number))
    }

    /// Counts the SQ as a user of what it names (`step` 1), or no longer (`step` -1).
    fn hold_sq_parts(&mut self, context: &Sqc, step: i32) {
        let count = |n_users: &mut u32| *n_users = n_users.wrapping_add_signed(step);
        let wq = context.wq();
        if let Some(cq) = self.cqs.get_mut(context.cqn().get()) {
            count(&mut cq.n_users);
        }
        if let Some(page) = self.uars.get_mut(wq.uar_page().get()) {
            count(&mut page.n_users);
        }
        if let Some(pd) = self.pds.get_mut(wq.pd().get()) {
            count(&mut pd.n_users);
        }
        if context.tis_lst_sz() != 0
            && let Some(tis) = self.tiss.get_mut(context.tis_num_0())
        {
            count(&mut tis.n_users);
        }
    }

    pub(super) fn modify_sq(&mut self, input: &Input<'_>) -> Output {
        let input: ModifySqIn = input.get()?;
        let number = input.sqn();
        let new_rate =
            (input.modify_bitmask() & SELECT_RATE != 0).then(|| input.ctx().packet_pacing_rate_limit_index());
        let new_group =
            (input.modify_bitmask() & SELECT_QUEUE_GROUP != 0).then(|| input.ctx().qos_queue_group_id());
        self.rates.check(new_rate.unwrap_or(0))?;
        self.check_queue_group(new_group.unwrap_or(0).into())?;
        let sq = self.sqs.get_mut(number).ok_or(Refusal::NO_SUCH_OBJECT)?;
        if WqState::from_wire(input.sq_state()) != Some(sq.state) {
            return Err(Refusal::WQ_STATE);
        }
        let to = WqState::from_wire(input.ctx().state()).ok_or(Refusal::WQ_STATE)?;
        sq.state.to(to)?;
        sq.state = to;
        if let Some(index) = new_rate {
            sq.context.set_packet_pacing_rate_limit_index(index);
        }
        if let Some(group) = new_group {
            sq.context.set_qos_queue_group_id(group);
        }
        match to {
            WqState::Reset => (sq.producer, sq.consumer) = (0, 0),
            WqState::Ready => {}
            WqState::Error => self.flush_sq(number),
        }
        done()
    }

    pub(super) fn query_sq(&mut self, input: &Input<'_>) -> Output {
        let sq = self.sqs.get(input.get::<QuerySqIn>()?.sqn()).ok_or(Refusal::NO_SUCH_OBJECT)?;
        let wq = sq.context.wq();
        let wq = wq.with_hw_counter(sq.consumer.into()).with_sw_counter(sq.producer.into());
        out(QuerySqOut::new().with_sq_context(sq.context.with_state(sq.state.to_wire()).with_wq(wq)))
    }

    pub(super) fn destroy_sq(&mut self, input: &Input<'_>) -> Output {
        let number = input.get::<DestroySqIn>()?.sqn();
        let sq = self.sqs.remove(number).ok_or(Refusal::NO_SUCH_OBJECT)?;
        self.hold_sq_parts(&sq.context, -1);
        done()
    }

    /// The doorbell of an SQ gave `counter`.
    pub(super) fn ring_sq(&mut self, number: u32, counter: u16) {
        let Some(sq) = self.sqs.get_mut(number) else { return };
        let n_wqebbs = sq.n_wqebbs();
        let ahead = u32::from(counter.wrapping_sub(sq.consumer));
        if ahead > n_wqebbs {
            let detail = format!("counter {counter}: {ahead} WQEBBs posted, the ring has {n_wqebbs}");
            return self.violate_on(Queue::Sq(number), Rule::ProducerWithinRing, detail);
        }
        sq.producer = counter;
        match sq.state {
            WqState::Reset => {
                let detail = format!("send doorbell {counter} in reset");
                self.violate_on(Queue::Sq(number), Rule::PostInRightState, detail);
            }
            WqState::Ready => self.run_sq(number),
            WqState::Error => self.flush_sq(number),
        }
    }

    fn run_sq(&mut self, number: u32) {
        loop {
            let Some(sq) = self.sqs.get(number) else { return };
            if sq.consumer == sq.producer {
                return;
            }
            let index = sq.consumer;
            let (ctrl, bytes) = match self.fetch_wqe(number, index) {
                Ok(wqe) => wqe,
                Err(fault) => return self.fail_sq(number, index, SendOpcode::NOP, fault),
            };
            let outcome = match ctrl.opcode() {
                SendOpcode::NOP => Ok(()),
                opcode @ (SendOpcode::SEND | SendOpcode::LSO) => self.send_frame(number, opcode, &bytes),
                opcode => {
                    let text = format!(
                        "opcode 0x{:02x} is not one that Ethernet queues of the model execute",
                        opcode.0
                    );
                    Err((CqeSyndrome::LOCAL_QP_OP_ERR, Some((Rule::OpcodeKnown, text))))
                }
            };
            if let Err(fault) = outcome {
                return self.fail_sq(number, index, ctrl.opcode(), fault);
            }
            let Some(sq) = self.sqs.get_mut(number) else { return };
            sq.consumer = index.wrapping_add(n_wqebbs(&ctrl));
            let context = sq.context;
            if matches!(ctrl.ce(), CompletionMode::ALWAYS | CompletionMode::CQE_AND_EQE) {
                let cqe = RequesterCqe::new()
                    .with_user_index(context.user_index())
                    .with_timestamp(self.clock.now_ns())
                    .with_send_wqe_opcode(ctrl.opcode())
                    .with_qpn(Qpn::new(number))
                    .with_wqe_counter(index)
                    .with_opcode(CqeOpcode::REQ);
                self.post_completion(context.cqn().get(), &cqe.into(), Wake::Any);
            }
        }
    }

    /// Reads and checks the WQE at `index`.
    fn fetch_wqe(&mut self, number: u32, index: u16) -> Result<(CtrlSeg, Vec<u8>), Fault> {
        let broken = |rule, text| Err((CqeSyndrome::LOCAL_QP_OP_ERR, Some((rule, text))));
        let Some(sq) = self.sqs.get(number) else { return Err((CqeSyndrome::LOCAL_QP_OP_ERR, None)) };
        let ring_bytes = u64::from(sq.n_wqebbs()) * WQEBB_BYTES as u64;
        let at = u64::from(index) * WQEBB_BYTES as u64 % ring_bytes;
        let unreadable =
            |fault| (CqeSyndrome::LOCAL_QP_OP_ERR, Some((Rule::DmaUnmapInUse, format!("ring: {fault}"))));
        let mut head = [0; SEGMENT_BYTES];
        sq.buffer.read(&self.dma, at, &mut head).map_err(unreadable)?;
        let ctrl = CtrlSeg::from_bytes(head);
        if ctrl.wqe_index() != index {
            return broken(
                Rule::WqeIndexMatchesPosition,
                format!("wqe_index {} in WQEBB {index}", ctrl.wqe_index()),
            );
        }
        if ctrl.qpn().get() != number {
            return broken(
                Rule::WqeQpnMatchesQueue,
                format!("WQE names SQ {} in the ring of 0x{number:x}", ctrl.qpn()),
            );
        }
        if ctrl.ds() == 0 || n_wqebbs(&ctrl) > sq.producer.wrapping_sub(index) {
            let text =
                format!("ds is {} in WQEBB {index}, the doorbell's counter is {}", ctrl.ds(), sq.producer);
            return broken(Rule::DsCoversSegments, text);
        }
        let mut bytes = vec![0; usize::from(ctrl.ds()) * SEGMENT_BYTES];
        // A WQE may go on at the ring's start.
        let first = bytes.len().min((ring_bytes - at) as usize);
        sq.buffer.read(&self.dma, at, &mut bytes[..first]).map_err(unreadable)?;
        sq.buffer.read(&self.dma, 0, &mut bytes[first..]).map_err(unreadable)?;
        self.record(Kind::SendWqe, &bytes, || format!("SQ 0x{number:x}, WQEBB {index}"));
        Ok((ctrl, bytes))
    }

    /// A WQE failed: the queue stops.
    fn fail_sq(&mut self, number: u32, index: u16, opcode: SendOpcode, (syndrome, broken): Fault) {
        if let Some((rule, detail)) = broken {
            self.violate_on(Queue::Sq(number), rule, detail);
        }
        self.post_sq_error(number, index, opcode, syndrome);
        if let Some(sq) = self.sqs.get_mut(number) {
            sq.consumer = index.wrapping_add(1);
            sq.state = WqState::Error;
        }
        self.flush_sq(number);
    }

    /// Completes everything posted as flushed.
    fn flush_sq(&mut self, number: u32) {
        while let Some(sq) = self.sqs.get_mut(number) {
            if sq.consumer == sq.producer {
                return;
            }
            let index = sq.consumer;
            sq.consumer = index.wrapping_add(1);
            if let Ok((ctrl, _)) = self.fetch_wqe(number, index) {
                if let Some(sq) = self.sqs.get_mut(number) {
                    sq.consumer = index.wrapping_add(n_wqebbs(&ctrl));
                }
                self.post_sq_error(number, index, ctrl.opcode(), CqeSyndrome::WR_FLUSH_ERR);
            }
        }
    }

    fn post_sq_error(&mut self, number: u32, index: u16, opcode: SendOpcode, syndrome: CqeSyndrome) {
        let Some(context) = self.sqs.get(number).map(|sq| sq.context) else { return };
        let cqe = ErrorCqe::new()
            .with_srqn_or_user_index(context.user_index())
            .with_syndrome(syndrome)
            .with_qpn(Qpn::new(number))
            .with_send_wqe_opcode(opcode)
            .with_wqe_counter(index)
            .with_opcode(CqeOpcode::REQ_ERR);
        self.post_completion(context.cqn().get(), &cqe.into(), Wake::Solicited);
    }
}

fn n_wqebbs(ctrl: &CtrlSeg) -> u16 {
    u16::from(ctrl.ds()).div_ceil((WQEBB_BYTES / SEGMENT_BYTES) as u16).max(1)
}
