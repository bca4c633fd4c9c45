//! Waiting with a deadline, spinning or asleep.

use crate::{
    endpoint::{Endpoint, Lane},
    failure::Failure,
    plan::Plan,
};
use std::{
    hint, thread,
    time::{Duration, Instant},
};

/// What is waited on.
pub(crate) trait Watched {
    /// What it runs.
    fn plan(&self) -> &Plan;
    /// Sleeps until `end` may have a completion, at most for `timeout`.
    fn sleep(&mut self, end: usize, timeout: Duration) -> Result<(), Failure>;
    /// Looks at all that can go wrong elsewhere.
    fn look(&mut self) -> Result<(), Failure>;
    /// Its ends in this process.
    fn ends(&self) -> &[Endpoint];
}

/// How long nothing has happened, and what is done meanwhile: spinning or sleeping.
#[derive(Debug)]
pub(crate) struct Patience {
    idle: u32,
    since: Option<Instant>,
    events: bool,
}

/// Polls before the processor is offered to others: a few µs. A software device may be waiting for it.
const SPINS: u32 = 128;

/// The longest sleep without a look at anything else.
const NAP: Duration = Duration::from_millis(50);

impl Patience {
    pub(crate) fn new(on: &impl Watched) -> Self {
        Self { idle: 0, since: None, events: on.plan().events }
    }

    /// Nothing happened at `end`. From time to time looks elsewhere too, where something may have failed, and at
    /// the clock.
    #[inline]
    pub(crate) fn idle(&mut self, on: &mut impl Watched, end: usize, what: &str) -> Result<(), Failure> {
        if !self.events {
            self.idle = self.idle.wrapping_add(1);
            if !self.idle.is_multiple_of(SPINS) {
                hint::spin_loop();
                return Ok(());
            }
        }
        self.pause(on, end, what)
    }

    #[cold]
    fn pause(&mut self, on: &mut impl Watched, end: usize, what: &str) -> Result<(), Failure> {
        let since = *self.since.get_or_insert_with(Instant::now);
        let timeout = on.plan().patience();
        if self.events {
            on.sleep(end, NAP.min(timeout))?;
        } else {
            thread::yield_now();
        }
        on.look()?;
        if since.elapsed() < timeout {
            return Ok(());
        }
        for end in on.ends() {
            end.ctx.health()?;
        }
        let name = on.ends().get(end).map_or("", |end| end.name);
        let progress: Vec<_> = on.ends().iter().map(progress).collect();
        Err(Failure::Run(format!(
            "{name}: {what} did not happen within {timeout:?} (--timeout and time for the bytes): {}",
            progress.join("; ")
        )))
    }
}

fn progress(end: &Endpoint) -> String {
    let sum = |count: fn(&Lane) -> u64| -> u64 { end.lanes.iter().map(count).sum() };
    let (posted, retired, received) =
        (sum(|lane| lane.posted), sum(|lane| lane.retired), sum(|lane| lane.received));
    format!("{} posted {posted}, completed {retired}, received {received}", end.name)
}
