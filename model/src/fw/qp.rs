//! Queue pairs: creation, query, end, and the call into their transport engines.
#![forbid(unsafe_code)]

use super::{
    Function,
    buffer::Buffer,
    caps,
    devx::{BufferSource, UmemPart},
    dispatch::{Input, Output, done, out},
    pages::Cost,
    refusal::Refusal,
    scatter_to_cqe,
};
use crate::exec::{DcStreams, Engine, Path, QpConfig, QpState, Ring, Service};
use mlx5_direct::mlx5::{
    cmd::{CreateQpIn, CreateQpOut, DestroyQpIn, QueryQpIn, QueryQpOut},
    context::{Ads, QpState as WireState, Qpc, RqType, ServiceType},
    ids::Qpn,
    record::{RCV_DBR, SND_DBR},
};

/// First QP number: those before it are the device's own.
pub(crate) const FIRST_QPN: u32 = 0x100;
const WQEBB_BYTES: u64 = 64;
/// The number of QP0 on the wire.
pub(super) const SUBNET_MANAGEMENT_QPN: Qpn = Qpn::new(0);
/// The virtual lane of QP0.
const SUBNET_MANAGEMENT_VL: u8 = 15;
/// Each of the two rings takes at least this much of the buffer.
const MIN_RING_BYTES: u64 = 64;

/// A queue pair.
#[derive(Debug)]
pub(crate) struct Qp {
    pub(crate) context: Qpc,
    buffer: Buffer,
    n_receive_wqes: u32,
    n_send_wqebbs: u32,
    /// Where the send ring starts in the buffer.
    send_at: u64,
    /// Absent while it runs, since its host is the function.
    pub(super) engine: Option<Box<Engine>>,
    /// Producer counter of the last send doorbell.
    pub(crate) producer: u16,
    /// Receive counter last seen in ERR.
    pub(super) receive_seen: u16,
    /// The send ring as it was when its WQEs were posted, and the first WQEBB not retired since.
    shadow: Vec<u8>,
    retired: u16,
    /// The receive ring as it was when its WQEs were seen to be posted, and the counter of the first not seen yet.
    receive_shadow: Vec<u8>,
    receive_shadowed: u16,
    /// Data did not fit their signature, and its engine does not know yet.
    pub(super) signature_failed: bool,
    /// It may copy memory: `qpc_ext.mmo`.
    pub(super) mmo: bool,
    /// DC initiator: number of this life.
    pub(crate) dc_session: u32,
}

impl Qp {
    fn new(context: Qpc, buffer: impl FnOnce(u64) -> Result<Buffer, Refusal>) -> Result<Self, Refusal> {
        let n_send_wqebbs = if context.no_sq() { 0 } else { 1 << context.log_sq_size() };
        let stride_bytes = 16u64 << context.log_rq_stride();
        let n_receive_wqes = match context.rq_type() {
            RqType::NON_ZERO_RQ => 1 << context.log_rq_size(),
            RqType::ZERO_LEN_RQ | RqType::SRQ_RQ => 0,
            _ => return Err(Refusal::RQ_TYPE),
        };
        service(context.st()).ok_or(Refusal::SERVICE_TYPE)?;
        if n_send_wqebbs == 0 && n_receive_wqes == 0 && context.rq_type() != RqType::SRQ_RQ {
            return Err(Refusal::QP_NO_QUEUE);
        }
        if context.log_sq_size().max(context.log_rq_size()) > caps::LOG_MAX_QP_SZ {
            return Err(Refusal::QUEUE_SIZE);
        }
        if context.log_num_dci_stream_channels() > caps::LOG_MAX_DCI_STREAMS
            || context.log_num_dci_errored_streams() > caps::LOG_MAX_DCI_STREAMS
        {
            return Err(Refusal::DCI_STREAMS);
        }
        if n_receive_wqes != 0 && stride_bytes > caps::MAX_WQE_BYTES_RQ.into() {
            return Err(Refusal::RQ_STRIDE);
        }
        if context.wq_signature() {
            return Err(Refusal::QP_SIGNATURES);
        }
        let receive_bytes = match n_receive_wqes {
            0 => 0,
            n => (u64::from(n) * stride_bytes).max(MIN_RING_BYTES),
        };
        let len_bytes = receive_bytes + u64::from(n_send_wqebbs) * WQEBB_BYTES;
        let buffer = buffer(len_bytes)?;
        let mut qp = Self {
            context: context.with_state(WireState::RST),
            buffer,
            n_receive_wqes,
            n_send_wqebbs,
            send_at: receive_bytes,
            engine: None,
            producer: 0,
            receive_seen: 0,
            shadow: vec![0; n_send_wqebbs as usize * WQEBB_BYTES as usize],
            retired: 0,
            receive_shadow: Vec::new(),
            receive_shadowed: 0,
            signature_failed: false,
            mmo: false,
            dc_session: 0,
        };
        qp.engine = Some(Box::new(Engine::new(qp.config(Qpn::new(0)))));
        Ok(qp)
    }

