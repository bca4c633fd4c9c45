//! Queue pairs, as `mlx5_ib_create_qp` makes them for programs.
#![forbid(unsafe_code)]

use super::{
    card::Host,
    context::State,
    events::{EventPipe, Source},
    memory::lend,
    refused, unsupported,
};
use crate::{
    command::Command,
    uapi::{CreateQp, ExCreateQpEnd, Mlx5CreateQp, qp_flag, qp_type},
};
use mlx5_direct::{
    backend::Control,
    mlx5::{
        context::{PmState, Qpc, RqType, ScatterToCqe, ServiceType},
        ids::{Qpn, UserIndex},
        record::DbrecQp,
    },
};
use std::{ffi::c_int, sync::Arc};

/// Bytes of a send WQE's basic block.
const WQEBB_BYTES: u64 = 64;
/// `qpc.log_sq_size` and `qpc.log_rq_size` have four bits.
const MAX_LOG_SIZE: u32 = 15;
/// `qpc.log_rq_stride`: strides of 16 to 2,048 bytes.
const LOG_RQ_STRIDES: std::ops::RangeInclusive<u32> = 4..=11;

/// A queue pair.
#[derive(Debug)]
pub(super) struct Qp {
    pub(super) qpn: Qpn,
    pub(super) caps: CreateQp,
    pub(super) bfreg_index: u32,
    mishaps: Arc<Source>,
}

impl State {
    pub(super) fn create_qp(
        &mut self,
        host: &Host,
        mishaps: &Arc<EventPipe>,
        command: &Command<'_>,
    ) -> Result<Qp, c_int> {
        let caps: CreateQp = command.structure()?;
        let ours: Mlx5CreateQp = command.driver::<CreateQp, _>()?;
        if command.is_extended() {
            let end: ExCreateQpEnd = command.behind::<CreateQp, _>()?;
            if end.create_flags != 0 || end.rwq_ind_tbl_handle != 0 {
                return Err(unsupported(&format!(
                    "queue pairs with creation flags 0x{:x} or an indirection table",
                    end.create_flags
                )));
            }
        }
        let known = qp_flag::SIGNATURE | qp_flag::SCATTER_CQE | qp_flag::ALLOW_SCATTER_CQE;
        if ours.flags & !known != 0 {
            return Err(unsupported(&format!(
                "queue pairs with flags 0x{:x} of mlx5's",
                ours.flags & !known
            )));
        }
        let service = match caps.qp_type {
            qp_type::RC => ServiceType::RC,
            qp_type::UC => ServiceType::UC,
            qp_type::UD => ServiceType::UD,
            other => {
                return Err(unsupported(&format!("queue pairs of type {other}: there are RC, UC and UD")));
            }
        };
        let context = self.context(host, service, &caps, &ours)?;
        let (rq_bytes, sq_bytes) =
            (u64::from(ours.rq_wqe_count) << ours.rq_wqe_shift, u64::from(ours.sq_wqe_count) * WQEBB_BYTES);
        let rings = lend(ours.buf_addr, rq_bytes + sq_bytes)?;
        let record = lend(ours.db_addr, size_of::<DbrecQp>() as u64)?;
        let queue = host.control.map_queue(rings, record).map_err(refused)?;
        let pages = self.pages_mut()?;
        let (bfreg_index, uar) = pages.take();
        let made = host.control.create_qp_over(context, queue, &uar);
        let qpn = made.map_err(|error| {
            pages.give_back(bfreg_index);
            refused(error)
        })?;
        let mishaps = Source::new(mishaps, caps.user_handle);
        host.sources().qps.insert(qpn.get(), Arc::clone(&mishaps));
        Ok(Qp { qpn, caps, bfreg_index, mishaps })
    }

    fn context(
        &self,
        host: &Host,
        service: ServiceType,
        caps: &CreateQp,
        ours: &Mlx5CreateQp,
    ) -> Result<Qpc, c_int> {
        let log = |n: u32| match n {
            0 => Ok(0),
            n if n.is_power_of_two() && n.ilog2() <= MAX_LOG_SIZE => Ok(n.ilog2() as u8),
            _ => Err(libc::EINVAL),
        };
        let has_rq = caps.is_srq == 0 && ours.rq_wqe_count != 0;
        if has_rq && !LOG_RQ_STRIDES.contains(&ours.rq_wqe_shift) || !has_rq && ours.rq_wqe_count != 0 {
            return Err(libc::EINVAL);
        }
        let (send_cq, recv_cq) = (self.cq(caps.send_cq_handle)?, self.cq(caps.recv_cq_handle)?);
        let context = Qpc::new()
            .with_st(service)
            .with_pm_state(PmState::MIGRATED)
            .with_pd(self.pd(caps.pd_handle)?)
            .with_wq_signature(ours.flags & qp_flag::SIGNATURE != 0)
            .with_log_rq_size(log(ours.rq_wqe_count)?)
            .with_log_rq_stride(if has_rq { ours.rq_wqe_shift as u8 - 4 } else { 0 })
            .with_no_sq(ours.sq_wqe_count == 0)
            .with_log_sq_size(log(ours.sq_wqe_count)?)
            .with_user_index(UserIndex::new(ours.uidx))
            .with_cqn_snd(send_cq.cqn)
            .with_cqn_rcv(recv_cq.cqn);
        let context = match (caps.is_srq != 0, has_rq) {
            (true, _) => {
                let srqn = self.srq(caps.srq_handle)?.number();
                context.with_rq_type(RqType::SRQ_RQ).with_srqn_rmpn_xrqn(srqn)
            }
            (_, true) => context.with_rq_type(RqType::NON_ZERO_RQ),
            _ => context.with_rq_type(RqType::ZERO_LEN_RQ),
        };
        let scatters = ours.flags & qp_flag::SCATTER_CQE != 0 && host.caps.sctr_data_cqe();
        if !scatters || service == ServiceType::UD {
            // A card without it goes without: the flag is no demand.
            return Ok(context);
        }
        // Small payload comes in the CQE itself; that of reads and atomics, if each send has one.
        let is_wide = |cqe_bytes: u32| cqe_bytes == 128;
        let context = context.with_cs_res(match is_wide(recv_cq.cqe_bytes) {
            true => ScatterToCqe::RES_UP_TO_64B,
            false => ScatterToCqe::RES_UP_TO_32B,
        });
        let each_completes = caps.sq_sig_all != 0 || ours.flags & qp_flag::ALLOW_SCATTER_CQE != 0;
        Ok(match (service == ServiceType::RC && each_completes, is_wide(send_cq.cqe_bytes)) {
            (false, _) => context,
            (true, true) => context.with_cs_req(ScatterToCqe::REQ_UP_TO_64B),
            (true, false) => context.with_cs_req(ScatterToCqe::REQ_UP_TO_32B),
        })
    }
}

impl Qp {
    /// Ends it in the card; gives the number of events that the program has read of it.
    pub(super) fn destroy(&self, host: &Host) -> Result<u32, c_int> {
        host.control.destroy_qp(self.qpn).map_err(refused)?;
        host.sources().qps.remove(&self.qpn.get());
        Ok(self.mishaps.retire())
    }
}
