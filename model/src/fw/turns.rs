//! Turns: queue pairs and DC targets with something to do do it, a little each.
#![forbid(unsafe_code)]

use super::{Function, host::FunctionHost, qp::Qp};
use crate::exec::{Engine, Host, QpState};

/// Packets that a QP may send before others get their turn.
const BUDGET_PACKETS: usize = 32;

impl Function {
    /// Calls into a QP's engine with the function as its host.
    pub(super) fn with_engine<T>(
        &mut self,
        number: u32,
        call: impl FnOnce(&mut Engine, &mut dyn Host) -> T,
    ) -> Option<T> {
        let mut engine = self.qps.get_mut(number)?.engine.take()?;
        let result = call(&mut engine, &mut FunctionHost { function: self });
        // The host cannot destroy QPs, so it is still there.
        self.qps.get_mut(number)?.engine = Some(engine);
        Some(result)
    }

    /// Runs the QPs that have something to do, and timers that are due.
    pub(super) fn run_queues(&mut self) -> bool {
        let now = self.clock.now_ns();
        let mut busy = false;
        let mut due = Vec::new();
        for (number, qp) in self.qps.iter() {
            if qp.deadline_ns().is_some_and(|at| at <= now) {
                due.push((number, true));
            } else if qp.state() == QpState::Err {
                // In ERR receives are flushed as they are posted, and no doorbell tells.
                let posted =
                    qp.receive_record().and_then(|at| self.dma.load_be32(at).ok()).unwrap_or(0) as u16;
                if posted != qp.receive_seen {
                    due.push((number, false));
                }
            }
        }
        for (number, timer) in due {
            busy = true;
            if timer {
                self.with_engine(number, |engine, host| engine.timer(host));
            }
            let posted = self.qps.get(number).and_then(Qp::receive_record);
            let posted = posted.and_then(|at| self.dma.load_be32(at).ok()).unwrap_or(0) as u16;
            if let Some(qp) = self.qps.get_mut(number) {
                qp.receive_seen = posted;
            }
            self.ready.insert(number);
        }
        for number in std::mem::take(&mut self.ready) {
            busy = true;
            let more = match self.dcts.contains(number) {
                true => self.with_dct(number, |target, host| target.run(host, BUDGET_PACKETS)),
                false => self.with_engine(number, |engine, host| engine.run(host, BUDGET_PACKETS)),
            };
            if more == Some(true) {
                self.ready.insert(number);
            }
        }
        busy
    }
}