    /// The context as the transport engine takes it.
    pub(crate) fn config(&self, qpn: Qpn) -> QpConfig {
        let context = &self.context;
        let source_qpn = match context.st() {
            ServiceType::QP0 => SUBNET_MANAGEMENT_QPN,
            _ => Some(context.deth_sqpn()).filter(|sqpn| sqpn.get() != 0).unwrap_or(qpn),
        };
        QpConfig {
            service: service(context.st()).unwrap_or_default(),
            qpn,
            qkey: context.q_key(),
            source_qpn,
            vl: if context.st() == ServiceType::QP0 { SUBNET_MANAGEMENT_VL } else { 0 },
            pd: context.pd(),
            user_index: context.user_index(),
            cqn_send: context.cqn_snd(),
            cqn_receive: context.cqn_rcv(),
            cs_req_bytes: scatter_to_cqe::of_requester(context.cs_req()).unwrap_or(0),
            cs_res_bytes: scatter_to_cqe::of_responder(context.cs_res()).unwrap_or(0),
            n_send_wqebbs: self.n_send_wqebbs,
            n_receive_wqes: self.n_receive_wqes,
            receive_stride_bytes: 16 << context.log_rq_stride(),
            shared: None,
            xrcd: context.xrcd(),
            dc_streams: dc_streams(context),
            dc_session: self.dc_session,
            remote_qpn: context.remote_qpn(),
            mtu_bytes: context.mtu().bytes().unwrap_or(1024),
            log_msg_max: context.log_msg_max(),
            path: path(&context.primary_address_path()),
            retry_count: context.retry_count(),
            rnr_retry: context.rnr_retry(),
            min_rnr_nak: context.min_rnr_nak(),
            next_send_psn: context.next_send_psn(),
            next_rcv_psn: context.next_rcv_psn(),
            max_outstanding_reads: 1 << context.log_sra_max(),
            max_served_reads: 1 << context.log_rra_max(),
            log_ack_req_freq: context.log_ack_req_freq(),
            remote_read: context.rre(),
            remote_write: context.rwe(),
            remote_atomic: context.rae(),
            drain_sigerr: context.drain_sigerr(),
            mmo: self.mmo,
            compact_av: false,
            rendezvous: false,
        }
    }

