//! Firmware of one PCI function: the init segment, the command interface and the objects behind it.
#![forbid(unsafe_code)]

pub(crate) mod alloc;
mod blue_flame;
mod buffer;
mod caps;
mod cmdq;
mod compression;
mod counters;
mod cq;
mod cq_moderation;
mod cq_resize;
mod dct;
mod devx;
mod dispatch;
mod doorbell;
mod eq;
mod flow;
mod general_object;
mod hca;
pub mod health;
mod host;
mod infiniband;
mod init_segment;
mod key_access;
mod mad;
pub(crate) mod memic;
mod mishap;
mod mkey;
mod multicast;
mod page_fault;
mod pages;
mod port_reg;
mod ppcnt;
mod psv;
mod qp;
mod qp_modify;
mod qp_record;
mod rate;
mod receive;
mod receive_frame;
pub mod refusal;
mod reg;
mod roce;
mod rq;
mod scatter_to_cqe;
mod scheduling;
mod signature;
mod sq;
mod sq_frame;
mod srq;
mod steer;
mod table;
mod tir;
mod traffic;
mod turns;
mod umr;
mod unmap;
mod vport;
mod wq;
mod xrq;

pub use refusal::Refusal;

use crate::{
    clock::Clock,
    config::ModelConfig,
    fault::Injector,
    mem::DmaMap,
    pci::{BarMemory, ConfigSpace, Effect, Irqs, PAGE_BYTES, plain_pages},
    strict::{Queue, Rule, Violation},
    trace::{Kind, Trace},
};
use alloc::Uar;
use cq::Cq;
use eq::EventQueue;
use mkey::Mkey;
use mlx5_direct::mlx5::{cmd::PfccReg, context::RoceAddrLayout};
use qp::Qp;
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    io,
    sync::Arc,
};
use table::Table;

/// How far bring-up has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// After a reset.
    Off,
    /// After ENABLE_HCA, and after TEARDOWN_HCA.
    Enabled,
    /// After INIT_HCA.
    Initialised,
}

/// One PCI function.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) index: u8,
    config: ModelConfig,
    clock: Arc<Clock>,
    trace: Trace,
    pub(crate) dma: Arc<DmaMap>,
    pub(crate) bar: Arc<BarMemory>,
    pub(crate) irqs: Irqs,
    faults: Arc<Injector>,
    /// The function has left the bus: registers read all ones, nothing is executed.
    gone: bool,
    pub(crate) violations: Vec<Violation>,
    /// Frames that the port sends.
    pub(crate) outbox: VecDeque<Vec<u8>>,
    config_space: ConfigSpace,

    iseg: init_segment::InitSegment,
    phase: Phase,
    issi: u16,
    commands: cmdq::CommandQueue,
    caps: caps::Capabilities,
    pages: pages::Pages,
    vport: vport::Vport,
    /// The port's other half, if it is one of InfiniBand.
    ib_port: Option<infiniband::IbPort>,
    roce_addresses: Vec<RoceAddrLayout>,
    /// PFCC. The model sends no pauses, and gets none.
    pauses: PfccReg,
    /// `PCMR.fcs_chk`.
    checks_fcs: bool,
    port_counters: traffic::PortCounters,
    /// What groups of PPCNT were when they were last zeroed, by group and priority.
    cleared_counters: BTreeMap<(u8, u8), traffic::PortCounters>,
    vport_counters: traffic::VportCounters,

    uars: Table<Uar>,
    pds: Table<alloc::Counted>,
    transport_domains: Table<alloc::Counted>,
    xrcds: Table<alloc::Counted>,
    counters: Table<counters::CounterSet>,
    uctxs: Table<alloc::Counted>,
    umems: Table<devx::Umem>,
    mkeys: Table<Mkey>,
    psvs: Table<psv::Psv>,
    eqs: Table<EventQueue>,
    cqs: Table<Cq>,
    qps: Table<Qp>,
    dcts: Table<dct::Dct>,
    page_faults: page_fault::PageFaults,
    /// Lives that DC initiators have begun.
    n_dc_sessions: u32,
    reserved_qpns: Table<general_object::Reservation>,
    paced_addresses: Table<general_object::PacedAddress>,
    elements: Table<scheduling::Element>,
    sqs: Table<sq::Sq>,
    rqs: Table<rq::Rq>,
    srqs: Table<srq::Srq>,
    rqts: Table<tir::Rqt>,
    tirs: Table<tir::Tir>,
    tiss: Table<tir::Tis>,
    steering: flow::Steering,
    /// When armed CQs make their events, of those that moderation holds back.
    cq_timers: BTreeMap<u32, u64>,
    /// CQs with completions that wait for others of their kind, and until when at most.
    cq_sessions: BTreeMap<u32, u64>,
    multicast: multicast::Multicast,
    memic_pieces: memic::Pieces,
    rates: rate::Rates,
    /// QPs with something to do.
    ready: BTreeSet<u32>,
    /// Doorbell registers are plain memory and looked at.
    watching: bool,
    /// The init segment is mapped too.
    watching_init_segment: bool,
    /// WQEs that came whole into BlueFlame buffers, NOPs aside.
    pub(crate) n_blue_flames: u64,
    /// Sessions of compressed CQEs that were written.
    pub(crate) n_sessions: u64,
    /// Messages that took a tag.
    pub(crate) n_tagged: u64,
}

