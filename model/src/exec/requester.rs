//! The sending half of an RC QP: WQEs to request packets.

use super::{
    completion::{self, Failure},
    config::{Path, QpConfig, QpState},
    courier::{Courier, right},
    dc::{Destination, Streams},
    host::{Host, KeyFault, Need, Ring, Rule},
    local::LocalWqe,
    paging::Waiting,
    psn::n_packets,
    rendezvous::Offload,
    request::{Request, WINDOW_PACKETS, send_data, send_read_or_atomic},
    timers::ack_timeout_ns,
    wqe::{Broken, MAX_WQE_BYTES, Piece, SendWqe},
};
use mlx5_direct::{
    mlx5::ids::Psn,
    wqe::{CompletionMode, CtrlSeg, FenceMode, SEGMENT_BYTES, SendOpcode, WQEBB_BYTES},
};
use std::collections::VecDeque;

/// PSNs that may be outstanding: half the circle, so that old and new can be told apart.
const MAX_SPAN: u32 = 1 << 23;
/// Bytes of the longest WQE of a READ (`MLX5_MAX_SGE_RD`).
const MAX_READ_BYTES: usize = 512;

/// The send queue's side of a QP.
#[derive(Debug, Default)]
pub(super) struct Requester {
    /// Counter that the doorbell gave.
    pub(super) producer: u16,
    /// First WQEBB not read.
    pub(super) fetch: u16,
    /// First WQEBB that software cannot know to be done: the one after the last with a CQE.
    retired: u16,
    /// Read, but not allowed to start.
    staged: Option<Request>,
    /// Started, oldest first.
    pub(super) pending: VecDeque<Request>,
    /// Index in `pending` of the first request with packets to send.
    pub(super) sending: usize,
    pub(super) next_psn: Psn,
    /// Packets sent and not acknowledged.
    pub(super) in_flight: u32,
    /// READs and atomics started and not done.
    pub(super) n_reads: u32,
    pub(super) retries_left: u8,
    pub(super) rnr_retries_left: u8,
    pub(super) ack_deadline: Option<u64>,
    pub(super) rnr_deadline: Option<u64>,
    /// A step back to this PSN was made on word of the responder, and nothing came since.
    pub(super) recovering: Option<Psn>,
    /// Nothing is sent before the driver has brought pages.
    pub(super) waiting: Option<Waiting>,
    error_reported: bool,
    /// Requests of the device's own that wait.
    pub(super) offloaded: VecDeque<Offload>,
    /// DC: where the requests in `pending` go.
    destination: Option<Destination>,
    /// DC: which of its streams are in error.
    pub(super) streams: Streams,
    spare: Vec<Request>,
}

impl Requester {
    /// Forgets everything but the attributes that RTS takes from `config`.
    pub(super) fn start(&mut self, config: &QpConfig) {
        self.next_psn = config.next_send_psn;
        self.refill(config);
    }

    /// Gives the retry counters their full value.
    pub(super) fn refill(&mut self, config: &QpConfig) {
        self.retries_left = config.retry_count;
        self.rnr_retries_left = config.rnr_retry;
    }

    /// Goes back to the first WQE not started: software may have replaced what it posted.
    pub(super) fn unstage(&mut self) {
        if let Some(request) = self.staged.take_if(|request| request.wqe.offload.is_none()) {
            self.fetch = request.wqe.index;
            self.spare.push(request);
        }
    }

    /// Takes the doorbell's counter, in a state in which there may be one.
    pub(super) fn doorbell(&mut self, host: &mut dyn Host, config: &QpConfig, state: QpState, counter: u16) {
        if matches!(state, QpState::Rst | QpState::Init | QpState::Rtr) {
            let detail = format_args!("send doorbell {counter} in {state:?}");
            return host.violation(config.qpn, None, Rule::DoorbellState, detail);
        }
        let ahead = u32::from(counter.wrapping_sub(self.retired));
        if ahead > config.n_send_wqebbs {
            let (n, retired) = (config.n_send_wqebbs, self.retired);
            host.violation(
                config.qpn,
                None,
                Rule::SendQueueOverrun,
                format_args!("counter {counter}: {ahead} WQEBBs after {retired}, the ring has {n}"),
            );
            // Slots were overwritten; what the ring holds now is all that can be executed.
            if u32::from(counter.wrapping_sub(self.fetch)) > n {
                return;
            }
        }
        self.producer = counter;
    }

    /// The way to whoever answers.
    pub(super) fn path<'a>(&'a self, config: &'a QpConfig) -> &'a Path {
        self.destination.as_ref().map_or(&config.path, Destination::path)
    }

    /// Whether a WQE may be fetched.
    pub(super) fn has_next(&self) -> bool {
        self.fetch != self.producer && self.waiting.is_none()
    }

