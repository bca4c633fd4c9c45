//! A driver without any of our data path: WQEs, records and doorbells are stored by hand.

use crate::support;
use mlx5_direct::{
    Access,
    backend::{
        AddressVector, Control, CqParams, CqParts, Keys, MrParams, QpModify, QpParams, QpParts, QueueMemory,
        UarPage,
        dma::{HostMemory, PageSize},
        prm::{OpenOptions, PrmControl, Uar},
    },
    mlx5::{
        context::{Mtu, QpState, ServiceType},
        ids::{Pdn, Psn, UserIndex},
        uar::BF_OFFSET,
    },
    wqe::{AvSeg, CtrlSeg, DataSeg, InlineSeg, RaddrSeg, SendOpcode},
};
use mlx5_model::{Model, Rule};
use std::{ptr::NonNull, sync::Arc};

pub(crate) const QKEY: u32 = 0x1111_1111;

/// The driver: one queue pair and what it needs.
pub(crate) struct Bare {
    pub(crate) qp: QpParts,
    pub(crate) cq: CqParts,
    pub(crate) other_uar: Uar,
    pub(crate) keys: Keys,
    pub(crate) memory: Arc<HostMemory>,
    pub(crate) pd: Pdn,
    pub(crate) control: Arc<PrmControl>,
    pub(crate) model: Model,
}

impl Bare {
    /// One queue pair, connected to itself, on a model whose doorbells are trapped.
    pub(crate) fn new() -> Self {
        Self::with_cqes(64)
    }

    /// An XRC initiator, connected to itself: it has nothing to answer with.
    pub(crate) fn initiator() -> Self {
        let bare = Self::of(ServiceType::XRC, 64);
        bare.connect(None, None);
        bare
    }

    pub(crate) fn with_cqes(n_cqes: u32) -> Self {
        let bare = Self::unconnected(n_cqes);
        bare.connect(Some(4), Some(12));
        bare
    }

    /// To RTS, with itself for a peer.
    fn connect(&self, max_dest_rd_atomic: Option<u8>, min_rnr_timer: Option<u8>) {
        let gid = self.control.query_gid(1, 1).unwrap();
        let ah = AddressVector {
            port: 1,
            sgid_index: 1,
            dgid: gid.gid,
            dmac: gid.mac,
            dlid: 0,
            sl: 0,
            hop_limit: 64,
            traffic_class: 0,
            flow_label: 0,
            udp_sport: None,
            force_loopback: false,
        };
        let steps = [
            QpModify {
                pkey_index: Some(0),
                port: Some(1),
                access: Some(Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC),
                ..QpModify::to(QpState::INIT)
            },
            QpModify {
                ah: Some(ah),
                path_mtu: Some(Mtu::MTU_1024),
                dest_qp_num: Some(self.qp.qpn),
                rq_psn: Some(Psn::new(1)),
                max_dest_rd_atomic,
                min_rnr_timer,
                ..QpModify::to(QpState::RTR)
            },
            QpModify {
                timeout: Some(14),
                retry_cnt: Some(7),
                rnr_retry: Some(7),
                sq_psn: Some(Psn::new(1)),
                max_rd_atomic: Some(4),
                ..QpModify::to(QpState::RTS)
            },
        ];
        for step in steps {
            self.control.modify_qp(self.qp.qpn, &step).unwrap();
        }
    }

    /// A queue pair for datagrams, ready to send them to itself.
    pub(crate) fn datagram() -> Self {
        let bare = Self::of(ServiceType::UD, 64);
        let steps = [
            QpModify { pkey_index: Some(0), port: Some(1), qkey: Some(QKEY), ..QpModify::to(QpState::INIT) },
            QpModify::to(QpState::RTR),
            QpModify { sq_psn: Some(Psn::new(1)), ..QpModify::to(QpState::RTS) },
        ];
        for step in steps {
            bare.control.modify_qp(bare.qp.qpn, &step).unwrap();
        }
        bare
    }

    pub(crate) fn unconnected(n_cqes: u32) -> Self {
        Self::of(ServiceType::RC, n_cqes)
    }

    pub(crate) fn of(service: ServiceType, n_cqes: u32) -> Self {
        let model = support::card("bar=trapped,drive=step").model().clone();
        let control = PrmControl::open(model.function(0).unwrap(), &OpenOptions::default()).unwrap();
        let pd = control.alloc_pd().unwrap();
        let other_uar = control.alloc_uar().unwrap();
        let cq_params = CqParams { n_cqes, cqe_bytes: 64, channel: None, ignore_overrun: false };
        let cq = control.create_cq(&cq_params).unwrap();
        let qp_params = QpParams {
            service,
            pd,
            send_cq: cq.cqn,
            recv_cq: cq.cqn,
            user_index: UserIndex::new(5),
            max_send_wr: 16,
            max_recv_wr: 16,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        };
        let qp = control.create_qp(&qp_params).unwrap();
        let memory = HostMemory::alloc(4096, PageSize::Default).unwrap();
        let access = support::ALL;
        let mr_params = MrParams { pd, memory: Arc::clone(&memory), access, start_addr: None };
        let keys = control.reg_mr(&mr_params).unwrap();
        Self { qp, cq, other_uar, keys, memory, pd, control, model }
    }

