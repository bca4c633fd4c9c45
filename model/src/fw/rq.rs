//! Receive queues of raw Ethernet. What arrives is in `receive_frame`.
#![forbid(unsafe_code)]

use super::{
    Function,
    buffer::Buffer,
    dispatch::{Input, Output, done, out},
    refusal::Refusal,
    wq::WqState,
};
use crate::mem::{DmaFault, DmaMap};
use mlx5_direct::mlx5::{
    cmd::{CreateRqIn, CreateRqOut, DestroyRqIn, ModifyRqIn, QueryRqIn, QueryRqOut},
    context::{Rqc, WqType},
    ids::{Pdn, UserIndex},
    record::RCV_DBR,
};

/// First RQ number.
pub(crate) const FIRST_RQN: u32 = 0x80_0000;
/// `mem_rq_type`: in a shared pool.
const IN_RMP: u8 = 1;
/// `modify_bitmask` of MODIFY_RQ: VLAN stripping, FCS, counter set.
const VSD: u64 = 1 << 1;
const SCATTER_FCS: u64 = 1 << 2;
const COUNTER_SET: u64 = 1 << 3;

/// A receive queue.
#[derive(Debug)]
pub(crate) struct Rq {
    context: Rqc,
    /// Its ring; none of its own if it is in a shared pool.
    buffer: Option<Buffer>,
    pub(super) state: WqState,
    /// First WQE not taken, free-running.
    pub(super) consumer: u16,
}

impl Rq {
    pub(super) fn receive_record(&self) -> u64 {
        self.context.wq().dbr_addr() + RCV_DBR as u64
    }

    pub(super) fn n_wqes(&self) -> u32 {
        1 << self.context.wq().log_wq_sz()
    }

    pub(super) fn pd(&self) -> Pdn {
        self.context.wq().pd()
    }

    pub(super) fn cqn(&self) -> u32 {
        self.context.cqn().get()
    }

    pub(super) fn user_index(&self) -> UserIndex {
        self.context.user_index()
    }

    pub(super) fn counter_set(&self) -> u8 {
        self.context.counter_set_id()
    }

    pub(super) fn strips_vlan(&self) -> bool {
        !self.context.vsd()
    }

    pub(super) fn keeps_fcs(&self) -> bool {
        self.context.scatter_fcs()
    }

    /// Whether WQEs complete as flushed now.
    pub(super) fn flushes(&self) -> bool {
        self.state == WqState::Error && self.context.flush_in_error_en() && self.buffer.is_some()
    }

    /// The WQE at a counter.
    pub(super) fn read_wqe(&self, dma: &DmaMap, index: u16) -> Result<Vec<u8>, DmaFault> {
        let stride_bytes = 1u64 << self.context.wq().log_wq_stride();
        let slot = u64::from(index) & u64::from(self.n_wqes() - 1);
        let mut wqe = vec![0; stride_bytes as usize];
        if let Some(buffer) = &self.buffer {
            buffer.read(dma, slot * stride_bytes, &mut wqe)?;
        }
        Ok(wqe)
    }
}

impl Function {
    pub(super) fn create_rq(&mut self, input: &Input<'_>) -> Output {
        let (input, list) = input.get_with_list::<CreateRqIn>()?;
        let mut context = input.ctx();
        let wq = context.wq();
        if WqState::from_wire(context.state()) != Some(WqState::Reset) {
            return Err(Refusal::WQ_STATE);
        }
        if !self.cqs.contains(context.cqn().get()) {
            return Err(Refusal::NO_SUCH_CQ);
        }
        let shared = context.mem_rq_type() == IN_RMP;
        let mut buffer = None;
        if shared {
            self.srqs.get_mut(context.rmpn()).ok_or(Refusal::NO_SUCH_OBJECT)?.n_users += 1;
        } else {
            if wq.wq_type() != WqType::TYPE_CYCLIC {
                return Err(Refusal::WQ_TYPE);
            }
            let (ring, record) = self.wq_memory(&wq, list)?;
            (buffer, context) = (Some(ring), context.with_wq(wq.with_dbr_addr(record)));
            // Linux makes a queue for what is to be dropped, and names no domain: nothing is ever posted there.
            if wq.pd().get() != 0 {
                self.pds.hold(wq.pd().get(), Refusal::NO_SUCH_PD)?;
            }
        }
        let number = self.rqs.insert(Rq { context, buffer, state: WqState::Reset, consumer: 0 })?;
        if let Some(cq) = self.cqs.get_mut(context.cqn().get()) {
            cq.n_users += 1;
        }
        out(CreateRqOut::new().with_rqn(number))
    }

    pub(super) fn modify_rq(&mut self, input: &Input<'_>) -> Output {
        let input: ModifyRqIn = input.get()?;
        let (select, new) = (input.modify_bitmask(), input.ctx());
        let rq = self.rqs.get_mut(input.rqn()).ok_or(Refusal::NO_SUCH_OBJECT)?;
        if WqState::from_wire(input.rq_state()) != Some(rq.state) {
            return Err(Refusal::WQ_STATE);
        }
        if select & !(VSD | SCATTER_FCS | COUNTER_SET) != 0 {
            return Err(Refusal::MODIFY_SELECT);
        }
        let to = WqState::from_wire(new.state()).ok_or(Refusal::WQ_STATE)?;
        rq.state.to(to)?;
        rq.state = to;
        if to == WqState::Reset {
            rq.consumer = 0;
        }
        if select & VSD != 0 {
            rq.context.set_vsd(new.vsd());
        }
        if select & SCATTER_FCS != 0 {
            rq.context.set_scatter_fcs(new.scatter_fcs());
        }
        if select & COUNTER_SET != 0 {
            rq.context.set_counter_set_id(new.counter_set_id());
        }
        self.flush_rq(input.rqn());
        done()
    }

    pub(super) fn query_rq(&mut self, input: &Input<'_>) -> Output {
        let rq = self.rqs.get(input.get::<QueryRqIn>()?.rqn()).ok_or(Refusal::NO_SUCH_OBJECT)?;
        let wq = rq.context.wq().with_hw_counter(rq.consumer.into());
        out(QueryRqOut::new().with_rq_context(rq.context.with_state(rq.state.to_wire()).with_wq(wq)))
    }

    pub(super) fn destroy_rq(&mut self, input: &Input<'_>) -> Output {
        let number = input.get::<DestroyRqIn>()?.rqn();
        if !self.rqs.contains(number) {
            return Err(Refusal::NO_SUCH_OBJECT);
        }
        let n_tables = self.rqts.iter().filter(|(_, rqt)| rqt.contains(number)).count() as u32;
        if n_tables != 0 {
            return Err(self.in_use("RQ", number, n_tables));
        }
        if let Some(rq) = self.rqs.remove(number) {
            let context = rq.context;
            if let Some(cq) = self.cqs.get_mut(context.cqn().get()) {
                cq.n_users -= 1;
            }
            if context.mem_rq_type() != IN_RMP {
                self.pds.release(context.wq().pd().get());
            } else if let Some(rmp) = self.srqs.get_mut(context.rmpn()) {
                rmp.n_users -= 1;
            }
        }
        done()
    }
}
