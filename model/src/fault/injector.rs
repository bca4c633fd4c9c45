//! Faults at work: each counts what it is of, and what happened is written down.

use super::{
    draw::Draw,
    script::{CommandFate, EntryFate, Fault, FaultScript, Mishap, Nth, PacketFate},
};
use crate::wire::{Fate, Interference, LinkHeader, Packet, Port};
use mlx5_direct::mlx5::{cmd::CmdOpcode, eqe::EventType};
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU8, Ordering},
};

/// What happened that is written down at most.
const MAX_DONE: usize = 10_000;

/// What faults are of, as bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    Packet = 1,
    Receive = 2,
    Command = 4,
    Event = 8,
    Completion = 16,
    Time = 32,
}

impl Kind {
    fn of(fault: &Fault) -> Self {
        match fault {
            Fault::Packet { .. } => Self::Packet,
            Fault::ReceiveMissing { .. } => Self::Receive,
            Fault::Command { .. } => Self::Command,
            Fault::Event { .. } => Self::Event,
            Fault::Completion { .. } => Self::Completion,
            Fault::At { .. } => Self::Time,
        }
    }
}

/// A fault that may still happen.
#[derive(Debug)]
struct Active {
    fault: Fault,
    /// What it is of, so far.
    n_seen: u64,
    draw: Draw,
    /// When, if it comes at a time.
    due_ns: Option<u64>,
}

impl Active {
    /// One more of what it is of: whether it happens to this one, and how exactly.
    fn meets(&mut self) -> Option<Fault> {
        self.n_seen += 1;
        let n = self.n_seen;
        let hit = match self.fault.nth()? {
            Nth::One(one) => n == one,
            Nth::Range(first, last) => (first..=last).contains(&n),
            Nth::All => true,
            Nth::Percent(percent) => self.draw.below(100) < u64::from(percent),
        };
        hit.then(|| self.fault.exact(n, self.draw.next()))
    }
}

#[derive(Debug, Default)]
struct State {
    active: Vec<Active>,
    done: Vec<Fault>,
}

/// All faults of a card.
#[derive(Debug, Default)]
pub(crate) struct Injector {
    /// Kinds of faults that may happen: without any, nobody takes the lock.
    kinds: AtomicU8,
    state: Mutex<State>,
}

impl Injector {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn expects(&self, kind: Kind) -> bool {
        self.kinds.load(Ordering::Relaxed) & kind as u8 != 0
    }

    /// Lets these happen too. They count from now on.
    pub(crate) fn add(&self, script: &FaultScript, now_ns: u64) {
        let mut state = self.state();
        for (line, fault) in script.faults.iter().enumerate() {
            let due_ns = match fault {
                Fault::At { time, .. } => Some(now_ns.saturating_add(time.as_nanos() as u64)),
                _ => None,
            };
            // Each its own numbers: what one draws does not depend on what the others see.
            let draw = Draw::new(script.seed ^ (line as u64 + 1).wrapping_mul(0xd134_2543_de82_ef95));
            state.active.push(Active { fault: *fault, n_seen: 0, draw, due_ns });
            self.kinds.fetch_or(Kind::of(fault) as u8, Ordering::Relaxed);
        }
    }

    /// Lets nothing happen any more.
    pub(crate) fn clear(&self) {
        self.state().active.clear();
        self.kinds.store(0, Ordering::Relaxed);
    }

    /// What happened, oldest first.
    pub(crate) fn done(&self) -> FaultScript {
        FaultScript { seed: 0, faults: self.state().done.clone() }
    }

    /// One of what faults of a kind are of: what happens to it. All that are `concerned` have counted it.
    fn meet(&self, kind: Kind, function: u8, concerned: impl Fn(&Fault) -> bool) -> Option<Fault> {
        if !self.expects(kind) {
            return None;
        }
        let mut state = self.state();
        let State { active, done } = &mut *state;
        let mut happens = None;
        for one in active.iter_mut().filter(|one| Kind::of(&one.fault) == kind) {
            if one.fault.function().is_none_or(|of| of == function) && concerned(&one.fault) {
                let met = one.meets();
                happens = happens.or(met);
            }
        }
        if let Some(fault) = happens
            && done.len() < MAX_DONE
        {
            done.push(fault);
        }
        happens
    }

    /// What becomes of a command.
    pub(crate) fn command(&self, function: u8, opcode: CmdOpcode) -> Option<CommandFate> {
        let concerned = |fault: &Fault| match fault {
            Fault::Command { opcode: of, .. } => of.is_none_or(|of| of == opcode),
            _ => false,
        };
        match self.meet(Kind::Command, function, concerned)? {
            Fault::Command { fate, .. } => Some(fate),
            _ => None,
        }
    }

    /// Whether a message finds no receive, though one may be posted.
    pub(crate) fn receive_is_missing(&self, function: u8) -> bool {
        self.meet(Kind::Receive, function, |_| true).is_some()
    }

