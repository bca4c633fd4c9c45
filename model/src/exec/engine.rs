//! The engine of a queue pair, by its transport.

use super::{Host, QpConfig, QpProgress, QpState, RcQp, Service, UdQp};
use crate::wire::Packet;

/// One of the two engines.
#[derive(Debug)]
pub(crate) enum Engine {
    Rc(RcQp),
    Ud(UdQp),
}

impl Engine {
    pub(crate) fn new(config: QpConfig) -> Self {
        match config.service {
            Service::Connected => Self::Rc(RcQp::new(config)),
            Service::Datagram | Service::Registration => Self::Ud(UdQp::new(config)),
        }
    }

    pub(crate) fn state(&self) -> QpState {
        match self {
            Self::Rc(qp) => qp.state(),
            Self::Ud(qp) => qp.state(),
        }
    }

    pub(crate) fn set_state(&mut self, host: &mut dyn Host, state: QpState, config: QpConfig) {
        match self {
            Self::Rc(qp) => qp.set_state(host, state, config),
            Self::Ud(qp) => qp.set_state(host, state, config),
        }
    }

    pub(crate) fn doorbell(&mut self, host: &mut dyn Host, counter: u16) {
        match self {
            Self::Rc(qp) => qp.doorbell(host, counter),
            Self::Ud(qp) => qp.doorbell(host, counter),
        }
    }

    pub(crate) fn receive(&mut self, host: &mut dyn Host, packet: &Packet<'_>) {
        match self {
            Self::Rc(qp) => qp.receive(host, packet),
            Self::Ud(qp) => qp.receive(host, packet),
        }
    }

    pub(crate) fn run(&mut self, host: &mut dyn Host, budget_packets: usize) -> bool {
        match self {
            Self::Rc(qp) => qp.run(host, budget_packets),
            Self::Ud(qp) => qp.run(host, budget_packets),
        }
    }

    /// Datagrams have no timers.
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        match self {
            Self::Rc(qp) => qp.next_deadline(),
            Self::Ud(_) => None,
        }
    }

    pub(crate) fn timer(&mut self, host: &mut dyn Host) {
        if let Self::Rc(qp) = self {
            qp.timer(host);
        }
    }

    pub(crate) fn progress(&self) -> QpProgress {
        match self {
            Self::Rc(qp) => qp.progress(),
            Self::Ud(qp) => qp.progress(),
        }
    }
}
