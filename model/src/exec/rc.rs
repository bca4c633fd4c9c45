//! The transport engine of one RC or XRC queue pair, or of a DC initiator.

use super::{
    answers::Fatal,
    config::{QpConfig, QpState, Service},
    courier::Courier,
    host::{Host, QpEvent, Ring},
    progress::QpProgress,
    receive::last_wqe_reached,
    requester::Requester,
    responder::Responder,
};
use crate::wire::{Packet, packet::DEFAULT_PKEY};

/// One RC or XRC queue pair or DC initiator: requester, responder and their timers. See the [module](super).
#[derive(Debug)]
pub struct RcQp {
    config: QpConfig,
    state: QpState,
    requester: Requester,
    responder: Responder,
    courier: Courier,
    drained_reported: bool,
}

impl RcQp {
    /// A QP in RST.
    pub fn new(config: QpConfig) -> Self {
        Self {
            config,
            state: QpState::Rst,
            requester: Requester::default(),
            responder: Responder::default(),
            courier: Courier::default(),
            drained_reported: false,
        }
    }

    /// Its state. The engine itself goes to ERR when a request or a receive fails.
    pub const fn state(&self) -> QpState {
        self.state
    }

    /// Its attributes.
    pub const fn config(&self) -> &QpConfig {
        &self.config
    }

    /// Takes new attributes, and a state that the host found a legal transition to. To RST, all progress
    /// and everything posted is forgotten; to ERR, everything posted is flushed.
    pub fn set_state(&mut self, host: &mut dyn Host, state: QpState, config: QpConfig) {
        if state == QpState::Rst {
            self.part(host);
        }
        let from = std::mem::replace(&mut self.state, state);
        self.config = config;
        match state {
            QpState::Rst => *self = Self::new(config),
            QpState::Rtr if from != QpState::Rtr => self.responder.start(&self.config),
            QpState::Rts if from == QpState::Rtr => self.requester.start(&self.config),
            QpState::Sqd if from != QpState::Sqd => self.drain(),
            QpState::Err => {
                self.state = from;
                self.responder.replies.abandon_data();
                self.enter_error(host);
            }
            _ => {}
        }
    }

    /// The QP is destroyed, or reset. What it executed is acknowledged.
    pub fn part(&mut self, host: &mut dyn Host) {
        self.responder.replies.part(host, &self.config, &mut self.courier);
    }

    /// The send doorbell rang, and record word 1 holds `counter`.
    pub fn doorbell(&mut self, host: &mut dyn Host, counter: u16) {
        self.requester.doorbell(host, &self.config, self.state, counter);
    }

    /// A packet for this QP came, with a good ICRC.
    pub fn receive(&mut self, host: &mut dyn Host, packet: &Packet<'_>) {
        let headers = &packet.headers;
        let serves = matches!(self.state, QpState::Rtr | QpState::Rts | QpState::Sqd);
        let from_peer =
            headers.is_from(self.requester.path(&self.config)) && headers.bth.pkey == DEFAULT_PKEY;
        if !serves || !from_peer || headers.bth.opcode.transport() != Some(self.config.service.transport()) {
            return;
        }
        if !headers.bth.opcode.is_response() {
            // Nobody asks an initiator for anything.
            if self.config.service == Service::Dynamic {
                return;
            }
            let rtr = self.state == QpState::Rtr;
            let received = self.responder.receive(host, &self.config, packet, rtr);
            self.requester.offload(self.responder.rendezvous.drain(..));
            if received.is_err() {
                self.enter_error(host);
            }
        } else if self.state != QpState::Rtr {
            let outcome = self.requester.receive(host, &self.config, packet);
            self.conclude_request(host, outcome);
        }
    }