    /// What becomes of an EQE.
    pub(crate) fn event(&self, function: u8, event: EventType) -> Option<EntryFate> {
        let concerned = |fault: &Fault| match fault {
            Fault::Event { event: of, .. } => of.is_none_or(|of| of == event),
            _ => false,
        };
        match self.meet(Kind::Event, function, concerned)? {
            Fault::Event { fate, .. } => Some(fate),
            _ => None,
        }
    }

    /// What becomes of a CQE.
    pub(crate) fn completion(&self, function: u8) -> Option<EntryFate> {
        match self.meet(Kind::Completion, function, |_| true)? {
            Fault::Completion { fate, .. } => Some(fate),
            _ => None,
        }
    }

    /// What has come due by now, in order, and to whom.
    pub(crate) fn due(&self, now_ns: u64) -> Vec<(Option<u8>, Mishap)> {
        if !self.expects(Kind::Time) {
            return Vec::new();
        }
        let mut state = self.state();
        let State { active, done } = &mut *state;
        let mut due: Vec<_> =
            active.extract_if(.., |one| one.due_ns.is_some_and(|due_ns| due_ns <= now_ns)).collect();
        due.sort_by_key(|one| one.due_ns);
        let happened = due.iter().map(|one| one.fault);
        done.extend(happened.take(MAX_DONE.saturating_sub(done.len())));
        due.iter()
            .filter_map(|one| match one.fault {
                Fault::At { function, mishap, .. } => Some((function, mishap)),
                _ => None,
            })
            .collect()
    }

    /// When the next one comes.
    pub(crate) fn next_due_ns(&self) -> Option<u64> {
        if !self.expects(Kind::Time) {
            return None;
        }
        self.state().active.iter().filter_map(|one| one.due_ns).min()
    }
}

impl Interference for Arc<Injector> {
    fn frame(&mut self, from: Port, _: Port, frame: &mut Vec<u8>) -> Fate {
        let fault = self.meet(Kind::Packet, u8::try_from(from.0).unwrap_or(u8::MAX), |_| true);
        let Some(Fault::Packet { fate, .. }) = fault else { return Fate::Deliver };
        match fate {
            PacketFate::Drop => Fate::Drop,
            PacketFate::Duplicate(copies) => Fate::Duplicate { copies },
            PacketFate::Reorder(frames) => Fate::Reorder { frames },
            PacketFate::Delay(time) => Fate::Delay { ns: time.as_nanos() as u64 },
            PacketFate::Corrupt(bit) => {
                let bit = bit.unwrap_or(0) % (frame.len() as u64 * 8).max(1);
                if let Some(byte) = frame.get_mut((bit / 8) as usize) {
                    *byte ^= 1 << (bit % 8);
                }
                Fate::Deliver
            }
            PacketFate::Psn(by) => {
                forge_psn(frame, by);
                Fate::Deliver
            }
        }
    }
}

/// Gives a packet of a transport another PSN, and the checks that go with it. Other frames stay as they are.
fn forge_psn(frame: &mut [u8], by: i32) {
    let parsed = Packet::parse(frame).or_else(|_| Packet::parse_infiniband(frame));
    let Ok(packet) = parsed else { return };
    let headers = packet.headers;
    let trailer = if matches!(headers.link, LinkHeader::InfiniBand(_)) { 2 } else { 0 };
    let pad = packet.payload.len().wrapping_neg() & 3;
    // PSN is the last word of the BTH, which is in front of the extensions.
    let behind = 4 + headers.bth.opcode.extension_bytes() + packet.payload.len() + pad + 4 + trailer;
    let Some(at) = frame.len().checked_sub(behind) else { return };
    let Some(word) = frame[at..].first_chunk_mut::<4>() else { return };
    let old = u32::from_be_bytes(*word);
    let psn = old.wrapping_add_signed(by) & 0xff_ffff;
    *word = (old & 0xff00_0000 | psn).to_be_bytes();
    headers.seal(frame);
}

/// An entry of a queue whose bytes are anything, with the owner bit of `entry`. Of one in two the last 8 bytes stay: where
/// a CQE says what it is.
pub(crate) fn garbage(seed: u64, entry: &[u8; 64]) -> [u8; 64] {
    let mut draw = Draw::new(seed);
    let keeps_tail = draw.below(2) == 0;
    let mut bytes = *entry;
    for word in bytes.chunks_exact_mut(8).take(if keeps_tail { 7 } else { 8 }) {
        word.copy_from_slice(&draw.next().to_be_bytes());
    }
    // Of an opcode that is none it would be no entry, whatever the owner.
    if bytes[63] >> 4 == 0xf {
        bytes[63] ^= 0x10;
    }
    bytes[63] = bytes[63] & !1 | entry[63] & 1;
    bytes
}
