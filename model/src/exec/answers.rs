//! The sending half of an RC QP: what comes back, and what is done when nothing does.

use super::{
    completion::{self, Failure},
    config::QpConfig,
    counter::Counter,
    courier::right,
    host::{Host, KeyFault, Need, Right, Ring},
    psn::{before, distance},
    requester::Requester,
    timers::{ack_timeout_ns, rnr_timer_ns},
    wqe::{Piece, for_each_part},
};
use crate::wire::{Acknowledgement, Opcode, Packet};
use mlx5_direct::{mlx5::ids::Psn, wqe::SendOpcode};

/// The QP must go to ERR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fatal;

/// What an acknowledgement led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Advance {
    /// The oldest request is the one that it did not cover.
    Done,
    /// It showed that a response was lost; requests are sent again.
    SteppedBack,
}

impl Requester {
    /// Takes a response packet.
    pub(super) fn receive(
        &mut self,
        host: &mut dyn Host,
        config: &QpConfig,
        packet: &Packet<'_>,
    ) -> Result<(), Fatal> {
        let psn = packet.headers.bth.psn;
        let Some(head) = self.pending.front() else { return Ok(()) };
        // What was acknowledged already, or never sent, is stale: from before a step back, or duplicated.
        if distance(psn, head.first_psn) < 0 || distance(psn, self.next_psn) >= 0 {
            return Ok(());
        }
        if self.waiting.is_some_and(|waiting| waiting.dropped) {
            return Ok(());
        }
        if packet.headers.bth.opcode.operation() != Opcode::ACKNOWLEDGE {
            return match self.advance(host, config, before(psn))? {
                Advance::Done => self.take_data(host, config, packet),
                Advance::SteppedBack => Ok(()),
            };
        }
        let what = packet.headers.aeth.map_or(Acknowledgement::Ack, |aeth| aeth.what());
        match what {
            Acknowledgement::Ack if self.awaits_data(psn) => {
                self.refused(host, config, psn, Failure::BAD_RESPONSE)
            }
            Acknowledgement::Ack => self.advance(host, config, psn).map(drop),
            Acknowledgement::RnrNak(code) => match self.advance(host, config, before(psn))? {
                Advance::Done => self.receiver_not_ready(host, config, psn, code),
                Advance::SteppedBack => Ok(()),
            },
            Acknowledgement::SequenceError => match self.advance(host, config, before(psn))? {
                Advance::Done => self.recover(host, config, psn, Counter::PacketSeqErr),
                Advance::SteppedBack => Ok(()),
            },
            Acknowledgement::InvalidRequest => {
                self.refused(host, config, psn, Failure::REMOTE_INVALID_REQUEST)
            }
            Acknowledgement::AccessError => self.refused(host, config, psn, Failure::REMOTE_ACCESS),
            Acknowledgement::OperationalError => self.refused(host, config, psn, Failure::REMOTE_OPERATION),
            Acknowledgement::Unknown(_) => self.refused(host, config, psn, Failure::BAD_RESPONSE),
        }
    }

    /// Completes what needs no answer, and fails what cannot go on, once it is the oldest.
    /// Returns whether there was such.
    pub(super) fn settle(&mut self, host: &mut dyn Host, config: &QpConfig) -> Result<bool, Fatal> {
        let mut settled = false;
        while let Some(head) = self.pending.front() {
            match head.failed {
                // Of a DC stream that was in error before.
                Some(Failure::FLUSH) => self.fail_head(host, config, Failure::FLUSH),
                Some(failure) => return self.fatal(host, config, failure).map(|()| true),
                None if head.n_psns == 0 => self.complete_head(host, config, &[]),
                None => break,
            }
            settled = true;
        }
        Ok(settled)
    }

    /// The acknowledgement timer or the RNR timer may be due.
    pub(super) fn timer(&mut self, host: &mut dyn Host, config: &QpConfig) -> Result<(), Fatal> {
        let now = host.now();
        if self.rnr_deadline.is_some_and(|at| at <= now) {
            self.rnr_deadline = None;
        }
        if self.ack_deadline.is_some_and(|at| at <= now) {
            self.recovering = None;
            return self.retry(host, config, Counter::LocalAckTimeoutErr);
        }
        Ok(())
    }

