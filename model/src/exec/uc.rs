//! The transport engine of one UC queue pair: messages of several packets that nobody acknowledges.
//!
//! A request is done when its last packet is sent. The receiver drops a message with a hole and goes on with
//! the next that begins; the receive WQE that the message had is there for that one.

use super::{
    answers::Fatal,
    completion::{self, Failure},
    config::{QpConfig, QpState},
    counter::Counter,
    courier::{Courier, right},
    host::{Host, Need, QpEvent},
    progress::QpProgress,
    receive::{Missing, ReceiveQueue, Taken, last_wqe_reached},
    requester::Requester,
};
use crate::wire::{Packet, Transport, packet::DEFAULT_PKEY};
use mlx5_direct::mlx5::ids::Psn;

/// A message of which the first packet came and no later one is missing yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Message {
    /// A SEND, into the receive WQE that is held.
    Send { done: u64 },
    /// A WRITE, of `len` bytes to `addr`.
    Write { rkey: u32, addr: u64, len: u64, done: u64 },
}

/// What became of a packet.
enum Outcome {
    /// It was executed; what is left of its message, if any.
    Executed(Option<Message>),
    /// It broke a rule or found no room: its message is dropped, and nobody is told.
    Dropped,
    /// A receive WQE of this side's own cannot be used.
    Fatal,
}

/// One UC queue pair. See the [module](super).
#[derive(Debug)]
pub struct UcQp {
    config: QpConfig,
    state: QpState,
    requester: Requester,
    courier: Courier,
    expected: Psn,
    msn: u32,
    heard: bool,
    queue: ReceiveQueue,
    message: Option<Message>,
    /// A receive WQE that was taken and is not completed.
    held: Option<Taken>,
}

impl UcQp {
    /// A QP in RST.
    pub fn new(config: QpConfig) -> Self {
        Self {
            config,
            state: QpState::Rst,
            requester: Requester::default(),
            courier: Courier::default(),
            expected: Psn::new(0),
            msn: 0,
            heard: false,
            queue: ReceiveQueue::default(),
            message: None,
            held: None,
        }
    }

    /// Its state. The engine itself goes to SQER when a send fails, and to ERR when a receive does.
    pub const fn state(&self) -> QpState {
        self.state
    }

    /// Its attributes.
    pub const fn config(&self) -> &QpConfig {
        &self.config
    }

    /// Takes new attributes, and a state that the host found a legal transition to.
    pub fn set_state(&mut self, host: &mut dyn Host, state: QpState, config: QpConfig) {
        let from = self.state;
        self.config = config;
        match state {
            QpState::Rst => *self = Self::new(config),
            QpState::Err => return self.enter_error(host),
            QpState::Rtr if from != QpState::Rtr => self.expected = config.next_rcv_psn,
            QpState::Rts if from == QpState::Rtr => self.requester.start(&config),
            _ => {}
        }
        self.state = state;
    }

    /// The send doorbell rang, and record word 1 holds `counter`.
    pub fn doorbell(&mut self, host: &mut dyn Host, counter: u16) {
        self.requester.doorbell(host, &self.config, self.state, counter);
    }

    /// Sends what can be sent, at most about `budget_packets`. Returns whether there is more to do at once.
    pub fn run(&mut self, host: &mut dyn Host, budget_packets: usize) -> bool {
        for _ in 0..budget_packets {
            let sent = match self.state {
                QpState::Rts => {
                    let (config, requester) = (&self.config, &mut self.requester);
                    let sent = requester.send_next(host, config, QpState::Rts, &mut self.courier);
                    requester.forget_sent(host, config);
                    match requester.settle(host, config) {
                        Ok(settled) => sent | settled,
                        Err(Fatal) => {
                            self.state = QpState::Sqer;
                            true
                        }
                    }
                }
                QpState::Sqer => {
                    self.requester.flush(host, &self.config);
                    false
                }
                QpState::Err => {
                    self.flush(host);
                    false
                }
                _ => false,
            };
            if !sent {
                return false;
            }
        }
        true
    }

    /// A packet for this QP came, with a good ICRC.
    pub fn receive(&mut self, host: &mut dyn Host, packet: &Packet<'_>) {
        let headers = &packet.headers;
        let bth = &headers.bth;
        let serves = matches!(self.state, QpState::Rtr | QpState::Rts | QpState::Sqer | QpState::Sqd);
        let from_peer = headers.is_from(&self.config.path) && bth.pkey == DEFAULT_PKEY;
        if !serves || !from_peer || bth.opcode.transport() != Some(Transport::Uc) {
            return;
        }
        if !std::mem::replace(&mut self.heard, true) && self.state == QpState::Rtr {
            host.event(self.config.qpn, QpEvent::CommEst);
        }
        // Whatever is missing stays missing: the packet after this one is the next expected.
        let hole = bth.psn != std::mem::replace(&mut self.expected, bth.psn.plus(1));
        let continues = bth.opcode.is_middle() || bth.opcode.is_last();
        let message = self.message.take().filter(|_| !hole && continues);
        let fits = match message {
            None => !continues,
            Some(Message::Send { .. }) => bth.opcode.is_send(),
            Some(Message::Write { .. }) => bth.opcode.is_write(),
        };
        let (len, mtu) = (packet.payload.len(), self.config.mtu_bytes as usize);
        let sized = match (bth.opcode.is_first() || bth.opcode.is_middle(), bth.opcode.is_last()) {
            (true, _) => len == mtu,
            (_, last) => len <= mtu && !(last && len == 0),
        };
        if !fits || !sized {
            return;
        }
        let outcome = match bth.opcode.is_send() {
            true => self.execute_send(host, message, packet),
            false => self.execute_write(host, message, packet),
        };
        match outcome {
            Outcome::Executed(message) => self.message = message,
            Outcome::Dropped => {}
            Outcome::Fatal => self.enter_error(host),
        }
    }