    /// Whether nothing is outstanding.
    pub(super) fn is_idle(&self) -> bool {
        self.pending.is_empty()
    }

    /// Sends the next packet, starting WQEs as needed. Returns whether it did anything.
    pub(super) fn send_next(
        &mut self,
        host: &mut dyn Host,
        config: &QpConfig,
        state: QpState,
        courier: &mut Courier,
    ) -> bool {
        if self.rnr_deadline.is_some() || self.waiting.is_some() || self.in_flight >= WINDOW_PACKETS {
            return false;
        }
        loop {
            let Some(request) = self.pending.get(self.sending) else {
                if state == QpState::Rts && self.start_next(host, config) {
                    continue;
                }
                return false;
            };
            if request.failed.is_some() {
                // Nothing after it is started.
                return false;
            }
            if request.sent < request.n_to_send() {
                return self.send_packet(host, config, courier);
            }
            self.sending += 1;
        }
    }

    /// Moves the next WQE to `pending`, if there is one that may start.
    fn start_next(&mut self, host: &mut dyn Host, config: &QpConfig) -> bool {
        let staged = match self.staged.take() {
            Some(request) => Some(request),
            None => self.next_offloaded(config).or_else(|| self.fetch_next(host, config)),
        };
        let Some(mut request) = staged else { return false };
        if !self.may_start(&request, config) {
            self.staged = Some(request);
            return false;
        }
        if let (Some(local), None) = (&request.wqe.local, request.failed) {
            request.failed = local.execute(host, config, request.wqe.index, request.wqe.imm).err();
        }
        if let Some(destination) = Destination::of(&request.wqe) {
            self.destination = Some(destination);
        }
        request.first_psn = self.next_psn;
        self.next_psn = self.next_psn.plus(request.n_psns);
        self.n_reads += u32::from(request.wqe.is_read_or_atomic() && request.failed.is_none());
        self.pending.push_back(request);
        true
    }

    fn may_start(&self, request: &Request, config: &QpConfig) -> bool {
        let fenced = match FenceMode(request.wqe.fm) {
            FenceMode::FENCE | FenceMode::SMALL_AND_FENCE => self.n_reads > 0,
            FenceMode::STRONG_ORDERING => !self.pending.is_empty(),
            _ => false,
        };
        let throttled =
            request.wqe.is_read_or_atomic() && self.n_reads >= config.max_outstanding_reads.max(1);
        let span =
            self.pending.front().map_or(0, |first| self.next_psn.get().wrapping_sub(first.first_psn.get()));
        let crowded = !self.pending.is_empty() && (span & 0xff_ffff) + request.n_psns > MAX_SPAN;
        // An initiator is connected with one target at a time.
        let destination = Destination::of(&request.wqe);
        let elsewhere = destination.is_some() && destination != self.destination && !self.pending.is_empty();
        !fenced && !throttled && !crowded && !elsewhere
    }

    /// Reads the WQE at `fetch`.
    fn fetch_next(&mut self, host: &mut dyn Host, config: &QpConfig) -> Option<Request> {
        if self.fetch == self.producer {
            return None;
        }
        let mut request = self.spare.pop().unwrap_or_default();
        (request.acked, request.sent, request.failed) = (0, 0, None);
        if let Err(failure) = self.read_wqe(host, config, &mut request.wqe) {
            request.failed = Some(failure);
        }
        self.fetch = self.fetch.wrapping_add(request.wqe.n_wqebbs);
        if request.failed.is_none() && self.streams.is_errored(config, request.wqe.stream) {
            request.failed = Some(Failure::FLUSH);
        }
        if request.failed.is_none() {
            request.failed = check_message(host, config, &request.wqe).err();
        }
        request.n_psns = match request.wqe.opcode() {
            _ if request.failed.is_some() => 0,
            SendOpcode::NOP => 0,
            _ if request.wqe.local.is_some() => 0,
            _ if request.wqe.atomic.is_some() => 1,
            _ => n_packets(request.wqe.len_bytes, config.mtu_bytes),
        };
        Some(request)
    }

