//! Who listens to the device: one thread for events and health, one for the firmware's page requests.
#![forbid(unsafe_code)]

use super::{Core, eq::EventQueue, lock};
use crate::{
    Error, Result,
    backend::{AsyncEvent, pci::EventFd},
    mlx5::{
        context::QpState,
        eqe::{Eqe, EqeCqErr, EqePageReq, EqePortState, EqeQpSrq, EventType, PortChange},
        ids::{Eqn, Qpn, UarIndex},
    },
};
use std::{
    collections::VecDeque,
    os::fd::AsFd,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// MSI-X vector of commands, pages and asynchronous events.
const CONTROL_VECTOR: u16 = 0;

/// Events that the queue of asynchronous events holds; Linux asks for as many.
const N_ASYNC_EVENTS: u32 = 0x1000 - 128;

/// Asynchronous events that wait for a reader. More are dropped, except the last one of all.
const MAX_UNREAD: usize = 4096;

/// Longest sleep of who waits for a stepped device.
pub(super) const STEP_SLICE: Duration = Duration::from_micros(100);

const SUBSCRIBED: [EventType; 11] = [
    EventType::CMD,
    EventType::PAGE_REQUEST,
    EventType::COMM_EST,
    EventType::SQ_DRAINED,
    EventType::CQ_ERROR,
    EventType::WQ_CATAS_ERROR,
    EventType::WQ_INVAL_REQ_ERROR,
    EventType::WQ_ACCESS_ERROR,
    EventType::SRQ_LAST_WQE,
    EventType::PORT_CHANGE,
    EventType::INTERNAL_ERROR,
];

/// Events on their way to the user.
#[derive(Debug)]
pub(super) struct AsyncEvents {
    unread: Mutex<VecDeque<AsyncEvent>>,
    fd: EventFd,
}

impl AsyncEvents {
    pub(super) fn new() -> Result<Self> {
        let fd = EventFd::new().map_err(|source| Error::os("making an eventfd", source))?;
        Ok(Self { unread: Mutex::default(), fd })
    }

    pub(super) fn fd(&self) -> &EventFd {
        &self.fd
    }

    pub(super) fn push(&self, event: AsyncEvent) {
        let mut unread = lock(&self.unread);
        if unread.len() < MAX_UNREAD || matches!(event, AsyncEvent::DeviceFatal(_)) {
            unread.push_back(event);
            self.fd.signal();
        }
    }

    fn pop(&self) -> Option<AsyncEvent> {
        let mut unread = lock(&self.unread);
        let event = unread.pop_front();
        if unread.is_empty() {
            self.fd.clear();
        }
        event
    }

    /// The next event. Once all are read, a dead device is an error.
    pub(super) fn next(&self, core: &Core, timeout: Duration) -> Result<Option<AsyncEvent>> {
        let deadline = Instant::now().checked_add(timeout);
        loop {
            if let Some(event) = self.pop() {
                return Ok(Some(event));
            }
            if let Err(error) = core.health.alive() {
                // Whoever found out may have told nobody yet.
                core.tell_gone();
                let told = self.pop();
                self.fd.signal();
                return told.map_or(Err(error), |event| Ok(Some(event)));
            }
            if !sleep(core, &self.fd, deadline)? {
                return Ok(None);
            }
        }
    }
}

/// Sleeps until `fd` may be readable; `false` once the deadline has passed. A stepped device is stepped.
pub(super) fn sleep(core: &Core, fd: &EventFd, deadline: Option<Instant>) -> Result<bool> {
    let left = deadline.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()));
    if left.is_zero() {
        return Ok(false);
    }
    if core.function.is_stepped() {
        core.function.relax(left.min(STEP_SLICE));
    } else {
        fd.wait(left).map_err(|source| Error::os("waiting for an event", source))?;
    }
    Ok(true)
}

/// The two threads.
#[derive(Debug)]
pub(super) struct Monitor {
    eqn: Eqn,
    stop: Arc<Stop>,
    watcher: JoinHandle<EventQueue>,
    page_server: JoinHandle<()>,
}

#[derive(Debug)]
struct Stop {
    asked: AtomicBool,
    fd: EventFd,
}

impl Monitor {
    /// Makes the event queue and starts to listen. From here on commands complete by events.
    pub(super) fn start(core: &Arc<Core>, uar: UarIndex, health_interval: Duration) -> Result<Self> {
        let new_fd = || EventFd::new().map_err(|source| Error::os("making an eventfd", source));
        let irq = new_fd()?;
        let stop = Arc::new(Stop { asked: AtomicBool::new(false), fd: new_fd()? });
        core.function
            .set_irq(CONTROL_VECTOR, Some(irq.as_fd()))
            .map_err(|source| Error::os(format!("setting MSI-X vector {CONTROL_VECTOR}"), source))?;
        let eq = EventQueue::create(core, uar, CONTROL_VECTOR, N_ASYNC_EVENTS, &SUBSCRIBED)?;
        let eqn = eq.eqn();
        let (to_server, requests) = mpsc::channel::<EqePageReq>();
        let spawn_error = |source| Error::os("starting a thread", source);
        let page_server = {
            let core = Arc::clone(core);
            std::thread::Builder::new().name("mlx5-pages".into()).spawn(move || {
                for request in requests {
                    // A failure was told to the device; it goes on without, or says that it cannot.
                    let _ = core.pages.serve(&core.cmd, &request);
                }
            })
        };
        let watcher = Watcher { core: Arc::clone(core), eq, irq, stop: Arc::clone(&stop), to_server };
        let page_server = match page_server {
            Ok(handle) => handle,
            Err(source) => {
                watcher.eq.destroy(core)?;
                return Err(spawn_error(source));
            }
        };
        let watcher = std::thread::Builder::new()
            .name("mlx5-events".into())
            .spawn(move || watcher.run(health_interval))
            .map_err(spawn_error)?;
        core.cmd.use_events(true);
        Ok(Self { eqn, stop, watcher, page_server })
    }

