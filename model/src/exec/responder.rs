//! The receiving half of an RC QP: executes requests, once each and in order.

use super::{
    answers::Fatal,
    atomic::Atomic,
    completion::{self, Failure},
    config::{QpConfig, Service, SharedQueue},
    counter::Counter,
    courier::{Courier, right},
    host::{Host, KeyFault, Need, QpEvent, Right},
    paging::{FaultedMemory, PageFault, Paging},
    psn::{distance, n_packets},
    receive::{Missing, ReceiveQueue, Taken},
    replies::{Read, Record, Replies},
    tag_matching::{First, Rendezvous},
};
use crate::wire::{Acknowledgement, Opcode, Packet};
use mlx5_direct::mlx5::{
    eqe::PageFaultType,
    ids::{Pdn, Psn},
};

/// A message of which the first packet came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Message {
    /// A SEND, into this receive WQE.
    Send { taken: Taken, done: u64 },
    /// A WRITE, of `len` bytes to `addr`.
    Write { rkey: u32, addr: u64, len: u64, done: u64 },
}

/// Why a request was not executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Nothing to receive it: the requester shall try again.
    NotReady,
    /// Its memory is not there yet: the same.
    Paging,
    /// The QP goes to ERR, and the requester's too.
    Final(Acknowledgement, Option<QpEvent>),
}

pub(super) const INVALID: Refusal =
    Refusal::Final(Acknowledgement::InvalidRequest, Some(QpEvent::InvalidRequest));
const NO_ACCESS: Refusal = Refusal::Final(Acknowledgement::AccessError, Some(QpEvent::AccessViolation));

impl From<Missing> for Refusal {
    fn from(missing: Missing) -> Self {
        match missing {
            Missing::NoQueue => INVALID,
            Missing::Empty => Self::NotReady,
            Missing::Broken => Self::Final(Acknowledgement::OperationalError, None),
        }
    }
}

/// On whose behalf a request is executed.
#[derive(Debug, Clone, Copy)]
struct Target {
    /// Shared receive queue that serves it.
    shared: Option<SharedQueue>,
    /// Protection domain of remote access.
    pd: Pdn,
}

impl Target {
    /// The QP's own, or for XRC that of the shared receive queue which the request names.
    fn of(host: &dyn Host, config: &QpConfig, packet: &Packet<'_>) -> Option<Self> {
        if config.service != Service::Extended {
            return Some(Self { shared: config.shared, pd: config.pd });
        }
        let queue = host.xrc_queue(packet.headers.xrc_srqn?, config.xrcd)?;
        Some(Self { shared: Some(queue), pd: queue.pd })
    }

    const fn right(&self, config: &QpConfig, key: u32, need: Need) -> Right {
        Right { pd: self.pd, ..right(config, key, need) }
    }
}

/// The receive queue's side of a QP.
#[derive(Debug, Default)]
pub(super) struct Responder {
    pub(super) expected: Psn,
    pub(super) msn: u32,
    pub(super) queue: ReceiveQueue,
    pub(super) replies: Replies,
    message: Option<Message>,
    /// Taken for a SEND of which nothing could be written yet.
    held: Option<Taken>,
    paging: Paging,
    /// Whose data the device shall read.
    pub(super) rendezvous: Vec<Rendezvous>,
    /// The gap in the sequence was reported; what follows is dropped until it is filled.
    nak_sent: bool,
    heard: bool,
}

impl Responder {
    /// Takes the attributes that RTR brings.
    pub(super) fn start(&mut self, config: &QpConfig) {
        self.expected = config.next_rcv_psn;
    }