    pub(crate) fn state(&self) -> QpState {
        self.engine.as_ref().map_or(QpState::Rst, |engine| engine.state())
    }

    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        self.engine.as_ref()?.next_deadline()
    }

    /// Whether its state takes send doorbells.
    pub(crate) fn sends(&self) -> bool {
        !matches!(self.state(), QpState::Rst | QpState::Init | QpState::Rtr)
    }

    pub(crate) fn uar(&self) -> u32 {
        self.context.uar_page().get()
    }

    pub(crate) fn send_record(&self) -> u64 {
        self.context.dbr_addr() + SND_DBR as u64
    }

    /// A DC initiator's send record may hold what it held before RST: UCX leaves it so (dc_mlx5.c), and a card reads it with a
    /// doorbell only.
    pub(super) fn may_keep_its_record(&self) -> bool {
        self.context.st() == ServiceType::DCI
    }

    /// Of a queue pair with a receive queue of its own: an XRC target, for one, has no record at all.
    pub(crate) fn receive_record(&self) -> Option<u64> {
        (self.n_receive_wqes != 0).then(|| self.context.dbr_addr() + RCV_DBR as u64)
    }

    pub(crate) fn has_send_queue(&self) -> bool {
        self.n_send_wqebbs != 0
    }

    /// Reads part of a ring.
    pub(crate) fn read_ring(
        &self,
        dma: &crate::mem::DmaMap,
        ring: Ring,
        offset_bytes: u64,
        into: &mut [u8],
    ) -> Result<(), crate::mem::DmaFault> {
        let start = if ring == Ring::Send { self.send_at } else { 0 };
        self.buffer.read(dma, start + offset_bytes, into)
    }

    /// Keeps a copy of what is posted up to `counter`.
    pub(crate) fn take_shadow(&mut self, dma: &crate::mem::DmaMap, counter: u16) {
        let n_new = u32::from(counter.wrapping_sub(self.producer)).min(self.n_send_wqebbs);
        for index in (0..n_new as u16).map(|n| self.producer.wrapping_add(n)) {
            let mut wqebb = [0; WQEBB_BYTES as usize];
            if self.read_send_ring(dma, index, 0, &mut wqebb) {
                let at = self.shadow_at(index);
                self.shadow[at..at + wqebb.len()].copy_from_slice(&wqebb);
            }
        }
        self.producer = counter;
    }

    /// Counter of the first WQEBB not started.
    fn started(&self) -> u16 {
        self.engine.as_ref().map_or(self.producer, |engine| engine.progress().hw_sq_wqebb_counter)
    }

    /// What is posted and not started may have been replaced: software was told that the queue is drained.
    pub(crate) fn retake_shadow(&mut self, dma: &crate::mem::DmaMap) {
        let (first, counter) = (self.started(), self.producer);
        self.producer = first;
        self.take_shadow(dma, counter);
    }

    /// In RST nothing is posted.
    pub(crate) fn forget_posted(&mut self) {
        (self.signature_failed, self.mmo) = (false, false);
        (self.producer, self.retired, self.receive_seen, self.receive_shadowed) = (0, 0, 0, 0);
    }

    /// Keeps a copy of the receive WQEs up to `counter`, when the device first sees that they are posted.
    pub(crate) fn take_receive_shadow(&mut self, dma: &crate::mem::DmaMap, counter: u16) {
        let first = std::mem::replace(&mut self.receive_shadowed, counter);
        // More than a ring is another rule's: then it is the whole ring that is seen now.
        let n_new = u32::from(counter.wrapping_sub(first)).min(self.n_receive_wqes) as u16;
        let first = counter.wrapping_sub(n_new);
        let stride_bytes = 16usize << self.context.log_rq_stride();
        self.receive_shadow.resize(self.n_receive_wqes as usize * stride_bytes, 0);
        for slot in (0..n_new).map(|n| u32::from(first.wrapping_add(n)) & (self.n_receive_wqes - 1)) {
            let at = slot as usize * stride_bytes;
            let wqe = &mut self.receive_shadow[at..at + stride_bytes];
            // What cannot be read is reported when it is executed.
            let _unreadable = self.buffer.read(dma, at as u64, wqe);
        }
    }

    /// Whether a receive WQE is what it was when it was posted.
    pub(crate) fn is_receive_as_posted(&self, offset_bytes: usize, wqe: &[u8]) -> bool {
        self.receive_shadow.get(offset_bytes..offset_bytes + wqe.len()).is_none_or(|posted| posted == wqe)
    }

    pub(super) fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// Address of its doorbell record, if it has a queue.
    pub(super) fn record(&self) -> Option<u64> {
        (self.n_send_wqebbs != 0 || self.n_receive_wqes != 0).then(|| self.context.dbr_addr())
    }

    fn shadow_at(&self, index: u16) -> usize {
        (u32::from(index) & (self.n_send_wqebbs - 1)) as usize * WQEBB_BYTES as usize
    }

    /// Retires all WQEBBs up to `last`, and returns the first that was overwritten while it was posted, with
    /// what it holds now.
    pub(crate) fn retire(&mut self, dma: &crate::mem::DmaMap, last: u16) -> Option<(u16, [u8; 64])> {
        let n_posted = self.producer.wrapping_sub(self.retired);
        let n_retired = last.wrapping_sub(self.retired).wrapping_add(1);
        if n_retired > n_posted || n_retired == 0 {
            return None;
        }
        let first = std::mem::replace(&mut self.retired, last.wrapping_add(1));
        (0..n_retired).map(|n| first.wrapping_add(n)).find_map(|index| {
            let mut wqebb = [0; WQEBB_BYTES as usize];
            let at = self.shadow_at(index);
            let same =
                !self.read_send_ring(dma, index, 0, &mut wqebb) || self.shadow[at..at + wqebb.len()] == wqebb;
            (!same).then_some((index, wqebb))
        })
    }

    /// Reads from the send ring on from WQEBB `index`, going on at the start after the end.
    pub(crate) fn read_send_ring(
        &self,
        dma: &crate::mem::DmaMap,
        index: u16,
        offset: u64,
        into: &mut [u8],
    ) -> bool {
        let len_bytes = u64::from(self.n_send_wqebbs) * WQEBB_BYTES;
        let mut at = (u64::from(index) * WQEBB_BYTES + offset) % len_bytes;
        let mut done = 0;
        while done < into.len() {
            let n = ((len_bytes - at) as usize).min(into.len() - done);
            if self.read_ring(dma, Ring::Send, at, &mut into[done..done + n]).is_err() {
                return false;
            }
            done += n;
            at = 0;
        }
        true
    }
}

