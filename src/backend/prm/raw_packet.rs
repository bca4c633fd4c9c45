//! Raw packet queue pairs: a send queue behind a TIS, a receive queue behind a TIR, as mlx5_ib makes them.
//!
//! Queues have three states, and a queue pair's follow from them: the receive queue is ready from INIT on, the send queue
//! in RTS.
#![forbid(unsafe_code)]

use super::{Core, PrmControl, cmd_queue::Lane, cq::Layout, lock, tables::take};
use crate::{
    Error, Result,
    backend::{
        Access, AddressVector, FlowId, FrameMatch, LinkLayer, QpAttr, QpModify, QpParams, QpParts, UarPage,
        dma::DmaRegion, transition,
    },
    mlx5::{
        caps::PerProtocolNetworkingOffloadCaps,
        cmd::{
            AllocTransportDomainIn, CapType, Command, CreateRqIn, CreateSqIn, CreateTirIn, CreateTisIn,
            DestroyRqIn, DestroySqIn, DestroyTirIn, DestroyTisIn, ModifyRqIn, ModifySqIn,
            QueryNicVportContextIn, QueryRqIn, QuerySqIn,
        },
        context::{InlineMode, Mtu, QpState, Rqc, ServiceType, Sqc, Tirc, Tisc, Wq, WqType},
        ids::{Psn, Qpn, UarIndex},
    },
    queue::{RawPacket, Transport},
};
use std::sync::{Arc, Mutex};

const WQEBB_BYTES: u32 = 64;
const DATA_SEG_BYTES: u32 = 16;
const INLINE_HEADER_BYTES: u32 = 4;
/// Control and Ethernet segment, and the head of a frame.
const REQUEST_BYTES: u32 = RawPacket::N_HEADER_SEGMENTS * DATA_SEG_BYTES;
/// What libmlx5 takes of a frame's head where the device wants one (`MLX5_ETH_L2_INLINE_HEADER_SIZE`).
const L2_HEADER_BYTES: u8 = 18;
/// `wqe_inline_mode`: how a device says what it wants.
const ASK_VPORT: u8 = 1;
const NOT_NEEDED: u8 = 2;

/// States of a work queue (`sqc.state`, `rqc.state`).
const RESET: u8 = 0;
const READY: u8 = 1;
const ERROR: u8 = 3;

/// A raw packet queue pair.
#[derive(Debug)]
pub(super) struct RawQp {
    /// Rings and record.
    _memory: Vec<DmaRegion>,
    /// It lives until the queue pair is gone, whoever drops the register.
    _uar: Arc<UarPage>,
    port: Mutex<(QpState, u8)>,
    parts: Mutex<Parts>,
}

/// What of it the device has. What was destroyed is not there any more.
#[derive(Debug, Default, Clone, Copy)]
struct Parts {
    tis: Option<u32>,
    sq: Option<u32>,
    rq: Option<u32>,
    tir: Option<u32>,
}

impl Parts {
    /// Destroys what there is, users before what they use.
    fn end(&mut self, core: &Core) -> Result<()> {
        if let Some(tirn) = self.tir {
            core.cmd.call(&DestroyTirIn::request().with_tirn(tirn))?;
            self.tir = None;
        }
        if let Some(rqn) = self.rq {
            core.cmd.call(&DestroyRqIn::request().with_rqn(rqn))?;
            self.rq = None;
        }
        if let Some(sqn) = self.sq {
            core.cmd.call(&DestroySqIn::request().with_sqn(sqn))?;
            self.sq = None;
        }
        if let Some(tisn) = self.tis {
            core.cmd.call(&DestroyTisIn::request().with_tisn(tisn))?;
            self.tis = None;
        }
        Ok(())
    }

    /// Moves the send queue, from whatever state it has got into.
    fn move_sq(&self, core: &Core, to: u8) -> Result<()> {
        let Some(sqn) = self.sq else { return Ok(()) };
        let state = core.cmd.call(&QuerySqIn::request().with_sqn(sqn))?.sq_context().state();
        if state != to {
            let input = ModifySqIn::request().with_sqn(sqn).with_sq_state(state);
            core.cmd.call(&input.with_ctx(Sqc::new().with_state(to)))?;
        }
        Ok(())
    }