    fn execute_send(
        &mut self,
        host: &mut dyn Host,
        message: Option<Message>,
        packet: &Packet<'_>,
    ) -> Outcome {
        let done = if let Some(Message::Send { done }) = message { done } else { 0 };
        let taken = match self.hold_receive(host) {
            Ok(taken) => taken,
            Err(Missing::Broken) => return Outcome::Fatal,
            Err(Missing::NoQueue | Missing::Empty) => {
                host.count(self.config.qpn, Counter::OutOfBuffer);
                return Outcome::Dropped;
            }
        };
        let total = done + packet.payload.len() as u64;
        if total > self.queue.capacity || total > 1 << self.config.log_msg_max {
            return Outcome::Dropped;
        }
        let Ok(data) = self.queue.put(host, &self.config, &taken, done, packet) else {
            self.held = None;
            completion::receive_failed(host, &self.config, &taken, Failure::RECEIVE_PROTECTION);
            return Outcome::Fatal;
        };
        let opcode = packet.headers.bth.opcode;
        if opcode.is_first() || opcode.is_middle() {
            return Outcome::Executed(Some(Message::Send { done: total }));
        }
        self.finish(host, packet, Some(taken), total, data)
    }

    fn execute_write(
        &mut self,
        host: &mut dyn Host,
        message: Option<Message>,
        packet: &Packet<'_>,
    ) -> Outcome {
        let headers = &packet.headers;
        let (rkey, addr, len, done) = match (message, headers.reth) {
            (Some(Message::Write { rkey, addr, len, done }), _) => (rkey, addr, len, done),
            (_, Some(reth)) => (reth.rkey, reth.addr, u64::from(reth.len_bytes), 0),
            (_, None) => return Outcome::Dropped,
        };
        if message.is_none() {
            host.count(self.config.qpn, Counter::RxWriteRequests);
        }
        let last = !headers.bth.opcode.is_first() && !headers.bth.opcode.is_middle();
        let total = done + packet.payload.len() as u64;
        let too_long = total > len || last && total != len || len > 1 << self.config.log_msg_max;
        if !self.config.remote_write || too_long {
            return Outcome::Dropped;
        }
        let right = right(&self.config, rkey, Need::RemoteWrite);
        if done == 0 && len > 0 && host.check(&right, addr, len).is_err()
            || !packet.payload.is_empty()
                && host.write(&right, addr.wrapping_add(done), packet.payload).is_err()
        {
            return Outcome::Dropped;
        }
        if !last {
            return Outcome::Executed(Some(Message::Write { rkey, addr, len, done: total }));
        }
        // The data is written by now: only the word of it can be lost for want of a receive WQE.
        match headers.imm.map(|_| self.hold_receive(host)) {
            None => self.finish(host, packet, None, total, &[]),
            Some(Ok(taken)) => self.finish(host, packet, Some(taken), total, &[]),
            Some(Err(Missing::Broken)) => Outcome::Fatal,
            Some(Err(Missing::NoQueue | Missing::Empty)) => {
                host.count(self.config.qpn, Counter::OutOfBuffer);
                Outcome::Dropped
            }
        }
    }

    /// A message is whole, `data` of it for the CQE.
    fn finish(
        &mut self,
        host: &mut dyn Host,
        packet: &Packet<'_>,
        taken: Option<Taken>,
        len_bytes: u64,
        data: &[u8],
    ) -> Outcome {
        self.msn = (self.msn + 1) & 0xff_ffff;
        if let Some(taken) = taken {
            self.held = None;
            completion::receive_done(host, &self.config, &packet.headers, &taken, len_bytes, data);
        }
        Outcome::Executed(None)
    }

    /// The receive WQE that an earlier message left, or the next one.
    fn hold_receive(&mut self, host: &mut dyn Host) -> Result<Taken, Missing> {
        if self.held.is_none() {
            self.queue.ready(host, &self.config, self.config.shared)?;
            self.held = Some(self.queue.take(host, &self.config, self.config.shared)?);
        }
        self.held.ok_or(Missing::Empty)
    }

    /// What QUERY_QP reports.
    pub fn progress(&self) -> QpProgress {
        QpProgress {
            next_rcv_psn: self.expected,
            rmsn: self.msn,
            hw_rq_counter: self.queue.consumed,
            ..QpProgress::unacknowledged(&self.requester)
        }
    }

    fn enter_error(&mut self, host: &mut dyn Host) {
        let was = std::mem::replace(&mut self.state, QpState::Err);
        self.flush(host);
        last_wqe_reached(host, &self.config, was);
    }

    fn flush(&mut self, host: &mut dyn Host) {
        self.message = None;
        self.requester.flush(host, &self.config);
        if let Some(taken) = self.held.take() {
            completion::receive_failed(host, &self.config, &taken, Failure::FLUSH);
        }
        self.queue.flush(host, &self.config);
    }
}
