//! The engine of a queue pair, by its transport.

use super::{Host, QpConfig, QpProgress, QpState, RcQp, Ring, Service, UcQp, UdQp};
use crate::wire::Packet;

/// One of the three engines. Its calls are those of [`RcQp`].
#[derive(Debug)]
pub enum Engine {
    /// RC, XRC and DC initiators.
    Rc(RcQp),
    /// UC.
    Uc(UcQp),
    /// UD, QP0, QP1 and the queue pair that registers memory.
    Ud(UdQp),
}

/// The same call on whichever it is.
macro_rules! on {
    ($engine:expr, $qp:ident => $call:expr) => {
        match $engine {
            Self::Rc($qp) => $call,
            Self::Uc($qp) => $call,
            Self::Ud($qp) => $call,
        }
    };
}

impl Engine {
    /// A QP in RST.
    pub fn new(config: QpConfig) -> Self {
        match config.service {
            Service::Connected | Service::Extended | Service::Dynamic => Self::Rc(RcQp::new(config)),
            Service::Unacknowledged => Self::Uc(UcQp::new(config)),
            Service::Datagram | Service::Registration => Self::Ud(UdQp::new(config)),
        }
    }

    /// Its state.
    pub fn state(&self) -> QpState {
        on!(self, qp => qp.state())
    }

    /// Its attributes.
    pub fn config(&self) -> &QpConfig {
        on!(self, qp => qp.config())
    }

    /// Takes new attributes, and a state that the host found a legal transition to.
    pub fn set_state(&mut self, host: &mut dyn Host, state: QpState, config: QpConfig) {
        on!(self, qp => qp.set_state(host, state, config));
    }

    /// The send doorbell rang.
    pub fn doorbell(&mut self, host: &mut dyn Host, counter: u16) {
        on!(self, qp => qp.doorbell(host, counter));
    }

    /// A packet for this QP came.
    pub fn receive(&mut self, host: &mut dyn Host, packet: &Packet<'_>) {
        on!(self, qp => qp.receive(host, packet));
    }

    /// Sends what can be sent. Returns whether there is more to do at once.
    pub fn run(&mut self, host: &mut dyn Host, budget_packets: usize) -> bool {
        on!(self, qp => qp.run(host, budget_packets))
    }

    /// The driver has answered a page fault of one side. UC has none.
    pub fn resume(&mut self, side: Ring, error: bool) {
        match self {
            Self::Rc(qp) => qp.resume(side, error),
            Self::Ud(qp) => qp.resume(error),
            Self::Uc(_) => {}
        }
    }

    /// When [`timer`](Self::timer) must be called. What is not acknowledged has no timers.
    pub fn next_deadline(&self) -> Option<u64> {
        match self {
            Self::Rc(qp) => qp.next_deadline(),
            Self::Uc(_) | Self::Ud(_) => None,
        }
    }

    /// Does what is due.
    pub fn timer(&mut self, host: &mut dyn Host) {
        if let Self::Rc(qp) = self {
            qp.timer(host);
        }
    }

    /// The QP is destroyed. Only what is acknowledged has something left to say.
    pub fn part(&mut self, host: &mut dyn Host) {
        if let Self::Rc(qp) = self {
            qp.part(host);
        }
    }

    /// Software has seen the error of a stream. Returns false if there was none.
    pub fn reset_stream(&mut self, stream: u16) -> bool {
        match self {
            Self::Rc(qp) => qp.reset_stream(stream),
            Self::Uc(_) | Self::Ud(_) => false,
        }
    }

    /// What QUERY_QP reports.
    pub fn progress(&self) -> QpProgress {
        on!(self, qp => qp.progress())
    }
}
