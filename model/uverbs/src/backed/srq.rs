//! Shared receive queues: RMPs, as the kernel makes them since interface step 1.
#![forbid(unsafe_code)]

use super::{
    card::{Host, call},
    context::State,
    memory::lend,
    refused, unsupported,
};
use crate::{
    command::Command,
    uapi::{CreateSrq, Mlx5CreateSrq, ModifySrq, QuerySrqResp, SRQ_LIMIT},
};
use mlx5_direct::{
    backend::prm::LentQueue,
    mlx5::{
        cmd::{Command as _, CreateRmpIn, DestroyRmpIn, ModifyRmpIn, QueryRmpIn, RmpBitmask},
        context::{Rmpc, Wq},
    },
};
use std::ffi::c_int;

/// Bytes of the segment that links WQEs, and of a scatter entry.
const SEGMENT_BYTES: u32 = 16;
/// Smallest WQE.
const LEAST_BYTES: u32 = 32;
/// `rmpc.state`, and `modify_rmp_in.rmp_state`: ready.
const READY: u8 = 1;
/// Bytes of a record.
const RECORD_BYTES: u64 = 8;

/// A shared receive queue.
#[derive(Debug)]
pub(super) struct Srq {
    rmpn: u32,
    max_wr: u32,
    max_sge: u32,
    _queue: LentQueue,
}

impl State {
    pub(super) fn create_srq(&self, host: &Host, command: &Command<'_>) -> Result<Srq, c_int> {
        let request: CreateSrq = command.structure()?;
        let ours: Mlx5CreateSrq = command.driver::<CreateSrq, _>()?;
        if ours.flags != 0 {
            return Err(unsupported("shared receive queues with signatures"));
        }
        let n_wqes = request.max_wr.checked_add(1).and_then(u32::checked_next_power_of_two);
        let most = 1 << host.caps.log_max_srq_sz().min(31);
        let n_wqes = n_wqes.filter(|n| *n <= most).ok_or(libc::EINVAL)?;
        let wqe_bytes = request.max_sge.checked_add(1).and_then(|n| n.checked_mul(SEGMENT_BYTES));
        let wqe_bytes =
            wqe_bytes.and_then(u32::checked_next_power_of_two).ok_or(libc::EINVAL)?.max(LEAST_BYTES);
        let ring = lend(ours.buf_addr, u64::from(n_wqes) * u64::from(wqe_bytes))?;
        let queue = host.control.map_queue(ring, lend(ours.db_addr, RECORD_BYTES)?).map_err(refused)?;
        let wq = Wq::new()
            .with_pd(self.pd(request.pd_handle)?)
            .with_lwm(request.srq_limit as u16)
            .with_log_wq_stride(wqe_bytes.ilog2() as u8)
            .with_log_wq_sz(n_wqes.ilog2() as u8)
            .with_log_wq_pg_sz(queue.log_page_size())
            .with_page_offset(queue.page_offset())
            .with_dbr_addr(queue.dbr_addr());
        let input = CreateRmpIn::request().with_ctx(Rmpc::new().with_state(READY).with_wq(wq));
        let rmpn = call(&host.control, &input, &queue.pas()).map_err(refused)?.rmpn();
        let max_sge = wqe_bytes / SEGMENT_BYTES - 1;
        Ok(Srq { rmpn, max_wr: n_wqes - 1, max_sge, _queue: queue })
    }
}

impl Srq {
    /// The number that queue pairs name it by.
    pub(super) fn number(&self) -> u32 {
        self.rmpn
    }

    /// Limits that it has.
    pub(super) fn limits(&self) -> (u32, u32) {
        (self.max_wr, self.max_sge)
    }

    /// Arms its limit.
    pub(super) fn modify(&self, host: &Host, request: &ModifySrq) -> Result<(), c_int> {
        if request.attr_mask != SRQ_LIMIT || request.srq_limit >= self.max_wr {
            return Err(libc::EINVAL);
        }
        let wq = Wq::new().with_lwm(request.srq_limit as u16);
        let input = ModifyRmpIn::request()
            .with_rmp_state(READY)
            .with_rmpn(self.rmpn)
            .with_bitmask(RmpBitmask::new().with_lwm(true))
            .with_ctx(Rmpc::new().with_state(READY).with_wq(wq));
        call(&host.control, &input, &[]).map_err(refused).map(|_| ())
    }

    /// What it is.
    pub(super) fn query(&self, host: &Host) -> Result<QuerySrqResp, c_int> {
        let context = call(&host.control, &QueryRmpIn::request().with_rmpn(self.rmpn), &[]);
        let limit = context.map_err(refused)?.rmp_context().wq().lwm();
        Ok(QuerySrqResp { max_wr: self.max_wr, max_sge: self.max_sge, srq_limit: limit.into(), reserved: 0 })
    }

    /// Ends it in the card.
    pub(super) fn destroy(&self, host: &Host) -> Result<(), c_int> {
        let input = DestroyRmpIn::request().with_rmpn(self.rmpn);
        call(&host.control, &input, &[]).map_err(refused).map(|_| ())
    }
}
