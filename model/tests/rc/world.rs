//! Two functions made of nothing but memory, keys and rings, joined by a wire, on a virtual clock.

use mlx5_direct::{
    mlx5::ids::{Cqn, Pdn, Psn, Qpn, UserIndex},
    wqe::{MkeyMask, SetPsvSeg, TmSeg},
};
use mlx5_model::{
    exec::{
        Counter, Cqe, DcTarget, Engine, Host, KeyFault, Need, PageFault, Path, QpConfig, QpEvent, QpState,
        Right, Ring, RingFault, RoceKind, Rule, SharedQueue, SharedWqe, SourceAddress, Station, TagList,
        TagMemory, TagOutcome, TakenTag, UmrFault, UmrRequest, Wake,
    },
    wire::{Address, Packet, Port, Wire},
};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    fmt,
};

/// Address of the first byte of a node's memory.
pub(crate) const BASE: u64 = 0x10_0000;
pub(crate) const PD: Pdn = Pdn::new(7);
/// Everything allowed on all of the memory; lkey and rkey.
pub(crate) const KEY: u32 = 0x1100;
/// Nothing but local reads.
pub(crate) const READ_ONLY: u32 = 0x1200;
/// As KEY, in another protection domain.
pub(crate) const OTHER_PD: u32 = 0x1300;
/// As KEY, for SEND_INVAL to kill.
pub(crate) const WINDOW: u32 = 0x1400;

/// Of pages that may be absent.
pub(crate) const PAGE_BYTES: usize = 0x1000;
/// The only value that signatures may begin with.
pub(crate) const PSV: u32 = 0x51;

const ALL: &[Need] =
    &[Need::LocalRead, Need::LocalWrite, Need::RemoteRead, Need::RemoteWrite, Need::RemoteAtomic];

pub(crate) struct Key {
    pub(crate) pd: Pdn,
    pub(crate) allowed: &'static [Need],
    pub(crate) len: u64,
    pub(crate) free: bool,
}

/// A shared receive queue: who it belongs to, and WQEs by index.
pub(crate) struct Srq {
    pub(crate) queue: SharedQueue,
    pub(crate) xrcd: u32,
    pub(crate) wqes: VecDeque<(u16, Vec<u8>)>,
}

/// One function.
pub(crate) struct Side {
    pub(crate) memory: Vec<u8>,
    pub(crate) keys: HashMap<u32, Key>,
    pub(crate) rings: HashMap<(Qpn, bool), Vec<u8>>,
    pub(crate) receive_counters: HashMap<Qpn, u16>,
    pub(crate) srqs: HashMap<u32, Srq>,
    /// Of shared receive queues that match tags.
    pub(crate) tags: HashMap<u32, TagList>,
    pub(crate) cqes: Vec<(Cqn, Cqe, Wake)>,
    pub(crate) events: Vec<(Qpn, QpEvent)>,
    pub(crate) violations: Vec<(Rule, String)>,
    pub(crate) n_qkey_violations: u32,
    /// What was counted, by QP.
    pub(crate) counts: BTreeMap<(Qpn, Counter), u32>,
    pub(crate) source: SourceAddress,
    pub(crate) now: u64,
    pub(crate) n_atomics: u32,
    /// Offsets of pages that are not there, and the faults that nobody has answered yet.
    pub(crate) absent: BTreeSet<usize>,
    pub(crate) faults: Vec<PageFault>,
    outbox: Vec<Vec<u8>>,
    n_outbox: usize,
}

impl Side {
    fn allowed(&self, right: &Right, addr: u64, len: u64) -> Result<usize, KeyFault> {
        assert!(len > 0, "asked for nothing");
        let key = self.keys.get(&right.key).ok_or(KeyFault::Unknown)?;
        if key.free {
            return Err(KeyFault::Free);
        }
        if key.pd != right.pd {
            return Err(KeyFault::Pd);
        }
        if !key.allowed.contains(&right.need) {
            return Err(KeyFault::Access);
        }
        match addr.checked_sub(BASE) {
            Some(at) if at.checked_add(len).is_some_and(|end| end <= key.len) => Ok(at as usize),
            _ => Err(KeyFault::Bounds),
        }
    }

