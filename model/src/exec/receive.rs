//! Receive WQEs: where they come from, the QP's own queue or a shared one, and what becomes of them.

use super::{
    answers::scatter,
    completion::{self, Failure},
    config::{QpConfig, QpState, SharedQueue},
    courier::right,
    host::{Host, KeyFault, Need, QpEvent, Right, Ring, Rule, SharedWqe},
    tag_matching::Matched,
    wqe::{Broken, Piece, read_scatter_list},
};
use crate::wire::Packet;
use mlx5_direct::{
    mlx5::ids::{Cqn, Pdn, UserIndex},
    wqe::SEGMENT_BYTES,
};

/// Data that a CQE has room for at its start; more go before it.
const CQE_START_BYTES: usize = 32;
/// The longest receive WQE: 128 segments.
const MAX_RECEIVE_BYTES: usize = 2048;

/// A receive WQE that a message is being received into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Taken {
    /// Its counter, or its index in a shared queue: the CQE's `wqe_counter`.
    pub(super) wqe_counter: u16,
    /// Who has it completed.
    pub(super) cqn: Cqn,
    /// `srqn_or_user_index` of the CQE.
    pub(super) user_index: UserIndex,
    /// In whose name its memory is written.
    pd: Pdn,
    /// Of a message to an XRQ: what became of it. A tag's memory is no WQE's, and no counter is its own.
    pub(super) matched: Option<Matched>,
}

impl Taken {
    /// A WQE of a shared queue.
    pub(super) const fn of_queue(queue: SharedQueue, index: u16) -> Self {
        let SharedQueue { cqn, user_index, pd, .. } = queue;
        Self { wqe_counter: index, cqn, user_index, pd, matched: None }
    }

    /// The same for a message to an XRQ.
    pub(super) const fn by_tag(self, matched: Matched) -> Self {
        Self { matched: Some(matched), ..self }
    }
}

/// Why there is no receive WQE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Missing {
    /// The QP has no receive queue.
    NoQueue,
    /// None is posted.
    Empty,
    /// The queue or the WQE cannot be used; that was reported and completed in error.
    Broken,
}

/// A QP's side of the queue that it receives from.
#[derive(Debug, Default)]
pub(super) struct ReceiveQueue {
    /// WQEs taken of the QP's own queue.
    pub(super) consumed: u16,
    /// Scatter list of the WQE taken last, and its length.
    pieces: Vec<Piece>,
    pub(super) capacity: u64,
    overrun_reported: Option<u16>,
}

/// A queue pair that was in `was` has gone to ERR, and takes no more of its shared queue.
pub(super) fn last_wqe_reached(host: &mut dyn Host, config: &QpConfig, was: QpState) {
    if was != QpState::Err && config.shared.is_some() {
        host.event(config.qpn, QpEvent::LastWqeReached);
    }
}

impl ReceiveQueue {
    /// Whether a message that wants a receive WQE gets one.
    pub(super) fn ready(
        &mut self,
        host: &mut dyn Host,
        config: &QpConfig,
        shared: Option<SharedQueue>,
    ) -> Result<(), Missing> {
        self.posted(host, config, shared)?;
        if host.withholds_receive() { Err(Missing::Empty) } else { Ok(()) }
    }

    /// Whether a receive WQE is posted.
    fn posted(
        &mut self,
        host: &mut dyn Host,
        config: &QpConfig,
        shared: Option<SharedQueue>,
    ) -> Result<(), Missing> {
        let posted = match shared {
            Some(shared) => host.shared_is_posted(shared.number),
            None if config.n_receive_wqes == 0 => return Err(Missing::NoQueue),
            None => self.own_is_posted(host, config),
        };
        if posted { Ok(()) } else { Err(Missing::Empty) }
    }

    fn own_is_posted(&mut self, host: &mut dyn Host, config: &QpConfig) -> bool {
        let posted = host.receive_counter(config.qpn);
        let n = posted.wrapping_sub(self.consumed);
        if u32::from(n) > config.n_receive_wqes && self.overrun_reported != Some(posted) {
            self.overrun_reported = Some(posted);
            let (consumed, room) = (self.consumed, config.n_receive_wqes);
            host.violation(
                config.qpn,
                None,
                Rule::ReceiveQueueOverrun,
                format_args!("counter {posted}: {n} WQEs after {consumed}, the ring has {room}"),
            );
        }
        n > 0 && config.n_receive_wqes > 0
    }