    /// A good RDMA WRITE of 16 inline bytes at WQEBB `index`: ctrl, raddr, inline. 4 segments, 1 WQEBB.
    pub(crate) fn wqe(&self, index: u16) -> [u8; 64] {
        let ctrl = CtrlSeg::new()
            .with_opcode(SendOpcode::RDMA_WRITE)
            .with_wqe_index(index)
            .with_qpn(self.qp.qpn)
            .with_ds(4)
            .with_ce(mlx5_direct::wqe::CompletionMode::ALWAYS);
        let raddr =
            RaddrSeg::new().with_raddr(self.memory.base().addr().get() as u64).with_rkey(self.keys.rkey);
        let mut wqe = [0; 64];
        wqe[..16].copy_from_slice(&ctrl.to_bytes());
        wqe[16..32].copy_from_slice(&raddr.to_bytes());
        wqe[32..36].copy_from_slice(&InlineSeg::new().with_inline(true).with_byte_count(16).to_bytes());
        wqe
    }

    /// A good datagram of 64 bytes: ctrl, address vector, data. 5 segments, 2 WQEBBs.
    pub(crate) fn datagram_wqe(&self) -> [u8; 128] {
        let gid = self.control.query_gid(1, 1).unwrap();
        let av = AvSeg::new()
            .with_ext(true)
            .with_qkey(QKEY)
            .with_dqpn_dctn(self.qp.qpn)
            .with_rmac(gid.mac)
            .with_rgid(gid.gid)
            .with_src_addr_index(1)
            .with_hop_limit(64);
        let addr = self.memory.base().addr().get() as u64;
        let data = DataSeg::new().with_byte_count(64).with_lkey(self.keys.lkey).with_addr(addr);
        let mut wqe = [0; 128];
        wqe[..16].copy_from_slice(&self.ctrl(0).with_opcode(SendOpcode::SEND).with_ds(5).to_bytes());
        wqe[16..64].copy_from_slice(&av.to_bytes());
        wqe[64..80].copy_from_slice(&data.to_bytes());
        wqe
    }

    /// Posts the first request, of more than one WQEBB, as it should be done.
    pub(crate) fn post_long(&self, wqe: &[u8]) {
        store(&self.qp.sq, 0, wqe);
        self.record(u32::from(wqe[7]).div_ceil(4));
        self.ring(*wqe.first_chunk().unwrap());
    }

    pub(crate) fn ctrl(&self, index: u16) -> CtrlSeg {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&self.wqe(index)[..16]);
        CtrlSeg::from_bytes(bytes)
    }

    /// Stores a WQE at its slot.
    pub(crate) fn put(&self, slot: usize, wqe: [u8; 64]) {
        store(&self.qp.sq, slot * 64, &wqe);
    }

    /// Publishes the send counter.
    pub(crate) fn record(&self, counter: u32) {
        store(&self.qp.record, 4, &counter.to_be_bytes());
    }

    /// Rings with 8 bytes.
    pub(crate) fn ring(&self, ctrl: [u8; 16]) {
        let mut first = [0; 8];
        first.copy_from_slice(&ctrl[..8]);
        poke(self.qp.register.page(), BF_OFFSET, u64::from_ne_bytes(first));
    }

    /// Posts one WQE at `index` as it should be done.
    pub(crate) fn post(&self, index: u16, wqe: [u8; 64]) {
        self.put(usize::from(index) & ((1 << self.qp.log_sq_size) - 1), wqe);
        self.record(u32::from(index) + 1);
        let mut ctrl = [0; 16];
        ctrl.copy_from_slice(&wqe[..16]);
        self.ring(ctrl);
    }

    pub(crate) fn settle(&self) {
        while self.model.step() {}
    }

    /// Ends the story: exactly this rule was broken.
    #[track_caller]
    pub(crate) fn assert_caught(self, rule: Rule) {
        self.settle();
        let violations = self.model.take_violations();
        assert!(!violations.is_empty(), "{rule} was not seen");
        for violation in &violations {
            assert_eq!(violation.rule, rule, "{violation}");
            assert!(violation.to_string().contains(rule.text()), "{violation}");
        }
        // The device lives.
        self.control.health().unwrap();
    }
}

/// Stores into queue memory, as the device will read it.
pub(crate) fn store(memory: &QueueMemory, offset: usize, bytes: &[u8]) {
    assert!(offset + bytes.len() <= memory.len_bytes());
    // SAFETY: inside the memory, which nobody else in this process touches while the model is not stepped.
    unsafe { memory.base().add(offset).copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) }
}

/// A byte of queue memory.
pub(crate) fn load(memory: &QueueMemory, offset: usize) -> u8 {
    assert!(offset < memory.len_bytes());
    // SAFETY: inside the memory, which the model does not write while it is not stepped.
    unsafe { memory.base().add(offset).read_volatile() }
}

/// One store to a UAR page.
pub(crate) fn poke<T: Copy>(uar: &UarPage, offset: usize, value: T) {
    // SAFETY: inside the mapped page, aligned.
    unsafe { uar.base().add(offset).cast::<T>().write_volatile(value) }
}
