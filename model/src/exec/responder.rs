//! The receiving half of an RC QP: executes requests, once each and in order.

use super::{
    answers::{Fatal, scatter},
    completion::{self, Failure},
    config::QpConfig,
    courier::right,
    host::{Host, Need, QpEvent, Ring, Rule},
    psn::{distance, n_packets},
    replies::{Record, Replies},
    wqe::{Piece, read_scatter_list},
};
use crate::wire::{Acknowledgement, Opcode, Packet};
use mlx5_direct::mlx5::ids::Psn;

/// A message of which the first packet came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Message {
    /// A SEND, into the receive WQE with this counter.
    Send { wqe_counter: u16, done: u64 },
    /// A WRITE, of `len` bytes to `addr`.
    Write { rkey: u32, addr: u64, len: u64, done: u64 },
}

/// Why a request was not executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Nothing to receive it: the requester shall try again.
    NotReady,
    /// The QP goes to ERR, and the requester's too.
    Final(Acknowledgement, Option<QpEvent>),
}

const INVALID: Refusal = Refusal::Final(Acknowledgement::InvalidRequest, Some(QpEvent::InvalidRequest));
const NO_ACCESS: Refusal = Refusal::Final(Acknowledgement::AccessError, Some(QpEvent::AccessViolation));

/// The receive queue's side of a QP.
#[derive(Debug, Default)]
pub(super) struct Responder {
    pub(super) expected: Psn,
    pub(super) msn: u32,
    /// Counter of receive WQEs taken.
    pub(super) consumed: u16,
    pub(super) replies: Replies,
    message: Option<Message>,
    /// Scatter list of the receive WQE in use, and its length.
    pieces: Vec<Piece>,
    capacity: u64,
    /// The gap in the sequence was reported; what follows is dropped until it is filled.
    nak_sent: bool,
    heard: bool,
    overrun_reported: Option<u16>,
}

impl Responder {
    /// Takes the attributes that RTR brings.
    pub(super) fn start(&mut self, config: &QpConfig) {
        self.expected = config.next_rcv_psn;
    }

    /// Takes a request packet.
    pub(super) fn receive(
        &mut self,
        host: &mut dyn Host,
        config: &QpConfig,
        packet: &Packet<'_>,
        rtr: bool,
    ) -> Result<(), Fatal> {
        if !std::mem::replace(&mut self.heard, true) && rtr {
            host.event(config.qpn, QpEvent::CommEst);
        }
        let psn = packet.headers.bth.psn;
        match distance(psn, self.expected) {
            0 => self.nak_sent = false,
            1.. => {
                if !std::mem::replace(&mut self.nak_sent, true) {
                    self.replies.acknowledge(self.expected, Acknowledgement::SequenceError, self.msn);
                }
                return Ok(());
            }
            _ => {
                self.duplicate(host, config, packet);
                return Ok(());
            }
        }
        match self.execute(host, config, packet) {
            Ok(n_psns) => {
                self.expected = psn.plus(n_psns);
                let opcode = packet.headers.bth.opcode;
                if packet.headers.bth.ack_req && (opcode.is_send() || opcode.is_write()) {
                    self.replies.acknowledge(psn, Acknowledgement::Ack, self.msn);
                }
                Ok(())
            }
            Err(Refusal::NotReady) => {
                self.nak_sent = true;
                self.replies.acknowledge(psn, Acknowledgement::RnrNak(config.min_rnr_nak), self.msn);
                Ok(())
            }
            Err(Refusal::Final(what, event)) => {
                self.replies.acknowledge(psn, what, self.msn);
                if let Some(event) = event {
                    host.event(config.qpn, event);
                }
                Err(Fatal)
            }
        }
    }

    /// Executes the expected packet; returns the PSNs it takes.
    fn execute(
        &mut self,
        host: &mut dyn Host,
        config: &QpConfig,
        packet: &Packet<'_>,
    ) -> Result<u32, Refusal> {
        let opcode = packet.headers.bth.opcode;
        let continues = opcode.is_middle() || opcode.is_last();
        let in_sequence = match self.message {
            None => !continues,
            Some(Message::Send { .. }) => continues && opcode.is_send(),
            Some(Message::Write { .. }) => continues && opcode.is_write(),
        };
        let len = packet.payload.len();
        let mtu = config.mtu_bytes as usize;
        let sized = match (opcode.is_first() || opcode.is_middle(), opcode.is_last()) {
            (true, _) => len == mtu,
            (_, true) => (1..=mtu).contains(&len),
            _ => len <= mtu,
        };
        if !in_sequence || !sized {
            return Err(INVALID);
        }
        match opcode {
            _ if opcode.is_send() => self.execute_send(host, config, packet),
            _ if opcode.is_write() => self.execute_write(host, config, packet),
            Opcode::READ_REQUEST => self.execute_read(host, config, packet),
            _ => self.execute_atomic(host, config, packet),
        }
    }