    /// As [`allowed`](Self::allowed), and the pages are there.
    fn present(&self, right: &Right, addr: u64, len: u64) -> Result<usize, KeyFault> {
        let at = self.allowed(right, addr, len)?;
        let first = at / PAGE_BYTES * PAGE_BYTES;
        match self.absent.range(first..at + len as usize).next() {
            Some(_) => Err(KeyFault::Absent),
            None => Ok(at),
        }
    }

    /// Frames sent and not yet on the wire.
    pub(crate) fn n_sent(&self) -> usize {
        self.n_outbox
    }

    /// Memory of a node at `offset`.
    pub(crate) fn bytes(&self, offset: usize, len: usize) -> &[u8] {
        &self.memory[offset..offset + len]
    }
}

impl Host for Side {
    fn now(&self) -> u64 {
        self.now
    }
    fn read_ring(&mut self, qpn: Qpn, ring: Ring, offset: usize, into: &mut [u8]) -> Result<(), RingFault> {
        let bytes = &self.rings[&(qpn, ring == Ring::Send)];
        let from = bytes.get(offset..offset + into.len()).ok_or(RingFault)?;
        into.copy_from_slice(from);
        Ok(())
    }
    fn receive_counter(&mut self, qpn: Qpn) -> u16 {
        self.receive_counters.get(&qpn).copied().unwrap_or(0)
    }
    fn shared_is_posted(&mut self, number: u32) -> bool {
        self.srqs.get(&number).is_some_and(|srq| !srq.wqes.is_empty())
    }
    fn take_shared(&mut self, number: u32, wqe: &mut [u8]) -> SharedWqe {
        let Some(srq) = self.srqs.get_mut(&number) else { return SharedWqe::Broken };
        let Some((index, bytes)) = srq.wqes.pop_front() else { return SharedWqe::Empty };
        wqe[..bytes.len()].copy_from_slice(&bytes);
        SharedWqe::Taken { index, len_bytes: bytes.len() }
    }
    fn xrc_queue(&self, number: u32, xrcd: u32) -> Option<SharedQueue> {
        self.srqs.get(&number).filter(|srq| srq.xrcd == xrcd).map(|srq| srq.queue)
    }
    fn change_tags(
        &mut self,
        number: u32,
        operation: &TmSeg,
        memory: TagMemory,
    ) -> Result<TagOutcome, (Rule, String)> {
        self.tags.get_mut(&number).unwrap().apply(operation, memory)
    }
    fn take_tag(&mut self, number: u32, tag: u64) -> Option<TakenTag> {
        self.tags.get_mut(&number).unwrap().take(tag)
    }
    fn release_tag(&mut self, number: u32, index: u16) {
        self.tags.get_mut(&number).unwrap().release(index);
    }
    fn count_unexpected(&mut self, number: u32) {
        self.tags.get_mut(&number).unwrap().count_unexpected();
    }
    fn check(&mut self, right: &Right, addr: u64, len: u64) -> Result<(), KeyFault> {
        self.allowed(right, addr, len).map(drop)
    }
    fn read(&mut self, right: &Right, addr: u64, into: &mut [u8]) -> Result<(), KeyFault> {
        let at = self.present(right, addr, into.len() as u64)?;
        into.copy_from_slice(&self.memory[at..at + into.len()]);
        Ok(())
    }
    fn write(&mut self, right: &Right, addr: u64, from: &[u8]) -> Result<(), KeyFault> {
        let at = self.present(right, addr, from.len() as u64)?;
        self.memory[at..at + from.len()].copy_from_slice(from);
        Ok(())
    }
    fn atomic(
        &mut self,
        right: &Right,
        addr: u64,
        len_bytes: u32,
        update: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, KeyFault> {
        let at = self.present(right, addr, len_bytes.into())?;
        let word = &mut self.memory[at..at + len_bytes as usize];
        let old = match word.len() {
            4 => u32::from_ne_bytes((&*word).try_into().unwrap()).into(),
            _ => u64::from_ne_bytes((&*word).try_into().unwrap()),
        };
        match word.len() {
            4 => word.copy_from_slice(&(update(old) as u32).to_ne_bytes()),
            _ => word.copy_from_slice(&update(old).to_ne_bytes()),
        }
        self.n_atomics += 1;
        Ok(old)
    }
    fn invalidate(&mut self, rkey: u32, pd: Pdn, _: Qpn) -> Result<(), KeyFault> {
        let key = self.keys.get_mut(&rkey).filter(|key| key.pd == pd).ok_or(KeyFault::Unknown)?;
        match std::mem::replace(&mut key.free, true) {
            false => Ok(()),
            true => Err(KeyFault::Free),
        }
    }
    fn set_psv(&mut self, _: Pdn, segment: &SetPsvSeg) -> bool {
        segment.psv_index() == PSV
    }
    fn umr(&mut self, request: &UmrRequest<'_>) -> Result<(), UmrFault> {
        let key = self.keys.get_mut(&request.mkey).ok_or(UmrFault::Key)?;
        if request.ctrl.mkey_mask().has(MkeyMask::FREE) {
            key.free = request.context.free();
        }
        Ok(())
    }
    fn page_fault(&mut self, fault: &PageFault) -> bool {
        let same = |other: &PageFault| (other.qpn, other.side()) == (fault.qpn, fault.side());
        let told = !self.faults.iter().any(same);
        if told {
            self.faults.push(*fault);
        }
        told
    }
    fn post_cqe(&mut self, cqn: Cqn, cqe: &Cqe, wake: Wake) {
        self.cqes.push((cqn, *cqe, wake));
    }
    fn event(&mut self, qpn: Qpn, event: QpEvent) {
        self.events.push((qpn, event));
    }
    fn qkey_violation(&mut self) {
        self.n_qkey_violations += 1;
    }
    fn count(&mut self, qpn: Qpn, counter: Counter) {
        *self.counts.entry((qpn, counter)).or_default() += 1;
    }
    fn transmit(&mut self, frame: &[u8]) {
        if self.outbox.len() == self.n_outbox {
            self.outbox.push(Vec::new());
        }
        let slot = &mut self.outbox[self.n_outbox];
        slot.clear();
        slot.extend_from_slice(frame);
        self.n_outbox += 1;
    }
    fn source_address(&self, gid_index: u8) -> Option<SourceAddress> {
        (gid_index == 0).then_some(self.source)
    }
    fn violation(&mut self, _: Qpn, _: Option<u16>, rule: Rule, detail: fmt::Arguments<'_>) {
        self.violations.push((rule, detail.to_string()));
    }
}

pub(crate) struct Node {
    pub(crate) side: Side,
    pub(crate) qps: HashMap<Qpn, Engine>,
    pub(crate) dcts: HashMap<Qpn, DcTarget>,
    pub(crate) port: Port,
    pub(crate) send_counters: HashMap<Qpn, u16>,
}

/// What all QPs of a test have in common.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) kind: RoceKind,
    pub(crate) vlan_id: Option<u16>,
    pub(crate) memory_bytes: usize,
    pub(crate) qp: QpConfig,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            kind: RoceKind::V2Ipv4,
            vlan_id: None,
            memory_bytes: 1 << 20,
            qp: QpConfig {
                pd: PD,
                n_send_wqebbs: 64,
                n_receive_wqes: 16,
                receive_stride_bytes: 64,
                mtu_bytes: 1024,
                path: Path { ack_timeout: 8, ..Path::default() },
                next_send_psn: Psn::new(0xff_fff0),
                next_rcv_psn: Psn::new(0xff_fff0),
                max_outstanding_reads: 4,
                max_served_reads: 4,
                log_ack_req_freq: 4,
                min_rnr_nak: 1,
                remote_read: true,
                remote_write: true,
                remote_atomic: true,
                ..QpConfig::default()
            },
        }
    }
}

