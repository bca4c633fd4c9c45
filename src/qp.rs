//! Queue pairs: reliable connection.

use crate::{
    Context, Cq, Error, Mr, Pd, QpAddress, Result,
    backend::{Access, AddressVector, LinkLayer, QpAttr, QpModify, QpParams, QpParts},
    doorbell::{DoorbellMode, DoorbellRecord},
    mlx5::{
        be::Be32,
        context::{Mtu, QpState},
        ids::{Psn, Qpn, UserIndex},
    },
    mr::Registration,
    queue::{
        Completion, Lease, LeaseSlice, PostError, PostList, QueueId, RecvList, RecvQueue, RecvQueueParts,
        RetireError, Retired, SendLedgerEntry, SendLimits, SendQueue, SendQueueParts, Sge,
    },
};
use std::sync::Arc;

/// What a queue pair shall hold. The device may give more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QpInit {
    /// Send requests outstanding, each of the largest size that the limits below allow.
    pub max_send_wr: u32,
    /// Receive requests outstanding.
    pub max_recv_wr: u32,
    /// Pieces of memory in a send request.
    pub max_send_sge: u32,
    /// Pieces of memory in a receive request.
    pub max_recv_sge: u32,
    /// Bytes of inline data in a send request.
    pub max_inline_data: u32,
    /// How the send queue rings.
    pub doorbell: DoorbellMode,
}

impl Default for QpInit {
    fn default() -> Self {
        Self {
            max_send_wr: 128,
            max_recv_wr: 128,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 64,
            doorbell: DoorbellMode::Auto,
        }
    }
}

/// How two queue pairs are connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connection {
    /// Own port, from 1.
    pub port: u8,
    /// Own entry in the GID table; `None` for the [usual one](Context::usual_gid_index).
    pub gid_index: Option<u8>,
    /// What the peer may do.
    pub access: Access,
    /// Payload of a packet; `None` for the largest that both ports can carry.
    pub path_mtu: Option<Mtu>,
    /// Own READs and atomics outstanding at once.
    pub max_rd_atomic: u8,
    /// READs and atomics of the peer outstanding at once.
    pub max_dest_rd_atomic: u8,
    /// Local ack timeout: 4.096 µs × 2^n, 0 to 31; 0 waits for ever.
    pub timeout: u8,
    /// Retries after a timeout or a sequence error, 0 to 7.
    pub retry_cnt: u8,
    /// Retries after RNR, 0 to 7; 7 retries for ever.
    pub rnr_retry: u8,
    /// Pause that an RNR NAK asks for, code 0 to 31.
    pub min_rnr_timer: u8,
}

impl Default for Connection {
    fn default() -> Self {
        Self {
            port: 1,
            gid_index: None,
            access: Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC,
            path_mtu: None,
            max_rd_atomic: 16,
            max_dest_rd_atomic: 16,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: 12,
        }
    }
}

/// A reliable-connection queue pair.
///
/// `Send`, not `Sync`: it has one producer. Completions come from the [`Cq`]s that it was made with and are given
/// to [`retire`](Self::retire), which frees the room of the request and tells its `wr_id`.
///
/// ```no_run
/// # use mlx5_direct::{Cq, Mr, Qp, Result, queue::Flags};
/// # fn f(qp: &mut Qp, cq: &mut Cq, mr: &Mr, remote: mlx5_direct::queue::Remote)
/// # -> std::result::Result<(), Box<dyn std::error::Error>> {
/// let memory = qp.lease(mr)?;
/// let mut list = qp.post_list();
/// list.rdma_write(1, remote, Flags::NONE)?.local(memory, 0..64)?.finish();
/// list.send(2, Flags::SIGNALED)?.inline(b"done")?.finish();
/// list.ring();
/// let mut done = cq.poll();
/// while let Some(wc) = done.next() {
///     wc.status()?;
///     println!("request {} and all before it are done", qp.retire(&wc)?.wr_id);
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Qp {
    send: SendQueue,
    recv: RecvQueue,
    psn: Psn,
    state: QpState,
    object: Object,
}

/// The device's queue pair and all that it refers to. Destroyed before any of it is let go.
#[derive(Debug)]
struct Object {
    pd: Pd,
    parts: QpParts,
    /// Completion queues outlive the queue pairs that use them.
    _cqs: [Arc<crate::cq::Object>; 2],
    leases: Vec<Arc<Registration>>,
    send_ledger: Box<[SendLedgerEntry]>,
    recv_ledger: Box<[u64]>,
}

