//! MODIFY_CQ: fields, and another buffer in place of the CQ's.
#![forbid(unsafe_code)]

use super::{
    Function,
    buffer::Buffer,
    caps,
    dispatch::{Input, Output, done},
    refusal::Refusal,
};
use mlx5_direct::{
    cqe::{CqeOpcode, ResponderCqe},
    mlx5::cmd::{CqFieldSelect, CqResizeSelect, ModifyCqIn, ModifyCqOpMod},
};

/// Fields that MODIFY_CQ may select.
const MODIFIABLE: u32 =
    CqFieldSelect::CQ_PERIOD.0 | CqFieldSelect::CQ_MAX_COUNT.0 | CqFieldSelect::OI.0 | CqFieldSelect::C_EQN.0;
/// What describes a buffer; a new one is described wholly.
const BUFFER: u32 =
    CqResizeSelect::LOG_CQ_SIZE.0 | CqResizeSelect::PAGE_OFFSET.0 | CqResizeSelect::LOG_PAGE_SIZE.0;

impl Function {
    pub(super) fn modify_cq(&mut self, input: &Input<'_>) -> Output {
        let (input, list) = input.get_with_list::<ModifyCqIn>()?;
        match input.op_mod() {
            ModifyCqOpMod::MODIFY_CQ => self.change_cq(&input),
            ModifyCqOpMod::RESIZE_CQ => self.resize_cq(&input, list),
            _ => Err(Refusal::BAD_OP_MOD),
        }
    }

    fn change_cq(&mut self, input: &ModifyCqIn) -> Output {
        let select = input.modify_field_select_resize_field_select();
        if select & !MODIFIABLE != 0 {
            return Err(Refusal::MODIFY_SELECT);
        }
        let new = input.cq_context();
        if select & CqFieldSelect::C_EQN.0 != 0 && !self.eqs.contains(new.c_eqn().get()) {
            return Err(Refusal::NO_SUCH_EQ);
        }
        let cq = self.cqs.get_mut(input.cqn().get()).ok_or(Refusal::NO_SUCH_OBJECT)?;
        let old_eqn = cq.context.c_eqn();
        if select & CqFieldSelect::CQ_PERIOD.0 != 0 {
            cq.context.set_cq_period(new.cq_period());
        }
        if select & CqFieldSelect::CQ_MAX_COUNT.0 != 0 {
            cq.context.set_cq_max_count(new.cq_max_count());
        }
        if select & CqFieldSelect::OI.0 != 0 {
            cq.context.set_oi(new.oi());
        }
        if select & CqFieldSelect::C_EQN.0 != 0 {
            cq.context.set_c_eqn(new.c_eqn());
            for (eqn, step) in [(old_eqn, u32::MAX), (new.c_eqn(), 1)] {
                if let Some(eq) = self.eqs.get_mut(eqn.get()) {
                    eq.n_users = eq.n_users.wrapping_add(step);
                }
            }
        }
        done()
    }

    /// The last CQE of the old buffer says that it is; software copies what it did not consume, one slot on,
    /// so that counters go on without a gap.
    fn resize_cq(&mut self, input: &ModifyCqIn, list: &[u8]) -> Output {
        if input.cq_umem_valid() {
            return Err(Refusal::UMEM);
        }
        if input.modify_field_select_resize_field_select() != BUFFER {
            return Err(Refusal::MODIFY_SELECT);
        }
        let (number, new) = (input.cqn().get(), input.cq_context());
        if new.log_cq_size() > caps::LOG_MAX_CQ_SZ {
            return Err(Refusal::QUEUE_SIZE);
        }
        self.read_cq_consumer(number);
        let cq = self.cqs.get(number).ok_or(Refusal::NO_SUCH_OBJECT)?;
        let n_outstanding = cq.n_outstanding();
        if cq.overrun || n_outstanding >= cq.n_slots() || n_outstanding + 1 > 1 << new.log_cq_size() {
            return Err(Refusal::CQ_RESIZE);
        }
        let stride_bytes = cq.stride_bytes();
        let len_bytes = stride_bytes << new.log_cq_size();
        let buffer = Buffer::new(&self.dma, new.log_page_size(), new.page_offset(), len_bytes, list, true)?;
        self.check_filled("CQ", &buffer, stride_bytes, |last| last >> 4 != 0xf && last & 1 == 0)?;
        let last = ResponderCqe::new().with_opcode(CqeOpcode::RESIZE_CQ);
        self.write_cqe(number, &last.into(), None);
        if let Some(cq) = self.cqs.get_mut(number) {
            cq.buffer = buffer;
            cq.context.set_log_cq_size(new.log_cq_size());
            cq.context.set_log_page_size(new.log_page_size());
            cq.context.set_page_offset(new.page_offset());
        }
        done()
    }
}
