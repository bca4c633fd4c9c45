//! Whether the device lives: its health registers, and one verdict for all callers.
#![forbid(unsafe_code)]

use super::regs;
use crate::{
    Error, Gone, Result,
    backend::pci::PciFunction,
    mlx5::init_segment::{CmdqAddrLSz, HealthBuffer, HealthSyndrome, NicInterface},
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Equal readings of the health counter, one poll interval apart, that mean death.
const MAX_MISSES: u32 = 3;

/// The counter's bits that are sure to move (rdma-core compares these only).
const COUNTER_MASK: u32 = 0xff_ffff;

/// Health of one function.
#[derive(Debug)]
pub(super) struct Health {
    function: Arc<dyn PciFunction>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The first verdict, which all callers get.
    gone: Option<Gone>,
    /// Whether it is past answering. A function that is only wanted back is not.
    dead: bool,
    /// Whether those who wait have been told.
    told: bool,
    counter: u32,
    misses: u32,
}

impl Health {
    pub(super) fn new(function: Arc<dyn PciFunction>) -> Self {
        Self { function, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The verdict, if there is one.
    pub(super) fn gone(&self) -> Option<Gone> {
        self.state().gone
    }

    /// Refuses if the device is known to be gone.
    pub(super) fn alive(&self) -> Result<()> {
        self.gone().map_or(Ok(()), |gone| Err(Error::DeviceGone(gone)))
    }

    /// Refuses if the device answers no commands any more. One that is wanted back does: it is given back in order,
    /// or its next driver finds it at work, on memory that is another's by then.
    pub(super) fn answers(&self) -> Result<()> {
        if self.state().dead { self.alive() } else { Ok(()) }
    }

    /// Records a verdict.
    pub(super) fn declare(&self, gone: Gone) {
        let mut state = self.state();
        state.gone.get_or_insert(gone);
        state.dead |= gone != Gone::Released;
    }

    /// The verdict, once: those who wait are to be told of it.
    pub(super) fn news(&self) -> Option<Gone> {
        let mut state = self.state();
        let news = state.gone.filter(|_| !state.told);
        state.told |= news.is_some();
        news
    }

    /// Looks for a fatal state in the registers now. A function that is pulled out is asked for too: then it is dead.
    pub(super) fn sense(&self) -> Option<Gone> {
        let has_left = || self.function.bar_read32(regs::HEALTH_FW_VER) == regs::ALL_ONES;
        if has_left() {
            return Some(Gone::Pci);
        }
        let fatal = self.sense_registers();
        // Whatever a function seems to say while it is pulled out, it does not say.
        if fatal.is_some() && has_left() {
            return Some(Gone::Pci);
        }
        fatal.or_else(|| self.function.is_wanted_back().then_some(Gone::Released))
    }

    /// What the registers of a function on the bus say.
    fn sense_registers(&self) -> Option<Gone> {
        let function = &*self.function;
        let interface = CmdqAddrLSz::from_bytes(regs::read(function, regs::CMDQ_ADDR_L_SZ)).nic_interface();
        if interface != NicInterface::FULL {
            return Some(Gone::NicInterface(interface));
        }
        let mut bytes = HealthBuffer::new().to_bytes();
        bytes[56..60].copy_from_slice(&regs::read(function, regs::HEALTH_RFR));
        bytes[60..64].copy_from_slice(&regs::read(function, regs::HEALTH_SYND));
        let health = HealthBuffer::from_bytes(bytes);
        let fatal = health.synd() != HealthSyndrome(0) && health.rfr();
        fatal.then_some(Gone::Firmware {
            syndrome: health.synd(),
            ext_syndrome: health.ext_synd(),
            reset_required: health.rfr(),
        })
    }

    /// As [`sense`](Self::sense), and sees whether the health counter moved since the last poll.
    pub(super) fn poll(&self) -> Option<Gone> {
        if let Some(gone) = self.sense() {
            return Some(gone);
        }
        // A stepped device's counter stands as long as nobody steps it.
        if self.function.is_stepped() {
            return None;
        }
        let counter = self.function.bar_read32(regs::HEALTH_COUNTER) & COUNTER_MASK;
        let mut state = self.state();
        state.misses = if counter == state.counter { state.misses + 1 } else { 0 };
        state.counter = counter;
        (state.misses >= MAX_MISSES).then_some(Gone::HealthCounter { counter, misses: state.misses })
    }
}