pub(crate) struct World {
    pub(crate) nodes: [Node; 2],
    pub(crate) wire: Wire,
    pub(crate) now: u64,
    /// Every frame sent: time, sender, bytes.
    pub(crate) trace: Option<Vec<(u64, usize, Vec<u8>)>>,
}

/// Number of the `k`-th QP of a node.
pub(crate) fn qpn(node: usize, k: u32) -> Qpn {
    Qpn::new(0x100 * (node as u32 + 1) + k)
}

impl World {
    /// Nodes without QPs.
    pub(crate) fn empty(setup: &Setup) -> Self {
        let mut wire = Wire::new();
        let nodes = [0u8, 1].map(|id| {
            let mac = [2, 0, 0, 0, 0, id];
            let gid = gid(setup.kind, id);
            let key = |pd, allowed| Key { pd, allowed, len: setup.memory_bytes as u64, free: false };
            let keys = HashMap::from([
                (KEY, key(PD, ALL)),
                (READ_ONLY, key(PD, &[Need::LocalRead])),
                (OTHER_PD, key(Pdn::new(8), ALL)),
                (WINDOW, key(PD, ALL)),
            ]);
            let side = Side {
                memory: vec![0; setup.memory_bytes],
                keys,
                rings: HashMap::new(),
                receive_counters: HashMap::new(),
                srqs: HashMap::new(),
                tags: HashMap::new(),
                cqes: Vec::new(),
                events: Vec::new(),
                violations: Vec::new(),
                n_qkey_violations: 0,
                counts: BTreeMap::new(),
                source: SourceAddress {
                    station: Station::Ethernet { mac, vlan_id: setup.vlan_id },
                    gid,
                    kind: setup.kind,
                },
                now: 0,
                n_atomics: 0,
                absent: BTreeSet::new(),
                faults: Vec::new(),
                outbox: Vec::new(),
                n_outbox: 0,
            };
            Node {
                side,
                qps: HashMap::new(),
                dcts: HashMap::new(),
                port: wire.add_port(Address::Mac(mac)),
                send_counters: HashMap::new(),
            }
        });
        Self { nodes, wire, now: 0, trace: None }
    }

