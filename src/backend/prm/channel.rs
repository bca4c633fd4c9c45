//! Completion channels: an event queue and an interrupt of one's own.
#![forbid(unsafe_code)]

use super::{Core, eq::EventQueue, events::sleep, lock};
use crate::{
    Error, Result,
    backend::{ChannelId, CompChannel, LOOK, pci::EventFd},
    mlx5::{
        eqe::{EqeComp, EventType},
        ids::{Cqn, Eqn, UarIndex},
    },
};
use std::{
    collections::VecDeque,
    os::fd::{AsFd, BorrowedFd},
    sync::{Arc, Mutex, Weak},
    time::{Duration, Instant},
};

/// Completion queues that a channel can serve: each has at most one event in its queue.
const N_CQS: u32 = 1024 - 128;

/// Vectors of a function, and the channels on them. Vector 0 is the control path's.
#[derive(Debug)]
pub(super) struct Vectors {
    /// Index n is vector n + 1.
    channels: Mutex<Vec<Weak<Channel>>>,
}

impl Vectors {
    pub(super) fn new(n_vectors: u16) -> Self {
        let n = usize::from(n_vectors.saturating_sub(1));
        Self { channels: Mutex::new((0..n).map(|_| Weak::new()).collect()) }
    }

    pub(super) fn n_channels(&self) -> u32 {
        lock(&self.channels).len() as u32
    }

    fn live(&self) -> Vec<Arc<Channel>> {
        lock(&self.channels).iter().filter_map(Weak::upgrade).collect()
    }

    /// Wakes whoever sleeps on a channel.
    pub(super) fn wake_all(&self) {
        for channel in self.live() {
            channel.irq.signal();
        }
    }

    /// Ends all channels; their handles answer that the device is closed.
    pub(super) fn shut_down(&self, core: &Core) -> Result<()> {
        let mut result = Ok(());
        for channel in self.live() {
            result = result.and(channel.end(core));
        }
        result
    }

    /// The channel of an id.
    pub(super) fn find(&self, id: ChannelId) -> Result<Arc<Channel>> {
        self.live()
            .into_iter()
            .find(|channel| channel.id() == id)
            .ok_or_else(|| Error::invalid(format!("completion channel {} is not one of this device", id.0)))
    }
}

/// A completion channel.
#[derive(Debug)]
pub(super) struct Channel {
    core: Arc<Core>,
    vector: u16,
    eqn: Eqn,
    irq: EventFd,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// `None` once ended.
    eq: Option<EventQueue>,
    n_cqs: u32,
    capacity: u32,
    fired: VecDeque<Cqn>,
}

/// Makes a channel on a free vector.
pub(super) fn create(core: &Arc<Core>, uar: UarIndex) -> Result<Arc<Channel>> {
    let mut channels = lock(&core.vectors.channels);
    let Some(free) = channels.iter().position(|channel| channel.strong_count() == 0) else {
        return Err(Error::invalid(format!(
            "all {} MSI-X vectors for completion channels are in use; share a channel between queues",
            channels.len()
        )));
    };
    let vector = free as u16 + 1;
    let irq = EventFd::new().map_err(|source| Error::os("making an eventfd", source))?;
    let set_irq = core.function.set_irq(vector, Some(irq.as_fd()));
    set_irq.map_err(|source| Error::os(format!("setting MSI-X vector {vector}"), source))?;
    let eq = EventQueue::create(core, uar, vector, N_CQS, &[])?;
    let channel = Arc::new(Channel {
        core: Arc::clone(core),
        vector,
        eqn: eq.eqn(),
        irq,
        state: Mutex::new(State { n_cqs: 0, capacity: eq.capacity(), fired: VecDeque::new(), eq: Some(eq) }),
    });
    channels[free] = Arc::downgrade(&channel);
    Ok(channel)
}

impl Channel {
    pub(super) fn eqn(&self) -> Eqn {
        self.eqn
    }

    /// Counts a completion queue in, if its events have room.
    pub(super) fn bind(&self) -> Result<()> {
        let mut state = lock(&self.state);
        if state.n_cqs >= state.capacity {
            return Err(Error::invalid(format!(
                "completion channel {} has {} queues, and room for the events of no more; make another channel",
                self.vector, state.n_cqs
            )));
        }
        state.n_cqs += 1;
        Ok(())
    }

    /// A completion queue has ended: its events are for nobody.
    pub(super) fn unbind(&self, cqn: Cqn) {
        let mut state = lock(&self.state);
        state.n_cqs -= 1;
        state.drain();
        state.fired.retain(|fired| *fired != cqn);
    }

    fn end(&self, core: &Core) -> Result<()> {
        let Some(eq) = lock(&self.state).eq.take() else { return Ok(()) };
        let result = if core.health.answers().is_ok() {
            eq.destroy(core)
        } else {
            core.bury(eq.into_memory());
            Ok(())
        };
        let irq = core.function.set_irq(self.vector, None);
        result.and(irq.map_err(|source| Error::os(format!("clearing MSI-X vector {}", self.vector), source)))
    }
}

impl State {
    /// Takes all events out of the queue and arms it.
    fn drain(&mut self) {
        let Some(eq) = &mut self.eq else { return };
        let mut any = false;
        while let Some(eqe) = eq.next() {
            any = true;
            if eqe.type_() == EventType::COMP {
                self.fired.push_back(eqe.data::<EqeComp>().cqn());
            }
        }
        if any {
            eq.arm();
        }
    }
}

impl CompChannel for Channel {
    fn id(&self) -> ChannelId {
        ChannelId(u32::from(self.vector))
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.irq.as_fd()
    }

    fn try_event(&self) -> Result<Option<Cqn>> {
        let mut state = lock(&self.state);
        if state.fired.is_empty() {
            // Cleared first: an interrupt that comes while we look makes it readable again. The queue is
            // armed after the last event was taken, and interrupts at once if there is one more.
            self.irq.clear();
            state.drain();
        }
        let event = state.fired.pop_front();
        if event.is_some() || self.core.health.gone().is_some() {
            // There may be more to learn, for others who sleep too.
            self.irq.signal();
        }
        if event.is_none() {
            self.core.health.alive()?;
        }
        Ok(event)
    }

    fn wait(&self, timeout: Duration) -> Result<Option<Cqn>> {
        let deadline = Instant::now().checked_add(timeout);
        loop {
            if let Some(cqn) = self.try_event()? {
                return Ok(Some(cqn));
            }
            // An interrupt may be lost: now and then the queue is looked at without one.
            let look = Instant::now() + LOOK;
            let over = deadline.is_some_and(|deadline| deadline <= look);
            if !sleep(&self.core, &self.irq, if over { deadline } else { Some(look) })? && over {
                return Ok(None);
            }
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        let core = Arc::clone(&self.core);
        // What fails here stays until the function is down.
        let _ = self.end(&core);
    }
}
