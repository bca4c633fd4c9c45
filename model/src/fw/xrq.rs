//! XRQs: shared receive queues whose messages go by tags. What matches nothing goes to the WQEs of an ordinary list.
#![forbid(unsafe_code)]

use super::{
    Function,
    dispatch::{Input, Output, done, out},
    refusal::Refusal,
    srq::{Context, Kind},
};
use crate::exec::{Rule, TagList, TagMemory, TagOutcome, TakenTag};
use mlx5_direct::{
    mlx5::{
        cmd::{ArmRqIn, ArmXrqIn, CreateXrqIn, CreateXrqOut, DestroyXrqIn, QueryXrqIn, QueryXrqOut},
        context::{Qpc, TagMatchingTopologyContext, XrqOffload, XrqState, XrqTopology, Xrqc},
    },
    wqe::TmSeg,
};

/// log2 of the entries of a list (`log_tag_matching_list_sz`). Linux offers its users one less.
pub(super) const LOG_MAX_TAGS: u8 = 7;
/// `qpc.offload_type` of a queue pair that its XRQ may send by.
const OFFLOAD_RENDEZVOUS: u8 = 1;
/// `op_mod` of ARM_RQ for an XRQ.
const ARM_RQ_OF_XRQ: u16 = 2;

/// What an XRQ has beside a shared receive queue.
#[derive(Debug)]
pub(super) struct Xrq {
    pub(super) context: Xrqc,
    tags: TagList,
}

impl Xrq {
    pub(super) fn matches_tags(&self) -> bool {
        self.context.topology() == XrqTopology::TAG_MATCHING
    }

    /// The list as QUERY_XRQ has it.
    fn tag_context(&self) -> TagMatchingTopologyContext {
        let context = self.context.tag_matching_topology_context();
        TagMatchingTopologyContext::new()
            .with_log_matching_list_sz(context.log_matching_list_sz())
            .with_append_next_index(self.tags.next_index())
            .with_sw_phase_cnt(self.tags.n_known())
            .with_hw_phase_cnt(self.tags.n_unexpected())
    }
}

impl Function {
    fn xrq(&self, number: u32) -> Option<&Xrq> {
        self.srqs.get(number)?.xrq()
    }

    fn tags(&mut self, number: u32) -> Option<&mut TagList> {
        self.srqs.get_mut(number)?.xrq_mut().map(|xrq| &mut xrq.tags)
    }

    pub(super) fn create_xrq(&mut self, input: &Input<'_>) -> Output {
        let (input, list) = input.get_with_list::<CreateXrqIn>()?;
        let context = input.xrq_context();
        let log_list_size = context.tag_matching_topology_context().log_matching_list_sz();
        let caps = self.caps.general();
        if !caps.tag_matching() || log_list_size > caps.log_tag_matching_list_sz() {
            return Err(Refusal::XRQ_LIST);
        }
        if !matches!(context.topology(), XrqTopology::NO_SPECIAL_TOPOLOGY | XrqTopology::TAG_MATCHING)
            || !matches!(context.offload(), XrqOffload::NONE | XrqOffload::RNDV)
        {
            return Err(Refusal::XRQ_TOPOLOGY);
        }
        if !self.cqs.contains(context.cqn().get()) {
            return Err(Refusal::NO_SUCH_CQ);
        }
        let wq = context.wq();
        let (buffer, record) = self.wq_memory(&wq, list)?;
        let xrq = Xrq { context, tags: TagList::new(log_list_size) };
        let kind = Context::Xrq(Box::new(xrq));
        let number = self.insert_srq(kind, buffer, record, wq.log_wq_stride(), wq.log_wq_sz())?;
        if let Some(cq) = self.cqs.get_mut(context.cqn().get()) {
            cq.n_users += 1;
        }
        out(CreateXrqOut::new().with_xrqn(number))
    }

    pub(super) fn query_xrq(&mut self, input: &Input<'_>) -> Output {
        let number = input.get::<QueryXrqIn>()?.xrqn();
        self.srq_posted(number);
        let srq = self.srqs.get(number).ok_or(Refusal::NO_SUCH_OBJECT)?;
        let xrq = srq.xrq().ok_or(Refusal::NO_SUCH_OBJECT)?;
        let state = if srq.is_in_error() { XrqState::ERROR } else { XrqState::GOOD };
        let context = xrq
            .context
            .with_state(state)
            .with_tag_matching_topology_context(xrq.tag_context())
            .with_wq(srq.progress(xrq.context.wq()));
        out(QueryXrqOut::new().with_xrq_context(context))
    }

    pub(super) fn destroy_xrq(&mut self, input: &Input<'_>) -> Output {
        let number = input.get::<DestroyXrqIn>()?.xrqn();
        if let Context::Xrq(xrq) = self.remove_srq(number, Kind::Xrq)?
            && let Some(cq) = self.cqs.get_mut(xrq.context.cqn().get())
        {
            cq.n_users -= 1;
        }
        done()
    }

    pub(super) fn arm_xrq(&mut self, input: &Input<'_>) -> Output {
        let input: ArmXrqIn = input.get()?;
        self.arm(input.xrqn(), input.lwm())
    }

    /// Linux arms XRQs by the command of shared receive queues of ISSI 0, which there are none of.
    pub(super) fn arm_rq(&mut self, input: &Input<'_>) -> Output {
        let input: ArmRqIn = input.get()?;
        if input.op_mod() != ARM_RQ_OF_XRQ {
            return Err(Refusal::BAD_OP_MOD);
        }
        self.arm(input.srq_number(), input.lwm())
    }

    fn arm(&mut self, number: u32, limit: u16) -> Output {
        self.xrq(number).ok_or(Refusal::NO_SUCH_OBJECT)?;
        self.arm_srq(number, limit)?;
        done()
    }

    /// Whether an XRQ may have the data of rendezvous read by a queue pair with this context.
    pub(super) fn reads_for_xrq(&self, context: &Qpc) -> bool {
        let xrq = self.xrq(context.srqn_rmpn_xrqn());
        context.offload_type() == OFFLOAD_RENDEZVOUS
            && xrq.is_some_and(|xrq| xrq.matches_tags() && xrq.context.offload() == XrqOffload::RNDV)
    }

    pub(super) fn change_tags(
        &mut self,
        number: u32,
        operation: &TmSeg,
        memory: TagMemory,
    ) -> Result<TagOutcome, (Rule, String)> {
        let no_list = || (Rule::TagList, format!("0x{number:x} is no XRQ"));
        self.tags(number).ok_or_else(no_list)?.apply(operation, memory)
    }

    pub(super) fn take_tag(&mut self, number: u32, tag: u64) -> Option<TakenTag> {
        let taken = self.tags(number)?.take(tag)?;
        self.n_tagged += 1;
        Some(taken)
    }

    pub(super) fn release_tag(&mut self, number: u32, index: u16) {
        if let Some(tags) = self.tags(number) {
            tags.release(index);
        }
    }

    pub(super) fn count_unexpected(&mut self, number: u32) {
        if let Some(tags) = self.tags(number) {
            tags.count_unexpected();
        }
    }
}