impl Function {
    /// Gives the next queue pair the lowest number that is free, though another had it just before.
    pub(crate) fn restart_qp_numbers(&mut self) {
        self.qps.restart();
    }

    pub(crate) fn new(
        index: u8,
        config: &ModelConfig,
        clock: Arc<Clock>,
        trace: Trace,
        faults: Arc<Injector>,
    ) -> io::Result<Self> {
        let mut function = Self {
            index,
            config: config.clone(),
            clock,
            trace,
            dma: Arc::default(),
            bar: Arc::new(BarMemory::new()?),
            irqs: Irqs::default(),
            faults,
            gone: false,
            violations: Vec::new(),
            outbox: VecDeque::new(),
            config_space: ConfigSpace::new(config.part, config.n_vectors, config.ports > 1),
            iseg: init_segment::InitSegment::default(),
            phase: Phase::Off,
            issi: 0,
            commands: cmdq::CommandQueue::default(),
            caps: caps::Capabilities::new(config),
            pages: pages::Pages::default(),
            vport: vport::Vport::new(index, config),
            ib_port: None,
            roce_addresses: Vec::new(),
            pauses: Self::default_pauses(),
            checks_fcs: true,
            port_counters: traffic::PortCounters::default(),
            cleared_counters: BTreeMap::new(),
            vport_counters: traffic::VportCounters::default(),
            uars: Table::new(alloc::FIRST_UAR, alloc::N_UARS),
            pds: Table::new(1, 1 << caps::LOG_MAX_PD),
            transport_domains: Table::new(1, 1 << caps::LOG_MAX_TRANSPORT_DOMAIN),
            xrcds: Table::new(1, 1 << caps::LOG_MAX_XRCD),
            counters: Table::new(1, u32::from(caps::MAX_QP_CNT)),
            uctxs: Table::new(1, 1 << caps::LOG_MAX_UCTX),
            umems: Table::new(1, 1 << caps::LOG_MAX_UMEM),
            mkeys: Table::new(mkey::FIRST_INDEX, 1 << caps::LOG_MAX_MKEY),
            psvs: Table::new(1, 1 << psv::LOG_MAX_PSV),
            eqs: Table::new(1, 1 << caps::LOG_MAX_EQ),
            cqs: Table::new(cq::FIRST_CQN, 1 << caps::LOG_MAX_CQ),
            qps: Table::new(qp::FIRST_QPN, 1 << caps::LOG_MAX_QP),
            dcts: Table::new(dct::FIRST_DCTN, 1 << caps::LOG_MAX_OBJECTS),
            page_faults: page_fault::PageFaults::new(),
            n_dc_sessions: 0,
            reserved_qpns: Table::new(0, 1 << general_object::LOG_MAX_RESERVATIONS),
            paced_addresses: Table::new(1, 1 << caps::LOG_MAX_OBJECTS),
            elements: Table::new(1, 1 << scheduling::LOG_MAX_ELEMENTS),
            sqs: Table::new(sq::FIRST_SQN, 1 << caps::LOG_MAX_OBJECTS),
            rqs: Table::new(rq::FIRST_RQN, 1 << caps::LOG_MAX_OBJECTS),
            srqs: Table::new(1, 1 << caps::LOG_MAX_OBJECTS),
            rqts: Table::new(1, 1 << caps::LOG_MAX_OBJECTS),
            tirs: Table::new(1, 1 << caps::LOG_MAX_OBJECTS),
            tiss: Table::new(1, 1 << caps::LOG_MAX_OBJECTS),
            steering: flow::Steering::new(),
            cq_timers: BTreeMap::new(),
            cq_sessions: BTreeMap::new(),
            multicast: multicast::Multicast::default(),
            memic_pieces: memic::Pieces::default(),
            rates: rate::Rates::default(),
            ready: BTreeSet::new(),
            watching: false,
            watching_init_segment: false,
            n_blue_flames: 0,
            n_sessions: 0,
            n_tagged: 0,
        };
        function.forget();
        Ok(function)
    }

