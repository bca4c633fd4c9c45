//! What a device may do, step by step, as `docs/ordering.md` has it.

use super::{
    Cell,
    machine::{Device, Memory, Turn},
};

fn at(memory: &Memory, cell: Cell) -> u32 {
    memory.get(cell).copied().unwrap_or(0)
}

/// Executes work queue elements up to the doorbell record.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Executor {
    /// Parts of each element; part `p` of element `i` is right if its cell has `i + 1`.
    pub(super) elements: &'static [&'static [Cell]],
    pub(super) record: Cell,
    /// Whether it reads the record of itself, as for receives, or at a doorbell only.
    pub(super) looks: bool,
    doorbells: Vec<u32>,
    doing: Doing,
    n_executed: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Doing {
    Nothing,
    /// It has taken a doorbell, and will read the record.
    ReadRecord,
    /// It fetches part `part` of the next element, and goes on to `pi`.
    Fetch {
        pi: u32,
        part: usize,
    },
}

impl Executor {
    pub(super) fn new(elements: &'static [&'static [Cell]], record: Cell, looks: bool) -> Self {
        Self { elements, record, looks, doorbells: vec![], doing: Doing::Nothing, n_executed: 0 }
    }

    /// With a doorbell of before on its way.
    pub(super) fn rung_before(self) -> Self {
        Self { doorbells: vec![0], ..self }
    }

    fn doing(&self, doing: Doing) -> Self {
        Self { doing, ..self.clone() }
    }

    fn executed(&self, pi: u32) -> Self {
        let n_executed = self.n_executed + 1;
        let doing = if n_executed < pi { Doing::Fetch { pi, part: 0 } } else { Doing::Nothing };
        Self { n_executed, doing, ..self.clone() }
    }
}

/// A doorbell that carries its whole element (BlueFlame).
const WHOLE: u32 = 1 << 31;

impl Device for Executor {
    fn turns(&self, memory: &Memory) -> Vec<Turn<Self>> {
        match self.doing {
            Doing::Nothing => {
                let mut turns = vec![];
                if let [index, rest @ ..] = &self.doorbells[..] {
                    let taken = Self { doorbells: rest.to_vec(), ..self.clone() };
                    turns.push(Turn::Next(taken.doing(Doing::ReadRecord)));
                    // A hint, which it may take or not.
                    if index & WHOLE != 0 && index & !WHOLE == self.n_executed {
                        turns.push(Turn::Next(taken.executed(0)));
                    }
                }
                if self.looks && at(memory, self.record) > self.n_executed {
                    turns.push(Turn::Next(self.doing(Doing::ReadRecord)));
                }
                turns
            }
            Doing::ReadRecord => {
                let pi = at(memory, self.record);
                let fetch = Doing::Fetch { pi, part: 0 };
                vec![Turn::Next(self.doing(if pi > self.n_executed { fetch } else { Doing::Nothing }))]
            }
            Doing::Fetch { pi, part } => {
                let Some(parts) = self.elements.get(self.n_executed as usize) else {
                    return vec![Turn::Wrong(format!("{} says {pi}", self.record))];
                };
                let cell = parts[part];
                let found = at(memory, cell);
                if found != self.n_executed + 1 {
                    return vec![Turn::Wrong(format!("it executes {cell} as it was before ({found})"))];
                }
                vec![Turn::Next(match part + 1 == parts.len() {
                    true => self.executed(pi),
                    false => self.doing(Doing::Fetch { pi, part: part + 1 }),
                })]
            }
        }
    }

    fn rung(&mut self, _: Cell, value: u32, whole: bool) {
        self.doorbells.push(value | if whole { WHOLE } else { 0 });
    }

    fn judge(&self, _: &Memory, _: &[u32]) -> Result<(), String> {
        let n = self.elements.len();
        if self.n_executed as usize == n {
            return Ok(());
        }
        Err(format!("{} of {n} elements are executed, and nothing makes it look again", self.n_executed))
    }
}

/// Writes completions (or events) into a ring of one slot, each once the one before is given back.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Writer {
    pub(super) n: u32,
    /// Where it reads how many were given back: a record, or nothing if a register tells it.
    pub(super) record: Option<Cell>,
    n_told: u32,
    n_written: u32,
    fields_are_new: bool,
}

pub(crate) const FIELDS: Cell = "fields";
pub(crate) const OWNER: Cell = "owner";

impl Writer {
    pub(crate) fn new(n: u32, record: Option<Cell>) -> Self {
        Self { n, record, n_told: 0, n_written: 0, fields_are_new: false }
    }
}