    /// Two nodes with one connected pair of QPs.
    pub(crate) fn pair(setup: &Setup) -> Self {
        let mut world = Self::empty(setup);
        world.connect(setup, (0, 0), (1, 0));
        world
    }

    /// Makes and connects the QPs named by node and number; the same one twice talks to itself.
    pub(crate) fn connect(&mut self, setup: &Setup, a: (usize, u32), b: (usize, u32)) {
        let ends = if a == b { vec![(a, b)] } else { vec![(a, b), (b, a)] };
        for ((node, k), (peer, peer_k)) in ends {
            let config = QpConfig {
                qpn: qpn(node, k),
                source_qpn: qpn(node, k),
                user_index: UserIndex::new(0x4000 + k),
                cqn_send: Cqn::new(0x10),
                cqn_receive: Cqn::new(0x20),
                remote_qpn: qpn(peer, peer_k),
                path: Path {
                    dest_mac: [2, 0, 0, 0, 0, peer as u8],
                    dest_gid: gid(setup.kind, peer as u8),
                    ..setup.qp.path
                },
                ..setup.qp
            };
            let node = &mut self.nodes[node];
            let mut qp = Engine::new(config);
            let n = config.n_send_wqebbs as usize * 64;
            node.side.rings.insert((config.qpn, true), vec![0xa5; n]);
            let n = (config.n_receive_wqes * config.receive_stride_bytes) as usize;
            node.side.rings.insert((config.qpn, false), vec![0xa5; n]);
            for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
                qp.set_state(&mut node.side, state, config);
            }
            node.qps.insert(config.qpn, qp);
            node.send_counters.insert(config.qpn, 0);
        }
    }

    /// Adds a shared receive queue at node 1, which is empty and completes as its QPs' own would.
    pub(crate) fn add_srq(&mut self, number: u32, user_index: u32) -> SharedQueue {
        let (cqn, user_index) = (Cqn::new(0x20), UserIndex::new(user_index));
        let queue = SharedQueue { number, pd: PD, cqn, user_index, tag_matching: false };
        self.nodes[1].side.srqs.insert(number, Srq { queue, xrcd: 0, wqes: VecDeque::new() });
        queue
    }

    /// One turn of both nodes. Returns whether anything happened.
    pub(crate) fn turn(&mut self) -> bool {
        let mut busy = false;
        for index in 0..2 {
            let node = &mut self.nodes[index];
            node.side.now = self.now;
            let mut numbers: Vec<Qpn> = node.qps.keys().copied().collect();
            numbers.sort();
            for number in numbers {
                let qp = node.qps.get_mut(&number).unwrap();
                if qp.next_deadline().is_some_and(|at| at <= self.now) {
                    qp.timer(&mut node.side);
                    busy = true;
                }
                busy |= qp.run(&mut node.side, 32);
            }
            for dct in node.dcts.values_mut() {
                busy |= dct.run(&mut node.side, 32);
            }
            busy |= node.side.n_outbox > 0;
            for frame in &node.side.outbox[..node.side.n_outbox] {
                if let Some(trace) = &mut self.trace {
                    trace.push((self.now, index, frame.clone()));
                }
                self.wire.send(node.port, frame, self.now);
            }
            node.side.n_outbox = 0;
        }
        for node in &mut self.nodes {
            while let Some(frame) = self.wire.receive(node.port, self.now) {
                busy = true;
                if let Ok(packet) = Packet::parse(&frame) {
                    let number = packet.headers.bth.dest_qpn;
                    if let Some(qp) = node.qps.get_mut(&number) {
                        qp.receive(&mut node.side, &packet);
                    } else if let Some(dct) = node.dcts.get_mut(&number) {
                        dct.receive(&mut node.side, &packet);
                    }
                }
                self.wire.recycle(frame);
            }
        }
        busy
    }

    /// Lets time pass until nothing is left to happen.
    pub(crate) fn settle(&mut self) {
        for _ in 0..2_000_000 {
            if self.turn() {
                continue;
            }
            let deadlines = self.nodes.iter().flat_map(|n| n.qps.values()).filter_map(Engine::next_deadline);
            match deadlines.chain(self.wire.next_deadline()).min() {
                Some(at) => self.now = self.now.max(at),
                None => return,
            }
        }
        panic!("never comes to rest");
    }

    /// CQEs of a node so far, taken.
    pub(crate) fn take_cqes(&mut self, node: usize) -> Vec<super::wqe::Cqe> {
        let cqes = std::mem::take(&mut self.nodes[node].side.cqes);
        cqes.iter().map(|(cqn, cqe, wake)| super::wqe::Cqe::decode(*cqn, &cqe.bytes, *wake)).collect()
    }

    pub(crate) fn state(&self, node: usize) -> QpState {
        self.nodes[node].qps[&qpn(node, 0)].state()
    }

    /// No rule was broken.
    pub(crate) fn assert_clean(&self) {
        for node in &self.nodes {
            assert_eq!(node.side.violations, []);
        }
    }
}

fn gid(kind: RoceKind, id: u8) -> [u8; 16] {
    match kind {
        RoceKind::V2Ipv4 => [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 168, 0, id + 1],
        _ => [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0xff, 0xfe, 0, 0, id],
    }
}
