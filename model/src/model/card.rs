//! The inside of a card: one lock around everything that changes.
#![forbid(unsafe_code)]

use super::{ModelError, bell::Bell};
use crate::{
    clock::Clock,
    config::{Drive, ModelConfig, Strict},
    fault::{FaultScript, Injector},
    fw::{Function, health::Fatal},
    strict::Violation,
    trace::Trace,
    wire::{Port, Uplink, Wire, uplink::Socket},
};
use std::{
    fmt, hint,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// What the lock guards.
pub(crate) struct State {
    pub(crate) functions: Vec<Function>,
    pub(crate) violations: Vec<Violation>,
    pub(crate) wire: Wire,
    pub(crate) uplink: Option<Uplink>,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("functions", &self.functions).finish_non_exhaustive()
    }
}

/// A card.
#[derive(Debug)]
pub(crate) struct Card {
    pub(crate) config: ModelConfig,
    pub(crate) clock: Arc<Clock>,
    pub(crate) trace: Trace,
    pub(crate) faults: Arc<Injector>,
    state: Mutex<State>,
    /// Threads that wait for `state`: the engine lets them in.
    waiting: AtomicUsize,
    /// When the engine looks again, at the latest; written under `state`'s lock.
    next_look_ns: AtomicU64,
    /// Something happened that the engine does not see by itself.
    bell: Bell,
    /// Where frames come in from other processes.
    uplink: Option<Arc<Socket>>,
    stopped: AtomicBool,
}

/// How long without work the engine spins, then yields, before it sleeps. Spinning is short: a driver that shares
/// the processor runs only when the engine yields.
const SPIN_NS: u64 = 4_000;
const YIELD_NS: u64 = 250_000;
/// How long it sleeps for short times only.
const NAPPING_NS: u64 = 20_000_000;
/// Sleep between looks at mapped doorbells: short after work, longer when idle for long.
const NAP: Duration = Duration::from_micros(50);
const LONG_NAP: Duration = Duration::from_millis(1);
/// Turns of a spin before a thread sleeps for the lock.
const SPINS_FOR_LOCK: u32 = 10_000;
/// Turns of a spin in which a thread that waits for the lock takes it, before the engine yields to it.
const SPINS_FOR_OTHERS: u32 = 2000;
/// Rounds that a store may take with [`Drive::Store`] before the rest is left to the engine.
const ROUNDS_OF_A_STORE: u32 = 64;
/// How long a card that goes away waits for the socket to take what it has sent.
const LINGER: Duration = Duration::from_millis(500);
/// Longest sleep: the health counter must move.
const TICK: Duration = Duration::from_millis(50);

impl Card {
    pub(crate) fn new(config: ModelConfig) -> Result<Self, ModelError> {
        let os = |what| move |source| ModelError::Os { what, source };
        let clock = Arc::new(match config.drive {
            Drive::Thread | Drive::Store => Clock::real(),
            Drive::Step => Clock::stepped(),
        });
        let trace = Trace::new(config.link);
        let faults = Arc::new(Injector::default());
        faults.add(&config.faults, clock.now_ns());
        let functions = (0..config.ports)
            .map(|index| {
                Function::new(index, &config, Arc::clone(&clock), trace.clone(), Arc::clone(&faults))
            })
            .collect::<Result<Vec<_>, _>>()
            .map_err(os("make memory for BAR0"))?;
        let mut wire = Wire::new();
        wire.interfere(Some(Box::new(Arc::clone(&faults))));
        for function in &functions {
            wire.add_port(function.link_address());
        }
        let open = |address| {
            Uplink::open(address, &mut wire)
                .map_err(|source| ModelError::Wire { address: address.to_string(), source })
        };
        let uplink = config.wire.as_ref().map(open).transpose()?;
        let socket = uplink.as_ref().map(Uplink::socket);
        let state = State { functions, violations: Vec::new(), wire, uplink };
        Ok(Self {
            config,
            clock,
            trace,
            faults,
            state: Mutex::new(state),
            waiting: AtomicUsize::new(0),
            next_look_ns: AtomicU64::new(0),
            bell: Bell::new().map_err(os("make an eventfd"))?,
            uplink: socket,
            stopped: AtomicBool::new(false),
        })
    }

