//! Faults on request: what is broken about a function.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;

/// What is broken about one function.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// The function has left the bus: registers read all ones, nothing is executed.
    pub(crate) gone: bool,
    /// Opcodes whose commands are taken and never completed.
    stuck: BTreeSet<u16>,
    /// Commands to fail, once each: opcode, status, syndrome.
    pub(crate) failing: Vec<(u16, u8, u32)>,
    /// Commands that wait together complete from the highest slot down.
    pub(crate) reversed: bool,
}

impl Faults {
    pub(crate) fn set_stuck(&mut self, opcode: u16, stuck: bool) {
        if stuck {
            self.stuck.insert(opcode);
        } else {
            self.stuck.remove(&opcode);
        }
    }

    pub(crate) fn is_stuck(&self, opcode: u16) -> bool {
        self.stuck.contains(&opcode)
    }

    /// Status and syndrome that the command is to fail with.
    pub(crate) fn take_failure(&mut self, opcode: u16) -> Option<(u8, u32)> {
        let at = self.failing.iter().position(|(failing, ..)| *failing == opcode)?;
        let (_, status, syndrome) = self.failing.remove(at);
        Some((status, syndrome))
    }
}