    /// Completes what an acknowledgement of all PSNs up to `limit` completes.
    fn advance(&mut self, host: &mut dyn Host, config: &QpConfig, limit: Psn) -> Result<Advance, Fatal> {
        loop {
            self.settle(host, config)?;
            let Some(head) = self.pending.front_mut() else { return Ok(Advance::Done) };
            let covered = (distance(limit, head.first_psn) + 1).clamp(0, head.n_psns as i32) as u32;
            if covered <= head.acked {
                return Ok(Advance::Done);
            }
            if head.wqe.is_read_or_atomic() {
                // Something after it was executed, so it was too: its response is lost.
                let missing = head.psn_at(head.acked);
                self.recover(host, config, missing, Counter::ImpliedNakSeqErr)?;
                return Ok(Advance::SteppedBack);
            }
            let in_flight = head.sent - head.acked;
            head.acked = covered;
            head.sent = head.sent.max(covered);
            self.in_flight = self.in_flight - in_flight + (head.sent - head.acked);
            if head.acked == head.n_psns {
                self.complete_head(host, config, &[]);
            }
            self.note_progress(host, config);
        }
    }

    /// Something was acknowledged: patience is restored.
    fn note_progress(&mut self, host: &mut dyn Host, config: &QpConfig) {
        self.refill(config);
        self.recovering = None;
        let waits = self.in_flight > 0;
        self.ack_deadline =
            ack_timeout_ns(config.path.ack_timeout).filter(|_| waits).map(|ns| host.now() + ns);
    }

    /// Scatters the data of a READ or atomic response, all before which came.
    fn take_data(
        &mut self,
        host: &mut dyn Host,
        config: &QpConfig,
        packet: &Packet<'_>,
    ) -> Result<(), Fatal> {
        let (opcode, psn) = (packet.headers.bth.opcode.operation(), packet.headers.bth.psn);
        let Some(head) = self.pending.front() else { return Ok(()) };
        let n = distance(psn, head.first_psn);
        if n < head.acked as i32 || n >= head.n_psns as i32 {
            return Ok(());
        }
        let last = n + 1 == head.n_psns as i32;
        let wqe = &head.wqe;
        let offset = u64::from(head.acked) * u64::from(config.mtu_bytes);
        let want = wqe.len_bytes.saturating_sub(offset).min(u64::from(config.mtu_bytes));
        let ok = packet.headers.aeth.is_none_or(|aeth| aeth.what() == Acknowledgement::Ack);
        let result = wqe.atomic.zip(packet.headers.atomic_ack).map(|(atomic, old)| atomic.result(old));
        let fits = match wqe.opcode() {
            SendOpcode::RDMA_READ => {
                // A stream that was begun anew in mid-message has its own FIRST.
                let ends = matches!(opcode, Opcode::READ_RESPONSE_LAST | Opcode::READ_RESPONSE_ONLY);
                opcode.is_read_response() && ends == last && packet.payload.len() as u64 == want
            }
            _ => wqe.is_read_or_atomic() && opcode == Opcode::ATOMIC_ACKNOWLEDGE,
        };
        if !fits || !ok {
            return self.fatal(host, config, Failure::BAD_RESPONSE);
        }
        let data = result.as_ref().map_or(packet.payload, |(bytes, n)| &bytes[..*n]);
        // What no CQE is asked for goes to memory, however short.
        let in_cqe = wqe.len_bytes <= config.cs_req_bytes as u64 && completion::wake(wqe).is_some();
        let pd = wqe.offload.map_or(config.pd, |offload| offload.pd());
        let right = Right { pd, queue: Ring::Send, ..right(config, 0, Need::LocalWrite) };
        let scattered = match in_cqe {
            true => Ok(()),
            false => scatter(host, &right, &wqe.pieces, offset, data),
        };
        match scattered {
            Ok(()) => {}
            // The driver would look for a WQE.
            Err(KeyFault::Absent) if wqe.offload.is_none() => {
                self.wait_for_pages(host, config, 0, true);
                return Ok(());
            }
            Err(_) => return self.fatal(host, config, Failure::SEND_PROTECTION),
        }
        if let Some(head) = self.pending.front_mut() {
            head.acked += 1;
        }
        if last {
            self.complete_head(host, config, if in_cqe { data } else { &[] });
        }
        self.note_progress(host, config);
        self.settle(host, config).map(drop)
    }

