//! Objects that exist, and the memory that the device may reach through them.
#![forbid(unsafe_code)]

use super::{
    Core,
    channel::Channel,
    cq, lock, mr, mw, qp,
    raw_packet::{self, RawQp},
    steering::Steering,
};
use crate::{
    Error, Result,
    backend::{UarPage, dma::DmaRegion},
    mlx5::{
        cmd::{AllocXrcdIn, Command, DeallocPdIn, DeallocTransportDomainIn, DeallocUarIn, DeallocXrcdIn},
        context::{QpState, Qpc},
        ids::{Cqn, Eqn, Lkey, Pdn, Qpn, Rkey, UarIndex},
    },
};
use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU8, Ordering},
    },
};

/// Everything that was made and not yet destroyed.
#[derive(Debug, Default)]
pub(super) struct Tables {
    pds: Mutex<HashSet<Pdn>>,
    uars: Mutex<HashSet<UarIndex>>,
    pub(super) mrs: Mutex<HashMap<Lkey, DmaRegion>>,
    /// Memory windows, by the key that each was made with.
    mws: Mutex<HashSet<Rkey>>,
    pub(super) cqs: Mutex<HashMap<Cqn, CqEntry>>,
    pub(super) qps: Mutex<HashMap<Qpn, Arc<QpEntry>>>,
    /// Raw packet queue pairs, by their send queues' numbers, and which frames they get.
    pub(super) raw_qps: Mutex<HashMap<Qpn, Arc<RawQp>>>,
    pub(super) steering: Steering,
    /// Transport domain of all of these, once there is one.
    transport_domain: Mutex<Option<u32>>,
    /// XRC domain of all initiators, once there is one.
    xrcd: Mutex<Option<u32>>,
    /// Event queue of completion queues without a channel.
    control_eqn: Mutex<Eqn>,
}

/// A completion queue.
#[derive(Debug)]
pub(super) struct CqEntry {
    /// Ring and record.
    pub(super) _memory: Vec<DmaRegion>,
    pub(super) channel: Option<Arc<Channel>>,
}

/// A queue pair.
#[derive(Debug)]
pub(super) struct QpEntry {
    /// Rings and record.
    _memory: Vec<DmaRegion>,
    /// It lives until the queue pair is gone, whoever drops the register.
    _uar: Arc<UarPage>,
    /// What the device was told so far. Locked for the length of a transition.
    pub(super) context: Mutex<Qpc>,
    /// [`QpState`]: changed by transitions, and by the events that tell of one.
    state: AtomicU8,
}

impl QpEntry {
    pub(super) fn new(memory: Vec<DmaRegion>, uar: &Arc<UarPage>, context: Qpc) -> Self {
        let (context, state) = (Mutex::new(context), AtomicU8::new(QpState::RST.0));
        Self { _memory: memory, _uar: Arc::clone(uar), context, state }
    }

    pub(super) fn state(&self) -> QpState {
        QpState(self.state.load(Ordering::Acquire))
    }

    /// A transition succeeded. If an event has moved the queue pair meanwhile, the event wins.
    pub(super) fn moved(&self, from: QpState, to: QpState) {
        let _ = self.state.compare_exchange(from.0, to.0, Ordering::AcqRel, Ordering::Acquire);
    }

    /// What the device says.
    pub(super) fn seen(&self, state: QpState) {
        self.state.store(state.0, Ordering::Release);
    }
}

fn unknown(what: &str, number: u32) -> Error {
    Error::invalid(format!("{what} 0x{number:x} does not exist, or was destroyed already"))
}

/// Takes an object out of its table, before the device is asked to destroy it: once it has, another thread
/// may get the same number.
pub(super) fn take<K: Eq + std::hash::Hash, V>(
    table: &Mutex<HashMap<K, V>>,
    key: K,
    what: &str,
    number: u32,
) -> Result<V> {
    lock(table).remove(&key).ok_or_else(|| unknown(what, number))
}

impl Tables {
    pub(super) fn control_eqn(&self) -> Eqn {
        *lock(&self.control_eqn)
    }

    pub(super) fn set_control_eqn(&self, eqn: Eqn) {
        *lock(&self.control_eqn) = eqn;
    }

    /// The XRC domain of initiators, which have to be of one and do nothing with it (`xrcdn1` of mlx5_ib's resources).
    pub(super) fn xrcd(&self, core: &Core) -> Result<u32> {
        let mut xrcd = lock(&self.xrcd);
        match *xrcd {
            Some(number) => Ok(number),
            None => Ok(*xrcd.insert(core.cmd.call(&AllocXrcdIn::request())?.xrcd())),
        }
    }

    pub(super) fn transport_domain(&self, core: &Core) -> Result<u32> {
        let mut domain = lock(&self.transport_domain);
        match *domain {
            Some(number) => Ok(number),
            None => Ok(*domain.insert(raw_packet::alloc_transport_domain(core)?)),
        }
    }

