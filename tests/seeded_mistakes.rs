//! A driver that makes one mistake at a time, by hand: each is caught by its own rule of the model.

mod support;

use mlx5_direct::{
    Access, Error,
    backend::{
        AddressVector, Control, CqParams, CqParts, Keys, MrParams, QpModify, QpParams, QpParts, QueueMemory,
        UarPage,
        dma::{HostMemory, PageSize},
        prm::{OpenOptions, PrmControl, Uar},
    },
    mlx5::{
        context::{Mtu, QpState, ServiceType},
        ids::{Cqn, Pdn, Psn, Qpn, UarIndex, UserIndex},
        uar::BF_OFFSET,
    },
    wqe::{AvSeg, CtrlSeg, DataSeg, InlineSeg, RaddrSeg, SendOpcode},
};
use mlx5_model::{Model, Rule};
use std::{ptr::NonNull, sync::Arc};

const QKEY: u32 = 0x1111_1111;

/// A driver without any of our data path: WQEs, records and doorbells are stored by hand.
struct Bare {
    qp: QpParts,
    cq: CqParts,
    other_uar: Uar,
    keys: Keys,
    memory: Arc<HostMemory>,
    pd: Pdn,
    control: Arc<PrmControl>,
    model: Model,
}

impl Bare {
    /// One queue pair, connected to itself, on a model whose doorbells are trapped.
    fn new() -> Self {
        Self::with_cqes(64)
    }

