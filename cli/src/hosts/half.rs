//! One end of a connection whose other end is in another process.

use super::tcp::Tcp;
use crate::{
    endpoint::Endpoint,
    failure::Failure,
    payload::Payload,
    plan::Plan,
    request::{Far, Requests},
    traffic::{Patience, Watched},
};
use std::{
    slice,
    time::{Duration, Instant},
};

/// Which end this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// The client: starts everything.
    Asks,
    /// The server: answers.
    Answers,
}

impl Role {
    /// As ends are called in one process: `a` starts.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Asks => "a",
            Self::Answers => "b",
        }
    }

    /// Tells apart what the two ends send.
    pub(crate) fn way(self) -> u64 {
        match self {
            Self::Asks => 0,
            Self::Answers => 1,
        }
    }

    /// The other end's.
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Asks => Self::Answers,
            Self::Answers => Self::Asks,
        }
    }
}

/// How often the peer's socket is looked at while there is nothing else to do.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// What is on its way when the peer leaves arrives within this time.
const GRACE: Duration = Duration::from_millis(200);

/// A connected end.
#[derive(Debug)]
pub(crate) struct Half<'t> {
    pub(crate) end: Endpoint,
    pub(crate) far: Far,
    pub(crate) role: Role,
    pub(crate) payload: Payload,
    pub(crate) tcp: &'t mut Tcp,
    /// The peer's socket stays open for as long as it runs.
    watches: bool,
    looked: Instant,
    /// When the peer was first seen to be gone.
    gone: Option<Instant>,
}

impl<'t> Half<'t> {
    pub(crate) fn new(end: Endpoint, far: Far, role: Role, tcp: &'t mut Tcp) -> Self {
        let payload = Payload::new(end.plan.seed);
        Self { end, far, role, payload, tcp, watches: true, looked: Instant::now(), gone: None }
    }

    /// An end whose peer may close its socket while it runs.
    pub(crate) fn alone(end: Endpoint, far: Far, role: Role, tcp: &'t mut Tcp) -> Self {
        Self { watches: false, ..Self::new(end, far, role, tcp) }
    }

    /// Fills the receive queues.
    pub(crate) fn fill_recv_queues(&mut self) -> Result<(), Failure> {
        (0..self.end.lanes.len()).try_for_each(|lane| self.end.fill_recv_queue(lane))
    }

    /// Waits for completions until `ready`.
    pub(crate) fn wait(&mut self, what: &str, ready: impl Fn(&Endpoint) -> bool) -> Result<(), Failure> {
        let mut patience = Patience::new(self);
        loop {
            let n = self.end.drain()?;
            if ready(&self.end) {
                return Ok(());
            }
            if n == 0 {
                patience.idle(self, 0, what)?;
            } else {
                patience = Patience::new(self);
            }
        }
    }

    /// Waits until own memory shows `byte` at `offset`.
    pub(crate) fn wait_memory(&mut self, offset: usize, byte: u8, what: &str) -> Result<(), Failure> {
        let mut patience = Patience::new(self);
        while self.end.mr.load_u8(offset) != byte {
            patience.idle(self, 0, what)?;
        }
        Ok(())
    }

    /// Waits for the completion of all requests.
    pub(crate) fn settle(&mut self) -> Result<(), Failure> {
        self.wait("the completion of the last requests", |end| {
            end.lanes.iter().all(|lane| lane.retired == lane.posted)
        })
    }

    /// Waits for what the peer says after its run; `work` goes on here meanwhile, and says whether something moved.
    /// A peer that is gone ends the wait. One that hangs does so too, after the time that a whole run may take, since
    /// nothing of WRITEs, READs and atomics is seen here.
    pub(crate) fn hear<T>(
        &mut self,
        said: impl Fn(&mut Tcp) -> Result<Option<T>, Failure>,
        mut work: impl FnMut(&mut Self) -> Result<bool, Failure>,
    ) -> Result<T, Failure> {
        let patience = self.end.plan.patience_for_all();
        let mut since = Instant::now();
        let mut spins = 0_u32;
        loop {
            if work(self)? {
                (spins, since) = (0, Instant::now());
                continue;
            }
            spins = spins.saturating_add(1);
            if self.looked.elapsed() >= LOOK_EVERY {
                self.looked = Instant::now();
                self.end.ctx.health()?;
                if let Some(said) = said(self.tcp)? {
                    return Ok(said);
                }
                if since.elapsed() > patience {
                    return Err(Failure::Run(format!(
                        "{}: the end of the peer's run was not told within {patience:?} (--timeout and time for \
                         {} exchanges)",
                        self.end.name, self.end.plan.iters
                    )));
                }
            }
            if self.end.plan.events {
                self.end.sleep(LOOK_EVERY)?;
            } else if spins > 1024 {
                std::thread::sleep(Duration::from_micros(50));
            } else {
                std::thread::yield_now();
            }
        }
    }

    /// Requests of a lane that has `per_lane` of them in all; atomics change `word_lane`'s word.
    pub(crate) fn requests(&self, lane: usize, per_lane: u64, word_lane: usize) -> Requests {
        let word = self.far.incoming(word_lane, 0);
        Requests { lane, far: self.far, word, last: per_lane.max(1) - 1, payload: self.payload }
    }
}

impl Watched for Half<'_> {
    fn plan(&self) -> &Plan {
        &self.end.plan
    }

    fn sleep(&mut self, _: usize, timeout: Duration) -> Result<(), Failure> {
        self.end.sleep(timeout)
    }

    fn look(&mut self) -> Result<(), Failure> {
        self.end.drain()?;
        if self.watches && self.looked.elapsed() >= LOOK_EVERY {
            self.looked = Instant::now();
            if let Err(gone) = self.tcp.check() {
                // A peer that is done may leave while the last completion is on its way here.
                if self.gone.get_or_insert_with(Instant::now).elapsed() > GRACE {
                    return Err(gone);
                }
            }
        }
        Ok(())
    }

    fn ends(&self) -> &[Endpoint] {
        slice::from_ref(&self.end)
    }
}