    /// Sends what can be sent, at most about `budget_packets`. Returns whether there is more to do at once.
    pub fn run(&mut self, host: &mut dyn Host, budget_packets: usize) -> bool {
        let mut left = budget_packets;
        loop {
            let replied = self.responder.reply_next(host, &self.config, &mut self.courier);
            if replied.is_err() {
                self.enter_error(host);
            }
            let replied = replied.unwrap_or(true);
            let sent = match self.state {
                QpState::Rts | QpState::Sqd => {
                    let sent = self.requester.send_next(host, &self.config, self.state, &mut self.courier);
                    let settled = self.requester.settle(host, &self.config);
                    sent | self.conclude_request(host, settled)
                }
                QpState::Err => {
                    self.flush(host);
                    false
                }
                _ => false,
            };
            self.drain_after_signature(host);
            self.report_drained(host);
            if !replied && !sent {
                return false;
            }
            left = left.saturating_sub(usize::from(replied) + usize::from(sent));
            if left == 0 {
                return true;
            }
        }
    }

    /// The driver has answered a page fault of one side: it has brought the pages, or could not.
    pub fn resume(&mut self, side: Ring, error: bool) {
        match side {
            Ring::Send => self.requester.resume(error),
            Ring::Receive => self.responder.resume(error),
        }
    }

    /// When [`timer`](Self::timer) must be called, by [`Host::now`].
    pub fn next_deadline(&self) -> Option<u64> {
        let (ack, rnr) = (self.requester.ack_deadline, self.requester.rnr_deadline);
        ack.into_iter().chain(rnr).min()
    }

    /// Does what is due.
    pub fn timer(&mut self, host: &mut dyn Host) {
        if matches!(self.state, QpState::Rts | QpState::Sqd) {
            let outcome = self.requester.timer(host, &self.config);
            self.conclude_request(host, outcome);
        }
    }

    /// Software has seen the error of a stream. Returns false if there was none.
    pub fn reset_stream(&mut self, stream: u16) -> bool {
        self.requester.streams.reset(&self.config, stream)
    }

    /// What QUERY_QP reports.
    pub fn progress(&self) -> QpProgress {
        let requester = &self.requester;
        let oldest = requester.pending.front();
        QpProgress {
            last_acked_psn: oldest.map_or(requester.next_psn, |r| r.psn_at(r.acked)),
            next_rcv_psn: self.responder.expected,
            rmsn: self.responder.msn,
            hw_rq_counter: self.responder.queue.consumed,
            cur_retry_count: requester.retries_left,
            cur_rnr_retry: requester.rnr_retries_left,
            ..QpProgress::unacknowledged(requester)
        }
    }

    /// An error at the requester ends what the responder was sending, too.
    fn conclude_request<T: Default>(&mut self, host: &mut dyn Host, outcome: Result<T, Fatal>) -> T {
        outcome.unwrap_or_else(|Fatal| {
            self.responder.replies.abandon_data();
            self.enter_error(host);
            T::default()
        })
    }

    fn enter_error(&mut self, host: &mut dyn Host) {
        let was = std::mem::replace(&mut self.state, QpState::Err);
        self.flush(host);
        last_wqe_reached(host, &self.config, was);
    }

    fn flush(&mut self, host: &mut dyn Host) {
        self.requester.flush(host, &self.config);
        self.responder.flush(host, &self.config);
    }

    /// What was posted behind a request whose data do not fit their signature waits for software.
    fn drain_after_signature(&mut self, host: &mut dyn Host) {
        let failed = self.config.drain_sigerr && host.take_signature_failure(self.config.qpn);
        if failed && self.state == QpState::Rts {
            self.state = QpState::Sqd;
            self.drain();
        }
    }

    /// No WQE is started any more, and software will be told when those that were are done.
    fn drain(&mut self) {
        self.requester.unstage();
        self.drained_reported = false;
    }

    fn report_drained(&mut self, host: &mut dyn Host) {
        if self.state == QpState::Sqd && self.requester.is_idle() && !self.drained_reported {
            self.drained_reported = true;
            host.event(self.config.qpn, QpEvent::SqDrained);
        }
    }
}