    fn move_rq(&self, core: &Core, to: u8) -> Result<()> {
        let Some(rqn) = self.rq else { return Ok(()) };
        let state = core.cmd.call(&QueryRqIn::request().with_rqn(rqn))?.rq_context().state();
        if state != to {
            let input = ModifyRqIn::request().with_rqn(rqn).with_rq_state(state);
            core.cmd.call(&input.with_ctx(Rqc::new().with_state(to)))?;
        }
        Ok(())
    }
}

/// Sizes of a queue pair's rings.
struct Sizes {
    n_wqebbs: u32,
    wqebbs_per_wqe: u32,
    stride: u32,
    n_rwqes: u32,
}

impl Sizes {
    fn of(params: &QpParams, max_qp_wr: u32) -> Result<Self> {
        let inline = match params.max_inline_data {
            0 => 0,
            n => (INLINE_HEADER_BYTES + n).next_multiple_of(DATA_SEG_BYTES),
        };
        let data = (params.max_send_sge * DATA_SEG_BYTES).max(inline);
        let wqebbs_per_wqe = (REQUEST_BYTES + data).div_ceil(WQEBB_BYTES);
        let n_wqebbs = (params.max_send_wr.max(1) * wqebbs_per_wqe).next_power_of_two();
        if n_wqebbs > max_qp_wr {
            return Err(Error::invalid(format!(
                "{} requests with heads of up to 258 bytes need {n_wqebbs} WQEBBs: at most {max_qp_wr} (max_qp_wr); \
                 ask for fewer",
                params.max_send_wr
            )));
        }
        let stride = (params.max_recv_sge.max(1) * DATA_SEG_BYTES).next_power_of_two();
        let n_rwqes = params.max_recv_wr.max(1).next_power_of_two().max(WQEBB_BYTES.div_ceil(stride));
        Ok(Self { n_wqebbs, wqebbs_per_wqe, stride, n_rwqes })
    }
}

impl PrmControl {
    fn check_raw(&self, params: &QpParams) -> Result<PerProtocolNetworkingOffloadCaps> {
        let lacks = |capability, reason: &str| Err(Error::Unsupported { capability, reason: reason.into() });
        if self.link_layer() != LinkLayer::Ethernet {
            return lacks(
                "eth_net_offloads",
                "raw packets are Ethernet frames, and the port is InfiniBand's",
            );
        }
        if !self.caps.general.eth_net_offloads() || !self.caps.general.nic_flow_table() {
            return lacks("nic_flow_table", "raw packets need queues of Ethernet and flow tables");
        }
        if self.attr.cqe_version == 0 {
            return lacks(
                "cqe_version",
                "CQEs of raw packets are told by the user index, which CQEs do not carry",
            );
        }
        params.check(&self.attr)?;
        self.core.tables.has_pd(params.pd)?;
        self.core.tables.has_cq(params.send_cq)?;
        self.core.tables.has_cq(params.recv_cq)?;
        self.core.cap_group(CapType::ETHERNET_OFFLOADS)
    }

    /// What of a frame's head requests must carry.
    fn inline_mode(&self, ethernet: &PerProtocolNetworkingOffloadCaps) -> Result<InlineMode> {
        Ok(match ethernet.wqe_inline_mode() {
            NOT_NEEDED => InlineMode::NONE,
            ASK_VPORT => {
                let vport = self.core.cmd.call(&QueryNicVportContextIn::request())?.nic_vport_context();
                vport.min_wqe_inline_mode()
            }
            _ => InlineMode::L2,
        })
    }