/// The streams of a DC initiator, if it was made with any.
fn dc_streams(context: &Qpc) -> Option<DcStreams> {
    let log_channels = context.log_num_dci_stream_channels();
    let streams = DcStreams { log_channels, log_errored: context.log_num_dci_errored_streams() };
    (context.st() == ServiceType::DCI && log_channels != 0).then_some(streams)
}

/// What a service type executes; `None` for those that the model has not.
fn service(st: ServiceType) -> Option<Service> {
    match st {
        ServiceType::RC => Some(Service::Connected),
        ServiceType::UC => Some(Service::Unacknowledged),
        ServiceType::XRC => Some(Service::Extended),
        ServiceType::DCI => Some(Service::Dynamic),
        ServiceType::UD | ServiceType::QP0 | ServiceType::QP1 => Some(Service::Datagram),
        ServiceType::REG_UMR => Some(Service::Registration),
        _ => None,
    }
}

fn path(ads: &Ads) -> Path {
    Path {
        gid_index: ads.src_addr_index(),
        dest_mac: ads.rmac(),
        dest_gid: ads.rgid_rip(),
        dest_lid: ads.rlid(),
        sl: ads.sl(),
        grh: ads.grh(),
        udp_source_port: ads.udp_sport(),
        traffic_class: ads.tclass(),
        hop_limit: ads.hop_limit(),
        flow_label: ads.flow_label(),
        eth_prio: ads.eth_prio(),
        ack_timeout: ads.ack_timeout(),
    }
}

/// States have the same numbers on the wire.
pub(crate) fn wire_state(state: QpState) -> WireState {
    WireState(state as u8)
}

impl Function {
    pub(super) fn create_qp(&mut self, input: &Input<'_>) -> Output {
        let (input, list) = input.get_with_list::<CreateQpIn>()?;
        let context = input.qpc();
        // An XRC target has no queue of its own, so Linux gives it neither record nor UAR page.
        let targets = context.no_sq() && context.rq_type() == RqType::SRQ_RQ;
        let record = context.dbr_umem_valid().then_some(context.dbr_umem_id());
        let context = match targets {
            true => context,
            false => context.with_dbr_addr(self.record_address(record, context.dbr_addr())?),
        };
        if !targets && !self.uars.contains(context.uar_page().get()) {
            return Err(Refusal::NO_SUCH_UAR);
        }
        self.check_shared(&context)?;
        for cqn in [context.cqn_snd(), context.cqn_rcv()] {
            if !self.cqs.contains(cqn.get()) {
                return Err(Refusal::NO_SUCH_CQ);
            }
        }
        self.check_scatter_of_qp(&context)?;
        // A queue pair that registers memory is of no domain: its WQEs name that of each key.
        if context.st() != ServiceType::REG_UMR && !self.pds.contains(context.pd().get()) {
            return Err(Refusal::NO_SUCH_PD);
        }
        let umem = UmemPart { id: input.wq_umem_id(), offset_bytes: input.wq_umem_offset() };
        let source = BufferSource {
            log_page_size: context.log_page_size(),
            page_offset: context.page_offset(),
            list,
            umem: input.wq_umem_valid().then_some(umem),
        };
        let qp = Qp::new(context, |len_bytes| self.buffer(source, len_bytes, false))?;
        self.charge(Cost::QP)?;
        let number = self.qps.insert(qp)?;
        self.hold_parts(&context, 1);
        out(CreateQpOut::new().with_qpn(Qpn::new(number)))
    }