    pub(super) fn read_wqe(
        &mut self,
        host: &mut dyn Host,
        config: &QpConfig,
        wqe: &mut SendWqe,
    ) -> Result<(), Failure> {
        let mut bytes = [0; MAX_WQE_BYTES];
        let index = self.fetch;
        let slot = (u32::from(index) & config.n_send_wqebbs.wrapping_sub(1)) as usize;
        let pushed = host.take_pushed(config.qpn, index);
        let read = match &pushed {
            Some(wqe) => {
                bytes[..wqe.len()].copy_from_slice(wqe);
                Ok(())
            }
            None => host.read_ring(config.qpn, Ring::Send, slot * WQEBB_BYTES, &mut bytes[..SEGMENT_BYTES]),
        };
        let mut head = [0; SEGMENT_BYTES];
        head.copy_from_slice(&bytes[..SEGMENT_BYTES]);
        let ctrl = CtrlSeg::from_bytes(head);
        wqe.read_ctrl(&ctrl, index);
        if read.is_err() {
            wqe.n_wqebbs = 1;
            host.event(config.qpn, super::host::QpEvent::WqCatastrophic);
            return Err(Failure::LOCAL_QP_OP);
        }
        let posted = self.producer.wrapping_sub(index);
        let broken = if ctrl.ds() == 0 {
            Some((Rule::DsTooSmall, format!("ds is 0 in WQEBB {index}")))
        } else if wqe.n_wqebbs > posted {
            let n = wqe.n_wqebbs;
            let text = format!("WQE at {index} has {n} WQEBBs, the doorbell's counter is {}", self.producer);
            wqe.n_wqebbs = posted;
            Some((Rule::WqeBeyondDoorbell, text))
        } else {
            None
        };
        let len = usize::from(ctrl.ds()) * SEGMENT_BYTES;
        let outcome = match broken {
            Some(broken) => Err(broken),
            None if pushed.is_none()
                && read_wrapped(host, config, slot * WQEBB_BYTES, &mut bytes[..len]).is_err() =>
            {
                host.event(config.qpn, super::host::QpEvent::WqCatastrophic);
                return Err(Failure::LOCAL_QP_OP);
            }
            None => wqe.read_segments(&bytes[..len], config),
        };
        outcome.map_err(|(rule, text): Broken| {
            host.violation(config.qpn, Some(index), rule, format_args!("{text}"));
            Failure::LOCAL_QP_OP
        })
    }

    /// Sends a packet of `pending[sending]`, which has one to send.
    fn send_packet(&mut self, host: &mut dyn Host, config: &QpConfig, courier: &mut Courier) -> bool {
        let oldest = self.pending.front().map_or(self.next_psn, |first| first.psn_at(first.acked));
        let dc = self.destination.map(|destination| destination.header(config, oldest));
        let config = &self.destination.map_or(*config, |destination| destination.route(config));
        let request = &mut self.pending[self.sending];
        let outcome = if request.wqe.is_read_or_atomic() {
            send_read_or_atomic(host, config, courier, request, dc)
        } else {
            let window_full = self.in_flight + 1 >= WINDOW_PACKETS;
            send_data(host, config, courier, request, dc, window_full)
        };
        match outcome {
            Ok(()) => {}
            Err(KeyFault::Absent) if config.service.is_acknowledged() => {
                self.wait_for_pages(host, config, self.sending, false);
                return true;
            }
            Err(_) => {
                request.failed = Some(Failure::SEND_PROTECTION);
                return true;
            }
        }
        request.sent += 1;
        self.in_flight += 1;
        if self.ack_deadline.is_none() && config.service.is_acknowledged() {
            self.ack_deadline = ack_timeout_ns(config.path.ack_timeout).map(|ns| host.now() + ns);
        }
        true
    }

    /// Nothing will acknowledge what was sent: it is done.
    pub(super) fn forget_sent(&mut self, host: &mut dyn Host, config: &QpConfig) {
        self.in_flight = 0;
        while let Some(head) = self.pending.front_mut()
            && head.n_psns > 0
        {
            head.acked = head.sent;
            if head.sent < head.n_psns {
                return;
            }
            self.complete_head(host, config, &[]);
        }
    }

    /// Takes the oldest request out, done; `data` that it brought are for the CQE.
    pub(super) fn complete_head(&mut self, host: &mut dyn Host, config: &QpConfig, data: &[u8]) {
        if let Some(request) = self.pop_head() {
            self.complete(host, config, &request.wqe, data);
            self.spare.push(request);
        }
    }

    /// Reports a WQE as done; `data` that it brought are for the CQE.
    pub(super) fn complete(&mut self, host: &mut dyn Host, config: &QpConfig, wqe: &SendWqe, data: &[u8]) {
        if let Some(offload) = wqe.offload {
            return self.offload_done(host, config, offload);
        }
        let completed = wqe.local.as_ref().is_some_and(LocalWqe::is_completed);
        if completion::send_done(host, config, wqe, data) || completed {
            self.retired = wqe.index.wrapping_add(wqe.n_wqebbs);
        }
    }

    /// Takes the oldest request out, failed.
    pub(super) fn fail_head(&mut self, host: &mut dyn Host, config: &QpConfig, failure: Failure) {
        if let Some(request) = self.pop_head() {
            self.report_failure(host, config, &request.wqe, failure);
        }
    }

    fn pop_head(&mut self) -> Option<Request> {
        let request = self.pending.pop_front()?;
        self.sending = self.sending.saturating_sub(1);
        if request.wqe.is_read_or_atomic() && request.n_psns > 0 {
            self.n_reads -= 1;
            self.in_flight -= request.sent;
        } else {
            self.in_flight -= request.sent - request.acked.min(request.sent);
        }
        Some(request)
    }