    pub(super) fn raw_qp(&self, qpn: Qpn) -> Result<Arc<RawQp>> {
        lock(&self.raw_qps).get(&qpn).cloned().ok_or_else(|| unknown("raw packet queue pair", qpn.get()))
    }

    pub(super) fn add_pd(&self, pd: Pdn) {
        lock(&self.pds).insert(pd);
    }

    pub(super) fn has_pd(&self, pd: Pdn) -> Result<()> {
        if lock(&self.pds).contains(&pd) { Ok(()) } else { Err(unknown("protection domain", pd.get())) }
    }

    pub(super) fn remove_pd(&self, pd: Pdn) -> Result<()> {
        let known = lock(&self.pds).remove(&pd);
        if known { Ok(()) } else { Err(unknown("protection domain", pd.get())) }
    }

    pub(super) fn add_mw(&self, rkey: Rkey) {
        lock(&self.mws).insert(rkey);
    }

    pub(super) fn remove_mw(&self, rkey: Rkey) -> Result<()> {
        let known = lock(&self.mws).remove(&rkey);
        if known { Ok(()) } else { Err(unknown("memory window with rkey", rkey.get())) }
    }

    pub(super) fn add_uar(&self, uar: UarIndex) {
        lock(&self.uars).insert(uar);
    }

    pub(super) fn remove_uar(&self, uar: UarIndex) -> Result<()> {
        let known = lock(&self.uars).remove(&uar);
        if known { Ok(()) } else { Err(unknown("UAR page", uar.get())) }
    }

    pub(super) fn has_cq(&self, cqn: Cqn) -> Result<()> {
        let known = lock(&self.cqs).contains_key(&cqn);
        if known { Ok(()) } else { Err(unknown("completion queue", cqn.get())) }
    }

    pub(super) fn qp(&self, qpn: Qpn) -> Result<Arc<QpEntry>> {
        lock(&self.qps).get(&qpn).cloned().ok_or_else(|| unknown("queue pair", qpn.get()))
    }

    /// An event told that a queue pair has changed its state.
    pub(super) fn qp_moved(&self, qpn: Qpn, state: QpState) {
        if let Some(qp) = lock(&self.qps).get(&qpn) {
            qp.seen(state);
        }
    }

    /// Destroys all objects in the device, users before what they use.
    pub(super) fn destroy_all(&self, core: &Core) -> Result<()> {
        core.health.answers()?;
        let mut result = Ok(());
        let mut keep_first = |step: Result<()>| {
            if result.is_ok() {
                result = step;
            }
        };
        let raw_qps: Vec<_> = lock(&self.raw_qps).keys().copied().collect();
        raw_qps.into_iter().for_each(|qpn| keep_first(raw_packet::destroy(core, qpn)));
        if let Some(domain) = lock(&self.transport_domain).take() {
            let input = DeallocTransportDomainIn::request().with_transport_domain(domain);
            keep_first(core.cmd.call(&input).map(|_| ()));
        }
        let qps: Vec<_> = lock(&self.qps).keys().copied().collect();
        qps.into_iter().for_each(|qpn| keep_first(qp::destroy(core, qpn)));
        if let Some(xrcd) = lock(&self.xrcd).take() {
            keep_first(core.cmd.call(&DeallocXrcdIn::request().with_xrcd(xrcd)).map(|_| ()));
        }
        let cqs: Vec<_> = lock(&self.cqs).keys().copied().collect();
        cqs.into_iter().for_each(|cqn| keep_first(cq::destroy(core, cqn)));
        let mws: Vec<_> = lock(&self.mws).iter().copied().collect();
        mws.into_iter().for_each(|rkey| keep_first(mw::destroy(core, rkey)));
        let mrs: Vec<_> = lock(&self.mrs).keys().copied().collect();
        mrs.into_iter().for_each(|lkey| keep_first(mr::destroy(core, lkey)));
        for pd in std::mem::take(&mut *lock(&self.pds)) {
            keep_first(core.cmd.call(&DeallocPdIn::request().with_pd(pd)).map(|_| ()));
        }
        for uar in std::mem::take(&mut *lock(&self.uars)) {
            keep_first(core.cmd.call(&DeallocUarIn::request().with_uar(uar)).map(|_| ()));
        }
        result
    }

    /// Lets go of all memory: the function is down, and reaches none of it.
    pub(super) fn clear(&self) {
        lock(&self.qps).clear();
        lock(&self.raw_qps).clear();
        lock(&self.mrs).clear();
        // Out of the lock: a channel that ends looks at the tables.
        let cqs = std::mem::take(&mut *lock(&self.cqs));
        drop(cqs);
    }
}
