//! Tag matching at an XRQ: which message goes where, operations on the list, and their CQEs.

use super::{
    completion::Failure,
    config::{QpConfig, SharedQueue},
    cqe::Cqe,
    host::{Host, Rule, Wake},
    receive::{Missing, ReceiveQueue, Taken},
    responder::{INVALID, Refusal},
    tag_list::{TagMemory, TagOutcome, TakenTag},
    wqe::{Broken, Piece, need, reserved},
};
use crate::wire::Packet;
use mlx5_direct::{
    cqe::{CqeApp, CqeOpcode, ResponderCqe, TmAppOp, TmCqe, TmListCqe, TmOutcome},
    wqe::{DataSeg, Rvh, SEGMENT_BYTES, TmOp, TmSeg, Tmh, TmhOp},
};

/// Bytes of both headers of a rendezvous.
const RENDEZVOUS_HEADERS_BYTES: usize = size_of::<Tmh>() + size_of::<Rvh>();

/// What becomes of a message to an XRQ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Matched {
    /// It is in a WQE of the queue: for want of a tag that fits, or because it has none.
    Queue(TmAppOp),
    /// It took a tag.
    Tag { queue: SharedQueue, index: u16, header: Tmh, app_op: TmAppOp, skip_bytes: u64 },
}

/// A rendezvous that the device carries out: data to read, and then to tell of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rendezvous {
    pub(super) queue: SharedQueue,
    pub(super) tag: TakenTag,
    pub(super) header: Tmh,
    pub(super) data: Rvh,
}

/// The first packet of a message to an XRQ.
pub(super) enum First {
    /// It is received as any other.
    Receive(Taken),
    /// That was all of it: its data are read.
    Read(Rendezvous),
}

impl ReceiveQueue {
    /// Finds out where a message to `queue`, which matches tags, goes.
    pub(super) fn take_by_tag(
        &mut self,
        host: &mut dyn Host,
        config: &QpConfig,
        queue: SharedQueue,
        packet: &Packet<'_>,
    ) -> Result<First, Refusal> {
        let header = packet.payload.first_chunk().map(|bytes| Tmh::from_bytes(*bytes));
        let header = header.ok_or(INVALID)?;
        let rvh = packet.payload.get(size_of::<Tmh>()..).and_then(|rest| rest.first_chunk());
        let data = rvh.map(|bytes| Rvh::from_bytes(*bytes));
        let is_whole = !packet.headers.bth.opcode.is_first();
        match header.opcode() {
            TmhOp::EAGER => {}
            TmhOp::RNDV if data.is_some() && is_whole => {}
            TmhOp::NO_TAG | TmhOp::FIN => {
                return self.take_from_queue(host, config, queue, TmAppOp::NO_TAG).map_err(Refusal::from);
            }
            _ => return Err(INVALID),
        }
        let Some(tag) = host.take_tag(queue.number, header.tag()) else {
            let first = self.take_from_queue(host, config, queue, TmAppOp::UNEXPECTED)?;
            host.count_unexpected(queue.number);
            return Ok(first);
        };
        let capacity = u64::from(tag.memory.len_bytes);
        let longest = capacity.min(1 << config.log_msg_max);
        let (app_op, skip_bytes) = match (header.opcode(), data) {
            (TmhOp::RNDV, Some(data)) if config.rendezvous && u64::from(data.len_bytes()) <= longest => {
                consumed(host, config, queue, &tag, header);
                return Ok(First::Read(Rendezvous { queue, tag, header, data }));
            }
            // The device does not read, or the data have no room: software has the headers, and sees to it.
            (TmhOp::RNDV, _) => (TmAppOp::CONSUMED_MSG_SW_RDNV, 0),
            _ if is_whole => (TmAppOp::CONSUMED_MSG, size_of::<Tmh>() as u64),
            _ => (TmAppOp::EXPECTED, size_of::<Tmh>() as u64),
        };
        if app_op == TmAppOp::EXPECTED {
            consumed(host, config, queue, &tag, header);
        }
        let matched = Matched::Tag { queue, index: tag.index, header, app_op, skip_bytes };
        let TagMemory { lkey, addr, len_bytes } = tag.memory;
        self.take_memory(Piece::Memory { lkey, addr, len: len_bytes.into() }, capacity + skip_bytes);
        Ok(First::Receive(Taken::of_queue(queue, 0).by_tag(matched)))
    }

    fn take_from_queue(
        &mut self,
        host: &mut dyn Host,
        config: &QpConfig,
        queue: SharedQueue,
        app_op: TmAppOp,
    ) -> Result<First, Missing> {
        self.ready(host, config, Some(queue))?;
        let taken = self.take(host, config, Some(queue))?;
        Ok(First::Receive(taken.by_tag(Matched::Queue(app_op))))
    }
}

impl Taken {
    /// What of a packet is received: of a rendezvous that is left to software its headers, as far as the tag's memory goes.
    pub(super) fn received<'p>(&self, payload: &'p [u8], capacity: u64) -> &'p [u8] {
        let n = match self.matched {
            Some(Matched::Tag { app_op: TmAppOp::CONSUMED_MSG_SW_RDNV, .. }) => {
                RENDEZVOUS_HEADERS_BYTES.min(capacity as usize)
            }
            _ => payload.len(),
        };
        &payload[..n.min(payload.len())]
    }

    /// Bytes at the start of the message that are not among its data.
    pub(super) const fn skip_bytes(&self) -> u64 {
        match self.matched {
            Some(Matched::Tag { skip_bytes, .. }) => skip_bytes,
            _ => 0,
        }
    }

    /// Whether it is a tag's memory that is received into, which no WQE names.
    pub(super) const fn is_of_tag(&self) -> bool {
        matches!(self.matched, Some(Matched::Tag { .. }))
    }
}

