//! Queue pairs: made, moved, asked for.
#![forbid(unsafe_code)]

use super::{
    Core, PrmControl,
    cmd_queue::{CommandQueue, Lane},
    cq::Layout,
    lock, raw_packet,
    tables::{QpEntry, take},
};
use crate::{
    Error, Result,
    backend::{
        Access, AddressVector, LinkLayer, QpAttr, QpModify, QpParams, QpParts, UarPage, dma::DmaRegion,
        transition,
    },
    mistake::mistake,
    mlx5::{
        cmd::{
            Command, CreateQpIn, DestroyCqIn, DestroyQpIn, Init2initQpIn, Init2rtrQpIn, Qp2errIn, Qp2rstIn,
            QueryQpIn, Rst2initQpIn, Rtr2rtsQpIn, Rts2rtsQpIn, Sqerr2rtsQpIn,
        },
        context::{Ads, AtomicMode, Mtu, PmState, QpState, Qpc, RqType, ServiceType},
        ids::Qpn,
    },
};
use std::sync::Arc;

/// Bytes of a send WQE's basic block.
const WQEBB_BYTES: u32 = 64;
const DATA_SEG_BYTES: u32 = 16;
const INLINE_HEADER_BYTES: u32 = 4;
/// `qpc.log_sq_size` and `qpc.log_rq_size` have four bits.
const MAX_LOG_SIZE: u32 = 15;
/// An acknowledgement is asked for at least every 2^8 packets, as Linux has it.
const LOG_ACK_REQ_FREQ: u8 = 8;

/// Bits of `opt_param_mask`.
const OPT_RRE_RAE_RWE: u32 = 0x2 | 0x4 | 0x8;
const OPT_PKEY_INDEX: u32 = 0x10;
const OPT_Q_KEY: u32 = 0x20;
const OPT_RNR_TIMEOUT: u32 = 0x40;
const OPT_PRI_PORT: u32 = 0x1_0000;

/// Bytes of the segments before the data of a transport's requests, atomics not counted; and those of an atomic, whole.
fn request_bytes(service: ServiceType) -> Result<(u32, u32)> {
    match service {
        // Control and remote address.
        ServiceType::RC | ServiceType::UC => Ok((32, 64)),
        // Control and address vector.
        ServiceType::UD => Ok((64, 0)),
        // Control, XRC and remote address.
        ServiceType::XRC => Ok((48, 80)),
        other => Err(Error::invalid(format!(
            "queue pairs of transport {other}: there are RC, UC, UD, XRC and raw packets here"
        ))),
    }
}

impl PrmControl {
    fn check_qp(&self, params: &QpParams) -> Result<()> {
        params.check(&self.attr)?;
        self.core.tables.has_pd(params.pd)?;
        self.core.tables.has_cq(params.send_cq)?;
        self.core.tables.has_cq(params.recv_cq)
    }