    /// Forgets everything but what belongs to the bus (DMA map, interrupts, config space) and what was counted.
    fn forget(&mut self) {
        self.close_objects();
        self.phase = Phase::Off;
        self.issi = 0;
        self.commands = cmdq::CommandQueue::default();
        self.caps = caps::Capabilities::new(&self.config);
        self.pages = pages::Pages::default();
        self.vport = vport::Vport::new(self.index, &self.config);
        self.new_ib_port();
        (self.pauses, self.checks_fcs) = (Self::default_pauses(), true);
        self.outbox.clear();
        self.reset_init_segment();
    }

    /// Ends all objects at once: what a reset and TEARDOWN_HCA do.
    fn close_objects(&mut self) {
        self.steering = flow::Steering::new();
        self.multicast = multicast::Multicast::default();
        self.memic_pieces = memic::Pieces::default();
        self.rates = rate::Rates::default();
        self.tirs.clear();
        self.tiss.clear();
        self.rqts.clear();
        self.rqs.clear();
        self.sqs.clear();
        self.qps.clear();
        self.dcts.clear();
        self.page_faults.clear();
        self.reserved_qpns.clear();
        self.paced_addresses.clear();
        self.elements.clear();
        self.srqs.clear();
        self.cqs.clear();
        self.eqs.clear();
        self.mkeys.clear();
        self.psvs.clear();
        self.umems.clear();
        self.uctxs.clear();
        self.counters.clear();
        self.xrcds.clear();
        self.transport_domains.clear();
        self.pds.clear();
        self.uars.clear();
        self.cq_timers.clear();
        self.cq_sessions.clear();
        self.ready.clear();
        self.roce_addresses = vec![RoceAddrLayout::new(); usize::from(caps::ROCE_TABLE_SIZE)];
    }

    /// Function-level reset.
    pub(crate) fn reset(&mut self) {
        self.note(|| "function-level reset".into());
        let (config, was) = (&self.config, self.config_space.clone());
        self.config_space = ConfigSpace::new(config.part, config.n_vectors, config.ports > 1);
        // Software restores config space after a reset; in process nobody saves it, so the command
        // register survives.
        let mut command = [0; 2];
        was.read(4, &mut command);
        self.config_space.write(4, &command);
        self.forget();
    }

    pub(super) fn set_gone(&mut self, gone: bool) {
        self.gone = gone;
        if !gone {
            self.forget();
        }
    }

    pub(crate) fn config_read(&self, offset: u16, into: &mut [u8]) {
        if self.gone {
            into.fill(0xff);
        } else {
            self.config_space.read(offset, into);
        }
    }

    pub(crate) fn config_write(&mut self, offset: u16, bytes: &[u8]) {
        if !self.gone && self.config_space.write(offset, bytes) == Effect::Reset {
            self.reset();
        }
    }