/// A message took a tag, and its data come later.
fn consumed(host: &mut dyn Host, config: &QpConfig, queue: SharedQueue, tag: &TakenTag, header: Tmh) {
    let cqe = tag_cqe(host, config, queue, TmAppOp::CONSUMED).with_tmh(header).with_app_info(tag.index);
    host.post_cqe(queue.cqn, &cqe.into(), Wake::Any);
}

/// The data of a rendezvous have come.
pub(super) fn expected(host: &mut dyn Host, config: &QpConfig, done: &Rendezvous) {
    let queue = done.queue;
    let cqe = tag_cqe(host, config, queue, TmAppOp::EXPECTED)
        .with_app_info(done.tag.index)
        .with_byte_cnt(done.data.len_bytes())
        .with_opcode(CqeOpcode::RESP_SEND);
    host.release_tag(queue.number, done.tag.index);
    host.post_cqe(queue.cqn, &cqe.into(), Wake::Any);
}

/// The data of a message that took a tag will not come.
pub(super) fn canceled(host: &mut dyn Host, config: &QpConfig, queue: SharedQueue, index: u16) {
    let cqe = tag_cqe(host, config, queue, TmAppOp::MSG_COMPLETION_CANCELED).with_app_info(index);
    host.release_tag(queue.number, index);
    host.post_cqe(queue.cqn, &cqe.into(), Wake::Solicited);
}

/// A CQE of a tag that no packet has led to.
fn tag_cqe(host: &dyn Host, config: &QpConfig, queue: SharedQueue, app_op: TmAppOp) -> TmCqe {
    TmCqe::new()
        .with_srqn_or_user_index(queue.user_index)
        .with_app(CqeApp::TAG_MATCHING)
        .with_app_op(app_op)
        .with_timestamp(host.now())
        .with_qpn(config.qpn)
        .with_opcode(CqeOpcode::NO_PACKET)
}

/// Says in the CQE of a message what became of it.
pub(super) fn add_to_cqe(cqe: ResponderCqe, matched: Matched) -> Cqe {
    let cqe = cqe.with_app(CqeApp::TAG_MATCHING);
    match matched {
        Matched::Queue(app_op) => cqe.with_app_op(app_op).into(),
        Matched::Tag { index, header, app_op, skip_bytes, .. } => {
            let cqe = TmCqe::from_bytes(cqe.to_bytes())
                .with_app_op(app_op)
                .with_app_info(index)
                .with_byte_cnt(cqe.byte_cnt() - skip_bytes as u32);
            // Of EXPECTED, the CQE before it had the header.
            if app_op == TmAppOp::EXPECTED { cqe.into() } else { cqe.with_tmh(header).into() }
        }
    }
}

/// The segments of a list operation behind the control segment.
#[derive(Debug, Clone, Copy)]
pub(super) struct TagWqe {
    operation: TmSeg,
    memory: TagMemory,
}

impl TagWqe {
    pub(super) fn read(bytes: &[u8]) -> Result<Self, Broken> {
        let at = SEGMENT_BYTES;
        let operation = TmSeg::from_bytes(need(bytes, at, "tag matching")?);
        reserved::<TmSeg>(&bytes[at..at + size_of::<TmSeg>()])?;
        let memory = match operation.op() {
            TmOp::APPEND => {
                let data = DataSeg::from_bytes(need(bytes, at + size_of::<TmSeg>(), "data")?);
                if data.inline() {
                    return Err((Rule::WqeInline, "a tag whose memory is inline data".into()));
                }
                data.into()
            }
            _ => TagMemory::default(),
        };
        Ok(Self { operation, memory })
    }

    /// Whether it is completed.
    pub(super) fn is_completed(&self) -> bool {
        self.operation.cqe_req()
    }

    /// Has the list changed, and completes that if it is asked for.
    pub(super) fn execute(
        &self,
        host: &mut dyn Host,
        config: &QpConfig,
        wqe_index: u16,
    ) -> Result<(), Failure> {
        let broken = |host: &mut dyn Host, rule, text: &str| {
            host.violation(config.qpn, Some(wqe_index), rule, format_args!("{text}"));
            Err(Failure::LOCAL_QP_OP)
        };
        let Some(queue) = config.shared.filter(|queue| queue.tag_matching) else {
            return broken(host, Rule::WqeOpcode, "TAG_MATCHING on a QP without an XRQ that matches tags");
        };
        let outcome = match host.change_tags(queue.number, &self.operation, self.memory) {
            Ok(outcome) => outcome,
            Err((rule, text)) => return broken(host, rule, &text),
        };
        if self.is_completed() {
            let app_op = match self.operation.op() {
                TmOp::APPEND => TmAppOp::APPEND,
                TmOp::REMOVE => TmAppOp::REMOVE,
                _ => TmAppOp::NOOP,
            };
            let TagOutcome { success, n_unexpected } = outcome;
            let cqe = TmListCqe::new()
                .with_outcome(TmOutcome::new().with_success(success).with_hw_phase_cnt(n_unexpected))
                .with_srqn_or_user_index(queue.user_index)
                .with_app(CqeApp::TAG_MATCHING)
                .with_app_op(app_op)
                .with_timestamp(host.now())
                .with_qpn(config.qpn)
                .with_wqe_counter(wqe_index)
                .with_opcode(CqeOpcode::NO_PACKET);
            host.post_cqe(queue.cqn, &cqe.into(), Wake::Any);
        }
        Ok(())
    }
}