    /// The requester has given up, or had executed by others, all before `oldest`. Returns whether that is new.
    pub(super) fn skip_to(&mut self, host: &mut dyn Host, config: &QpConfig, oldest: Psn) -> bool {
        if distance(oldest, self.expected) <= 0 {
            return false;
        }
        self.flush(host, config);
        (self.expected, self.nak_sent) = (oldest, false);
        true
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
                host.count(config.qpn, Counter::OutOfSequence);
                if !std::mem::replace(&mut self.nak_sent, true) {
                    self.replies.acknowledge(self.expected, Acknowledgement::SequenceError, self.msn);
                }
                return Ok(());
            }
            _ => {
                host.count(config.qpn, Counter::DuplicateRequest);
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
            Err(refusal @ (Refusal::NotReady | Refusal::Paging)) => {
                if refusal == Refusal::NotReady {
                    host.count(config.qpn, Counter::OutOfBuffer);
                }
                self.nak_sent = true;
                self.replies.acknowledge(psn, Acknowledgement::RnrNak(config.min_rnr_nak), self.msn);
                Ok(())
            }
            Err(Refusal::Final(what, event)) => {
                self.replies.acknowledge(psn, what, self.msn);
                match what {
                    Acknowledgement::InvalidRequest => {
                        host.count(config.qpn, Counter::RespRemoteInvalidRequest);
                    }
                    Acknowledgement::AccessError => host.count(config.qpn, Counter::RespRemoteAccessErrors),
                    _ => {}
                }
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
        match self.paging {
            Paging::Request => return Err(Refusal::Paging),
            Paging::RequestFailed => return Err(self.give_up(host, config)),
            _ => {}
        }
        let opcode = packet.headers.bth.opcode.operation();
        let target = Target::of(host, config, packet).ok_or(INVALID)?;
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
            _ if opcode.is_send() || continues => {}
            _ if opcode.is_write() => host.count(config.qpn, Counter::RxWriteRequests),
            Opcode::READ_REQUEST => host.count(config.qpn, Counter::RxReadRequests),
            _ => host.count(config.qpn, Counter::RxAtomicRequests),
        }
        match opcode {
            _ if opcode.is_send() => self.execute_send(host, config, target, packet),
            _ if opcode.is_write() => self.execute_write(host, config, target, packet),
            Opcode::READ_REQUEST => self.execute_read(host, config, target, packet),
            _ => self.execute_atomic(host, config, target, packet),
        }
    }

    fn execute_send(
        &mut self,
        host: &mut dyn Host,
        config: &QpConfig,
        target: Target,
        packet: &Packet<'_>,
    ) -> Result<u32, Refusal> {
        let (taken, done) = match (self.message, self.held.take()) {
            (Some(Message::Send { taken, done }), _) => (taken, done),
            (_, Some(taken)) => (taken, 0),
            (_, None) => match self.begin_send(host, config, target, packet)? {
                First::Receive(taken) => (taken, 0),
                First::Read(rendezvous) => {
                    self.rendezvous.push(rendezvous);
                    self.count_message();
                    return Ok(1);
                }
            },
        };
        let headers = &packet.headers;
        let total = done + taken.received(packet.payload, self.queue.capacity).len() as u64;
        let mut fail = |host: &mut dyn Host, failure, what, event| {
            completion::receive_failed(host, config, &taken, failure);
            self.message = None;
            Err(Refusal::Final(what, event))
        };
        if total > self.queue.capacity || total > 1 << config.log_msg_max {
            return fail(host, Failure::LOCAL_LENGTH, Acknowledgement::InvalidRequest, None);
        }
        let data = match self.queue.put(host, config, &taken, done, packet) {
            Ok(data) => data,
            Err(KeyFault::Absent) if !taken.is_of_tag() => {
                self.held = self.message.is_none().then_some(taken);
                let (kind, queue) = match target.shared {
                    Some(shared) => (PageFaultType::RMP, shared.number),
                    None => (PageFaultType::RESP, config.qpn.get()),
                };
                let memory = FaultedMemory::Wqe { kind, queue, index: taken.wqe_counter };
                return Err(self.page_fault(host, config, done, packet.payload.len(), memory));
            }
            Err(_) => {
                return fail(host, Failure::RECEIVE_PROTECTION, Acknowledgement::OperationalError, None);
            }
        };
        if headers.bth.opcode.is_first() || headers.bth.opcode.is_middle() {
            self.message = Some(Message::Send { taken, done: total });
            return Ok(1);
        }
        if let Some(rkey) = headers.invalidate
            && host.invalidate(rkey, config.pd, config.qpn).is_err()
        {
            return fail(host, Failure::REMOTE_INVALID_REQUEST, Acknowledgement::AccessError, None);
        }
        self.message = None;
        self.count_message();
        completion::receive_done(host, config, headers, &taken, total, data);
        Ok(1)
    }