    /// Whether registers answer.
    fn reachable(&self) -> bool {
        !self.gone && self.config_space.memory_enabled()
    }

    /// Whether firmware runs and may use memory.
    fn running(&self) -> bool {
        !self.gone && self.config_space.bus_master() && self.iseg.alive()
    }

    pub(crate) fn bar_read(&mut self, offset: u64, into: &mut [u8]) {
        if self.reachable() {
            self.tick_init_segment();
            if !self.memic_load(offset, into) {
                self.bar.read(offset, into);
            }
        } else {
            into.fill(0xff);
        }
    }

    /// A store to BAR0, in memory order.
    pub(crate) fn bar_write(&mut self, offset: u64, bytes: &[u8]) {
        if !self.reachable() {
            return;
        }
        if self.memic_store(offset, bytes) {
            return;
        }
        if offset >= u64::from(alloc::FIRST_UAR) * crate::pci::PAGE_BYTES {
            self.uar_store(offset, bytes);
        } else {
            for (at, word) in (offset..).step_by(4).zip(bytes.chunks(4)) {
                if let (0, Ok(word)) = (at % 4, word.try_into()) {
                    self.init_segment_write(at, u32::from_be_bytes(word));
                }
            }
        }
        // Stepped, commands run inside the write that rings them: a caller that polls sees them done.
        if self.config.drive == crate::config::Drive::Step {
            self.tick_init_segment();
            self.run_commands();
        }
    }

    /// Registers are mapped as plain memory; the init segment too, if `init_segment`.
    pub(crate) fn watch(&mut self, init_segment: bool) {
        self.watching_init_segment |= init_segment;
        // Once: later pages are primed as they are allocated, and a doorbell on these may wait to be seen.
        if !std::mem::replace(&mut self.watching, true) {
            self.prime_registers();
        }
    }

    pub(crate) fn watches_doorbells(&self) -> bool {
        self.watching && (self.watching_init_segment || self.watched_pages().next().is_some())
    }

    /// A UAR page that is plain memory: doorbells can merge before they are seen, so what they name is not exact.
    fn is_watched(&self, uar: u32) -> bool {
        self.watching && plain_pages(self.config.bar).contains(&(u64::from(uar) * PAGE_BYTES))
    }

    fn watched_pages(&self) -> impl Iterator<Item = u32> {
        self.uars.iter().map(|(uar, _)| uar).filter(|&uar| self.is_watched(uar))
    }

    /// Does what there is to do now; true if anything was done.
    pub(crate) fn work(&mut self) -> bool {
        let mut busy = self.tick_init_segment();
        if self.gone {
            return busy;
        }
        busy |= self.watching && self.poll_registers();
        busy |= self.run_commands();
        if self.running() {
            busy |= self.run_queues();
            busy |= self.run_cq_timers();
            busy |= self.run_cq_sessions(!busy);
        }
        busy
    }

    /// When things come due of themselves.
    pub(crate) fn deadlines_ns(&self) -> impl Iterator<Item = u64> {
        let timers = self.qps.iter().filter_map(|(_, qp)| qp.deadline_ns());
        let late = self.commands.deadline_ns();
        timers.chain(self.cq_timers.values().copied()).chain(late).chain([self.init_segment_deadline_ns()])
    }

    fn violate(&mut self, violation: Violation) {
        let violation = Violation { function: self.index, at: self.clock.now(), ..violation };
        self.note(|| format!("violation: {violation}"));
        self.violations.push(violation);
    }

    /// A broken rule on a queue.
    fn violate_on(&mut self, queue: Queue, rule: Rule, detail: impl Into<String>) {
        self.violate(Violation::new(rule, detail).on(queue));
    }

    fn record(&self, kind: Kind, bytes: &[u8], text: impl FnOnce() -> String) {
        if self.trace.wants(kind) {
            self.trace.record(self.clock.now(), self.index, kind, bytes, text);
        }
    }

    fn note(&self, text: impl FnOnce() -> String) {
        self.record(Kind::Note, &[], text);
    }
}
