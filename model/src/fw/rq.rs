//! Receive queues of raw Ethernet: kept and checked. Nothing arrives on them yet.
#![forbid(unsafe_code)]

use super::{
    Function,
    dispatch::{Input, Output, done, out},
    refusal::Refusal,
    wq::{WqState, wq_buffer},
};
use mlx5_direct::mlx5::{
    cmd::{CreateRqIn, CreateRqOut, DestroyRqIn, ModifyRqIn, QueryRqIn, QueryRqOut},
    context::Rqc,
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
    state: WqState,
}

impl Function {
    pub(super) fn create_rq(&mut self, input: &Input<'_>) -> Output {
        let (input, list) = input.get_with_list::<CreateRqIn>()?;
        let context = input.ctx();
        let wq = context.wq();
        if WqState::from_wire(context.state()) != Some(WqState::Reset) {
            return Err(Refusal::WQ_STATE);
        }
        if !self.cqs.contains(context.cqn().get()) {
            return Err(Refusal::NO_SUCH_CQ);
        }
        let shared = context.mem_rq_type() == IN_RMP;
        if shared {
            self.srqs.get_mut(context.rmpn()).ok_or(Refusal::NO_SUCH_OBJECT)?.n_users += 1;
        } else {
            wq_buffer(&self.dma, &wq, list)?;
            self.check_record(wq.dbr_addr())?;
            // Linux makes a queue for what is to be dropped, and names no domain: nothing is ever posted there.
            if wq.pd().get() != 0 {
                self.pds.hold(wq.pd().get(), Refusal::NO_SUCH_PD)?;
            }
        }
        let number = self.rqs.insert(Rq { context, state: WqState::Reset })?;
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
        if select & VSD != 0 {
            rq.context.set_vsd(new.vsd());
        }
        if select & SCATTER_FCS != 0 {
            rq.context.set_scatter_fcs(new.scatter_fcs());
        }
        if select & COUNTER_SET != 0 {
            rq.context.set_counter_set_id(new.counter_set_id());
        }
        done()
    }

    pub(super) fn query_rq(&mut self, input: &Input<'_>) -> Output {
        let rq = self.rqs.get(input.get::<QueryRqIn>()?.rqn()).ok_or(Refusal::NO_SUCH_OBJECT)?;
        out(QueryRqOut::new().with_rq_context(rq.context.with_state(rq.state.to_wire())))
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
