//! What wakes the engine: a call of [`Bell::ring`], or a datagram.
#![forbid(unsafe_code)]

use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll},
    fd::{AsFd, OwnedFd},
    io,
};
use std::{
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    time::Duration,
};

/// Rung by any thread, waited for by one.
#[derive(Debug)]
pub(super) struct Bell {
    event: OwnedFd,
    rung: AtomicBool,
    asleep: AtomicBool,
}

impl Bell {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self {
            event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            rung: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
        })
    }

    /// Wakes the sleeper, or keeps it from sleeping the next time. No system call unless it sleeps.
    pub(super) fn ring(&self) {
        // `wait` stores `asleep`, then loads `rung`; here it is the other way round. All four are SeqCst, so one of
        // the two sees the other's store: either the bell is found rung, or the sleeper is found asleep.
        if !self.rung.swap(true, SeqCst) && self.asleep.load(SeqCst) {
            // Fails only if the counter is full, and then the sleeper wakes as well.
            let _ = io::write(&self.event, &1_u64.to_ne_bytes());
        }
    }

    /// Sleeps until rung, until `also` has something to read, or for `time`. True unless the time ran out.
    pub(super) fn wait(&self, also: Option<impl AsFd>, time: Duration) -> bool {
        self.asleep.store(true, SeqCst);
        let mut woken = self.rung.swap(false, SeqCst);
        if !woken {
            let timeout = Timespec {
                tv_sec: time.as_secs().try_into().unwrap_or(i64::MAX),
                tv_nsec: time.subsec_nanos().into(),
            };
            let event = PollFd::new(&self.event, PollFlags::IN);
            let ready = match &also {
                Some(also) => poll(&mut [event, PollFd::new(also, PollFlags::IN)], Some(&timeout)),
                None => poll(&mut [event], Some(&timeout)),
            };
            // An interrupted sleep is a short one.
            woken = ready.is_ok_and(|n| n != 0);
        }
        self.asleep.store(false, SeqCst);
        self.rung.store(false, SeqCst);
        // Empties the counter; it is empty if nobody rang while we slept.
        let _ = io::read(&self.event, &mut [0; 8]);
        woken
    }
}