    /// The event queue.
    pub(super) fn eqn(&self) -> Eqn {
        self.eqn
    }

    /// Goes back to polled commands and ends the event queue.
    pub(super) fn stop(self, core: &Core) -> Result<()> {
        core.cmd.use_events(false);
        self.stop.asked.store(true, Ordering::Release);
        self.stop.fd.signal();
        let eq = self.watcher.join();
        // The watcher was the only one to ask it.
        let server = self.page_server.join();
        let result = match eq {
            Ok(eq) if core.health.answers().is_ok() => eq.destroy(core),
            Ok(eq) => {
                core.bury(eq.into_memory());
                Ok(())
            }
            Err(_) => Err(Error::Protocol("the event thread panicked".into())),
        };
        let irq = core.function.set_irq(CONTROL_VECTOR, None);
        let irq = irq.map_err(|source| Error::os(format!("clearing MSI-X vector {CONTROL_VECTOR}"), source));
        let server = server.map_err(|_| Error::Protocol("the page thread panicked".into()));
        result.and(server).and(irq)
    }
}

struct Watcher {
    core: Arc<Core>,
    eq: EventQueue,
    irq: EventFd,
    stop: Arc<Stop>,
    to_server: mpsc::Sender<EqePageReq>,
}

impl Watcher {
    fn run(mut self, health_interval: Duration) -> EventQueue {
        let mut next_poll = Instant::now() + health_interval;
        while !self.stop.asked.load(Ordering::Acquire) {
            let left = next_poll.saturating_duration_since(Instant::now());
            if EventFd::wait_any(&[&self.irq, &self.stop.fd], left).is_err() {
                // Nothing to wait on: fall back to looking.
                std::thread::sleep(left.min(Duration::from_millis(10)));
            }
            if self.core.health.answers().is_ok() {
                // Cleared first: an interrupt that comes while we look is seen by the next wait.
                self.irq.clear();
                while let Some(eqe) = self.eq.next() {
                    self.dispatch(&eqe);
                }
                self.eq.arm();
            } else {
                self.irq.clear();
            }
            if Instant::now() >= next_poll {
                next_poll = Instant::now() + health_interval;
                let health = &self.core.health;
                if health.answers().is_ok()
                    && let Some(gone) = health.poll()
                {
                    health.declare(gone);
                }
                // A command may have found out before, and has told nobody.
                if health.gone().is_some() {
                    self.core.tell_gone();
                }
            }
        }
        self.eq
    }

    fn dispatch(&self, eqe: &Eqe) {
        let core = &self.core;
        let event = match eqe.type_() {
            // The slots say themselves which of them are done.
            EventType::CMD => return core.cmd.wake(),
            EventType::PAGE_REQUEST => {
                let _ = self.to_server.send(eqe.data());
                return;
            }
            // Of a queue that has no channel: its owner polls it.
            EventType::COMP => return,
            EventType::CQ_ERROR => {
                let data: EqeCqErr = eqe.data();
                AsyncEvent::CqError { cqn: data.cqn(), syndrome: data.syndrome() }
            }
            EventType::PORT_CHANGE => match PortChange(eqe.sub_type()) {
                change @ (PortChange::DOWN | PortChange::ACTIVE) => AsyncEvent::PortChange {
                    port: eqe.data::<EqePortState>().port_num(),
                    up: change == PortChange::ACTIVE,
                },
                _ => AsyncEvent::Other { event_type: eqe.type_(), sub_type: eqe.sub_type() },
            },
            EventType::INTERNAL_ERROR => {
                if let Some(gone) = core.health.sense() {
                    return core.declare_gone(gone);
                }
                AsyncEvent::Other { event_type: eqe.type_(), sub_type: eqe.sub_type() }
            }
            _ => self.qp_event(eqe),
        };
        core.events.push(event);
    }

    fn qp_event(&self, eqe: &Eqe) -> AsyncEvent {
        let qpn = Qpn::new(eqe.data::<EqeQpSrq>().qp_srq_n());
        let event = match eqe.type_() {
            EventType::COMM_EST => return AsyncEvent::CommEst { qpn },
            EventType::SQ_DRAINED => return AsyncEvent::SqDrained { qpn },
            EventType::SRQ_LAST_WQE => return AsyncEvent::LastWqe { qpn },
            EventType::WQ_CATAS_ERROR => AsyncEvent::QpFatal { qpn },
            EventType::WQ_INVAL_REQ_ERROR => AsyncEvent::QpInvalidRequest { qpn },
            EventType::WQ_ACCESS_ERROR => AsyncEvent::QpAccess { qpn },
            event_type => return AsyncEvent::Other { event_type, sub_type: eqe.sub_type() },
        };
        self.core.tables.qp_moved(qpn, QpState::ERR);
        event
    }
}