    /// Counts the QP as a user of what it names (`step` 1), or no longer (`step` -1).
    fn hold_parts(&mut self, context: &Qpc, step: i32) {
        let count = |n_users: &mut u32| *n_users = n_users.wrapping_add_signed(step);
        for cqn in [context.cqn_snd(), context.cqn_rcv()] {
            if let Some(cq) = self.cqs.get_mut(cqn.get()) {
                count(&mut cq.n_users);
            }
        }
        if let Some(page) = self.uars.get_mut(context.uar_page().get()) {
            count(&mut page.n_users);
        }
        if context.rq_type() == RqType::SRQ_RQ
            && let Some(srq) = self.srqs.get_mut(context.srqn_rmpn_xrqn())
        {
            count(&mut srq.n_users);
        }
        if context.st() == ServiceType::XRC
            && let Some(xrcd) = self.xrcds.get_mut(context.xrcd())
        {
            count(&mut xrcd.n_users);
        }
        if let Some(pd) = self.pds.get_mut(context.pd().get()) {
            count(&mut pd.n_users);
        }
    }

    /// The shared receive queue and the XRC domain must exist where they are used. Linux names some in every QP.
    fn check_shared(&self, context: &Qpc) -> Result<(), Refusal> {
        let xrc = context.st() == ServiceType::XRC;
        let srq = context.rq_type() != RqType::SRQ_RQ || self.srqs.contains(context.srqn_rmpn_xrqn());
        if !srq || xrc && !self.xrcds.contains(context.xrcd()) {
            return Err(Refusal::QP_SRQ);
        }
        let by_tags = self.shared_queue_of(context).is_some_and(|queue| queue.tag_matching);
        if by_tags && context.st() != ServiceType::RC { Err(Refusal::XRQ_SERVICE) } else { Ok(()) }
    }

    pub(super) fn query_qp(&mut self, input: &Input<'_>) -> Output {
        let number = input.get::<QueryQpIn>()?.qpn().get();
        let qp = self.qps.get(number).ok_or(Refusal::NO_SUCH_OBJECT)?;
        let mut context = qp.context.with_state(wire_state(qp.state()));
        if let Some(engine) = &qp.engine {
            let progress = engine.progress();
            if !matches!(qp.state(), QpState::Rst | QpState::Init) {
                context.set_next_rcv_psn(progress.next_rcv_psn);
                context.set_rmsn(progress.rmsn);
            }
            if !matches!(qp.state(), QpState::Rst | QpState::Init | QpState::Rtr) {
                context.set_next_send_psn(progress.next_send_psn);
            }
            context.set_last_acked_psn(progress.last_acked_psn);
            context.set_hw_sq_wqebb_counter(progress.hw_sq_wqebb_counter);
            context.set_sw_sq_wqebb_counter(progress.sw_sq_wqebb_counter);
            context.set_hw_rq_counter(progress.hw_rq_counter.into());
            context.set_cur_retry_count(progress.cur_retry_count);
            context.set_cur_rnr_retry(progress.cur_rnr_retry);
        }
        let received = qp.receive_record().and_then(|at| self.dma.load_be32(at).ok()).unwrap_or(0);
        context.set_sw_rq_counter(received & 0xffff);
        out(QueryQpOut::new().with_qpc(context))
    }

    pub(super) fn destroy_qp(&mut self, input: &Input<'_>) -> Output {
        let number = input.get::<DestroyQpIn>()?.qpn().get();
        self.check_rung(number);
        self.with_engine(number, |engine, host| engine.part(host));
        let qp = self.qps.remove(number).ok_or(Refusal::NO_SUCH_OBJECT)?;
        self.hold_parts(&qp.context, -1);
        let counter = u32::from(qp.context.counter_set_id());
        self.release_counters(counter);
        self.ready.remove(&number);
        self.multicast.forget(number);
        self.forget_page_faults(number);
        self.refund(Cost::QP);
        done()
    }
}
