//! Every order in which the device may see what the driver does, tried against what the device may do meanwhile.
//!
//! The driver's own code runs over ordinary memory, and each barrier that it passes is noted with all that was stored since
//! the last ([`record`]). What lies between two barriers the compiler and the processor may turn round as they like; what a
//! barrier keeps apart depends on the machine ([`machine`]). All orders that are left are walked through, each with every
//! interleaving of the device's steps ([`device`]). Then the same with one kind of barrier taken out, which has to go
//! wrong: a barrier that nothing needs would be found here, as one that is missing would.

mod device;
mod machine;
mod record;
mod tests;

pub(crate) use device::{Commander, DEVICE, DONE, ENTRY, FIELDS, MAILBOX, OUTPUT, OWNER, OWNERSHIP, Writer};
pub(crate) use machine::{Device, MACHINES, Machine, Mapping, UNCACHED, explore};
pub(crate) use record::{Recorder, Watch, loaded, note, rung};

/// A barrier of [`super::barrier`], by name, and whether it was told of write-combining memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Barrier {
    BeforeDoorbellRecord,
    BeforeDoorbell { write_combining: bool },
    FlushWriteCombining { write_combining: bool },
    AfterOwnerTest,
    BeforeConsumerIndex,
}

impl Barrier {
    /// Whether both are calls of the same function.
    pub(crate) fn is_kind_of(self, other: Self) -> bool {
        core::mem::discriminant(&self) == core::mem::discriminant(&other)
    }
}

/// What a store is to, or a load from: a part of memory that is looked at as one number.
pub(crate) type Cell = &'static str;

/// One step of the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// A store to memory.
    Store { cell: Cell, value: u32 },
    /// A store to a register; `whole` if it fills its line.
    Ring { cell: Cell, value: u32, whole: bool },
    /// A load; with `only_if` the driver goes on only if it finds that number.
    Load { cell: Cell, only_if: Option<u32> },
    /// What keeps the steps before it from those after it.
    Barrier(Barrier),
}

pub(crate) const RECORD_FIRST: Barrier = Barrier::BeforeDoorbellRecord;
pub(crate) const DOORBELL: Barrier = Barrier::BeforeDoorbell { write_combining: false };
pub(crate) const FLUSH: Barrier = Barrier::FlushWriteCombining { write_combining: false };

/// On each of `machines`: no order of `program` ends badly, and without one kind of barrier one does, if and only if it is
/// `needed` there.
pub(crate) fn assert_held<D: Device>(
    what: &str,
    machines: &[Machine],
    program: impl Fn(Mapping) -> Vec<Step>,
    device: &D,
    needed: impl Fn(Machine) -> Vec<Barrier>,
) {
    for &machine in machines {
        let program = program(machine.mapping());
        let walk = explore(machine, &program, None, device);
        if let Some(wrong) = walk.wrong {
            panic!("{what}, {machine:?}: {wrong}{program:#?}");
        }
        println!("{what}, {machine:?}: {} states", walk.n_states);
        let needed = needed(machine);
        let passed = |of: Barrier| program.iter().any(|s| matches!(s, Step::Barrier(b) if b.is_kind_of(of)));
        let all = [RECORD_FIRST, DOORBELL, FLUSH, Barrier::AfterOwnerTest, Barrier::BeforeConsumerIndex];
        for barrier in all.into_iter().filter(|barrier| passed(*barrier)) {
            let is_needed = needed.iter().any(|other| other.is_kind_of(barrier));
            let wrong = explore(machine, &program, Some(barrier), device).wrong;
            assert_eq!(wrong.is_some(), is_needed, "{what}, {machine:?}, without {barrier:?}: is it needed?");
            if let Some(wrong) = wrong {
                println!("{what}, {machine:?}, without {barrier:?}: {wrong}");
            }
        }
        assert!(
            needed.iter().all(|barrier| passed(*barrier)),
            "{what}, {machine:?}: {needed:?} are not all there"
        );
    }
}