    pub(super) fn make_qp(&self, params: &QpParams) -> Result<QpParts> {
        if params.service == ServiceType::RAW_ETHERTYPE {
            return self.make_raw_qp(params);
        }
        let core = &*self.core;
        self.check_qp(params)?;
        let (request_bytes, atomic_bytes) = request_bytes(params.service)?;
        // Send queue: every request may be of the largest size.
        let inline = (INLINE_HEADER_BYTES + params.max_inline_data).next_multiple_of(DATA_SEG_BYTES);
        let data =
            (params.max_send_sge * DATA_SEG_BYTES).max(if params.max_inline_data > 0 { inline } else { 0 });
        let wqebbs_per_wqe = (request_bytes + data).max(atomic_bytes).div_ceil(WQEBB_BYTES);
        let n_wqebbs = match params.max_send_wr {
            0 => 0,
            n => (n * wqebbs_per_wqe).next_power_of_two(),
        };
        if n_wqebbs > self.attr.max_qp_wr {
            return Err(Error::invalid(format!(
                "{} send requests of up to {} bytes need {n_wqebbs} WQEBBs: at most {} (max_qp_wr); ask for \
                 fewer, or for less inline data and fewer entries",
                params.max_send_wr,
                wqebbs_per_wqe * WQEBB_BYTES,
                self.attr.max_qp_wr
            )));
        }
        let stride = (params.max_recv_sge.max(1) * DATA_SEG_BYTES).next_power_of_two();
        let n_rwqes = match params.max_recv_wr {
            0 => 0,
            // An initiator receives nothing.
            _ if params.service == ServiceType::XRC => 0,
            // The receive queue is 64 bytes at least: the send queue after it starts at a WQEBB.
            n => n.next_power_of_two().max(WQEBB_BYTES.div_ceil(stride)),
        };
        let (rq_bytes, sq_bytes) = ((n_rwqes * stride) as usize, (n_wqebbs * WQEBB_BYTES) as usize);
        let (uar, register) = self.uars.register(|| self.alloc_uar())?;
        let layout = Layout::new(core, (rq_bytes + sq_bytes).max(WQEBB_BYTES as usize))?;

        let log_sq_size = n_wqebbs.checked_ilog2().unwrap_or(0) as u8;
        let log_rq_size = n_rwqes.checked_ilog2().unwrap_or(0) as u8;
        let log_rq_stride_bytes = stride.ilog2() as u8;
        let has_rq = n_rwqes > 0;
        let xrcd = if params.service == ServiceType::XRC { core.tables.xrcd(core)? } else { 0 };
        let context = Qpc::new()
            .with_st(params.service)
            .with_xrcd(xrcd)
            .with_pm_state(PmState::MIGRATED)
            .with_pd(params.pd)
            .with_log_rq_size(log_rq_size)
            .with_log_rq_stride(if has_rq { log_rq_stride_bytes - 4 } else { 0 })
            .with_rq_type(if has_rq { RqType::NON_ZERO_RQ } else { RqType::ZERO_LEN_RQ })
            .with_no_sq(n_wqebbs == 0)
            .with_log_sq_size(log_sq_size)
            .with_uar_page(if mistake!(UarOfEvents) { self.events_uar } else { uar })
            .with_user_index(params.user_index)
            .with_log_page_size(layout.log_page_size())
            .with_cqn_snd(params.send_cq)
            .with_cqn_rcv(params.recv_cq)
            .with_dbr_addr(layout.dbr_addr() + if mistake!(RecordUnaligned) { 4 } else { 0 });
        let (sq, rq, record) = (layout.part(rq_bytes, sq_bytes), layout.part(0, rq_bytes), layout.record());
        let qpn = create(core, context, &layout.pas(), vec![layout.region], register.page())?;
        let parts = QpParts {
            qpn,
            service: params.service,
            sq,
            log_sq_size,
            rq,
            log_rq_size,
            log_rq_stride_bytes,
            record,
            register,
            user_index: (self.attr.cqe_version != 0).then_some(params.user_index),
            max_send_wr: n_wqebbs / wqebbs_per_wqe,
            max_recv_wr: n_rwqes,
            max_send_sge: (wqebbs_per_wqe * WQEBB_BYTES - request_bytes) / DATA_SEG_BYTES,
            max_recv_sge: stride / DATA_SEG_BYTES,
            max_inline_data: wqebbs_per_wqe * WQEBB_BYTES - request_bytes - INLINE_HEADER_BYTES,
            min_header_bytes: 0,
        };
        Ok(QpParts {
            max_send_sge: parts.max_send_sge.min(self.attr.max_send_sge),
            max_recv_sge: parts.max_recv_sge.min(self.attr.max_recv_sge),
            max_inline_data: parts.max_inline_data.min(self.attr.max_inline_data),
            ..parts
        })
    }