impl Object {
    fn context(&self) -> &Context {
        self.pd.context()
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        // If the device does not confirm, the control path keeps the queues mapped and alive. Leased memory ends by
        // itself: its registrations do so in the device, or are kept in the same way.
        let _ = self.context().control().destroy_qp(self.parts.qpn);
    }
}

impl Qp {
    pub(crate) fn create(pd: &Pd, init: &QpInit, send_cq: &Cq, recv_cq: &Cq) -> Result<Self> {
        let ctx = pd.context();
        let parts = ctx.control().create_qp(&QpParams {
            pd: pd.pdn(),
            send_cq: send_cq.cqn(),
            recv_cq: recv_cq.cqn(),
            user_index: ctx.next_user_index(),
            max_send_wr: init.max_send_wr,
            max_recv_wr: init.max_recv_wr,
            max_send_sge: init.max_send_sge,
            max_recv_sge: init.max_recv_sge,
            max_inline_data: init.max_inline_data,
        })?;
        // SAFETY: just made, and nobody else has the parts.
        Ok(unsafe { Self::adopt(pd, parts, init.doorbell, send_cq, recv_cq) })
    }

    /// # Safety
    /// `parts` are those of a queue pair of this device that uses `send_cq` and `recv_cq`. Its queues are empty, at index
    /// 0, and nobody else posts to them.
    pub(crate) unsafe fn adopt(
        pd: &Pd,
        parts: QpParts,
        doorbell: DoorbellMode,
        send_cq: &Cq,
        recv_cq: &Cq,
    ) -> Self {
        // Another one for each, so that packets of a former connection are not taken for those of this one.
        let nth = parts.user_index.unwrap_or_else(|| pd.context().next_user_index());
        let mut object = Object {
            pd: pd.clone(),
            _cqs: [Arc::clone(send_cq.object()), Arc::clone(recv_cq.object())],
            leases: Vec::new(),
            send_ledger: vec![SendLedgerEntry::default(); 1 << parts.log_sq_size].into(),
            recv_ledger: vec![0; 1 << parts.log_rq_size].into(),
            parts,
        };
        let (send, recv) = object.queues(doorbell);
        let psn = Psn::new(0x1000 + nth.get() * 0x101);
        Self { send, recv, psn, state: QpState::RST, object }
    }

    /// Number of the queue pair.
    pub fn qpn(&self) -> Qpn {
        self.object.parts.qpn
    }

    /// The number in completions that tells it from every other queue pair of the device, past ones included;
    /// `None` if they tell it by [`qpn`](Self::qpn) alone.
    pub fn user_index(&self) -> Option<UserIndex> {
        self.object.parts.user_index
    }

    /// The protection domain.
    pub fn pd(&self) -> &Pd {
        &self.object.pd
    }

    /// State as last [moved to](Self::modify). The device moves a queue pair to ERR by itself when a request
    /// fails; [`query`](Self::query) asks it.
    pub fn state(&self) -> QpState {
        self.state
    }

    /// State and attributes as the device has them.
    pub fn query(&self) -> Result<QpAttr> {
        self.object.context().control().query_qp(self.qpn())
    }

    /// What one send request may hold.
    pub fn send_limits(&self) -> SendLimits {
        self.send.limits()
    }

    /// Send requests of the largest size that fit, and receive requests.
    pub fn max_wr(&self) -> (u32, u32) {
        (self.object.parts.max_send_wr, self.object.parts.max_recv_wr)
    }

    /// Pieces of memory that a receive request may name.
    pub fn max_recv_sge(&self) -> u32 {
        self.recv.max_sge()
    }

    /// The send queue.
    pub fn send_queue(&mut self) -> &mut SendQueue {
        &mut self.send
    }

    pub(crate) fn sends(&self) -> &SendQueue {
        &self.send
    }

    /// The receive queue.
    pub fn recv_queue(&mut self) -> &mut RecvQueue {
        &mut self.recv
    }

    /// Moves the queue pair to another state.
    ///
    /// In RST both queues are emptied: what was outstanding is forgotten, and indices are 0 again. Completions of
    /// before that are still in a completion queue could be taken for those of new requests: take them first, or
    /// have the queue [swept](Cq::sweep) before the queue pair is used again.
    ///
    /// # Errors
    /// [`Error::Transition`] names what is missing, before the device is asked.
    pub fn modify(&mut self, modify: &QpModify) -> Result<()> {
        let control = self.object.context().control();
        // The device moves a queue pair to ERR by itself, and from there the way on is another.
        if self.state != QpState::RST && control.query_qp(self.qpn())?.state == QpState::ERR {
            self.state = QpState::ERR;
        }
        control.modify_qp(self.qpn(), modify)?;
        self.moved(modify.to);
        Ok(())
    }