    /// Takes the next receive WQE and reads its scatter list.
    pub(super) fn take(
        &mut self,
        host: &mut dyn Host,
        config: &QpConfig,
        shared: Option<SharedQueue>,
    ) -> Result<Taken, Missing> {
        self.posted(host, config, shared)?;
        let mut bytes = [0; MAX_RECEIVE_BYTES];
        let (taken, list) = match shared {
            Some(queue) => match host.take_shared(queue.number, &mut bytes) {
                SharedWqe::Taken { index, len_bytes } => {
                    // The list begins after the next segment.
                    (Taken::of_queue(queue, index), Ok(&bytes[SEGMENT_BYTES..len_bytes]))
                }
                SharedWqe::Empty => return Err(Missing::Empty),
                // No WQE of the QP's is involved: there is nothing to complete.
                SharedWqe::Broken => return Err(Missing::Broken),
            },
            None => {
                let counter = self.consumed;
                self.consumed = counter.wrapping_add(1);
                let stride = (config.receive_stride_bytes as usize).min(bytes.len());
                let slot = (u32::from(counter) & (config.n_receive_wqes - 1)) as usize;
                let read = host.read_ring(config.qpn, Ring::Receive, slot * stride, &mut bytes[..stride]);
                (own(config, counter), read.map(|()| &bytes[..stride]))
            }
        };
        let list = list.map_err(|_| None).and_then(|list| {
            read_scatter_list(list, &mut self.pieces).map_err(|broken: Broken| Some(broken))
        });
        self.capacity = match list {
            Ok(capacity) => capacity,
            Err(broken) => {
                if let Some((rule, text)) = broken {
                    host.violation(config.qpn, None, rule, format_args!("{text}"));
                }
                host.event(config.qpn, QpEvent::WqCatastrophic);
                completion::receive_failed(host, config, &taken, Failure::LOCAL_QP_OP);
                return Err(Missing::Broken);
            }
        };
        Ok(taken)
    }

    /// Receives into a piece of memory that is no WQE's.
    pub(super) fn take_memory(&mut self, piece: Piece, capacity: u64) {
        self.pieces.clear();
        self.pieces.push(piece);
        self.capacity = capacity;
    }

    /// Writes `data` to `offset` of the memory that the WQE taken last names.
    pub(super) fn scatter(
        &self,
        host: &mut dyn Host,
        config: &QpConfig,
        taken: &Taken,
        offset: u64,
        data: &[u8],
    ) -> Result<(), KeyFault> {
        let right = Right { pd: taken.pd, ..right(config, 0, Need::LocalWrite) };
        scatter(host, &right, &self.pieces, offset, data)
    }

    /// Puts away the payload of a SEND, which begins at `offset` of its message: into memory, or into the CQE if that has room
    /// for the whole message. What is for the CQE is returned.
    pub(super) fn put<'p>(
        &self,
        host: &mut dyn Host,
        config: &QpConfig,
        taken: &Taken,
        offset: u64,
        packet: &Packet<'p>,
    ) -> Result<&'p [u8], KeyFault> {
        let opcode = packet.headers.bth.opcode;
        let is_part = opcode.is_first() || opcode.is_middle() || opcode.is_last();
        let (skip, payload) = (taken.skip_bytes(), taken.received(packet.payload, self.capacity));
        let data = if offset == 0 { &payload[skip as usize..] } else { payload };
        // The CQE of a tag begins with the message's header.
        let room_bytes = match config.cs_res_bytes {
            ..=CQE_START_BYTES if taken.is_of_tag() => 0,
            room_bytes => room_bytes,
        };
        if !is_part && data.len() <= room_bytes {
            return Ok(data);
        }
        self.scatter(host, config, taken, offset.saturating_sub(skip), data)?;
        Ok(&[])
    }

    /// Completes all receive WQEs of the QP's own queue as flushed, in order. Those of a shared queue stay,
    /// for other QPs.
    pub(super) fn flush(&mut self, host: &mut dyn Host, config: &QpConfig) {
        while config.shared.is_none() && self.own_is_posted(host, config) {
            completion::receive_failed(host, config, &own(config, self.consumed), Failure::FLUSH);
            self.consumed = self.consumed.wrapping_add(1);
        }
    }
}

/// A WQE of the QP's own queue.
fn own(config: &QpConfig, counter: u16) -> Taken {
    let (cqn, user_index, pd) = (config.cqn_receive, config.user_index, config.pd);
    Taken { wqe_counter: counter, cqn, user_index, pd, matched: None }
}
