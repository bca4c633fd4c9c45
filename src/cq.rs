//! Completion queues, and how they wake a sleeper.

use crate::{
    Context, Error, Qp, Result,
    backend::{self, CqParams, CqParts},
    doorbell::DoorbellRecord,
    mlx5::{be::Be32, ids::Cqn},
    queue::{CompletionQueue, CompletionQueueParts, CqeSize, Poll},
};
use std::{
    os::fd::BorrowedFd,
    sync::Arc,
    time::{Duration, Instant},
};

/// What a completion queue shall be.
#[derive(Debug, Clone, Copy)]
pub struct CqAttr<'c> {
    /// CQEs, rounded up to a power of two. At least one for each request that may be outstanding.
    pub n_cqes: u32,
    /// Size of its slots.
    pub cqe_size: CqeSize,
    /// Whether and how it wakes a sleeper.
    pub events: Events<'c>,
    /// Whether the device may overrun it (`cqc.oi`): completions are then lost in silence.
    pub ignore_overrun: bool,
}

impl Default for CqAttr<'_> {
    fn default() -> Self {
        Self { n_cqes: 256, cqe_size: CqeSize::B64, events: Events::None, ignore_overrun: false }
    }
}

/// How a completion queue wakes a sleeper.
#[derive(Debug, Clone, Copy, Default)]
pub enum Events<'c> {
    /// It does not: it is polled.
    #[default]
    None,
    /// Through a channel of its own: see [`Cq::wait`].
    Own,
    /// Through a channel that it shares with other queues: see [`CompChannel::wait`].
    Channel(&'c CompChannel),
}

/// A completion queue: one consumer, by type.
#[derive(Debug)]
pub struct Cq {
    queue: CompletionQueue,
    channel: Option<CompChannel>,
    object: Arc<Object>,
}

/// The device's completion queue. Destroyed when the last queue pair that uses it is gone too.
#[derive(Debug)]
pub(crate) struct Object {
    ctx: Context,
    parts: CqParts,
    /// The channel that the device signals.
    _channel: Option<CompChannel>,
}

impl Drop for Object {
    fn drop(&mut self) {
        // If the device does not confirm, the control path keeps the ring mapped and alive.
        let _ = self.ctx.control().destroy_cq(self.parts.cqn);
    }
}

impl Cq {
    pub(crate) fn create(ctx: &Context, attr: &CqAttr<'_>) -> Result<Self> {
        let shared = match attr.events {
            Events::None => None,
            Events::Own => Some(CompChannel::create(ctx)?),
            Events::Channel(channel) => Some(channel.clone()),
        };
        let parts = ctx.control().create_cq(&CqParams {
            n_cqes: attr.n_cqes,
            cqe_bytes: match attr.cqe_size {
                CqeSize::B64 => 64,
                CqeSize::B128 => 128,
            },
            channel: shared.as_ref().map(|channel| channel.inner.id()),
            ignore_overrun: attr.ignore_overrun,
        })?;
        // The queue's own channel is the only one that `wait` may read: another's events are not all ours.
        let channel = if matches!(attr.events, Events::Own) { shared.clone() } else { None };
        // SAFETY: just made, and nobody else has the parts.
        Ok(unsafe { Self::adopt(ctx, parts, channel, shared) })
    }

    /// A queue with `channel` to wait on, that signals `shared`.
    ///
    /// # Safety
    /// `parts` are those of a completion queue of this device in which the device has written nothing yet, and nobody else
    /// polls or arms it.
    pub(crate) unsafe fn adopt(
        ctx: &Context,
        parts: CqParts,
        channel: Option<CompChannel>,
        shared: Option<CompChannel>,
    ) -> Self {
        let object = Arc::new(Object { ctx: ctx.clone(), parts, _channel: shared });
        let words = object.parts.record.base().cast::<Be32>();
        // SAFETY: ring, record and page live in `object`, which `Cq` drops after the queue, and are reached
        // through the queue alone; no queue pair uses it yet, so the device has written nothing.
        let queue = unsafe {
            CompletionQueue::new(CompletionQueueParts {
                cqn: object.parts.cqn,
                ring: object.parts.ring.base(),
                log_cq_size: object.parts.log_cq_size,
                cqe_size: if object.parts.cqe_bytes == 128 { CqeSize::B128 } else { CqeSize::B64 },
                consumer_index: DoorbellRecord::new(words),
                arm: DoorbellRecord::new(words.add(1)),
                uar: object.parts.arming.doorbells(),
            })
        };
        Self { queue, channel, object }
    }