    pub(super) fn move_qp(&self, qpn: Qpn, modify: &QpModify) -> Result<()> {
        if let Ok(qp) = self.core.tables.raw_qp(qpn) {
            return self.move_raw_qp(&qp, modify);
        }
        let cmd = &self.core.cmd;
        let qp = self.core.tables.qp(qpn)?;
        let mut context = lock(&qp.context);
        let from = qp.state();
        transition::check(self, context.st(), from, modify)?;
        let next = self.apply(qpn, *context, modify)?;
        let access = if modify.access.is_some() { OPT_RRE_RAE_RWE } else { 0 };
        let qkey = if modify.qkey.is_some() { OPT_Q_KEY } else { 0 };
        let rnr = if modify.min_rnr_timer.is_some() { OPT_RNR_TIMEOUT } else { 0 };
        let pkey = if modify.pkey_index.is_some() { OPT_PKEY_INDEX } else { 0 };
        let port = if modify.port.is_some() { OPT_PRI_PORT } else { 0 };
        match (from, modify.to) {
            (_, QpState::RST) => {
                cmd.call(&Qp2rstIn::request().with_qpn(qpn))?;
            }
            (_, QpState::ERR) => {
                cmd.call(&Qp2errIn::request().with_qpn(qpn))?;
            }
            // Mandatory attributes need no bit.
            (QpState::RST, _) if !mistake!(InitSkipped) => {
                cmd.call(&Rst2initQpIn::request().with_qpn(qpn).with_qpc(next))?;
            }
            (QpState::INIT, QpState::INIT) => {
                let input = Init2initQpIn::request().with_qpn(qpn).with_qpc(next);
                cmd.call(&input.with_opt_param_mask(access | qkey | pkey | port))?;
            }
            (QpState::INIT, _) => {
                let input = Init2rtrQpIn::request().with_qpn(qpn).with_qpc(next);
                cmd.call(&input.with_opt_param_mask(access | qkey | pkey))?;
            }
            (QpState::RTR, _) => {
                let input = Rtr2rtsQpIn::request().with_qpn(qpn).with_qpc(next);
                let unknown = if mistake!(OptParamUnknown) { 1 << 31 } else { 0 };
                cmd.call(&input.with_opt_param_mask(access | qkey | rnr | unknown))?;
            }
            (QpState::RTS, _) => {
                let input = Rts2rtsQpIn::request().with_qpn(qpn).with_qpc(next);
                cmd.call(&input.with_opt_param_mask(access | qkey | rnr))?;
            }
            _ => {
                let input = Sqerr2rtsQpIn::request().with_qpn(qpn).with_qpc(next);
                cmd.call(&input.with_opt_param_mask(access | qkey | rnr))?;
            }
        }
        *context = next;
        qp.moved(from, modify.to);
        Ok(())
    }

    /// The context with a transition's attributes in it, which are within their limits.
    fn apply(&self, qpn: Qpn, mut context: Qpc, modify: &QpModify) -> Result<Qpc> {
        let mut path = context.primary_address_path();
        if let Some(port) = modify.port {
            path.set_vhca_port_num(port);
        }
        if let Some(pkey_index) = modify.pkey_index {
            path.set_pkey_index(pkey_index);
        }
        if let Some(qkey) = modify.qkey {
            context.set_q_key(qkey);
        }
        if let Some(dest) = modify.dest_qp_num {
            context.set_remote_qpn(dest);
        }
        if let Some(ah) = &modify.ah {
            path = self.address_path(path, ah, qpn, context.remote_qpn())?;
            if mistake!(SourceAddressEmpty) {
                path.set_src_addr_index(9);
            }
        }
        if let Some(mtu) = modify.path_mtu {
            context.set_mtu(mtu);
            context.set_log_msg_max(self.caps.general.log_max_msg());
        }
        if context.st() == ServiceType::UD {
            // As Linux has it: the port's MTU is what limits a datagram.
            context.set_mtu(Mtu::MTU_4096);
            context.set_log_msg_max(12);
        }
        if let Some(psn) = modify.rq_psn {
            context.set_next_rcv_psn(psn);
        }
        if let Some(psn) = modify.sq_psn {
            context.set_next_send_psn(psn);
        }
        if let Some(n) = modify.max_dest_rd_atomic {
            context.set_log_rra_max(log2_ceil(n));
        }
        if let Some(n) = modify.max_rd_atomic {
            context.set_log_sra_max(log2_ceil(n));
            context.set_log_ack_req_freq(LOG_ACK_REQ_FREQ);
        }
        if let Some(access) = modify.access {
            context.set_rre(access.contains(Access::REMOTE_READ));
            context.set_rwe(access.contains(Access::REMOTE_WRITE));
            context.set_rae(access.contains(Access::REMOTE_ATOMIC));
            let atomics = access.contains(Access::REMOTE_ATOMIC) && self.attr.atomic_cap;
            context.set_atomic_mode(if atomics { AtomicMode::IB_SPEC } else { AtomicMode(0) });
        }
        if let Some(code) = modify.min_rnr_timer {
            context.set_min_rnr_nak(code);
        }
        if let Some(code) = modify.timeout {
            path.set_ack_timeout(code);
        }
        if let Some(n) = modify.retry_cnt {
            context.set_retry_count(n);
        }
        if let Some(n) = modify.rnr_retry {
            context.set_rnr_retry(n);
        }
        if modify.to == QpState::RST {
            // What connects it is forgotten; what it is made of stays.
            path = Ads::new();
        }
        Ok(context.with_primary_address_path(path))
    }

