//! Queue pairs.

mod connect;
mod datagram;
mod explain;
mod raw_packet;
mod requests;
mod xrc;

pub use connect::Connection;
pub use explain::Explanation;
pub use raw_packet::RawPacketQp;
pub use xrc::XrcQp;

use crate::{
    Context, Cq, Pd, QpAddress, Result,
    backend::{AddressVector, LinkLayer, PortAttr, QpAttr, QpModify, QpParams, QpParts},
    doorbell::{DoorbellMode, DoorbellRecord},
    mistake::mistake,
    mlx5::{
        be::Be32,
        context::{QpState, ServiceType},
        ids::{Psn, Qpn, UserIndex},
    },
    mr::Registration,
    queue::{
        QueueId, Rc, RecvQueue, RecvQueueParts, SendLedgerEntry, SendLimits, SendQueue, SendQueueParts,
        Transport, Uc, Ud,
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

/// A queue pair, of transport `T`: [reliable connection](Rc) if nothing is said, [unreliable connection](Uc)
/// ([`UcQp`]), [unreliable datagram](Ud) ([`UdQp`]), [extended reliable connection](crate::queue::Xrc), the initiator's end ([`XrcQp`]), or
/// none at all: [raw packets](crate::queue::RawPacket) ([`RawPacketQp`]).
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
///
/// Requests that a transport lacks do not exist:
/// ```compile_fail,E0599
/// # use mlx5_direct::{UcQp, queue::{Flags, Remote}};
/// fn read(qp: &mut UcQp, remote: Remote) {
///     qp.post_list().rdma_read(1, remote, Flags::SIGNALED);
/// }
/// ```
#[derive(Debug)]
pub struct Qp<T = Rc> {
    send: SendQueue<T>,
    recv: RecvQueue,
    psn: Psn,
    state: QpState,
    /// As it was last moved to; 0 before that.
    port: u8,
    object: Object,
}

/// An unreliable-connection queue pair: SEND and RDMA WRITE, of which nobody hears whether they arrived.
pub type UcQp = Qp<Uc>;

/// A queue pair for datagrams.
///
/// ```no_run
/// # fn f(pd: &mlx5_direct::Pd, cq: &mut mlx5_direct::Cq, peer: &mlx5_direct::QpAddress)
/// # -> Result<(), Box<dyn std::error::Error>> {
/// use mlx5_direct::{Access, QpInit, queue::{Flags, Grh}};
/// const QKEY: u32 = 0x1111_1111;
/// let mut qp = pd.create_ud_qp(&QpInit::default(), cq, cq)?;
/// qp.activate(1, QKEY)?;
/// // The first 40 bytes of what arrives are the network header's.
/// let mr = pd.alloc_mr(Grh::BYTES + 1024, Access::LOCAL_WRITE)?;
/// let memory = qp.lease(&mr)?;
/// qp.post_recv(1, &[memory.slice(0..mr.len_bytes() as u64)])?;
///
/// let to_peer = qp.address_handle(&qp.address_to(peer)?, peer.qpn, QKEY)?;
/// let mut list = qp.post_list();
/// list.send(2, &to_peer, Flags::SIGNALED)?.inline(b"who is there?")?.finish();
/// list.ring();
///
/// let mut done = cq.poll();
/// while let Some(wc) = done.next() {
///     wc.status()?;
///     qp.retire(&wc)?;
///     if let Some(source) = wc.source() {
///         let mut grh = [0; Grh::BYTES];
///         mr.read(0, &mut grh);
///         let back = qp.address_handle(&qp.address_from(&source, &grh)?, source.qpn, QKEY)?;
///         let mut list = qp.post_list();
///         list.send(3, &back, Flags::SIGNALED)?.inline(b"it is me")?.finish();
///         list.ring();
///     }
/// }
/// # Ok(()) }
/// ```
pub type UdQp = Qp<Ud>;

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

impl<T: Transport> Qp<T> {
    pub(crate) fn create(pd: &Pd, init: &QpInit, send_cq: &Cq, recv_cq: &Cq) -> Result<Self> {
        let ctx = pd.context();
        let parts = ctx.control().create_qp(&QpParams {
            service: T::SERVICE,
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
    /// `parts` are those of a queue pair of this device, of transport `T`, that uses `send_cq` and `recv_cq`. Its queues
    /// are empty, at index 0, and nobody else posts to them.
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
        Self { send, recv, psn, state: QpState::RST, port: 0, object }
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

    /// State as last [moved to](Self::modify). The device moves a queue pair by itself when a request fails: to ERR, or
    /// to SQER when a send fails that nobody acknowledges, from where RTS can be reached again.
    /// [`query`](Self::query) asks it.
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
    pub fn send_queue(&mut self) -> &mut SendQueue<T> {
        &mut self.send
    }

    pub(crate) fn sends(&self) -> &SendQueue<T> {
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
    /// [`crate::Error::Transition`] names what is missing, before the device is asked.
    pub fn modify(&mut self, modify: &QpModify) -> Result<()> {
        let control = self.object.context().control();
        // The device moves a queue pair to these by itself, and from there the way on is another.
        if self.state != QpState::RST {
            let state = control.query_qp(self.qpn())?.state;
            if matches!(state, QpState::ERR | QpState::SQER) {
                self.state = state;
            }
        }
        control.modify_qp(self.qpn(), modify)?;
        if let Some(port) = modify.port {
            self.port = port;
            self.limit_datagrams()?;
        }
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
                self.psn = self.psn.plus(connect::PSN_STEP);
            }
            QpState::INIT | QpState::RTR => self.open(mistake!(SendsEarly)),
            // In ERR and SQER all that is posted comes back flushed.
            QpState::RTS | QpState::SQER | QpState::ERR => self.open(true),
            _ => {}
        }
    }

    /// A datagram is one packet.
    fn limit_datagrams(&mut self) -> Result<()> {
        if T::SERVICE == ServiceType::UD {
            let port = self.object.context().port(self.port)?;
            self.send.set_limits(self.object.send_limits(port.active_mtu.bytes().unwrap_or(0)));
        }
        Ok(())
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

    /// What a peer has to know to [connect](Qp::connect) to this queue pair, or to send it datagrams, over `port`, at an entry of its GID
    /// table or at the [usual one](Context::usual_gid_index). After a move to RST ask anew: the PSN is another.
    pub fn address(&self, port: u8, gid_index: impl Into<Option<u8>>) -> Result<QpAddress> {
        let ctx = self.object.context();
        let attr = ctx.port(port)?;
        let gid_index = gid_index.into().unwrap_or(attr.link_layer.usual_gid_index());
        let gid = ctx.gid(port, gid_index.into())?;
        let (qpn, psn, mtu) = (self.qpn(), self.psn, attr.active_mtu);
        Ok(QpAddress { qpn, psn, gid: gid.gid, mac: gid.mac, lid: attr.lid, mtu })
    }

    /// The way to `peer` over a port, from an entry of its GID table.
    fn way_to(
        &self,
        peer: &QpAddress,
        port_num: u8,
        port: &PortAttr,
        sgid_index: u8,
    ) -> Result<AddressVector> {
        // Inside one InfiniBand subnet LIDs are enough, and packets 40 bytes shorter.
        let subnet = |gid: &[u8; 16]| gid.first_chunk::<8>().copied();
        let by_lid = port.link_layer == LinkLayer::InfiniBand
            && subnet(&self.object.context().gid(port_num, sgid_index.into())?.gid) == subnet(&peer.gid);
        Ok(AddressVector {
            port: port_num,
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
        })
    }
}

impl Object {
    /// What a send request may hold, if messages are of so many bytes at most.
    fn send_limits(&self, max_message_bytes: u32) -> SendLimits {
        SendLimits {
            max_sge: u8::try_from(self.parts.max_send_sge).unwrap_or(u8::MAX),
            max_inline_bytes: u16::try_from(self.parts.max_inline_data.min(max_message_bytes))
                .unwrap_or(u16::MAX),
            max_message_bytes,
            min_header_bytes: self.parts.min_header_bytes,
        }
    }

    /// The rings, over the memory that `parts` holds.
    fn queues<T: Transport>(&mut self, doorbell: DoorbellMode) -> (SendQueue<T>, RecvQueue) {
        let parts = &self.parts;
        let id = QueueId::next();
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
                limits: self.send_limits(self.context().device().max_msg_size),
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
                max_sge: u8::try_from(parts.max_recv_sge).unwrap_or(u8::MAX),
            })
        };
        match parts.user_index {
            None => (send, recv),
            Some(user_index) => (send.with_user_index(user_index), recv.with_user_index(user_index)),
        }
    }
}