    /// Finds out where a SEND goes.
    fn begin_send(
        &mut self,
        host: &mut dyn Host,
        config: &QpConfig,
        target: Target,
        packet: &Packet<'_>,
    ) -> Result<First, Refusal> {
        if let Some(queue) = target.shared.filter(|queue| queue.tag_matching) {
            return self.queue.take_by_tag(host, config, queue, packet);
        }
        self.queue.ready(host, config, target.shared)?;
        Ok(First::Receive(self.queue.take(host, config, target.shared)?))
    }

    fn execute_write(
        &mut self,
        host: &mut dyn Host,
        config: &QpConfig,
        target: Target,
        packet: &Packet<'_>,
    ) -> Result<u32, Refusal> {
        let headers = &packet.headers;
        let opcode = headers.bth.opcode.operation();
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
        if with_imm {
            self.queue.ready(host, config, target.shared)?;
        }
        let right = target.right(config, rkey, Need::RemoteWrite);
        let first = self.message.is_none();
        let allowed = if first && len > 0 { host.check(&right, addr, len) } else { Ok(()) };
        let written = allowed.and_then(|()| match packet.payload.is_empty() {
            true => Ok(()),
            false => host.write(&right, addr.wrapping_add(done), packet.payload),
        });
        if written == Err(KeyFault::Absent) {
            let memory = FaultedMemory::Remote { rkey, addr, len_bytes: len as u32, is_written: true };
            return Err(self.page_fault(host, config, done, packet.payload.len(), memory));
        }
        if written.is_err() {
            self.message = None;
            if with_imm && let Ok(taken) = self.queue.take(host, config, target.shared) {
                completion::receive_failed(host, config, &taken, Failure::LOCAL_ACCESS);
            }
            return Err(NO_ACCESS);
        }
        if !last {
            self.message = Some(Message::Write { rkey, addr, len, done: total });
            return Ok(1);
        }
        self.message = None;
        if with_imm {
            let taken = self.queue.take(host, config, target.shared)?;
            completion::receive_done(host, config, headers, &taken, len, &[]);
        }
        self.count_message();
        Ok(1)
    }

    fn execute_read(
        &mut self,
        host: &mut dyn Host,
        config: &QpConfig,
        target: Target,
        packet: &Packet<'_>,
    ) -> Result<u32, Refusal> {
        let Some(reth) = packet.headers.reth else { return Err(INVALID) };
        let len = u64::from(reth.len_bytes);
        if !config.remote_read || len > 1 << config.log_msg_max || !self.replies.has_room(config) {
            return Err(INVALID);
        }
        if len > 0 && host.check(&target.right(config, reth.rkey, Need::RemoteRead), reth.addr, len).is_err()
        {
            return Err(NO_ACCESS);
        }
        self.count_message();
        let n_psns = n_packets(len, config.mtu_bytes);
        let first_psn = packet.headers.bth.psn;
        self.replies.record(config, Record::Read { first_psn, n_psns });
        self.replies.read(Read { first_psn, n_psns, reth, pd: target.pd }, self.msn, false);
        Ok(n_psns)
    }