    /// Index of the request that a PSN is part of.
    fn containing(&self, psn: Psn) -> Option<usize> {
        let after = self.pending.partition_point(|r| distance(r.first_psn, psn) <= 0);
        let index = after.checked_sub(1)?;
        let request = &self.pending[index];
        (distance(psn, request.first_psn) < request.n_psns as i32).then_some(index)
    }

    /// Whether the PSN is one at which data must come back.
    fn awaits_data(&self, psn: Psn) -> bool {
        self.containing(psn).is_some_and(|index| self.pending[index].wqe.is_read_or_atomic())
    }

    /// The responder will not execute the request with this PSN.
    fn refused(
        &mut self,
        host: &mut dyn Host,
        config: &QpConfig,
        psn: Psn,
        failure: Failure,
    ) -> Result<(), Fatal> {
        let Some(index) = self.containing(psn) else { return Ok(()) };
        let first = self.pending[index].first_psn;
        match self.advance(host, config, before(first))? {
            Advance::Done => self.fatal(host, config, failure),
            Advance::SteppedBack => Ok(()),
        }
    }

    fn receiver_not_ready(
        &mut self,
        host: &mut dyn Host,
        config: &QpConfig,
        psn: Psn,
        code: u8,
    ) -> Result<(), Fatal> {
        if self.containing(psn) != Some(0) || self.rnr_deadline.is_some() {
            return Ok(());
        }
        const FOR_EVER: u8 = 7;
        if config.rnr_retry != FOR_EVER {
            match self.rnr_retries_left.checked_sub(1) {
                Some(left) => self.rnr_retries_left = left,
                None => return self.fatal(host, config, Failure::RNR_RETRY_EXCEEDED),
            }
        }
        host.count(config.qpn, Counter::RnrNakRetryErr);
        self.step_back();
        self.rnr_deadline = Some(host.now() + rnr_timer_ns(code));
        Ok(())
    }

    /// Sends again from `psn` on, which the responder misses or whose response is lost; once for each loss.
    fn recover(
        &mut self,
        host: &mut dyn Host,
        config: &QpConfig,
        psn: Psn,
        why: Counter,
    ) -> Result<(), Fatal> {
        if self.recovering == Some(psn) {
            return Ok(());
        }
        self.recovering = Some(psn);
        self.retry(host, config, why)
    }

    fn retry(&mut self, host: &mut dyn Host, config: &QpConfig, why: Counter) -> Result<(), Fatal> {
        match self.retries_left.checked_sub(1) {
            Some(left) => self.retries_left = left,
            None => return self.fatal(host, config, Failure::RETRY_EXCEEDED),
        }
        host.count(config.qpn, why);
        self.step_back();
        Ok(())
    }

    /// The oldest request has failed, and the queue pair with it, or the one DC stream that it is of.
    fn fatal(&mut self, host: &mut dyn Host, config: &QpConfig, failure: Failure) -> Result<(), Fatal> {
        let stream = self.pending.front().map_or(0, |head| head.wqe.stream);
        self.fail_head(host, config, failure);
        if failure == Failure::LOCAL_QP_OP || !self.streams.fail(config, stream) {
            return Err(Fatal);
        }
        // The target executes nothing more of it, and the others' requests come again.
        self.step_back();
        self.note_progress(host, config);
        Ok(())
    }
}

/// Writes `data` to `offset` in the memory that `pieces` name; their keys go into `right`.
pub(super) fn scatter(
    host: &mut dyn Host,
    right: &Right,
    pieces: &[Piece],
    offset: u64,
    data: &[u8],
) -> Result<(), KeyFault> {
    for_each_part(pieces, offset, data.len() as u64, |part, range| match part {
        Piece::Memory { lkey, addr, .. } => host.write(&Right { key: lkey, ..*right }, addr, &data[range]),
        Piece::Inline { .. } => Ok(()),
    })
}
