//! Moderation: an armed CQ waits for a number of CQEs or for a time before it makes its event.
#![forbid(unsafe_code)]

use super::Function;
use mlx5_direct::mlx5::context::{CqPeriodMode, Cqc};

/// Progress of a CQ towards its next event.
#[derive(Debug, Default)]
pub(super) struct Moderation {
    /// CQEs since the last event.
    n_cqes: u32,
    last_event_ns: u64,
    last_cqe_ns: u64,
}

impl Moderation {
    /// So many CQEs were written.
    pub(super) fn count(&mut self, n: u32, now: u64) {
        self.n_cqes = self.n_cqes.saturating_add(n);
        self.last_cqe_ns = now;
    }

    /// An event was made.
    pub(super) fn restart(&mut self, now: u64) {
        (self.n_cqes, self.last_event_ns) = (0, now);
    }

    /// When the event that the CQ is armed for may be made. Without both of count and period: at once.
    pub(super) fn due_ns(&self, context: &Cqc) -> u64 {
        let (period_us, max_count) = (context.cq_period(), context.cq_max_count());
        if period_us == 0 || max_count == 0 || self.n_cqes >= max_count.into() {
            return 0;
        }
        let from = match context.cq_period_mode() {
            CqPeriodMode::START_FROM_CQE => self.last_cqe_ns,
            _ => self.last_event_ns,
        };
        from + u64::from(period_us) * 1000
    }
}

impl Function {
    /// Makes the events of moderated CQs that are due.
    pub(super) fn run_cq_timers(&mut self) -> bool {
        let now = self.clock.now_ns();
        let due: Vec<u32> =
            self.cq_timers.iter().filter(|(_, at)| **at <= now).map(|(cqn, _)| *cqn).collect();
        for number in &due {
            self.fire_cq(*number);
        }
        !due.is_empty()
    }
}