    /// Asks for the state, for a queue pair that others [move](crate::backend::verbs::VerbsControl::raw_qp), and lets
    /// requests be posted accordingly. One that was moved through RST by others has lost what was outstanding: move it to
    /// RST [here](Self::modify) instead.
    pub fn refresh(&mut self) -> Result<QpState> {
        let state = self.query()?.state;
        if state != self.state {
            self.moved(state);
        }
        Ok(state)
    }

    fn moved(&mut self, state: QpState) {
        self.state = state;
        match state {
            QpState::RST => {
                self.send.reset();
                self.recv.reset();
            }
            QpState::INIT | QpState::RTR => self.open(false),
            // In ERR all that is posted comes back flushed.
            QpState::RTS | QpState::ERR => self.open(true),
            _ => {}
        }
    }

    /// Lets requests be posted: receives, or both. A queue that was made without room takes none in any state.
    fn open(&mut self, both: bool) {
        let parts = &self.object.parts;
        if parts.max_recv_wr > 0 {
            self.recv.open();
        }
        if both && parts.max_send_wr > 0 {
            self.send.open();
        }
    }

    /// What a peer has to know to [connect](Self::connect) to this queue pair over `port`, at an entry of its GID
    /// table or at the [usual one](Context::usual_gid_index).
    pub fn address(&self, port: u8, gid_index: impl Into<Option<u8>>) -> Result<QpAddress> {
        let ctx = self.object.context();
        let attr = ctx.port(port)?;
        let gid_index = gid_index.into().unwrap_or(attr.link_layer.usual_gid_index());
        let gid = ctx.gid(port, gid_index.into())?;
        let (qpn, psn, mtu) = (self.qpn(), self.psn, attr.active_mtu);
        Ok(QpAddress { qpn, psn, gid: gid.gid, mac: gid.mac, lid: attr.lid, mtu })
    }

    /// Connects to the queue pair `peer`, on whatever host: moves from RST over INIT and RTR to RTS.
    ///
    /// The peer does the same; the first request may go when it has reached RTR. [`QpAddress`] shows how two hosts
    /// tell each other.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an address that packets cannot be sent to, by name, before the device is
    /// asked; the queue pair may be in INIT then.
    pub fn connect(&mut self, peer: &QpAddress, how: &Connection) -> Result<()> {
        self.modify(&QpModify {
            pkey_index: Some(0),
            port: Some(how.port),
            access: Some(how.access),
            ..QpModify::to(QpState::INIT)
        })?;
        self.modify(&self.rtr(peer, how)?)?;
        self.modify(&QpModify {
            timeout: Some(how.timeout),
            retry_cnt: Some(how.retry_cnt),
            rnr_retry: Some(how.rnr_retry),
            sq_psn: Some(self.psn),
            max_rd_atomic: Some(how.max_rd_atomic),
            ..QpModify::to(QpState::RTS)
        })
    }

    fn rtr(&self, peer: &QpAddress, how: &Connection) -> Result<QpModify> {
        let ctx = self.object.context();
        let port = ctx.port(how.port)?;
        let sgid_index = how.gid_index.unwrap_or(port.link_layer.usual_gid_index());
        // Inside one InfiniBand subnet LIDs are enough, and packets 40 bytes shorter.
        let subnet = |gid: &[u8; 16]| gid.first_chunk::<8>().copied();
        let by_lid = port.link_layer == LinkLayer::InfiniBand
            && subnet(&ctx.gid(how.port, sgid_index.into())?.gid) == subnet(&peer.gid);
        let ah = AddressVector {
            port: how.port,
            sgid_index,
            dgid: if by_lid { [0; 16] } else { peer.gid },
            dmac: peer.mac,
            dlid: peer.lid,
            sl: 0,
            hop_limit: 64,
            traffic_class: 0,
            flow_label: 0,
            udp_sport: None,
            force_loopback: false,
        };
        Ok(QpModify {
            ah: Some(ah),
            path_mtu: Some(how.path_mtu.unwrap_or(Mtu(port.active_mtu.0.min(peer.mtu.0)))),
            dest_qp_num: Some(peer.qpn),
            rq_psn: Some(peer.psn),
            max_dest_rd_atomic: Some(how.max_dest_rd_atomic),
            min_rnr_timer: Some(how.min_rnr_timer),
            ..QpModify::to(QpState::RTR)
        })
    }

