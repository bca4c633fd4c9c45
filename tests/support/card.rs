//! The card under test, and how it is reached.

use super::*;
use mlx5_direct::{
    backend::{
        Control,
        pci::{PciFunction, VfioApi, VfioFunction, VfioOptions, VfioUserFunction},
        prm::{OpenOptions, PrmControl},
        verbs::VerbsControl,
    },
    device::DeviceName,
    host::PciAddress,
};
use mlx5_model::{Bar, Model, Rule, config::Drive};
use mlx5_vfio_user::Service;
use std::sync::{
    LazyLock,
    atomic::{AtomicU32, Ordering},
};

/// How tests reach a card. Unset: a software card in this process, without detour. `vfio-user`: the same card through a
/// socket, if it runs by itself. Otherwise one or two devices by name, as in `vfio:0000:01:00.0,vfio:0000:01:00.1`: there
/// tests run one at a time (`--test-threads=1`), since a function has one owner.
const BACKEND: &str = "MLX5_TEST_BACKEND";

/// A card, which is this process's, or one that is there. Clones are the same card.
#[derive(Clone)]
pub struct Card {
    reach: Reach,
    n_functions: usize,
}

#[derive(Clone)]
enum Reach {
    /// The software card, and whether a socket is between.
    Model { model: Model, served: bool },
    /// Functions that are there. One alone is both ends of a connection, and is opened once.
    Named { names: Vec<DeviceName>, only: Arc<OnceLock<Context>> },
}

/// A card, from the text of its options. One that is there has the number of functions that it has, and nothing else
/// that could be chosen.
///
/// # Panics
/// It cannot be made, or is there and is another: a test says so before, by [`needs`].
pub fn card(options: &str) -> Card {
    let reach = match named() {
        Some(names) => {
            assert_eq!(cannot_be(options), None);
            Reach::Named { names, only: Arc::default() }
        }
        None => {
            let model = Model::new(options.parse().expect("model options")).expect("a model");
            let config = model.config();
            // Who steps a card, or wants its stores to fault, is in its process.
            let may_be_served = config.drive == Drive::Thread && config.bar != Bar::Trapped;
            Reach::Model { served: may_be_served && backend() == "vfio-user", model }
        }
    };
    let has_two = options.split(',').any(|option| option == "ports=2");
    Card { reach, n_functions: 1 + usize::from(has_two) }
}

fn backend() -> String {
    std::env::var(BACKEND).unwrap_or_default()
}

/// The devices that the environment names.
fn named() -> Option<Vec<DeviceName>> {
    let backend = backend();
    let names =
        backend.split(',').map(|name| name.parse().unwrap_or_else(|error| panic!("{BACKEND}: {error}")));
    (!["", "vfio-user"].contains(&&*backend)).then(|| names.collect())
}

/// Opens function `index` of a card.
pub fn open(card: &Card, index: usize) -> Context {
    match &card.reach {
        Reach::Named { names, only } if names.len() == 1 => {
            only.get_or_init(|| Context::on(card.control(index))).clone()
        }
        _ => Context::on(card.control(index)),
    }
}

impl Card {
    /// Function `index`, of a test that has said that it needs [`Need::Prm`].
    pub fn function(&self, index: usize) -> Arc<dyn PciFunction> {
        let name = match &self.reach {
            Reach::Model { model, served: true } => return served(model, index),
            Reach::Model { model, .. } => return model.function(index).expect("function"),
            Reach::Named { names, .. } => &names[index.min(names.len() - 1)],
        };
        match name {
            DeviceName::Vfio(address) => vfio(*address, VfioApi::Auto),
            DeviceName::VfioNoIommu(address) => vfio(*address, VfioApi::NoIommu),
            DeviceName::VfioUser(path) => VfioUserFunction::connect(path).expect("connect"),
            _ => panic!("the PCI function of {name} is the kernel's: needs!(Need::Prm)"),
        }
    }

    /// The control path of function `index`.
    pub fn control(&self, index: usize) -> Arc<dyn Control> {
        if let Reach::Named { names, .. } = &self.reach
            && let DeviceName::Verbs(name) = &names[index.min(names.len() - 1)]
        {
            return VerbsControl::open(name).unwrap_or_else(|error| panic!("{error}"));
        }
        let control = PrmControl::open(self.function(index), &OpenOptions::default());
        control.unwrap_or_else(|error| panic!("{error}"))
    }

    /// The software card, of a test that has said that it needs it.
    pub fn model(&self) -> &Model {
        match &self.reach {
            Reach::Model { model, .. } => model,
            Reach::Named { .. } => {
                panic!("a card that is there has no faults and tells nothing: needs!(Need::Model)")
            }
        }
    }

    /// How many functions were asked for.
    pub fn n_functions(&self) -> usize {
        self.n_functions
    }

    /// Whether objects are the kernel's, by its verbs.
    pub fn is_verbs(&self) -> bool {
        matches!(&self.reach, Reach::Named { names, .. } if matches!(names[0], DeviceName::Verbs(_)))
    }

    /// Does a step of a card that does none by itself: whether there was one to do.
    pub fn step(&self) -> bool {
        match &self.reach {
            Reach::Model { model, .. } => model.step(),
            Reach::Named { .. } => false,
        }
    }

    /// Lets time pass on a card that is stepped. On others it passes by itself.
    pub fn advance(&self, by: Duration) {
        if let Reach::Model { model, .. } = &self.reach {
            model.advance(by);
        }
    }

    /// What function 0 has mapped for DMA, if the card tells.
    pub fn n_dma_mappings(&self) -> Option<usize> {
        match &self.reach {
            Reach::Model { model, .. } => Some(model.function(0).expect("function").dma().n_mappings()),
            Reach::Named { .. } => None,
        }
    }