    pub(super) fn make_raw_qp(&self, params: &QpParams) -> Result<QpParts> {
        let core = &*self.core;
        let ethernet = self.check_raw(params)?;
        let inline_mode = self.inline_mode(&ethernet)?;
        let sizes = Sizes::of(params, self.attr.max_qp_wr)?;
        let (sq_bytes, rq_bytes) =
            ((sizes.n_wqebbs * WQEBB_BYTES) as usize, (sizes.n_rwqes * sizes.stride) as usize);
        let (uar, register) = self.uars.register(|| self.alloc_uar())?;
        let (sq_layout, rq_layout) = (Layout::new(core, sq_bytes)?, Layout::new(core, rq_bytes)?);
        let (log_sq_size, log_rq_size) = (sizes.n_wqebbs.ilog2() as u8, sizes.n_rwqes.ilog2() as u8);
        let log_rq_stride_bytes = sizes.stride.ilog2() as u8;
        // One record: its words are those of both queues.
        let wq = |layout: &Layout, uar: UarIndex, log_size, log_stride| {
            Wq::new()
                .with_wq_type(WqType::TYPE_CYCLIC)
                .with_pd(params.pd)
                .with_uar_page(uar)
                .with_dbr_addr(sq_layout.dbr_addr())
                .with_log_wq_stride(log_stride)
                .with_log_wq_pg_sz(layout.log_page_size())
                .with_log_wq_sz(log_size)
        };
        let sqc = Sqc::new()
            .with_flush_in_error_en(true)
            .with_min_wqe_inline_mode(inline_mode)
            .with_user_index(params.user_index)
            .with_cqn(params.send_cq)
            .with_tis_lst_sz(1)
            .with_wq(wq(&sq_layout, uar, log_sq_size, WQEBB_BYTES.ilog2() as u8));
        let rqc = Rqc::new()
            .with_flush_in_error_en(true)
            // Frames come as they are, with their tags.
            .with_vsd(true)
            .with_user_index(params.user_index)
            .with_cqn(params.recv_cq)
            .with_wq(wq(&rq_layout, UarIndex::new(0), log_rq_size, log_rq_stride_bytes));

        let (sq, rq, record) = (sq_layout.part(0, sq_bytes), rq_layout.part(0, rq_bytes), sq_layout.record());
        let mut parts = Parts::default();
        let made = self.make_parts(&mut parts, (sqc, &sq_layout.pas()), (rqc, &rq_layout.pas()));
        let memory = vec![sq_layout.region, rq_layout.region];
        let qpn = match made {
            Ok(sqn) => Qpn::new(sqn),
            Err(error) => {
                // The first failure is the one to tell; memory that the device may still reach is kept.
                let error = parts.end(core).err().unwrap_or(error);
                return Err(core.failed(error, memory));
            }
        };
        let entry = RawQp {
            _memory: memory,
            _uar: Arc::clone(register.page()),
            port: Mutex::new((QpState::RST, 1)),
            parts: Mutex::new(parts),
        };
        lock(&core.tables.raw_qps).insert(qpn, Arc::new(entry));
        let room = sizes.wqebbs_per_wqe * WQEBB_BYTES - REQUEST_BYTES;
        Ok(QpParts {
            qpn,
            service: ServiceType::RAW_ETHERTYPE,
            sq,
            log_sq_size,
            rq,
            log_rq_size,
            log_rq_stride_bytes,
            record,
            register,
            user_index: Some(params.user_index),
            max_send_wr: sizes.n_wqebbs / sizes.wqebbs_per_wqe,
            max_recv_wr: sizes.n_rwqes,
            max_send_sge: (room / DATA_SEG_BYTES).min(self.attr.max_send_sge),
            max_recv_sge: (sizes.stride / DATA_SEG_BYTES).min(self.attr.max_recv_sge),
            max_inline_data: room.saturating_sub(INLINE_HEADER_BYTES).min(self.attr.max_inline_data),
            min_header_bytes: if inline_mode == InlineMode::NONE { 0 } else { L2_HEADER_BYTES },
        })
    }

    /// Makes the device's objects, each as soon as what it needs is there; gives the send queue's number.
    fn make_parts(&self, parts: &mut Parts, sq: (Sqc, &[u8]), rq: (Rqc, &[u8])) -> Result<u32> {
        let core = &*self.core;
        let domain = core.tables.transport_domain(core)?;
        let tisc = Tisc::new().with_transport_domain(domain);
        let tisn = core.cmd.call(&CreateTisIn::request().with_ctx(tisc))?.tisn();
        parts.tis = Some(tisn);
        let input = CreateSqIn::request().with_ctx(sq.0.with_tis_num_0(tisn));
        let sqn = core.cmd.exec(Lane::Regular, &input, sq.1, 0)?.0.sqn();
        parts.sq = Some(sqn);
        let input = CreateRqIn::request().with_ctx(rq.0);
        let rqn = core.cmd.exec(Lane::Regular, &input, rq.1, 0)?.0.rqn();
        parts.rq = Some(rqn);
        let tirc = Tirc::new().with_inline_rqn(rqn).with_transport_domain(domain);
        parts.tir = Some(core.cmd.call(&CreateTirIn::request().with_ctx(tirc))?.tirn());
        Ok(sqn)
    }

