//! Faults as values.

use crate::fw::health::Fatal;
use mlx5_direct::{
    cqe::CqeSyndrome,
    mlx5::{
        cmd::{CmdOpcode, CmdStatus, DeliveryStatus},
        eqe::EventType,
    },
};
use std::time::Duration;

/// Which ones of what a fault counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nth {
    /// The n-th, from 1: `7`.
    One(u64),
    /// All from one to another, both included: `7..9`.
    Range(u64, u64),
    /// All: `*`.
    All,
    /// So many of a hundred, drawn: `3%`.
    Percent(u8),
}

/// What becomes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketFate {
    /// It never arrives.
    Drop,
    /// It arrives so many times.
    Duplicate(u32),
    /// So many later packets of its direction overtake it.
    Reorder(u32),
    /// It arrives so much later.
    Delay(Duration),
    /// A bit is flipped on the way: which, counted from the frame's first byte, or one that is drawn.
    Corrupt(Option<u64>),
    /// Its PSN is another by so much, and its ICRC is right.
    Psn(i32),
}

/// What becomes of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandFate {
    /// It is taken and never completed.
    Stuck,
    /// It is executed and completed so much later.
    Late(Duration),
    /// It comes after the others that wait with it; of several, the one rung last comes first.
    Last,
    /// Firmware refuses it.
    Fail(CmdStatus, u32),
    /// Firmware never sees it.
    Undelivered(DeliveryStatus),
}

/// What becomes of an entry that the device writes to a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryFate {
    /// Its bytes are anything, from this number or one that is drawn; its owner bit is right.
    Garbage(Option<u64>),
    /// Its owner bit is wrong: the entry seems not to be there.
    Owner,
    /// It is not written at all.
    Lost,
    /// It is written, and nobody is told: no interrupt of an event queue, no event of a completion queue.
    Silent,
    /// Of a completion queue: it tells of a failure, with this syndrome and vendor's error.
    Fail(CqeSyndrome, u8),
}

/// What happens to a function at some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mishap {
    /// Its cable is plugged or pulled.
    Link {
        /// Plugged.
        up: bool,
    },
    /// It leaves the bus: registers read all ones, nothing is executed.
    Gone,
    /// It is on the bus again, as after a reset.
    Back,
    /// Its firmware dies, and says of what.
    Health(Fatal),
    /// Its firmware stands still and says nothing.
    Hang,
    /// Its firmware starts anew, and has forgotten all objects.
    Reset,
    /// Its firmware asks for so many pages, or wants to give so many back.
    Pages(i32),
}

/// One thing that goes wrong. Without a function it is of the whole card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Of packets on their way to a port.
    Packet {
        /// Who sends it.
        function: Option<u8>,
        /// Which.
        nth: Nth,
        /// What becomes of it.
        fate: PacketFate,
    },
    /// Of messages that take a receive: it is as if none were posted.
    ReceiveMissing {
        /// Who receives.
        function: Option<u8>,
        /// Which.
        nth: Nth,
    },
    /// Of commands.
    Command {
        /// Whose.
        function: Option<u8>,
        /// Of this opcode alone.
        opcode: Option<CmdOpcode>,
        /// Which.
        nth: Nth,
        /// What becomes of it.
        fate: CommandFate,
    },
    /// Of EQEs.
    Event {
        /// Whose.
        function: Option<u8>,
        /// Of this type alone.
        event: Option<EventType>,
        /// Which.
        nth: Nth,
        /// What becomes of it.
        fate: EntryFate,
    },
    /// Of CQEs.
    Completion {
        /// Whose.
        function: Option<u8>,
        /// Which.
        nth: Nth,
        /// What becomes of it.
        fate: EntryFate,
    },
    /// At a time.
    At {
        /// To whom.
        function: Option<u8>,
        /// After so much time.
        time: Duration,
        /// What.
        mishap: Mishap,
    },
}

impl Fault {
    /// Something that happens to the whole card at once.
    pub fn now(mishap: Mishap) -> Self {
        Self::At { function: None, time: Duration::ZERO, mishap }
    }

    /// Whose it is; the whole card's if nobody's in particular.
    pub fn function(&self) -> Option<u8> {
        match *self {
            Self::Packet { function, .. }
            | Self::ReceiveMissing { function, .. }
            | Self::Command { function, .. }
            | Self::Event { function, .. }
            | Self::Completion { function, .. }
            | Self::At { function, .. } => function,
        }
    }

    /// Which ones of what it counts; one that comes at a time counts nothing.
    pub fn nth(&self) -> Option<Nth> {
        match *self {
            Self::Packet { nth, .. }
            | Self::ReceiveMissing { nth, .. }
            | Self::Command { nth, .. }
            | Self::Event { nth, .. }
            | Self::Completion { nth, .. } => Some(nth),
            Self::At { .. } => None,
        }
    }

    /// The same of the `n`-th, with what was left to be drawn taken from `drawn`.
    pub(super) fn exact(mut self, n: u64, drawn: u64) -> Self {
        match &mut self {
            Self::Packet { nth, fate, .. } => {
                *nth = Nth::One(n);
                if let PacketFate::Corrupt(bit @ None) = fate {
                    *bit = Some(drawn >> 48);
                }
            }
            Self::Event { nth, fate, .. } | Self::Completion { nth, fate, .. } => {
                *nth = Nth::One(n);
                if let EntryFate::Garbage(seed @ None) = fate {
                    *seed = Some(drawn >> 32);
                }
            }
            Self::ReceiveMissing { nth, .. } | Self::Command { nth, .. } => *nth = Nth::One(n),
            Self::At { .. } => {}
        }
        self
    }
}

/// Faults, in the order of their lines; see the [module](super) for the text form.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FaultScript {
    /// What is left open is drawn from it.
    pub seed: u64,
    /// The faults.
    pub faults: Vec<Fault>,
}

impl FaultScript {
    /// Whether nothing goes wrong.
    pub fn is_empty(&self) -> bool {
        self.faults.is_empty()
    }
}

impl From<Fault> for FaultScript {
    fn from(fault: Fault) -> Self {
        Self { seed: 0, faults: vec![fault] }
    }
}