    fn with_cqes(n_cqes: u32) -> Self {
        let bare = Self::unconnected(n_cqes);
        let gid = bare.control.query_gid(1, 1).unwrap();
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
                dest_qp_num: Some(bare.qp.qpn),
                rq_psn: Some(Psn::new(1)),
                max_dest_rd_atomic: Some(4),
                min_rnr_timer: Some(12),
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
            bare.control.modify_qp(bare.qp.qpn, &step).unwrap();
        }
        bare
    }

    /// A queue pair for datagrams, ready to send them to itself.
    fn datagram() -> Self {
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

    fn unconnected(n_cqes: u32) -> Self {
        Self::of(ServiceType::RC, n_cqes)
    }

    fn of(service: ServiceType, n_cqes: u32) -> Self {
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
    fn wqe(&self, index: u16) -> [u8; 64] {
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
    fn datagram_wqe(&self) -> [u8; 128] {
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

    /// Posts a datagram, as it should be done.
    fn post_datagram(&self, wqe: [u8; 128]) {
        store(&self.qp.sq, 0, &wqe);
        self.record(u32::from(wqe[7]).div_ceil(4));
        self.ring(*wqe.first_chunk().unwrap());
    }

    fn ctrl(&self, index: u16) -> CtrlSeg {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&self.wqe(index)[..16]);
        CtrlSeg::from_bytes(bytes)
    }

    /// Stores a WQE at its slot.
    fn put(&self, slot: usize, wqe: [u8; 64]) {
        store(&self.qp.sq, slot * 64, &wqe);
    }

    /// Publishes the send counter.
    fn record(&self, counter: u32) {
        store(&self.qp.record, 4, &counter.to_be_bytes());
    }

    /// Rings with 8 bytes.
    fn ring(&self, ctrl: [u8; 16]) {
        let mut first = [0; 8];
        first.copy_from_slice(&ctrl[..8]);
        poke(self.qp.register.page(), BF_OFFSET, u64::from_ne_bytes(first));
    }

    /// Posts one WQE at `index` as it should be done.
    fn post(&self, index: u16, wqe: [u8; 64]) {
        self.put(usize::from(index) & ((1 << self.qp.log_sq_size) - 1), wqe);
        self.record(u32::from(index) + 1);
        let mut ctrl = [0; 16];
        ctrl.copy_from_slice(&wqe[..16]);
        self.ring(ctrl);
    }

    fn settle(&self) {
        while self.model.step() {}
    }

    /// Ends the story: exactly this rule was broken.
    #[track_caller]
    fn assert_caught(self, rule: Rule) {
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
fn store(memory: &QueueMemory, offset: usize, bytes: &[u8]) {
    assert!(offset + bytes.len() <= memory.len_bytes());
    // SAFETY: inside the memory, which nobody else in this process touches while the model is not stepped.
    unsafe { memory.base().add(offset).copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) }
}

/// One store to a UAR page.
fn poke<T: Copy>(uar: &UarPage, offset: usize, value: T) {
    // SAFETY: inside the mapped page, aligned.
    unsafe { uar.base().add(offset).cast::<T>().write_volatile(value) }
}

#[test]
fn h12_sanitizer_seeded_bugs_none_without_a_mistake() {
    let bare = Bare::new();
    for index in 0..100 {
        bare.post(index, bare.wqe(index));
        bare.settle();
        // The consumer index keeps up.
        store(&bare.cq.record, 0, &(u32::from(index) + 1).to_be_bytes());
    }
    bare.model.assert_clean();
}

#[test]
fn h12_sanitizer_seeded_bugs_record_after_doorbell() {
    let bare = Bare::new();
    bare.put(0, bare.wqe(0));
    bare.ring(bare.ctrl(0).to_bytes());
    bare.record(1);
    bare.assert_caught(Rule::RecordBeforeDoorbell);
}

#[test]
fn h12_sanitizer_seeded_bugs_doorbell_names_the_first_wqe() {
    let bare = Bare::new();
    bare.put(0, bare.wqe(0));
    bare.put(1, bare.wqe(1));
    bare.record(2);
    bare.ring(bare.ctrl(0).to_bytes());
    bare.assert_caught(Rule::DoorbellNamesLastWqe);
}

#[test]
fn h12_sanitizer_seeded_bugs_doorbell_of_no_queue() {
    let bare = Bare::new();
    bare.put(0, bare.wqe(0));
    bare.record(1);
    bare.ring(bare.ctrl(0).with_qpn(Qpn::new(0x00be_ef00)).to_bytes());
    bare.assert_caught(Rule::DoorbellQueueExists);
}

#[test]
fn h12_sanitizer_seeded_bugs_doorbell_on_another_page() {
    let bare = Bare::new();
    bare.put(0, bare.wqe(0));
    bare.record(1);
    let mut first = [0; 8];
    first.copy_from_slice(&bare.ctrl(0).to_bytes()[..8]);
    poke(bare.other_uar.page(), BF_OFFSET, u64::from_ne_bytes(first));
    bare.assert_caught(Rule::DoorbellRightPage);
}

#[test]
fn h12_sanitizer_seeded_bugs_doorbell_of_4_bytes() {
    let bare = Bare::new();
    bare.put(0, bare.wqe(0));
    bare.record(1);
    let mut first = [0; 4];
    first.copy_from_slice(&bare.ctrl(0).to_bytes()[..4]);
    poke(bare.qp.register.page(), BF_OFFSET, u32::from_ne_bytes(first));
    bare.assert_caught(Rule::DoorbellRegister);
}

#[test]
fn h12_sanitizer_seeded_bugs_wqe_index() {
    let bare = Bare::new();
    let mut wqe = bare.wqe(0);
    wqe[..16].copy_from_slice(&bare.ctrl(0).with_wqe_index(7).to_bytes());
    bare.put(0, wqe);
    bare.record(1);
    bare.ring(bare.ctrl(0).to_bytes());
    bare.assert_caught(Rule::WqeIndexMatchesPosition);
}

#[test]
fn h12_sanitizer_seeded_bugs_wqe_qpn() {
    let bare = Bare::new();
    let mut wqe = bare.wqe(0);
    wqe[..16].copy_from_slice(&bare.ctrl(0).with_qpn(Qpn::new(3)).to_bytes());
    bare.put(0, wqe);
    bare.record(1);
    bare.ring(bare.ctrl(0).to_bytes());
    bare.assert_caught(Rule::WqeQpnMatchesQueue);
}

#[test]
fn h12_sanitizer_seeded_bugs_ds() {
    for ds in [0, 1, 3] {
        let bare = Bare::new();
        let mut wqe = bare.wqe(0);
        wqe[..16].copy_from_slice(&bare.ctrl(0).with_ds(ds).to_bytes());
        bare.put(0, wqe);
        bare.record(1);
        bare.ring(bare.ctrl(0).to_bytes());
        bare.assert_caught(Rule::DsCoversSegments);
    }
}

#[test]
fn h12_sanitizer_seeded_bugs_opcode() {
    let bare = Bare::new();
    let mut wqe = bare.wqe(0);
    wqe[..16].copy_from_slice(&bare.ctrl(0).with_opcode(SendOpcode(0x3e)).to_bytes());
    bare.post(0, wqe);
    bare.assert_caught(Rule::OpcodeKnown);
}

#[test]
fn h12_sanitizer_seeded_bugs_reserved_bits() {
    let bare = Bare::new();
    let mut wqe = bare.wqe(0);
    wqe[28] = 1; // the reserved dword of the remote address segment
    bare.post(0, wqe);
    bare.assert_caught(Rule::ReservedBits);
}

#[test]
fn h12_sanitizer_seeded_bugs_producer_beyond_the_ring() {
    let bare = Bare::new();
    let ring = 1u16 << bare.qp.log_sq_size;
    for slot in 0..ring {
        bare.put(slot.into(), bare.wqe(slot));
    }
    bare.put(0, bare.wqe(ring));
    bare.record(u32::from(ring) + 1);
    bare.ring(bare.ctrl(ring).to_bytes());
    bare.assert_caught(Rule::ProducerWithinRing);
}

#[test]
fn h12_sanitizer_seeded_bugs_atomic_of_16_bytes() {
    let bare = Bare::new();
    let mut wqe = bare.wqe(0);
    wqe[..16].copy_from_slice(&bare.ctrl(0).with_opcode(SendOpcode::ATOMIC_FA).to_bytes());
    wqe[32..36].fill(0); // add 0
    let addr = bare.memory.base().addr().get() as u64;
    let data = DataSeg::new().with_byte_count(16).with_lkey(bare.keys.lkey).with_addr(addr);
    wqe[48..].copy_from_slice(&data.to_bytes());
    bare.post(0, wqe);
    bare.assert_caught(Rule::AtomicLength);
}

#[test]
fn h12_sanitizer_seeded_bugs_post_before_rts() {
    let bare = Bare::unconnected(64);
    bare.post(0, bare.wqe(0));
    bare.assert_caught(Rule::PostInRightState);
}

#[test]
fn h12_sanitizer_seeded_bugs_cq_overrun() {
    let bare = Bare::with_cqes(4);
    let n_cqes = 1u16 << bare.cq.log_cq_size;
    for index in 0..=n_cqes {
        bare.post(index, bare.wqe(index));
    }
    bare.assert_caught(Rule::CqOverrun);
}

#[test]
fn h12_sanitizer_seeded_bugs_consumer_index_ahead() {
    let bare = Bare::new();
    bare.post(0, bare.wqe(0));
    bare.settle();
    store(&bare.cq.record, 0, &5u32.to_be_bytes());
    bare.post(1, bare.wqe(1));
    bare.assert_caught(Rule::CqConsumerForward);
}

#[test]
fn h12_sanitizer_seeded_bugs_blue_flame_differs() {
    let bare = Bare::new();
    let wqe = bare.wqe(0);
    bare.put(0, wqe);
    bare.record(1);
    let mut line = wqe;
    line[40] ^= 1; // of the inline data
    for at in (0..64).step_by(8) {
        let mut word = [0; 8];
        word.copy_from_slice(&line[at..at + 8]);
        poke(bare.qp.register.page(), BF_OFFSET + at, u64::from_ne_bytes(word));
    }
    bare.assert_caught(Rule::BlueFlameMatchesRing);
}

#[test]
fn h12_sanitizer_seeded_bugs_none_in_a_datagram() {
    let bare = Bare::datagram();
    bare.post_datagram(bare.datagram_wqe());
    bare.settle();
    bare.model.assert_clean();
    // A wrong Q_Key is no mistake that can be seen at the sender: nobody receives it, and the port counts.
    let bare = Bare::datagram();
    let mut wqe = bare.datagram_wqe();
    wqe[16..20].copy_from_slice(&(QKEY ^ 1).to_be_bytes());
    bare.post_datagram(wqe);
    bare.settle();
    assert_eq!(bare.control.query_port(1).unwrap().qkey_viol_cntr, 1);
    bare.model.assert_clean();
}

#[test]
fn h12_sanitizer_seeded_bugs_datagram() {
    type Spoil = fn(&mut [u8; 128]);
    let mistakes: [(Rule, Spoil); 7] = [
        // No address vector, or not all of it.
        (Rule::DsCoversSegments, |wqe| wqe[7] = 1),
        (Rule::DsCoversSegments, |wqe| wqe[7] = 3),
        // The short form; no MAC; an empty entry of the GID table.
        (Rule::AddressVector, |wqe| wqe[24] = 0),
        (Rule::AddressVector, |wqe| wqe[36..42].fill(0)),
        (Rule::SourceAddressSet, |wqe| wqe[44..48].copy_from_slice(&(7u32 << 20).to_be_bytes())),
        // One byte more than a packet carries.
        (Rule::MessageWithinLimit, |wqe| wqe[64..68].copy_from_slice(&4097u32.to_be_bytes())),
        (Rule::OpcodeKnown, |wqe| wqe[3] = SendOpcode::RDMA_WRITE.0),
    ];
    for (rule, spoil) in mistakes {
        let bare = Bare::datagram();
        let mut wqe = bare.datagram_wqe();
        spoil(&mut wqe);
        bare.post_datagram(wqe);
        bare.assert_caught(rule);
    }
}

#[test]
fn h12_sanitizer_seeded_bugs_objects_destroyed_while_used() {
    let bare = Bare::new();
    assert!(bare.control.destroy_cq(bare.cq.cqn).is_err());
    assert!(bare.control.dealloc_pd(bare.pd).is_err());
    // The queue pair's, whatever its number.
    let uars = (0..256).map(UarIndex::new).filter(|uar| *uar != bare.other_uar.index());
    let refused = uars.filter(|uar| matches!(bare.control.dealloc_uar(*uar), Err(Error::Command { .. })));
    assert_eq!(refused.count(), 1);
    bare.assert_caught(Rule::ObjectInUse);
}

#[test]
fn h12_sanitizer_seeded_bugs_objects_that_do_not_exist() {
    // Refused before the device is asked: no rule is broken.
    let bare = Bare::new();
    assert!(bare.control.destroy_cq(Cqn::new(0x7777)).is_err());
    assert!(bare.control.dealloc_uar(UarIndex::new(0x7777)).is_err());
    bare.model.assert_clean();
}