    /// Lets this queue pair name `mr` in its requests. The memory stays registered until the queue pair is
    /// destroyed, even if `mr` is dropped before.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the memory is of another protection domain, which the device would refuse.
    pub fn lease(&mut self, mr: &Mr) -> Result<Lease> {
        let registration = mr.registration();
        if registration.pd().pdn() != self.object.pd.pdn() {
            return Err(Error::invalid(format!(
                "memory of protection domain {} cannot be used by queue pair {} of domain {}; register it there",
                registration.pd().pdn(),
                self.qpn(),
                self.object.pd.pdn()
            )));
        }
        if !self.object.leases.iter().any(|held| Arc::ptr_eq(held, registration)) {
            self.object.leases.push(Arc::clone(registration));
        }
        // SAFETY: the registration is held until the device has destroyed the queue pair, and no reference to
        // memory of an `Mr` is ever made.
        Ok(unsafe { Lease::new(self.send.id(), mr.lkey(), mr.addr(), mr.len_bytes() as u64) })
    }

    /// Starts a list of send requests. Nothing of it exists for the device before [`PostList::ring`].
    #[inline(always)]
    pub fn post_list(&mut self) -> PostList<'_> {
        self.send.post_list()
    }

    /// Starts a list of receive requests. Nothing of it exists for the device before [`RecvList::publish`].
    #[inline(always)]
    pub fn recv_list(&mut self) -> RecvList<'_> {
        self.recv.post_list()
    }

    /// Posts one receive request over leased memory.
    ///
    /// # Errors
    /// See [`RecvQueue::post`]; nothing is posted then.
    #[inline]
    pub fn post_recv(&mut self, wr_id: u64, slices: &[LeaseSlice]) -> std::result::Result<(), PostError> {
        self.recv.post(wr_id, slices)
    }

    /// Posts one receive request over the application's own memory.
    ///
    /// # Errors
    /// See [`RecvQueue::post`]; nothing is posted then.
    ///
    /// # Safety
    /// See [`RecvRequest::sge`](crate::queue::RecvRequest::sge), for each of `sges`.
    #[inline]
    pub unsafe fn post_recv_raw(&mut self, wr_id: u64, sges: &[Sge]) -> std::result::Result<(), PostError> {
        // SAFETY: the caller's promise.
        unsafe { self.recv.post_raw(wr_id, sges) }
    }

    /// Retires the request that `completion` is of, and of sends all before it: their room is free again.
    ///
    /// # Errors
    /// A completion of another queue pair; nothing changes then.
    #[inline]
    pub fn retire(&mut self, completion: &Completion<'_>) -> std::result::Result<Retired, RetireError> {
        if completion.is_send() { self.send.retire(completion) } else { self.recv.retire(completion) }
    }
}

impl Object {
    /// The rings, over the memory that `parts` holds.
    fn queues(&mut self, doorbell: DoorbellMode) -> (SendQueue, RecvQueue) {
        let parts = &self.parts;
        let id = QueueId::next();
        let limit = |n: u32| u8::try_from(n).unwrap_or(u8::MAX);
        // Words of the record: receive counter, send counter (`dbrec_qp`).
        let words = parts.record.base().cast::<Be32>();
        // SAFETY: the record has two words, lives as long as `parts`, and is written through these values alone.
        let (recv_record, send_record) =
            unsafe { (DoorbellRecord::new(words), DoorbellRecord::new(words.add(1))) };
        // SAFETY: called this once; the queue is dropped before `self`, with which it is in `Qp`.
        let register = unsafe { parts.register.register() };
        // SAFETY: ring, ledger and register live in `self`, which `Qp` drops after the queue, and are reached
        // through the queue alone. The device was given the same ring, at index 0.
        let send = unsafe {
            SendQueue::new(SendQueueParts {
                qpn: parts.qpn,
                id,
                ring: parts.sq.base(),
                log_wq_size: parts.log_sq_size,
                ledger: std::ptr::NonNull::from(&mut *self.send_ledger).cast(),
                record: send_record,
                register,
                doorbell,
                limits: SendLimits {
                    max_sge: limit(parts.max_send_sge),
                    max_inline_bytes: u16::try_from(parts.max_inline_data).unwrap_or(u16::MAX),
                    max_message_bytes: self.pd.context().device().max_msg_size,
                },
            })
        };
        // SAFETY: as above.
        let recv = unsafe {
            RecvQueue::new(RecvQueueParts {
                qpn: parts.qpn,
                id,
                ring: parts.rq.base(),
                log_wq_size: parts.log_rq_size,
                log_wq_stride: parts.log_rq_stride_bytes,
                ledger: std::ptr::NonNull::from(&mut *self.recv_ledger).cast(),
                record: recv_record,
                max_sge: limit(parts.max_recv_sge),
            })
        };
        match parts.user_index {
            None => (send, recv),
            Some(user_index) => (send.with_user_index(user_index), recv.with_user_index(user_index)),
        }
    }
}
