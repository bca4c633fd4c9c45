//! Completion queues, as `mlx5_ib_create_cq` makes them.
#![forbid(unsafe_code)]

use super::{
    card::Host,
    context::State,
    events::{self, EventPipe, Source},
    memory::lend,
    refused, unsupported,
};
use crate::{
    command::Command,
    uapi::{CQ_128B_PAD, CQ_IGNORE_OVERRUN, CreateCq, DestroyCqResp, ExCreateCqEnd, Mlx5CreateCq},
};
use mlx5_direct::{
    backend::Control,
    mlx5::{
        context::{Cqc, CqeSize},
        ids::Cqn,
        record::DbrecCq,
    },
};
use std::{ffi::c_int, os::fd::RawFd, sync::Arc};

/// A completion queue.
#[derive(Debug)]
pub(super) struct Cq {
    pub(super) cqn: Cqn,
    pub(super) cqe_bytes: u32,
    completions: Option<Arc<Source>>,
    mishaps: Arc<Source>,
}

impl State {
    pub(super) fn create_cq(
        &mut self,
        host: &Arc<Host>,
        mishaps: &Arc<EventPipe>,
        command: &Command<'_>,
    ) -> Result<(Cq, CreateCq), c_int> {
        let request: CreateCq = command.structure()?;
        let (ours, flags): (Mlx5CreateCq, _) = if command.is_extended() {
            let end: ExCreateCqEnd = command.behind::<[u8; 20], _>()?;
            (command.driver::<CreateCq, _>()?, end.flags)
        } else {
            (command.driver::<CreateCq, _>()?, 0)
        };
        if ours.cqe_comp_en != 0 {
            return Err(unsupported("completion queues with compressed CQEs"));
        }
        if ours.flags & !CQ_128B_PAD != 0 {
            return Err(unsupported(&format!("completion queues with flags 0x{:x} of mlx5's", ours.flags)));
        }
        let n_cqes = request.cqe.checked_add(1).filter(|n| *n > 1 && *n <= host.attr().max_cqe);
        let n_cqes = n_cqes.ok_or(libc::EINVAL)?.next_power_of_two();
        let cqe_sz = match (ours.cqe_size, ours.flags & CQ_128B_PAD != 0) {
            (64, _) => CqeSize::STRIDE_64,
            (128, false) => CqeSize::STRIDE_128,
            (128, true) => CqeSize::STRIDE_128_PAD,
            _ => return Err(libc::EINVAL),
        };
        let channel = match request.comp_channel as RawFd {
            ..0 => None,
            fd => Some(events::channel(fd).ok_or(libc::EINVAL)?),
        };
        let ring = lend(ours.buf_addr, u64::from(n_cqes) * u64::from(ours.cqe_size))?;
        let record = lend(ours.db_addr, size_of::<DbrecCq>() as u64)?;
        let context = Cqc::new()
            .with_cqe_sz(cqe_sz)
            .with_oi(flags & CQ_IGNORE_OVERRUN != 0)
            .with_log_cq_size(n_cqes.ilog2() as u8);
        let vector = host.vector(request.comp_vector)?;
        let queue = host.control.map_queue(ring, record).map_err(refused)?;
        let uar = self.pages()?.pages.first().ok_or(libc::EINVAL)?;
        let cqn = host.control.create_cq_over(context, queue, uar, Some(vector)).map_err(refused)?;
        let completions = channel.map(|pipe| Source::new(&pipe, request.user_handle));
        let mishaps = Source::new(mishaps, request.user_handle);
        let mut sources = host.sources();
        sources.completions.extend(completions.iter().map(|source| (cqn.get(), Arc::clone(source))));
        sources.cqs.insert(cqn.get(), Arc::clone(&mishaps));
        Ok((
            Cq { cqn, cqe_bytes: ours.cqe_size, completions, mishaps },
            CreateCq { cqe: n_cqes - 1, ..request },
        ))
    }
}

impl Cq {
    /// Ends it in the card.
    pub(super) fn destroy(&self, host: &Host) -> Result<DestroyCqResp, c_int> {
        host.control.destroy_cq(self.cqn).map_err(refused)?;
        let mut sources = host.sources();
        sources.completions.remove(&self.cqn.get());
        sources.cqs.remove(&self.cqn.get());
        drop(sources);
        Ok(DestroyCqResp {
            comp_events_reported: self.completions.as_ref().map_or(0, |source| source.retire()),
            async_events_reported: self.mishaps.retire(),
        })
    }
}