    /// Takes the lock. A round of the engine is short, and sleeping for it would cost a doorbell far more than
    /// the round.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let spun = (0..SPINS_FOR_LOCK).find_map(|_| match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => {
                hint::spin_loop();
                None
            }
        });
        let state = spun.unwrap_or_else(|| self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        state
    }

    /// Does something to one function, and lets the engine see to what follows.
    pub(crate) fn with_function<T>(&self, index: usize, act: impl FnOnce(&mut Function) -> T) -> Option<T> {
        let result = {
            let mut state = self.lock();
            let result = state.functions.get_mut(index).map(act);
            self.collect(&mut state);
            result
        };
        self.notify();
        result
    }

    /// One store to function `index`.
    pub(crate) fn store(&self, index: usize, offset: u64, bytes: &[u8]) {
        if self.config.drive != Drive::Store {
            self.with_function(index, |function| function.bar_write(offset, bytes));
            return;
        }
        let mut state = self.lock();
        if let Some(function) = state.functions.get_mut(index) {
            function.bar_write(offset, bytes);
        }
        self.collect(&mut state);
        let is_done = (0..ROUNDS_OF_A_STORE).any(|_| !self.round_locked(&mut state));
        let next_look_ns = self.next_look_ns.load(Ordering::Relaxed);
        let is_seen_in_time = self.deadline_ns(&state).is_none_or(|due| due >= next_look_ns);
        let is_for_the_engine = !is_done || !is_seen_in_time || Self::is_unannounced(&state);
        drop(state);
        if is_for_the_engine {
            self.notify();
        }
    }

    /// Whether something may come that nobody announces.
    fn is_unannounced(state: &State) -> bool {
        state.functions.iter().any(Function::watches_doorbells)
            || state.uplink.as_ref().is_some_and(Uplink::is_stuck)
    }

    /// Wakes the engine.
    pub(crate) fn notify(&self) {
        self.bell.ring();
    }

    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.notify();
    }

    /// Gathers the functions' violations.
    fn collect(&self, state: &mut State) {
        let State { functions, violations, .. } = state;
        for function in functions {
            if function.violations.is_empty() {
                continue;
            }
            violations.append(&mut function.violations);
            if self.config.strict == Strict::Stop {
                function.fail_health(Fatal::STRICT);
            }
        }
    }

    /// One round of all functions; true if anything was done.
    pub(crate) fn round(&self) -> bool {
        let mut state = self.lock();
        self.round_locked(&mut state)
    }

    fn round_locked(&self, state: &mut State) -> bool {
        let mut busy = self.suffer(state);
        for index in 0..state.functions.len() {
            busy |= state.functions[index].work();
            busy |= self.deliver(state, index);
        }
        let State { uplink, wire, .. } = state;
        if let Some(uplink) = uplink {
            busy |= uplink.exchange(wire, self.clock.now_ns());
        }
        self.collect(state);
        busy
    }

    /// Lets more faults happen, those that are due already at once.
    pub(crate) fn inject(&self, script: &FaultScript) {
        {
            let mut state = self.lock();
            self.faults.add(script, self.clock.now_ns());
            self.suffer(&mut state);
            self.collect(&mut state);
        }
        self.notify();
    }

    /// Lets happen what a fault script has for now; true if anything did.
    fn suffer(&self, state: &mut State) -> bool {
        let due = self.faults.due(self.clock.now_ns());
        for (to, mishap) in &due {
            for function in state.functions.iter_mut().filter(|one| to.is_none_or(|to| to == one.index)) {
                function.suffer(*mishap);
            }
        }
        !due.is_empty()
    }

    /// Puts the frames that function `index` sent on the wire, and takes those that have arrived for it.
    fn deliver(&self, state: &mut State, index: usize) -> bool {
        let State { functions, wire, uplink, .. } = state;
        let (port, now) = (Port(index), self.clock.now_ns());
        let function = &mut functions[index];
        let mut busy = false;
        wire.set_address(port, function.link_address());
        while let Some(frame) = function.outbox.pop_front() {
            busy = true;
            if function.lets_out(&frame) {
                function.count_out(&frame);
                wire.send(port, &frame, now);
                function.loop_multicast_back(&frame);
            } else {
                function.count_not_sent();
            }
        }
        while let Some(frame) = wire.receive(port, now) {
            busy = true;
            if uplink.is_some()
                && let Some(answer) = function.answer_for_neighbours(&frame)
            {
                function.count_out(&answer);
                wire.send(port, &answer, now);
            }
            function.receive(&frame);
            wire.recycle(frame);
        }
        busy
    }

    /// When the next timer is due. What is due by now has had its turn in the round before.
    fn deadline_ns(&self, state: &State) -> Option<u64> {
        let now = self.clock.now_ns();
        let functions = state.functions.iter().flat_map(Function::deadlines_ns);
        let others = state.wire.next_deadline().into_iter().chain(self.faults.next_due_ns());
        functions.chain(others).filter(|&due| due > now).min()
    }

    /// Lets virtual time pass.
    pub(crate) fn advance(&self, time: Duration) {
        let mut state = self.lock();
        let target = self.clock.now_ns().saturating_add(time.as_nanos() as u64);
        loop {
            while self.round_locked(&mut state) {}
            match self.deadline_ns(&state) {
                Some(due) if due <= target => self.clock.advance_to(due),
                _ => break,
            }
        }
        self.clock.advance_to(target);
        while self.round_locked(&mut state) {}
    }

    /// The engine thread.
    pub(crate) fn engine(&self) {
        let mut busy_ns = self.clock.now_ns();
        while !self.stopped.load(Ordering::Acquire) {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            let busy = self.round_locked(&mut state);
            let now = self.clock.now_ns();
            if busy {
                busy_ns = now;
            }
            let (idle_ns, is_unannounced) = (now - busy_ns, Self::is_unannounced(&state));
            let nap = match (is_unannounced, idle_ns) {
                (true, 0..NAPPING_NS) => NAP,
                (true, _) => LONG_NAP,
                (false, _) => TICK,
            };
            let due =
                self.deadline_ns(&state).map_or(TICK, |due| Duration::from_nanos(due.saturating_sub(now)));
            let nap = nap.min(due);
            self.next_look_ns.store(now + nap.as_nanos() as u64, Ordering::Relaxed);
            drop(state);
            self.let_others_in();
            // Where stores are carried out by their threads, this one would only keep them from it.
            let idle_ns =
                if self.config.drive == Drive::Store && !busy { idle_ns.max(YIELD_NS) } else { idle_ns };
            match idle_ns {
                0..SPIN_NS => hint::spin_loop(),
                SPIN_NS..YIELD_NS => thread::yield_now(),
                _ if self.bell.wait(self.uplink.as_deref(), nap) => busy_ns = self.clock.now_ns(),
                _ => {}
            }
        }
    }

    /// What a card has sent is on its way, and arrives though the card is gone: nobody sends a packet of UC or UD again.
    pub(crate) fn linger(&self) {
        let mut state = self.lock();
        let State { uplink: Some(uplink), wire, .. } = &mut *state else { return };
        let give_up = Instant::now() + LINGER;
        loop {
            uplink.send_waiting(wire, self.clock.now_ns());
            if !uplink.is_stuck() || Instant::now() > give_up {
                return;
            }
            thread::sleep(NAP);
        }
    }

    /// The lock is not fair: without this pause the engine would take it again before a waiting thread wakes.
    fn let_others_in(&self) {
        let mut turn = 0;
        while self.waiting.load(Ordering::Relaxed) != 0 {
            if turn < SPINS_FOR_OTHERS {
                turn += 1;
                hint::spin_loop();
            } else {
                thread::yield_now();
            }
        }
    }
}