    fn execute_send(
        &mut self,
        host: &mut dyn Host,
        config: &QpConfig,
        packet: &Packet<'_>,
    ) -> Result<u32, Refusal> {
        let (wqe_counter, done) = match self.message {
            Some(Message::Send { wqe_counter, done }) => (wqe_counter, done),
            _ => (self.take_receive(host, config)?, 0),
        };
        let headers = &packet.headers;
        let total = done + packet.payload.len() as u64;
        let mut fail = |host: &mut dyn Host, failure, what, event| {
            completion::receive_failed(host, config, wqe_counter, failure);
            self.message = None;
            Err(Refusal::Final(what, event))
        };
        if total > self.capacity || total > 1 << config.log_msg_max {
            return fail(host, Failure::LOCAL_LENGTH, Acknowledgement::InvalidRequest, None);
        }
        if scatter(host, config, &self.pieces, done, packet.payload).is_err() {
            return fail(host, Failure::RECEIVE_PROTECTION, Acknowledgement::OperationalError, None);
        }
        if headers.bth.opcode.is_first() || headers.bth.opcode.is_middle() {
            self.message = Some(Message::Send { wqe_counter, done: total });
            return Ok(1);
        }
        if let Some(rkey) = headers.invalidate
            && host.invalidate(rkey, config.pd, config.qpn).is_err()
        {
            return fail(host, Failure::REMOTE_INVALID_REQUEST, Acknowledgement::AccessError, None);
        }
        self.message = None;
        self.count_message();
        completion::receive_done(host, config, headers, wqe_counter, total);
        Ok(1)
    }

    fn execute_write(
        &mut self,
        host: &mut dyn Host,
        config: &QpConfig,
        packet: &Packet<'_>,
    ) -> Result<u32, Refusal> {
        let headers = &packet.headers;
        let opcode = headers.bth.opcode;
        let (rkey, addr, len, done) = match (self.message, headers.reth) {
            (Some(Message::Write { rkey, addr, len, done }), _) => (rkey, addr, len, done),
            (_, Some(reth)) => (reth.rkey, reth.addr, u64::from(reth.len_bytes), 0),
            (_, None) => return Err(INVALID),
        };
        let last = !opcode.is_first() && !opcode.is_middle();
        let total = done + packet.payload.len() as u64;
        if !config.remote_write || total > len || last && total != len || len > 1 << config.log_msg_max {
            return Err(INVALID);
        }
        // The receive WQE must be there before anything is written.
        let with_imm = headers.imm.is_some();
        if with_imm && !self.has_receive(host, config) {
            return Err(if config.n_receive_wqes == 0 { INVALID } else { Refusal::NotReady });
        }
        let right = right(config, rkey, Need::RemoteWrite);
        let first = self.message.is_none();
        let allowed = !first || len == 0 || host.check(&right, addr, len).is_ok();
        let written = allowed
            && (packet.payload.is_empty()
                || host.write(&right, addr.wrapping_add(done), packet.payload).is_ok());
        if !written {
            self.message = None;
            if with_imm && let Ok(wqe_counter) = self.take_receive(host, config) {
                completion::receive_failed(host, config, wqe_counter, Failure::LOCAL_ACCESS);
            }
            return Err(NO_ACCESS);
        }
        if !last {
            self.message = Some(Message::Write { rkey, addr, len, done: total });
            return Ok(1);
        }
        self.message = None;
        if with_imm {
            let wqe_counter = self.take_receive(host, config)?;
            completion::receive_done(host, config, headers, wqe_counter, len);
        }
        self.count_message();
        Ok(1)
    }

    fn execute_read(
        &mut self,
        host: &mut dyn Host,
        config: &QpConfig,
        packet: &Packet<'_>,
    ) -> Result<u32, Refusal> {
        let Some(reth) = packet.headers.reth else { return Err(INVALID) };
        let len = u64::from(reth.len_bytes);
        if !config.remote_read || len > 1 << config.log_msg_max || !self.replies.has_room(config) {
            return Err(INVALID);
        }
        if len > 0 && host.check(&right(config, reth.rkey, Need::RemoteRead), reth.addr, len).is_err() {
            return Err(NO_ACCESS);
        }
        self.count_message();
        let n_psns = n_packets(len, config.mtu_bytes);
        let first_psn = packet.headers.bth.psn;
        self.replies.record(config, Record::Read { first_psn, n_psns });
        self.replies.read(first_psn, n_psns, reth, self.msn, false);
        Ok(n_psns)
    }