    /// Number of the queue.
    pub fn cqn(&self) -> Cqn {
        self.object.parts.cqn
    }

    /// CQEs that it holds.
    pub fn n_cqes(&self) -> u32 {
        self.queue.n_cqes()
    }

    /// Starts to take completions; see [`CompletionQueue::poll`].
    #[inline(always)]
    pub fn poll(&mut self) -> Poll<'_> {
        self.queue.poll()
    }

    /// Whether a completion is there to be taken.
    pub fn is_ready(&mut self) -> bool {
        let mut poll = self.queue.poll();
        let ready = poll.next().is_some();
        // Not taken: the index stays as it was.
        std::mem::forget(poll);
        ready
    }

    /// Takes out the completions of `qp` that were not taken yet, and says how many. All others stay, in order.
    ///
    /// For a queue pair that was moved to RST, before it is used again: see [`Qp::modify`].
    pub fn sweep(&mut self, qp: &Qp) -> u32 {
        self.queue.sweep(qp.sends())
    }

    /// Asks for one event; see [`CompletionQueue::arm`] for the rule that no wake-up is lost by.
    pub fn arm(&mut self, solicited_only: bool) {
        self.queue.arm(solicited_only);
    }

    /// Tells the queue of an event that [`CompChannel::wait`] gave for it.
    pub fn event_received(&mut self) {
        self.queue.event_received();
    }

    /// Sleeps until a completion can be taken, or `timeout` has passed; says whether one can.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the queue was not made with [`Events::Own`], and what the device says.
    pub fn wait(&mut self, timeout: Duration) -> Result<bool> {
        let Some(channel) = self.channel.clone() else {
            return Err(Error::invalid(format!(
                "completion queue {} has no channel of its own to sleep on; create it with Events::Own",
                self.cqn()
            )));
        };
        let deadline = Instant::now() + timeout;
        loop {
            if self.is_ready() {
                return Ok(true);
            }
            self.queue.arm(false);
            // The device would tell of what came meanwhile; looking is cheaper than sleeping for it.
            if self.is_ready() {
                return Ok(true);
            }
            // An event may be lost: whoever sleeps looks for himself now and then.
            let left = deadline.saturating_duration_since(Instant::now());
            match channel.wait(left.min(backend::LOOK))? {
                Some(_) => self.queue.event_received(),
                None if left <= backend::LOOK => return Ok(self.is_ready()),
                None => {}
            }
        }
    }

    #[inline(always)]
    pub(crate) fn queue_mut(&mut self) -> &mut CompletionQueue {
        &mut self.queue
    }

    pub(crate) fn object(&self) -> &Arc<Object> {
        &self.object
    }
}

/// A completion event channel: many completion queues, one sleeper. Clones are the same channel.
#[derive(Debug, Clone)]
pub struct CompChannel {
    inner: Arc<dyn backend::CompChannel>,
    // After the channel, which is the device's.
    _ctx: Context,
}

impl CompChannel {
    pub(crate) fn create(ctx: &Context) -> Result<Self> {
        Ok(Self { inner: ctx.control().create_comp_channel()?, _ctx: ctx.clone() })
    }

    /// Readable when there may be an event.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.inner.fd()
    }

    /// The next completion queue that fired; `None` if none does within `timeout`. Tell it by
    /// [`Cq::event_received`], and arm it anew for another event.
    pub fn wait(&self, timeout: Duration) -> Result<Option<Cqn>> {
        self.inner.wait(timeout)
    }

    /// As [`wait`](Self::wait), without sleeping.
    pub fn try_event(&self) -> Result<Option<Cqn>> {
        self.inner.try_event()
    }
}