    pub(super) fn report_failure(
        &mut self,
        host: &mut dyn Host,
        config: &QpConfig,
        wqe: &SendWqe,
        failure: Failure,
    ) {
        if let Some(offload) = wqe.offload {
            return offload.fail(host, config);
        }
        let silent = wqe.ce() == CompletionMode::ONLY_FIRST_ERR && self.error_reported;
        if !silent {
            completion::send_failed(host, config, wqe, failure);
            self.error_reported = true;
            self.retired = wqe.index.wrapping_add(wqe.n_wqebbs);
        }
    }

    /// Sends again from the first unacknowledged packet on.
    pub(super) fn step_back(&mut self) {
        for request in &mut self.pending {
            request.sent = if request.wqe.is_read_or_atomic() { 0 } else { request.acked };
        }
        (self.sending, self.in_flight, self.ack_deadline) = (0, 0, None);
    }

    /// Completes everything posted as flushed, in order.
    pub(super) fn flush(&mut self, host: &mut dyn Host, config: &QpConfig) {
        (self.ack_deadline, self.rnr_deadline, self.waiting) = (None, None, None);
        while let Some(request) = self.pending.pop_front() {
            self.report_failure(host, config, &request.wqe, Failure::FLUSH);
        }
        if let Some(request) = self.staged.take() {
            self.report_failure(host, config, &request.wqe, Failure::FLUSH);
        }
        self.fail_offloaded(host, config);
        (self.sending, self.in_flight, self.n_reads) = (0, 0, 0);
        while self.fetch != self.producer {
            let mut head = [0; SEGMENT_BYTES];
            let mask = config.n_send_wqebbs.wrapping_sub(1);
            let offset = (u32::from(self.fetch) & mask) as usize * WQEBB_BYTES;
            // A ring that cannot be read is flushed block by block, so that software gets its CQEs.
            let _unreadable = host.read_ring(config.qpn, Ring::Send, offset, &mut head);
            let mut wqe = SendWqe::default();
            wqe.read_ctrl(&CtrlSeg::from_bytes(head), self.fetch);
            wqe.n_wqebbs = wqe.n_wqebbs.min(self.producer.wrapping_sub(self.fetch));
            self.report_failure(host, config, &wqe, Failure::FLUSH);
            self.fetch = self.fetch.wrapping_add(wqe.n_wqebbs);
        }
    }
}

/// Reads ring bytes across the end of the send ring.
fn read_wrapped(
    host: &mut dyn Host,
    config: &QpConfig,
    offset: usize,
    into: &mut [u8],
) -> Result<(), super::host::RingFault> {
    let ring = config.n_send_wqebbs as usize * WQEBB_BYTES;
    let (first, rest) = into.split_at_mut(into.len().min(ring - offset));
    host.read_ring(config.qpn, Ring::Send, offset, first)?;
    // A WQE longer than the ring repeats it; its wqe_index would be wrong anyway.
    for part in rest.chunks_mut(ring) {
        host.read_ring(config.qpn, Ring::Send, 0, part)?;
    }
    Ok(())
}

/// What can be known to be wrong before the first packet.
fn check_message(host: &mut dyn Host, config: &QpConfig, wqe: &SendWqe) -> Result<(), Failure> {
    let max = 1u64 << config.log_msg_max;
    if wqe.len_bytes > max {
        let len = wqe.len_bytes;
        host.violation(
            config.qpn,
            Some(wqe.index),
            Rule::MessageTooLong,
            format_args!("message of {len} bytes, log_msg_max allows {max}"),
        );
        return Err(Failure::LOCAL_LENGTH);
    }
    if wqe.is_read_or_atomic() && config.max_outstanding_reads == 0 {
        host.violation(
            config.qpn,
            Some(wqe.index),
            Rule::NoReadResources,
            format_args!("opcode 0x{:02x} on a QP that may have no READ outstanding", wqe.opcode),
        );
        return Err(Failure::LOCAL_QP_OP);
    }
    if wqe.opcode() == SendOpcode::RDMA_READ && usize::from(wqe.ds) * SEGMENT_BYTES > MAX_READ_BYTES {
        let detail = format_args!("the READ's WQE has ds {}", wqe.ds);
        host.violation(config.qpn, Some(wqe.index), Rule::ReadTooLong, detail);
        return Err(Failure::LOCAL_QP_OP);
    }
    let need = if wqe.is_read_or_atomic() { Need::LocalWrite } else { Need::LocalRead };
    for piece in &wqe.pieces {
        if let Piece::Memory { lkey, addr, len } = *piece
            && len > 0
        {
            host.check(&right(config, lkey, need), addr, len).map_err(|_| Failure::SEND_PROTECTION)?;
        }
    }
    Ok(())
}
