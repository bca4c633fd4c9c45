//! What the driver's code does, noted while it runs.

use super::{Barrier, Cell, Step};
use std::{cell::RefCell, ptr::NonNull};

/// A part of memory that is looked at.
pub(crate) struct Watch {
    pub(crate) cell: Cell,
    pub(crate) at: NonNull<u8>,
    pub(crate) len_bytes: usize,
    /// The number that its bytes mean to the device.
    pub(crate) value: fn(&[u8]) -> u32,
    /// Whether it is a register.
    pub(crate) is_register: bool,
}

struct State {
    watches: Vec<(Watch, Vec<u8>)>,
    /// What the next owner tests look at, and the number with which the driver goes on.
    owner_tests: Vec<(Cell, u32)>,
    steps: Vec<Step>,
}

thread_local! {
    static STATE: RefCell<Option<State>> = const { RefCell::new(None) };
}

impl Watch {
    fn bytes(&self) -> Vec<u8> {
        // SAFETY: whoever starts a recorder keeps the memory for as long as it.
        (0..self.len_bytes).map(|i| unsafe { self.at.add(i).read_volatile() }).collect()
    }
}

impl State {
    /// Notes what was stored since the last time.
    fn look(&mut self) {
        for (watch, old) in &mut self.watches {
            let new = watch.bytes();
            if new == *old {
                continue;
            }
            let (cell, value) = (watch.cell, (watch.value)(&new));
            let last_changed = (0..new.len()).rev().find(|i| new[*i] != old[*i]);
            self.steps.push(match watch.is_register {
                // Beyond a doorbell's 8 bytes: lines, which BlueFlame fills.
                true => Step::Ring { cell, value, whole: last_changed >= Some(8) },
                false => Step::Store { cell, value },
            });
            *old = new;
        }
    }
}

/// Notes what the driver does on this thread, until it ends.
pub(crate) struct Recorder(());

impl Recorder {
    /// Starts to look at `watches`, whose memory stays until [`end`](Self::end).
    pub(crate) fn start(watches: Vec<Watch>, owner_tests: &[(Cell, u32)]) -> Self {
        let watches = watches.into_iter().map(|watch| {
            let bytes = watch.bytes();
            (watch, bytes)
        });
        let (watches, mut owner_tests) = (watches.collect(), owner_tests.to_vec());
        owner_tests.reverse();
        STATE.set(Some(State { watches, owner_tests, steps: vec![] }));
        Self(())
    }

    /// What was done.
    pub(crate) fn end(self) -> Vec<Step> {
        let mut state = STATE.take().expect("a recorder was started");
        state.look();
        assert!(state.owner_tests.is_empty(), "no owner test of {:?}", state.owner_tests);
        state.steps
    }
}

/// A barrier is passed.
pub(crate) fn note(barrier: Barrier) {
    // Memory may be given back while the thread ends.
    let _ = STATE.try_with(|state| {
        if let Some(state) = &mut *state.borrow_mut() {
            state.look();
            if barrier == Barrier::AfterOwnerTest
                && let Some((cell, value)) = state.owner_tests.pop()
            {
                state.steps.push(Step::Load { cell, only_if: Some(value) });
            }
            state.steps.push(Step::Barrier(barrier));
        }
    });
}

/// The driver has stored to a register that is no memory here.
pub(crate) fn rung(cell: Cell, value: u32) {
    STATE.with_borrow_mut(|state| {
        if let Some(state) = state {
            state.look();
            state.steps.push(Step::Ring { cell, value, whole: false });
        }
    });
}

/// The driver has loaded from `cell`: loads leave no trace in memory.
pub(crate) fn loaded(cell: Cell) {
    STATE.with_borrow_mut(|state| {
        let state = state.as_mut().expect("a recorder was started");
        state.look();
        state.steps.push(Step::Load { cell, only_if: None });
    });
}
