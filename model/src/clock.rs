//! Time: real with an engine thread, virtual when the caller steps.
#![forbid(unsafe_code)]

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

/// Time since the card was made.
#[derive(Debug)]
pub struct Clock {
    start: Instant,
    /// Virtual time in nanoseconds, if this clock only moves when told.
    virtual_ns: Option<AtomicU64>,
}

impl Clock {
    /// A clock that runs by itself.
    pub fn real() -> Self {
        Self { start: Instant::now(), virtual_ns: None }
    }

    /// A clock that moves when told.
    pub fn stepped() -> Self {
        Self { start: Instant::now(), virtual_ns: Some(AtomicU64::new(0)) }
    }

    /// Nanoseconds since the card was made.
    pub fn now_ns(&self) -> u64 {
        match &self.virtual_ns {
            Some(ns) => ns.load(Ordering::Relaxed),
            None => self.start.elapsed().as_nanos() as u64,
        }
    }

    /// The same as a [`Duration`].
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.now_ns())
    }

    /// Moves a virtual clock forward to `ns`, never back. A real clock does not move.
    pub fn advance_to(&self, ns: u64) {
        if let Some(virtual_ns) = &self.virtual_ns {
            virtual_ns.fetch_max(ns, Ordering::Relaxed);
        }
    }
}