    fn execute_atomic(
        &mut self,
        host: &mut dyn Host,
        config: &QpConfig,
        target: Target,
        packet: &Packet<'_>,
    ) -> Result<u32, Refusal> {
        let (Some(eth), Some(atomic)) = (packet.headers.atomic, Atomic::of(&packet.headers)) else {
            return Err(INVALID);
        };
        let is_aligned = eth.addr.is_multiple_of(atomic.len_bytes.into());
        if !config.remote_atomic || !is_aligned || !self.replies.has_room(config) {
            return Err(INVALID);
        }
        let right = target.right(config, eth.rkey, Need::RemoteAtomic);
        let old = match host.atomic(&right, eth.addr, atomic.len_bytes, &mut |old| atomic.apply(old)) {
            Ok(old) => old,
            Err(KeyFault::Absent) => {
                let (rkey, addr, len_bytes) = (eth.rkey, eth.addr, atomic.len_bytes);
                let memory = FaultedMemory::Remote { rkey, addr, len_bytes, is_written: true };
                return Err(self.page_fault(host, config, 0, len_bytes as usize, memory));
            }
            Err(_) => return Err(NO_ACCESS),
        };
        self.count_message();
        let psn = packet.headers.bth.psn;
        self.replies.record(config, Record::Atomic { psn, old });
        self.replies.atomic(psn, old, self.msn, false);
        Ok(1)
    }

    /// The memory of the request is not there: the driver is told, and the request will come again.
    fn page_fault(
        &mut self,
        host: &mut dyn Host,
        config: &QpConfig,
        bytes_committed: u64,
        packet_bytes: usize,
        memory: FaultedMemory,
    ) -> Refusal {
        if host.page_fault(&PageFault { qpn: config.qpn, bytes_committed, packet_bytes, memory }) {
            self.paging = Paging::Request;
        }
        Refusal::Paging
    }

    /// The driver could not bring the memory of the request that has come again.
    fn give_up(&mut self, host: &mut dyn Host, config: &QpConfig) -> Refusal {
        self.paging = Paging::Nothing;
        let taken = match self.message.take() {
            Some(Message::Send { taken, .. }) => Some(taken),
            _ => self.held.take(),
        };
        let Some(taken) = taken else { return NO_ACCESS };
        completion::receive_failed(host, config, &taken, Failure::RECEIVE_PROTECTION);
        Refusal::Final(Acknowledgement::OperationalError, None)
    }

    /// The driver has answered a page fault: it has brought the pages, or could not.
    pub(super) fn resume(&mut self, error: bool) {
        self.paging = self.paging.resumed(error);
    }

    /// Sends the next packet that is owed. Returns whether there was one that could be sent.
    pub(super) fn reply_next(
        &mut self,
        host: &mut dyn Host,
        config: &QpConfig,
        courier: &mut Courier,
    ) -> Result<bool, Fatal> {
        self.replies.send_next(host, config, courier, &mut self.paging)
    }

    /// A request that was executed before: answered again, never executed again.
    fn duplicate(&mut self, host: &mut dyn Host, config: &QpConfig, packet: &Packet<'_>) {
        let bth = &packet.headers.bth;
        let Some(target) = Target::of(host, config, packet) else { return };
        match self.replies.find(bth.psn) {
            Some(Record::Atomic { psn, old }) if packet.headers.atomic.is_some() => {
                self.replies.atomic(psn, old, self.msn, true);
            }
            Some(Record::Read { first_psn, n_psns }) => {
                let Some(reth) =
                    packet.headers.reth.filter(|_| bth.opcode.operation() == Opcode::READ_REQUEST)
                else {
                    return;
                };
                let n = n_packets(u64::from(reth.len_bytes), config.mtu_bytes);
                let ends = distance(bth.psn, first_psn) as u32 + n;
                let right = target.right(config, reth.rkey, Need::RemoteRead);
                let len = u64::from(reth.len_bytes);
                if ends == n_psns && (len == 0 || host.check(&right, reth.addr, len).is_ok()) {
                    let read = Read { first_psn: bth.psn, n_psns: n, reth, pd: target.pd };
                    self.replies.read(read, self.msn, true);
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

    /// Completes all posted receive WQEs as flushed, in order.
    pub(super) fn flush(&mut self, host: &mut dyn Host, config: &QpConfig) {
        self.paging = Paging::Nothing;
        let message = match self.message.take() {
            Some(Message::Send { taken, .. }) => Some(taken),
            _ => None,
        };
        if let Some(taken) = message.or(self.held.take()) {
            completion::receive_failed(host, config, &taken, Failure::FLUSH);
        }
        self.queue.flush(host, config);
    }
}
