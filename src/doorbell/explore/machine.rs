//! What machines keep in order, and the walk through all that they do not.

use super::{Barrier, Cell, Step};
use std::{
    collections::{BTreeMap, HashSet},
    fmt,
    hash::Hash,
};

/// How the device's registers are mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mapping {
    Uncached,
    WriteCombining,
}

/// A processor and a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Machine {
    X86(Mapping),
    Aarch64(Mapping),
}

pub(crate) const MACHINES: [Machine; 4] = [
    Machine::X86(Mapping::Uncached),
    Machine::X86(Mapping::WriteCombining),
    Machine::Aarch64(Mapping::Uncached),
    Machine::Aarch64(Mapping::WriteCombining),
];

/// Those whose registers are written by the kernel, or by pages mapped uncached.
pub(crate) const UNCACHED: [Machine; 2] =
    [Machine::X86(Mapping::Uncached), Machine::Aarch64(Mapping::Uncached)];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Load,
    Store,
    Ring,
}

impl Machine {
    pub(crate) fn mapping(self) -> Mapping {
        match self {
            Self::X86(mapping) | Self::Aarch64(mapping) => mapping,
        }
    }

    /// Whether `barrier` keeps an access before it from one after it. The tables of `docs/ordering.md`.
    fn orders(self, barrier: Barrier, before: Access, after: Access) -> bool {
        use Access::{Load, Ring, Store};
        let fences_stores = matches!(
            barrier,
            Barrier::BeforeDoorbell { write_combining: true }
                | Barrier::FlushWriteCombining { write_combining: true }
        );
        let uncached = self.mapping() == Mapping::Uncached;
        if barrier == (Barrier::FlushWriteCombining { write_combining: false }) {
            // Nothing is there.
            return false;
        }
        match self {
            // All others are barriers to the compiler at least, so that the processor's own order is what counts.
            Self::X86(_) => match (before, after) {
                (Load, _) | (Store, Store) => true,
                (Store, Ring) | (Ring, Store | Ring) => uncached || fences_stores,
                (Store | Ring, Load) => false,
            },
            Self::Aarch64(_) => match barrier {
                Barrier::BeforeDoorbellRecord | Barrier::BeforeDoorbell { .. } => {
                    before != Load && after != Load
                }
                Barrier::AfterOwnerTest | Barrier::BeforeConsumerIndex => before == Load,
                // `dsb st` waits for the stores, so that whatever comes after comes after them.
                Barrier::FlushWriteCombining { .. } => before != Load,
            },
        }
    }

    /// Whether `barrier` has what waits in write-combining buffers leave.
    fn flushes(self, barrier: Barrier) -> bool {
        match barrier {
            Barrier::FlushWriteCombining { write_combining } => write_combining,
            // `sfence`; `dmb oshst` only orders.
            Barrier::BeforeDoorbell { write_combining } => write_combining && matches!(self, Self::X86(_)),
            _ => false,
        }
    }
}

/// Memory as the device sees it.
pub(crate) type Memory = BTreeMap<Cell, u32>;

/// What may happen next on the device's side.
pub(crate) enum Turn<D> {
    /// It is another then.
    Next(D),
    /// And has stored this.
    Stores(D, Cell, u32),
    /// It has met what must not be.
    Wrong(String),
}

/// A device: all that it may do, one step at a time.
pub(crate) trait Device: Clone + Eq + Hash {
    /// What it may do now.
    fn turns(&self, memory: &Memory) -> Vec<Turn<Self>>;
    /// A register was stored to.
    fn rung(&mut self, cell: Cell, value: u32, whole: bool);
    /// Nothing more happens; `loads` are the numbers that the driver has found, in its order.
    fn judge(&self, memory: &Memory, loads: &[u32]) -> Result<(), String>;
}

/// An order of events that ends badly.
pub(crate) struct Counterexample {
    what: String,
    path: Vec<String>,
}

impl fmt::Display for Counterexample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}, after:", self.what)?;
        self.path.iter().try_for_each(|step| writeln!(f, "  {step}"))
    }
}

