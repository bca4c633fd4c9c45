//! What a responder has still to send, in PSN order, and what it keeps to send again.

use super::{
    answers::Fatal,
    config::QpConfig,
    courier::{Courier, right},
    host::{Host, KeyFault, Need, QpEvent, Right},
    paging::{FaultedMemory, PageFault, Paging},
    psn::distance,
};
use crate::wire::{Acknowledgement, Aeth, Opcode, Reth};
use mlx5_direct::mlx5::ids::{Pdn, Psn};
use std::collections::VecDeque;

/// A READ or atomic that was executed; kept in case the response is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Record {
    /// A READ may be executed again.
    Read { first_psn: Psn, n_psns: u32 },
    /// An atomic may not: its result is kept.
    Atomic { psn: Psn, old: u64 },
}

impl Record {
    fn contains(&self, at: Psn) -> bool {
        match *self {
            Self::Read { first_psn, n_psns } => (0..n_psns as i32).contains(&distance(at, first_psn)),
            Self::Atomic { psn, .. } => psn == at,
        }
    }
}

/// A READ to answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Read {
    pub(super) first_psn: Psn,
    pub(super) n_psns: u32,
    pub(super) reth: Reth,
    /// In whose name the memory is read.
    pub(super) pd: Pdn,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Acknowledge(Acknowledgement),
    /// Of which so many packets were sent.
    Read(Read, u32),
    Atomic {
        old: u64,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Reply {
    psn: Psn,
    msn: u32,
    what: What,
    /// For a duplicate: takes no responder resource of its own.
    again: bool,
}

/// Replies to send and records kept.
#[derive(Debug, Default)]
pub(super) struct Replies {
    queue: VecDeque<Reply>,
    records: VecDeque<Record>,
}

impl Replies {
    /// Whether another READ or atomic may be accepted (`log_rra_max`).
    pub(super) fn has_room(&self, config: &QpConfig) -> bool {
        let busy = |reply: &&Reply| !reply.again && !matches!(reply.what, What::Acknowledge(_));
        (self.queue.iter().filter(busy).count() as u32) < config.max_served_reads
    }

    /// Keeps a record, dropping the oldest beyond `log_rra_max`.
    pub(super) fn record(&mut self, config: &QpConfig, record: Record) {
        while self.records.len() >= config.max_served_reads.max(1) as usize {
            self.records.pop_front();
        }
        self.records.push_back(record);
    }

    /// The record that a PSN belongs to.
    pub(super) fn find(&self, psn: Psn) -> Option<Record> {
        self.records.iter().find(|record| record.contains(psn)).copied()
    }

    /// Queues an acknowledgement; plain ones in a row become one.
    pub(super) fn acknowledge(&mut self, psn: Psn, what: Acknowledgement, msn: u32) {
        let reply = Reply { psn, msn, what: What::Acknowledge(what), again: false };
        match self.queue.back_mut() {
            Some(last) if last.what == reply.what && what == Acknowledgement::Ack => {
                if distance(psn, last.psn) > 0 {
                    last.psn = psn;
                }
                last.msn = msn;
            }
            _ => self.queue.push_back(reply),
        }
    }

    /// Queues a READ's response.
    pub(super) fn read(&mut self, read: Read, msn: u32, again: bool) {
        self.put(Reply { psn: read.first_psn, msn, what: What::Read(read, 0), again });
    }

    /// Queues an atomic's response.
    pub(super) fn atomic(&mut self, psn: Psn, old: u64, msn: u32, again: bool) {
        self.put(Reply { psn, msn, what: What::Atomic { old }, again });
    }

    /// A new reply goes last; one for a duplicate takes the place of the one still queued for the same
    /// request, or goes before what has later PSNs.
    fn put(&mut self, mut reply: Reply) {
        if !reply.again {
            self.queue.push_back(reply);
            return;
        }
        let end = |reply: &Reply| match reply.what {
            What::Read(read, _) => reply.psn.plus(read.n_psns),
            _ => reply.psn.plus(1),
        };
        let data = |reply: &Reply| !matches!(reply.what, What::Acknowledge(_));
        let same = self.queue.iter_mut().find(|other| data(other) && end(other) == end(&reply));
        if let Some(other) = same {
            reply.again = other.again;
            *other = reply;
            return;
        }
        let later = |other: &Reply| distance(other.psn, reply.psn) > 0;
        let at = self.queue.iter().position(later).unwrap_or(self.queue.len());
        self.queue.insert(at, reply);
    }

    /// The QP is in error: data is no longer sent, acknowledgements of what was executed still are.
    pub(super) fn abandon_data(&mut self) {
        self.queue.retain(|reply| matches!(reply.what, What::Acknowledge(_)));
    }

    /// The QP goes: sends the acknowledgements that no data is due before. A card has sent them by the time that a
    /// command can come.
    pub(super) fn part(&mut self, host: &mut dyn Host, config: &QpConfig, courier: &mut Courier) {
        while let Some(Reply { what: What::Acknowledge(what), psn, msn, .. }) = self.queue.front() {
            courier.acknowledge(host, config, *psn, Aeth::new(*what, *msn), None);
            self.queue.pop_front();
        }
    }

    /// Sends the next packet. Returns whether there was one that could be sent.
    pub(super) fn send_next(
        &mut self,
        host: &mut dyn Host,
        config: &QpConfig,
        courier: &mut Courier,
        paging: &mut Paging,
    ) -> Result<bool, Fatal> {
        let Some(reply) = self.queue.front_mut() else { return Ok(false) };
        match reply.what {
            What::Acknowledge(what) => {
                courier.acknowledge(host, config, reply.psn, Aeth::new(what, reply.msn), None);
            }
            What::Atomic { old } => {
                let aeth = Aeth::new(Acknowledgement::Ack, reply.msn);
                courier.acknowledge(host, config, reply.psn, aeth, Some(old));
            }
            What::Read(read, ref mut sent) => {
                let (n, msn) = (*sent, reply.msn);
                let outcome = match *paging {
                    Paging::Response => return Ok(false),
                    Paging::ResponseFailed => Err(KeyFault::Translation),
                    _ => send_read_response(host, config, courier, &read, n, msn),
                };
                match outcome {
                    Ok(()) => *sent += 1,
                    Err(KeyFault::Absent) => {
                        if host.page_fault(&read.page_fault(config, n)) {
                            *paging = Paging::Response;
                        }
                        return Ok(false);
                    }
                    Err(_) => {
                        *paging = Paging::Nothing;
                        self.queue.clear();
                        self.acknowledge(read.first_psn.plus(n), Acknowledgement::AccessError, msn);
                        host.event(config.qpn, QpEvent::AccessViolation);
                        return Err(Fatal);
                    }
                }
                if *sent < read.n_psns {
                    return Ok(true);
                }
            }
        }
        self.queue.pop_front();
        Ok(true)
    }
}

impl Read {
    /// Memory of response packet `n` is missing.
    fn page_fault(&self, config: &QpConfig, n: u32) -> PageFault {
        let Reth { addr, rkey, len_bytes } = self.reth;
        let done = u64::from(n) * u64::from(config.mtu_bytes);
        PageFault {
            qpn: config.qpn,
            bytes_committed: done,
            packet_bytes: u64::from(len_bytes).saturating_sub(done).min(config.mtu_bytes.into()) as usize,
            memory: FaultedMemory::Remote { rkey, addr, len_bytes, is_written: false },
        }
    }
}

/// Sends response packet `n`, if its memory can still be read.
fn send_read_response(
    host: &mut dyn Host,
    config: &QpConfig,
    courier: &mut Courier,
    read: &Read,
    n: u32,
    msn: u32,
) -> Result<(), KeyFault> {
    let Read { first_psn, n_psns, reth, pd } = *read;
    let psn = first_psn.plus(n);
    let opcode = match (n == 0, n + 1 == n_psns) {
        (true, true) => Opcode::READ_RESPONSE_ONLY,
        (true, false) => Opcode::READ_RESPONSE_FIRST,
        (false, false) => Opcode::READ_RESPONSE_MIDDLE,
        (false, true) => Opcode::READ_RESPONSE_LAST,
    };
    let Some(mut headers) = courier.headers(host, config, opcode, psn) else { return Ok(()) };
    headers.aeth = Some(Aeth::new(Acknowledgement::Ack, msn));
    let offset = u64::from(n) * u64::from(config.mtu_bytes);
    let len = (u64::from(reth.len_bytes) - offset).min(u64::from(config.mtu_bytes)) as usize;
    let right = Right { pd, ..right(config, reth.rkey, Need::RemoteRead) };
    courier.send(host, &headers, len, |host, payload| match len {
        0 => Ok(()),
        _ => host.read(&right, reth.addr.wrapping_add(offset), payload),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn psns(replies: &Replies) -> Vec<u32> {
        replies.queue.iter().map(|reply| reply.psn.get()).collect()
    }

    #[test]
    fn plain_acknowledgements_in_a_row_become_one() {
        let mut replies = Replies::default();
        for psn in [0xff_ffff, 1, 0] {
            replies.acknowledge(Psn::new(psn), Acknowledgement::Ack, 9);
        }
        assert_eq!(psns(&replies), [1], "an older one takes nothing back");
        replies.acknowledge(Psn::new(2), Acknowledgement::SequenceError, 9);
        replies.acknowledge(Psn::new(2), Acknowledgement::Ack, 10);
        assert_eq!(psns(&replies), [1, 2, 2], "a NAK stays what it is");
    }

    #[test]
    fn replies_to_duplicates_keep_the_order_of_psns() {
        let reth = Reth { addr: 0, rkey: 0, len_bytes: 8 };
        let read = |psn, n_psns| Read { first_psn: Psn::new(psn), n_psns, reth, pd: Pdn::new(0) };
        let mut replies = Replies::default();
        replies.read(read(10, 5), 1, false);
        replies.acknowledge(Psn::new(15), Acknowledgement::Ack, 2);
        replies.read(read(4, 3), 1, true);
        replies.atomic(Psn::new(7), 0, 1, true);
        replies.read(read(12, 3), 1, true);
        assert_eq!(psns(&replies), [4, 7, 12, 15]);
        let again: Vec<bool> = replies.queue.iter().map(|reply| reply.again).collect();
        assert_eq!(again, [true, true, false, false], "a READ asked for again still holds its resource");
        replies.abandon_data();
        assert_eq!(psns(&replies), [15]);
    }
}