    /// The next queue pair has the number of the first, on a card whose numbers can be chosen: whether it has.
    pub fn restart_qp_numbers(&self, index: usize) -> bool {
        match &self.reach {
            Reach::Model { model, .. } => {
                model.restart_qp_numbers(index);
                true
            }
            Reach::Named { .. } => false,
        }
    }

    /// Whether it does nothing by itself, so that time is exact.
    pub fn is_stepped(&self) -> bool {
        matches!(&self.reach, Reach::Model { model, .. } if model.config().drive == Drive::Step)
    }

    /// What its clock says, or this computer's for a card that is there.
    pub fn now(&self) -> Duration {
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        match &self.reach {
            Reach::Model { model, .. } => model.now(),
            Reach::Named { .. } => START.elapsed(),
        }
    }

    /// Lets so much time pass on it.
    pub fn pass(&self, time: Duration) {
        match &self.reach {
            Reach::Model { model, .. } => model.advance(time),
            Reach::Named { .. } => std::thread::sleep(time),
        }
    }

    /// Checks that this rule was broken, and no other. A card that is there does not tell.
    pub fn assert_broken(&self, rule: Rule) {
        if let Reach::Model { model, .. } = &self.reach {
            let broken = model.take_violations();
            assert!(!broken.is_empty() && broken.iter().all(|broken| broken.rule == rule), "{broken:?}");
        }
    }

    /// Checks that no rule was broken. A card that is there does not tell; of a guest's, its host does.
    pub fn assert_clean(&self) {
        if let Reach::Model { model, .. } = &self.reach {
            model.assert_clean();
        }
    }
}

fn vfio(address: PciAddress, api: VfioApi) -> Arc<dyn PciFunction> {
    let function = VfioFunction::open(address, &VfioOptions { api, ..VfioOptions::default() });
    function.unwrap_or_else(|error| panic!("{error}"))
}

/// Function `index` of a card, as a client of a vfio-user socket sees it.
pub fn served(model: &Model, index: usize) -> Arc<VfioUserFunction> {
    static N: AtomicU32 = AtomicU32::new(0);
    let n = N.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("mlx5-test-{}-{n}", std::process::id()));
    let service = Service::bind(&path, model, index).expect("socket");
    std::thread::spawn(move || service.serve(&mut |line| panic!("{line}")));
    VfioUserFunction::connect(&path).expect("connect")
}

/// What some tests need, and not every way to a card gives.
#[derive(Clone, Copy)]
pub enum Need {
    /// The software card in this process: its faults, its counters, its records.
    Model,
    /// A card of these options.
    Options(&'static str),
    /// A function that this driver brings up by its own commands: its registers, ports and addresses are ours.
    Prm,
    /// So many functions.
    Functions(usize),
    /// So much free memory.
    MemoryMib(u64),
}

impl Need {
    /// Why it cannot be had here, if so.
    fn lack(self) -> Option<String> {
        match (self, &named()) {
            (Self::MemoryMib(mib), _) => {
                let free = available_mib();
                (free < mib).then(|| format!("{mib} MiB of memory are needed, and {free} are free"))
            }
            (_, None) => None,
            (Self::Model, _) => Some(format!("{} has no faults and tells nothing of itself", backend())),
            (Self::Options(options), _) => cannot_be(options),
            (Self::Prm, Some(names)) => matches!(names[0], DeviceName::Verbs(_)).then(|| {
                format!("registers, ports, addresses and rights of {} are the kernel's to give", backend())
            }),
            (Self::Functions(n), Some(names)) => {
                (names.len() < n).then(|| format!("{n} functions are needed, and {} are named", names.len()))
            }
        }
    }
}

/// Why the card is not of these options, if it is there and so cannot be.
fn cannot_be(options: &str) -> Option<String> {
    named()?;
    let fixed: Vec<_> = options.split(',').filter(|option| !option.starts_with("ports=")).collect();
    (!fixed.is_empty()).then(|| format!("{} is what it is: not {}", backend(), fixed.join(",")))
}

/// Memory that this computer has to give.
fn available_mib() -> u64 {
    let info = std::fs::read_to_string("/proc/meminfo").expect("meminfo");
    let line = info.lines().find_map(|line| line.strip_prefix("MemAvailable:")).expect("MemAvailable");
    line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).expect("KiB") / 1024
}

/// Of these makes of a card those that there can be, one at least.
pub fn makes(all: &'static [&'static str]) -> impl Iterator<Item = &'static str> {
    let mut possible = all.iter().copied().filter(|options| cannot_be(options).is_none()).peekable();
    assert!(possible.peek().is_some(), "none of {all:?} on {}: needs!(Need::Options(…))", backend());
    possible
}

/// Two functions of a card that does nothing by itself, if there can be one: time is exact there.
pub fn stepped() -> &'static str {
    makes(&["ports=2,drive=step", "ports=2"]).next().expect("one at least")
}

/// Says that a test is skipped, and why, if something that it needs is not to be had.
pub fn is_skipped(test: &str, needs: &[Need]) -> bool {
    let lack = needs.iter().find_map(|need| need.lack());
    if let Some(lack) = &lack {
        let test = test.trim_end_matches("::here").rsplit("::").next().unwrap_or(test);
        println!("skipped: {test}: {lack}");
    }
    lack.is_some()
}

/// `needs!(Need::Model)`, first in a test: without it the test is skipped, and says so in a line that begins with
/// `skipped:`, for those who count.
#[allow(unused_macros)] // by files of tests that every card passes
macro_rules! needs {
    ($($need:expr),+ $(,)?) => {{
        fn here() {}
        if $crate::support::is_skipped(std::any::type_name_of_val(&here), &[$($need),+]) {
            return;
        }
    }};
}
pub(crate) use needs;