    pub(super) fn qp_attr(&self, qpn: Qpn) -> Result<QpAttr> {
        if let Ok(qp) = self.core.tables.raw_qp(qpn) {
            return self.raw_qp_attr(&qp);
        }
        let qp = self.core.tables.qp(qpn)?;
        let context = self.core.cmd.call(&QueryQpIn::request().with_qpn(qpn))?.qpc();
        qp.seen(context.state());
        let path = context.primary_address_path();
        let flag = |given, flag| if given { flag } else { Access::LOCAL_READ };
        Ok(QpAttr {
            state: context.state(),
            pkey_index: path.pkey_index(),
            port: path.vhca_port_num().max(1),
            access: Access::LOCAL_WRITE
                | flag(context.rre(), Access::REMOTE_READ)
                | flag(context.rwe(), Access::REMOTE_WRITE)
                | flag(context.rae(), Access::REMOTE_ATOMIC),
            qkey: context.q_key(),
            ah: AddressVector {
                port: path.vhca_port_num().max(1),
                sgid_index: path.src_addr_index(),
                dgid: path.rgid_rip(),
                dmac: path.rmac(),
                dlid: path.rlid(),
                sl: if self.link_layer() == LinkLayer::Ethernet { path.eth_prio() } else { path.sl() },
                hop_limit: path.hop_limit(),
                traffic_class: path.tclass(),
                flow_label: path.flow_label(),
                udp_sport: Some(path.udp_sport()),
                force_loopback: path.fl(),
            },
            path_mtu: context.mtu(),
            dest_qp_num: context.remote_qpn(),
            rq_psn: context.next_rcv_psn(),
            sq_psn: context.next_send_psn(),
            max_dest_rd_atomic: 1 << context.log_rra_max(),
            max_rd_atomic: 1 << context.log_sra_max(),
            min_rnr_timer: context.min_rnr_nak(),
            timeout: path.ack_timeout(),
            retry_cnt: context.retry_count(),
            rnr_retry: context.rnr_retry(),
        })
    }
}

/// Makes the queue pair of a context in the device, and keeps `memory` and the page for it.
pub(super) fn create(
    core: &Core,
    context: Qpc,
    pas: &[u8],
    memory: Vec<DmaRegion>,
    page: &Arc<UarPage>,
) -> Result<Qpn> {
    let input = CreateQpIn::request().with_qpc(context);
    let qpn = match core.cmd.exec(Lane::Regular, &input, pas, 0) {
        Ok((out, _)) => out.qpn(),
        Err(error) => return Err(core.failed(error, memory)),
    };
    lock(&core.tables.qps).insert(qpn, Arc::new(QpEntry::new(memory, page, context)));
    Ok(qpn)
}

pub(super) fn destroy(core: &Core, qpn: Qpn) -> Result<()> {
    if core.tables.raw_qp(qpn).is_ok() {
        return raw_packet::destroy(core, qpn);
    }
    let entry = take(&core.tables.qps, qpn, "queue pair", qpn.get())?;
    if mistake!(CqFirst) {
        let _refused = core.cmd.call(&DestroyCqIn::request().with_cqn(lock(&entry.context).cqn_snd()));
    }
    let result = end(&core.cmd, &entry, qpn);
    if result.is_err() {
        lock(&core.tables.qps).insert(qpn, entry);
    }
    result
}

/// 2RST stops the queues first, so that nothing of them is under way when they end.
fn end(cmd: &CommandQueue, entry: &QpEntry, qpn: Qpn) -> Result<()> {
    if entry.state() != QpState::RST {
        cmd.call(&Qp2rstIn::request().with_qpn(qpn))?;
        entry.seen(QpState::RST);
    }
    cmd.call(&DestroyQpIn::request().with_qpn(qpn))?;
    if mistake!(QpTwice) {
        let _refused = cmd.call(&DestroyQpIn::request().with_qpn(qpn));
    }
    Ok(())
}

fn log2_ceil(n: u8) -> u8 {
    n.max(1).next_power_of_two().trailing_zeros() as u8
}

/// Work requests that a queue can have at most, from the device's limit.
pub(super) fn max_qp_wr(log_max_qp_sz: u8) -> u32 {
    1 << u32::from(log_max_qp_sz).min(MAX_LOG_SIZE)
}