    /// As `modify_raw_packet_qp` of mlx5_ib does.
    pub(super) fn move_raw_qp(&self, qp: &RawQp, modify: &QpModify) -> Result<()> {
        let core = &*self.core;
        let mut port = lock(&qp.port);
        transition::check(self, ServiceType::RAW_ETHERTYPE, port.0, modify)?;
        let parts = *lock(&qp.parts);
        match modify.to {
            QpState::INIT => parts.move_rq(core, READY)?,
            QpState::RTS => parts.move_sq(core, READY)?,
            QpState::RTR => {}
            to => {
                let state = if to == QpState::RST { RESET } else { ERROR };
                parts.move_rq(core, state)?;
                parts.move_sq(core, state)?;
            }
        }
        *port = (modify.to, modify.port.unwrap_or(port.1));
        Ok(())
    }

    pub(super) fn raw_qp_attr(&self, qp: &RawQp) -> Result<QpAttr> {
        let cmd = &self.core.cmd;
        let (told, port) = *lock(&qp.port);
        let parts = *lock(&qp.parts);
        let mut state = told;
        if let Some(sqn) = parts.sq
            && cmd.call(&QuerySqIn::request().with_sqn(sqn))?.sq_context().state() == ERROR
        {
            state = QpState::ERR;
        }
        if let Some(rqn) = parts.rq
            && cmd.call(&QueryRqIn::request().with_rqn(rqn))?.rq_context().state() == ERROR
        {
            state = QpState::ERR;
        }
        // A frame knows no peer.
        let ah = AddressVector {
            port,
            sgid_index: 0,
            dgid: [0; 16],
            dmac: [0; 6],
            dlid: 0,
            sl: 0,
            hop_limit: 0,
            traffic_class: 0,
            flow_label: 0,
            udp_sport: None,
            force_loopback: false,
        };
        Ok(QpAttr {
            state,
            pkey_index: 0,
            port,
            access: Access::LOCAL_WRITE,
            qkey: 0,
            ah,
            path_mtu: Mtu(0),
            dest_qp_num: Qpn::new(0),
            rq_psn: Psn::new(0),
            sq_psn: Psn::new(0),
            max_dest_rd_atomic: 0,
            max_rd_atomic: 0,
            min_rnr_timer: 0,
            timeout: 0,
            retry_cnt: 0,
            rnr_retry: 0,
        })
    }

    pub(super) fn add_flow(&self, qpn: Qpn, frames: &FrameMatch) -> Result<FlowId> {
        let core = &*self.core;
        let qp = core.tables.raw_qp(qpn)?;
        let tir = lock(&qp.parts).tir;
        match tir {
            Some(tirn) => core.tables.steering.add(core, qpn, tirn, frames),
            None => Err(Error::invalid(format!("queue pair {qpn} is being destroyed, and receives nothing"))),
        }
    }

    pub(super) fn remove_flow(&self, qpn: Qpn, flow: FlowId) -> Result<()> {
        self.core.tables.steering.remove(&self.core, qpn, flow)
    }
}

pub(super) fn destroy(core: &Core, qpn: Qpn) -> Result<()> {
    let entry = take(&core.tables.raw_qps, qpn, "queue pair", qpn.get())?;
    let result = end(core, &entry, qpn);
    if result.is_err() {
        lock(&core.tables.raw_qps).insert(qpn, entry);
    }
    result
}

/// Frames go elsewhere, then the queues stop, so that nothing of them is under way when they end.
fn end(core: &Core, entry: &RawQp, qpn: Qpn) -> Result<()> {
    core.tables.steering.remove_all(core, qpn)?;
    let mut parts = lock(&entry.parts);
    parts.move_rq(core, RESET)?;
    parts.move_sq(core, RESET)?;
    parts.end(core)
}

/// The transport domain of all raw packets.
pub(super) fn alloc_transport_domain(core: &Core) -> Result<u32> {
    Ok(core.cmd.call(&AllocTransportDomainIn::request())?.transport_domain())
}