    fn execute_atomic(
        &mut self,
        host: &mut dyn Host,
        config: &QpConfig,
        packet: &Packet<'_>,
    ) -> Result<u32, Refusal> {
        let Some(eth) = packet.headers.atomic else { return Err(INVALID) };
        if !config.remote_atomic || !eth.addr.is_multiple_of(8) || !self.replies.has_room(config) {
            return Err(INVALID);
        }
        let swap = packet.headers.bth.opcode == Opcode::COMPARE_SWAP;
        let mut update = |old: u64| match swap {
            true if old == eth.compare => eth.swap_or_add,
            true => old,
            false => old.wrapping_add(eth.swap_or_add),
        };
        let right = right(config, eth.rkey, Need::RemoteAtomic);
        let Ok(old) = host.atomic(&right, eth.addr, &mut update) else { return Err(NO_ACCESS) };
        self.count_message();
        let psn = packet.headers.bth.psn;
        self.replies.record(config, Record::Atomic { psn, old });
        self.replies.atomic(psn, old, self.msn, false);
        Ok(1)
    }

    /// A request that was executed before: answered again, never executed again.
    fn duplicate(&mut self, host: &mut dyn Host, config: &QpConfig, packet: &Packet<'_>) {
        let bth = &packet.headers.bth;
        match self.replies.find(bth.psn) {
            Some(Record::Atomic { psn, old }) if packet.headers.atomic.is_some() => {
                self.replies.atomic(psn, old, self.msn, true);
            }
            Some(Record::Read { first_psn, n_psns }) => {
                let Some(reth) = packet.headers.reth.filter(|_| bth.opcode == Opcode::READ_REQUEST) else {
                    return;
                };
                let n = n_packets(u64::from(reth.len_bytes), config.mtu_bytes);
                let ends = distance(bth.psn, first_psn) as u32 + n;
                let right = right(config, reth.rkey, Need::RemoteRead);
                let len = u64::from(reth.len_bytes);
                if ends == n_psns && (len == 0 || host.check(&right, reth.addr, len).is_ok()) {
                    self.replies.read(bth.psn, n, reth, self.msn, true);
                }
            }
            _ if bth.ack_req && (bth.opcode.is_send() || bth.opcode.is_write()) => {
                self.replies.acknowledge(bth.psn, Acknowledgement::Ack, self.msn);
            }
            _ => {}
        }
    }

    fn count_message(&mut self) {
        self.msn = (self.msn + 1) & 0xff_ffff;
    }

    /// Scatter list of the receive WQE in use.
    pub(super) fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// Bytes that it takes.
    pub(super) const fn capacity(&self) -> u64 {
        self.capacity
    }

    fn has_receive(&mut self, host: &mut dyn Host, config: &QpConfig) -> bool {
        let posted = host.receive_counter(config.qpn);
        let n = posted.wrapping_sub(self.consumed);
        if u32::from(n) > config.n_receive_wqes && self.overrun_reported != Some(posted) {
            self.overrun_reported = Some(posted);
            let (consumed, room) = (self.consumed, config.n_receive_wqes);
            host.violation(
                config.qpn,
                Rule::ReceiveQueueOverrun,
                format_args!("counter {posted}: {n} WQEs after {consumed}, the ring has {room}"),
            );
        }
        n > 0 && config.n_receive_wqes > 0
    }

    /// Takes the next receive WQE and reads its scatter list.
    pub(super) fn take_receive(&mut self, host: &mut dyn Host, config: &QpConfig) -> Result<u16, Refusal> {
        if config.n_receive_wqes == 0 {
            return Err(INVALID);
        }
        if !self.has_receive(host, config) {
            return Err(Refusal::NotReady);
        }
        let counter = self.consumed;
        self.consumed = counter.wrapping_add(1);
        let mut wqe = [0; 2048];
        let stride = (config.receive_stride_bytes as usize).min(wqe.len());
        let slot = (u32::from(counter) & (config.n_receive_wqes - 1)) as usize;
        let wqe = &mut wqe[..stride];
        let broken = |host: &mut dyn Host| {
            host.event(config.qpn, QpEvent::WqCatastrophic);
            completion::receive_failed(host, config, counter, Failure::LOCAL_QP_OP);
            Err(Refusal::Final(Acknowledgement::OperationalError, None))
        };
        if host.read_ring(config.qpn, Ring::Receive, slot * stride, wqe).is_err() {
            return broken(host);
        }
        match read_scatter_list(wqe, &mut self.pieces) {
            Ok(capacity) => {
                self.capacity = capacity;
                Ok(counter)
            }
            Err((rule, text)) => {
                host.violation(config.qpn, rule, format_args!("{text}"));
                broken(host)
            }
        }
    }

    /// Completes all posted receive WQEs as flushed, in order.
    pub(super) fn flush(&mut self, host: &mut dyn Host, config: &QpConfig) {
        if let Some(Message::Send { wqe_counter, .. }) = self.message.take() {
            completion::receive_failed(host, config, wqe_counter, Failure::FLUSH);
        }
        while self.has_receive(host, config) {
            completion::receive_failed(host, config, self.consumed, Failure::FLUSH);
            self.consumed = self.consumed.wrapping_add(1);
        }
    }
}
