//! One card: its functions, its clock, its engine.
#![forbid(unsafe_code)]

mod bell;
mod card;

pub(crate) use card::Card;

use crate::{
    config::{Bar, ConfigError, Drive, ModelConfig},
    fault::FaultScript,
    pci::ModelFunction,
    strict::Violation,
    trace::Trace,
    wire::{Uplink, UplinkAddress, UplinkCounters},
};
use std::{
    fmt, io,
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

/// Why a card was not made, or a function not found.
#[derive(Debug)]
pub enum ModelError {
    /// The description is wrong.
    Config(ConfigError),
    /// The operating system refused what the card needs.
    Os {
        /// What was asked of it.
        what: &'static str,
        /// Its answer.
        source: io::Error,
    },
    /// The wire to other processes could not be opened.
    Wire {
        /// Which, as its option has it.
        address: String,
        /// The operating system's answer.
        source: io::Error,
    },
    /// The card has fewer functions.
    NoSuchFunction {
        /// The number asked for, from 0.
        asked: usize,
        /// The card's functions.
        n_functions: usize,
    },
}

impl fmt::Display for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::Os { what, source } => write!(f, "the model could not {what}: {source}"),
            Self::Wire { address, source } => {
                write!(
                    f,
                    "the model could not open `wire={address}`: {source}; its first end must be free and local"
                )
            }
            Self::NoSuchFunction { asked, n_functions } => write!(
                f,
                "the model has no function {asked}: it has {n_functions}, counted from 0; ask for more with ports="
            ),
        }
    }
}

impl std::error::Error for ModelError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Os { source, .. } | Self::Wire { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// The engine thread; ends with the last owner of the card.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) card: Arc<Card>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.card.stop();
        if let Some(thread) = self.thread.take() {
            // A panic of the engine has been printed by its thread; there is nobody to give it to.
            let _ = thread.join();
        }
        self.card.linger();
        let done = self.card.faults.done();
        if thread::panicking() && !done.is_empty() {
            // A test that fails: with these it fails again.
            eprintln!("model: faults that happened:\n{done}");
        }
    }
}

/// A software ConnectX with one or two ports, each one PCI function.
///
/// The card lives until the last `Model`, clone of it or [`ModelFunction`] is dropped.
#[derive(Debug, Clone)]
pub struct Model {
    engine: Arc<Engine>,
    functions: Vec<Arc<ModelFunction>>,
}

impl Model {
    /// Makes a card.
    ///
    /// # Errors
    /// Trapped BARs on another machine than x86-64; no memory for a BAR; no thread.
    pub fn new(config: ModelConfig) -> Result<Self, ModelError> {
        if config.bar == Bar::Trapped && !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
            let what = "model option `bar=trapped` needs Linux on x86-64; use bar=sparse";
            return Err(ModelError::Config(ConfigError::Unsupported(what)));
        }
        if config.ports > 1 && matches!(config.wire, Some(UplinkAddress::Roce { .. })) {
            let what = "model option `wire=roce:` needs ports=1: the host's RoCE has no MAC to tell ports by; use wire=udp:";
            return Err(ModelError::Config(ConfigError::Unsupported(what)));
        }
        let os = |what| move |source| ModelError::Os { what, source };
        let card = Arc::new(Card::new(config)?);
        let thread = match card.config.drive {
            Drive::Step => None,
            Drive::Thread | Drive::Store => {
                let card = Arc::clone(&card);
                let builder = thread::Builder::new().name("mlx5-model".into());
                Some(builder.spawn(move || card.engine()).map_err(os("start its engine thread"))?)
            }
        };
        let engine = Arc::new(Engine { card, thread });
        let functions = (0..usize::from(engine.card.config.ports))
            .map(|index| Arc::new(ModelFunction::new(Arc::clone(&engine), index)))
            .collect();
        Ok(Self { engine, functions })
    }

    fn card(&self) -> &Card {
        &self.engine.card
    }

    /// The card's description.
    pub fn config(&self) -> &ModelConfig {
        &self.card().config
    }

    /// PCI function `index`, from 0.
    ///
    /// # Errors
    /// [`ModelError::NoSuchFunction`].
    pub fn function(&self, index: usize) -> Result<Arc<ModelFunction>, ModelError> {
        let n_functions = self.functions.len();
        self.functions.get(index).cloned().ok_or(ModelError::NoSuchFunction { asked: index, n_functions })
    }

    /// Does what there is to do now: doorbells, commands, WQEs, packets, timers that are due. Returns whether
    /// anything was done. With an engine thread, does nothing.
    pub fn step(&self) -> bool {
        self.card().config.drive == Drive::Step && self.card().round()
    }

    /// Lets virtual time pass: everything that comes due on the way is done in order. With an engine thread,
    /// sleeps.
    pub fn advance(&self, time: Duration) {
        match self.card().config.drive {
            Drive::Step => self.card().advance(time),
            Drive::Thread | Drive::Store => thread::sleep(time),
        }
    }

    /// Time since the card was made, by the card's clock.
    pub fn now(&self) -> Duration {
        self.card().clock.now()
    }

    /// The rules broken so far, oldest first.
    pub fn violations(&self) -> Vec<Violation> {
        self.card().lock().violations.clone()
    }

    /// Takes the rules broken so far.
    pub fn take_violations(&self) -> Vec<Violation> {
        std::mem::take(&mut self.card().lock().violations)
    }

    /// Ends a test.
    ///
    /// # Panics
    /// If a rule was broken; the message has all of them.
    pub fn assert_clean(&self) {
        let violations = self.violations();
        let lines: Vec<_> = violations.iter().map(ToString::to_string).collect();
        let n = lines.len();
        assert!(
            violations.is_empty(),
            "model: {n} violations\n{}\nfaults:\n{}",
            lines.join("\n"),
            self.faults_done()
        );
    }

    /// What has passed the wire to other processes; `None` without one.
    pub fn uplink_counters(&self) -> Option<UplinkCounters> {
        self.card().lock().uplink.as_ref().map(Uplink::counters)
    }

    /// The card's trace.
    pub fn trace(&self) -> Trace {
        self.card().trace.clone()
    }

    /// Lets these faults happen, beside those that may already. Their counts and times begin now; what is due now happens
    /// before this returns.
    pub fn inject(&self, script: &FaultScript) {
        self.card().inject(script);
    }

    /// Lets no more faults happen. What happened stays.
    pub fn clear_faults(&self) {
        self.card().faults.clear();
    }

    /// The faults that happened, oldest first, each exactly: given to a card that does the same work, they happen again.
    pub fn faults_done(&self) -> FaultScript {
        self.card().faults.done()
    }

    /// Plugs or pulls the cable of port `index` (counted from 0, one per function).
    pub fn set_port(&self, index: usize, up: bool) {
        self.card().with_function(index, |function| function.set_link(up));
    }

    /// Gives the next queue pair the lowest number that is free, though another had it just before, as a card may.
    pub fn restart_qp_numbers(&self, index: usize) {
        self.card().with_function(index, crate::fw::Function::restart_qp_numbers);
    }
}