impl Device for Writer {
    fn turns(&self, memory: &Memory) -> Vec<Turn<Self>> {
        let n_back = self.record.map_or(self.n_told, |record| at(memory, record));
        if self.n_written == self.n || n_back < self.n_written {
            return vec![];
        }
        let value = self.n_written + 1;
        vec![match self.fields_are_new {
            false => Turn::Stores(Self { fields_are_new: true, ..self.clone() }, FIELDS, value),
            // The last byte becomes visible last.
            true => {
                let next = Self { n_written: value, fields_are_new: false, ..self.clone() };
                Turn::Stores(next, OWNER, value)
            }
        }]
    }

    fn rung(&mut self, _: Cell, value: u32, _: bool) {
        self.n_told = value & 0xff_ffff;
    }

    /// `loads`: owner and fields of each element, in turn.
    fn judge(&self, _: &Memory, loads: &[u32]) -> Result<(), String> {
        match loads.chunks_exact(2).find(|pair| pair[0] != pair[1]) {
            Some(pair) => Err(format!("element {} is new, and fields of {} were read", pair[0], pair[1])),
            None if loads.len() as u32 == 2 * self.n => Ok(()),
            None => Err(format!("{} of {} elements were read", loads.len() / 2, self.n)),
        }
    }
}

/// Writes one completion, and makes an event of it if it is armed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Waker {
    /// Whether an arm looks for what is there already.
    pub(super) looks_back: bool,
    /// Arms on their way.
    arms: Vec<u32>,
    is_armed: bool,
    is_written: bool,
    has_woken: bool,
}

pub(super) const ARM_WORD: Cell = "arm word";

impl Waker {
    pub(super) fn new(looks_back: bool) -> Self {
        Self { looks_back, arms: vec![], is_armed: false, is_written: false, has_woken: false }
    }
}

impl Device for Waker {
    fn turns(&self, memory: &Memory) -> Vec<Turn<Self>> {
        let mut turns = vec![];
        if !self.is_written {
            let has_woken = self.has_woken || self.is_armed;
            turns.push(Turn::Stores(Self { is_written: true, has_woken, ..self.clone() }, OWNER, 1));
        }
        if let [arm, rest @ ..] = &self.arms[..] {
            let mut next = Self { arms: rest.to_vec(), ..self.clone() };
            // An arm that the record does not have is an old one.
            if at(memory, ARM_WORD) == *arm {
                next.has_woken |= self.looks_back && self.is_written;
                next.is_armed = true;
            }
            turns.push(Turn::Next(next));
        }
        turns
    }

    fn rung(&mut self, _: Cell, value: u32, _: bool) {
        self.arms.push(value);
    }

    /// `loads`: the owner, once armed.
    fn judge(&self, _: &Memory, loads: &[u32]) -> Result<(), String> {
        match loads {
            [0] if !self.has_woken => Err("the driver sleeps, and the completion is there".into()),
            [_] => Ok(()),
            _ => Err(format!("{loads:?} was read, not one owner")),
        }
    }
}

/// Executes one command, and answers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Commander {
    at: usize,
    is_rung: bool,
}

pub(crate) const MAILBOX: Cell = "mailbox";
pub(crate) const ENTRY: Cell = "entry";
pub(crate) const OWNERSHIP: Cell = "ownership";
pub(crate) const OUTPUT: Cell = "output";
/// Ownership: the device's, and software's again.
pub(crate) const DEVICE: u32 = 1;
pub(crate) const DONE: u32 = 2;

impl Commander {
    pub(crate) fn new() -> Self {
        Self { at: 0, is_rung: false }
    }
}

impl Device for Commander {
    fn turns(&self, memory: &Memory) -> Vec<Turn<Self>> {
        let next = Self { at: self.at + 1, is_rung: self.is_rung };
        let reads = |cell: Cell| match at(memory, cell) {
            1 => Turn::Next(next.clone()),
            found => Turn::Wrong(format!("it executes the command with {cell} as it was before ({found})")),
        };
        match self.at {
            // It looks at the entry when it is rung, and may do so of itself.
            0 if self.is_rung && at(memory, OWNERSHIP) != DEVICE => {
                vec![Turn::Wrong("it is rung for an entry that is not its own".into())]
            }
            0 if at(memory, OWNERSHIP) == DEVICE => vec![Turn::Next(next)],
            1 => vec![reads(ENTRY)],
            2 => vec![reads(MAILBOX)],
            3 => vec![Turn::Stores(next, OUTPUT, 1)],
            4 => vec![Turn::Stores(next, OWNERSHIP, DONE)],
            _ => vec![],
        }
    }

    fn rung(&mut self, _: Cell, _: u32, _: bool) {
        self.is_rung = true;
    }

    /// `loads`: the ownership that says the command is done, and the output.
    fn judge(&self, _: &Memory, loads: &[u32]) -> Result<(), String> {
        match loads {
            [DONE, 1] => Ok(()),
            _ => Err(format!("{loads:?} was read: an answer that is not there yet")),
        }
    }
}
