//! The transport engine of one RC or XRC queue pair.

use super::{
    answers::Fatal,
    config::{QpConfig, QpState},
    courier::Courier,
    host::{Host, QpEvent, Rule},
    requester::Requester,
    responder::Responder,
};
use crate::wire::{Packet, packet::DEFAULT_PKEY};
use mlx5_direct::mlx5::ids::Psn;

/// What QUERY_QP reports of a running QP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QpProgress {
    /// `next_send_psn`.
    pub next_send_psn: Psn,
    /// `last_acked_psn`: all before it were acknowledged.
    pub last_acked_psn: Psn,
    /// `next_rcv_psn`.
    pub next_rcv_psn: Psn,
    /// `rmsn`: messages received.
    pub rmsn: u32,
    /// `hw_sq_wqebb_counter`: first WQEBB not started.
    pub hw_sq_wqebb_counter: u16,
    /// `sw_sq_wqebb_counter`: counter of the last doorbell.
    pub sw_sq_wqebb_counter: u16,
    /// `hw_rq_counter`: receive WQEs taken.
    pub hw_rq_counter: u16,
    /// `cur_retry_count`.
    pub cur_retry_count: u8,
    /// `cur_rnr_retry`.
    pub cur_rnr_retry: u8,
}

/// One RC or XRC queue pair: requester, responder and their timers. See the [module](super).
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
        let from = std::mem::replace(&mut self.state, state);
        self.config = config;
        match state {
            QpState::Rst => *self = Self::new(config),
            QpState::Rtr if from != QpState::Rtr => self.responder.start(&self.config),
            QpState::Rts if from == QpState::Rtr => self.requester.start(&self.config),
            QpState::Sqd if from != QpState::Sqd => self.drained_reported = false,
            QpState::Err => {
                self.state = from;
                self.responder.replies.abandon_data();
                self.enter_error(host);
            }
            _ => {}
        }
    }

    /// The send doorbell rang, and record word 1 holds `counter`.
    pub fn doorbell(&mut self, host: &mut dyn Host, counter: u16) {
        if matches!(self.state, QpState::Rst | QpState::Init | QpState::Rtr) {
            let (qpn, state) = (self.config.qpn, self.state);
            host.violation(qpn, Rule::DoorbellState, format_args!("send doorbell {counter} in {state:?}"));
            return;
        }
        self.requester.doorbell(host, &self.config, counter);
    }

    /// A packet for this QP came, with a good ICRC.
    pub fn receive(&mut self, host: &mut dyn Host, packet: &Packet<'_>) {
        let headers = &packet.headers;
        let serves = matches!(self.state, QpState::Rtr | QpState::Rts | QpState::Sqd);
        let from_peer = headers.is_from(&self.config.path) && headers.bth.pkey == DEFAULT_PKEY;
        if !serves || !from_peer || headers.bth.opcode.transport() != Some(self.config.service.transport()) {
            return;
        }
        if !headers.bth.opcode.is_response() {
            let rtr = self.state == QpState::Rtr;
            if self.responder.receive(host, &self.config, packet, rtr).is_err() {
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
            let replied = self.responder.replies.send_next(host, &self.config, &mut self.courier);
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

    /// What QUERY_QP reports.
    pub fn progress(&self) -> QpProgress {
        let requester = &self.requester;
        let oldest = requester.pending.front();
        QpProgress {
            next_send_psn: requester.next_psn,
            last_acked_psn: oldest.map_or(requester.next_psn, |r| r.psn_at(r.acked)),
            next_rcv_psn: self.responder.expected,
            rmsn: self.responder.msn,
            hw_sq_wqebb_counter: requester.fetch,
            sw_sq_wqebb_counter: requester.producer,
            hw_rq_counter: self.responder.queue.consumed,
            cur_retry_count: requester.retries_left,
            cur_rnr_retry: requester.rnr_retries_left,
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
        if was != QpState::Err && self.config.shared.is_some() {
            host.event(self.config.qpn, QpEvent::LastWqeReached);
        }
    }

    fn flush(&mut self, host: &mut dyn Host) {
        self.requester.flush(host, &self.config);
        self.responder.flush(host, &self.config);
    }

    fn report_drained(&mut self, host: &mut dyn Host) {
        if self.state == QpState::Sqd && self.requester.is_idle() && !self.drained_reported {
            self.drained_reported = true;
            host.event(self.config.qpn, QpEvent::SqDrained);
        }
    }
}