/// What was walked through.
pub(crate) struct Walk {
    /// States that are different.
    pub(crate) n_states: usize,
    /// The first that is wrong.
    pub(crate) wrong: Option<Counterexample>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct State<D> {
    /// Steps of the driver that were seen, by bit.
    done: u64,
    memory: Memory,
    device: D,
    loads: Vec<Option<u32>>,
}

struct Walker {
    steps: Vec<Step>,
    /// For each step those that come before it, by bit.
    before: Vec<u64>,
    /// Steps that may never be seen, by bit: they wait in a buffer.
    may_wait: u64,
    path: Vec<String>,
}

/// Walks through every order that `machine` allows for `program`, without barriers like `without`, and every interleaving with
/// `device`.
pub(crate) fn explore<D: Device>(
    machine: Machine,
    program: &[Step],
    without: Option<Barrier>,
    device: &D,
) -> Walk {
    let is_out =
        |step: &Step| matches!(step, Step::Barrier(b) if without.is_some_and(|out| b.is_kind_of(out)));
    let program: Vec<Step> = program.iter().copied().filter(|step| !is_out(step)).collect();
    let mut walker = Walker::new(machine, &program);
    if let Some(what) = mixed_lines(machine, &program, &walker) {
        return Walk { n_states: 0, wrong: Some(Counterexample { what, path: vec![] }) };
    }
    let loads = vec![None; walker.steps.len()];
    let start = State { done: 0, memory: Memory::new(), device: device.clone(), loads };
    let mut seen = HashSet::new();
    let wrong = walker.walk(start, &mut seen).err().map(|what| Counterexample { what, path: walker.path });
    Walk { n_states: seen.len(), wrong }
}

fn access(step: &Step) -> Option<(Access, Cell)> {
    match *step {
        Step::Load { cell, .. } => Some((Access::Load, cell)),
        Step::Store { cell, .. } => Some((Access::Store, cell)),
        Step::Ring { cell, .. } => Some((Access::Ring, cell)),
        Step::Barrier(_) => None,
    }
}

/// Two stores to one line of a write-combining register that may be in the buffer together: the device would see a mixture.
fn mixed_lines(machine: Machine, program: &[Step], walker: &Walker) -> Option<String> {
    if machine.mapping() == Mapping::Uncached {
        return None;
    }
    let rings: Vec<_> = (0..program.len()).filter(|i| matches!(program[*i], Step::Ring { .. })).collect();
    rings.iter().enumerate().find_map(|(n, i)| {
        let (_, cell) = access(&program[*i])?;
        let next =
            rings[n + 1..].iter().find(|j| access(&program[**j]).is_some_and(|(_, other)| other == cell))?;
        let kept = program[*i..*next]
            .iter()
            .any(|step| matches!(step, Step::Barrier(b) if machine.orders(*b, Access::Ring, Access::Ring)));
        (!kept).then(|| format!("two stores to {cell} may mix in one buffer ({} steps)", walker.steps.len()))
    })
}

impl Walker {
    fn new(machine: Machine, program: &[Step]) -> Self {
        let places: Vec<usize> = (0..program.len()).filter(|i| access(&program[*i]).is_some()).collect();
        let (mut before, mut may_wait) = (vec![0; places.len()], 0);
        for (n, &i) in places.iter().enumerate() {
            let Some((kind, cell)) = access(&program[i]) else { continue };
            for (m, &j) in places.iter().enumerate().take(n) {
                let Some((earlier, other)) = access(&program[j]) else { continue };
                let between = program[j..i].iter();
                // One memory is coherent. And no store is made before it is known that the driver goes on.
                let depends =
                    matches!(program[j], Step::Load { only_if: Some(_), .. }) && kind != Access::Load;
                let kept = cell == other
                    || depends
                    || between.into_iter().any(
                        |step| matches!(step, Step::Barrier(barrier) if machine.orders(*barrier, earlier, kind)),
                    );
                before[n] |= u64::from(kept) << m;
            }
            let flushed =
                program[i..].iter().any(|step| matches!(step, Step::Barrier(b) if machine.flushes(*b)));
            let partial = matches!(program[i], Step::Ring { whole: false, .. });
            if partial && machine.mapping() == Mapping::WriteCombining && !flushed {
                may_wait |= 1 << n;
            }
        }
        let steps = places.into_iter().map(|i| program[i]).collect();
        Self { steps, before, may_wait, path: vec![] }
    }

    fn walk<D: Device>(&mut self, state: State<D>, seen: &mut HashSet<State<D>>) -> Result<(), String> {
        if !seen.insert(state.clone()) {
            return Ok(());
        }
        let mut is_end = true;
        for n in 0..self.steps.len() {
            if state.done >> n & 1 != 0 || self.before[n] & !state.done != 0 {
                continue;
            }
            is_end &= self.may_wait >> n & 1 != 0;
            let mut next = state.clone();
            next.done |= 1 << n;
            let step = self.steps[n];
            match step {
                Step::Store { cell, value } => _ = next.memory.insert(cell, value),
                Step::Ring { cell, value, whole } => next.device.rung(cell, value, whole),
                Step::Load { cell, only_if } => {
                    let found = next.memory.get(cell).copied().unwrap_or(0);
                    if only_if.is_some_and(|value| value != found) {
                        // Nothing new: the driver would look again. Later is another order.
                        continue;
                    }
                    next.loads[n] = Some(found);
                }
                Step::Barrier(_) => {}
            }
            self.path.push(format!("driver: {step:?}"));
            self.walk(next, seen)?;
            self.path.pop();
        }
        for turn in state.device.turns(&state.memory) {
            is_end = false;
            let mut next = state.clone();
            match turn {
                Turn::Next(device) => {
                    self.path.push("device: a step".into());
                    next.device = device;
                }
                Turn::Stores(device, cell, value) => {
                    self.path.push(format!("device: stores {value} to {cell}"));
                    next.device = device;
                    next.memory.insert(cell, value);
                }
                Turn::Wrong(what) => return Err(what),
            }
            self.walk(next, seen)?;
            self.path.pop();
        }
        if is_end {
            let loads: Vec<u32> = state.loads.iter().copied().flatten().collect();
            state.device.judge(&state.memory, &loads)?;
        }
        Ok(())
    }
}
