//! Queue pairs that are destroyed for their owner, and not yet for the kernel: while completions of one wait to be taken,
//! no other queue pair may get its number.
//!
//! libmlx5 has no number for CQEs that it would not use again soon, and CQEs of a destroyed queue pair stay, since it
//! leaves rings alone that it has told of. So the queue pair is stopped (RESET), and lives until the consumers of its
//! completion queues have come past all that was there.

use super::{
    super::{PdEntry, Result, VerbsControl, cq::CqEntry, lock},
    QpEntry,
};
use crate::{
    backend::QpModify,
    mlx5::{
        context::QpState,
        ids::{Cqn, Qpn},
    },
};
use std::sync::Arc;

/// A stopped queue pair, and how far the consumers of its completion queues must come.
#[derive(Debug)]
pub(in super::super) struct Parked {
    qpn: Qpn,
    entry: Arc<QpEntry>,
    ends: [u32; 2],
}

impl Parked {
    fn cqs(&self) -> impl Iterator<Item = (&Arc<CqEntry>, u32)> {
        self.entry.cqs.iter().zip(self.ends)
    }

    /// Whether it holds a protection domain.
    pub(in super::super) fn is_in(&self, pd: &Arc<PdEntry>) -> bool {
        Arc::ptr_eq(&self.entry.pd, pd)
    }

    fn is_over(&self) -> bool {
        self.cqs().all(|(cq, end)| cq.has_passed(end))
    }
}

impl VerbsControl {
    /// Destroys a queue pair that is in no table any more, or parks it.
    pub(super) fn end_or_park(&self, qpn: Qpn, entry: Arc<QpEntry>) -> Result<()> {
        let from = *lock(&entry.state);
        let stopped = match from {
            None | Some(QpState::RST) => true,
            Some(_) => self.modify_entry(qpn, &entry, &QpModify::to(QpState::RST)).is_ok(),
        };
        // Nothing of it is written any more. One that cannot be stopped is destroyed, which the kernel can.
        let parked = Parked { qpn, ends: entry.cqs.each_ref().map(|cq| cq.written()), entry };
        if !stopped || parked.is_over() {
            return self.destroy(qpn, &parked.entry);
        }
        lock(&self.parked).push(parked);
        Ok(())
    }

    /// Destroys parked queue pairs whose completions were taken, and those of a completion queue that is to end.
    pub(in super::super) fn reap(&self, ending: Option<Cqn>) {
        let ends = |parked: &mut Parked| {
            parked.is_over() || parked.cqs().any(|(cq, _)| ending.is_some_and(|ending| cq.cqn == ending))
        };
        let over: Vec<_> = lock(&self.parked).extract_if(.., ends).collect();
        for parked in over {
            // One that is refused stays until the device is closed: its number is not used again.
            let _ = self.destroy(parked.qpn, &parked.entry);
        }
    }

    /// Destroys all, with whatever was not taken.
    pub(in super::super) fn reap_all(&self) -> Result<()> {
        let all = std::mem::take(&mut *lock(&self.parked));
        let mut result = Ok(());
        for parked in all {
            result = result.and(self.destroy(parked.qpn, &parked.entry));
        }
        result
    }
}
