//! The card of this process, and the descriptors that stand for it.
//!
//! Every pretend descriptor is a memfd, so that `dup`, `close`, `mmap` and `fcntl` need no help. One is known by
//! its inode: whatever copies of it there are. The card is made when a program first opens its container or
//! group, and lives as long as the process.

use crate::{complain, device::DeviceState};
use mlx5_model::{Model, ModelConfig, config::Drive};
use std::{
    ffi::{CStr, c_int},
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd},
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
};

/// Group of function 0; the next function has the next number.
pub(crate) const FIRST_GROUP: u32 = 5555;

/// What a descriptor stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `/dev/vfio/vfio`.
    Container,
    /// `/dev/vfio/N`, by function.
    Group(usize),
    /// What GROUP_GET_DEVICE_FD gives, by function.
    Device(usize),
}

/// How far the calls that open a device have come.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Groups in the container, a bit each.
    pub(crate) attached: u32,
    /// SET_IOMMU was called.
    pub(crate) iommu: bool,
}

/// The card.
#[derive(Debug)]
pub(crate) struct StandIn {
    pub(crate) model: Model,
    container: OwnedFd,
    groups: Vec<OwnedFd>,
    pub(crate) devices: Vec<DeviceState>,
    /// (device, inode) of every descriptor.
    inodes: Vec<((u64, u64), Kind)>,
    progress: Mutex<Progress>,
}

static CARD: OnceLock<Result<StandIn, String>> = OnceLock::new();

/// The card, if a program has opened it.
pub(crate) fn opened() -> Option<&'static StandIn> {
    CARD.get().and_then(|card| card.as_ref().ok())
}

fn memfd(name: &CStr) -> io::Result<OwnedFd> {
    // SAFETY: the name is a C string; the result is checked.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a fresh descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn inode(fd: RawFd) -> Option<(u64, u64)> {
    // SAFETY: all-zero bytes are a valid stat.
    let mut stat: libc::stat64 = unsafe { std::mem::zeroed() };
    // SAFETY: `stat` is ours to write; any descriptor number may be asked for.
    let result = unsafe { libc::fstat64(fd, &mut stat) };
    (result == 0).then_some((stat.st_dev, stat.st_ino))
}

impl StandIn {
    fn new() -> Result<Self, String> {
        let options = std::env::var("MLX5_MODEL").unwrap_or_default();
        let config: ModelConfig = options.parse().map_err(|error| format!("MLX5_MODEL: {error}"))?;
        if config.drive == Drive::Step {
            return Err("MLX5_MODEL: drive=step needs someone to call step(); use drive=thread".into());
        }
        let n_functions = usize::from(config.ports);
        let model = Model::new(config).map_err(|error| error.to_string())?;
        if let Some(path) = std::env::var_os("MLX5_MODEL_TRACE") {
            let file = File::create(&path).map_err(|error| format!("MLX5_MODEL_TRACE: {error}"))?;
            model.trace().write_to(Box::new(io::LineWriter::new(file)));
        }
        let os = |error: io::Error| error.to_string();
        let container = memfd(c"mlx5-vfio-container").map_err(os)?;
        let mut inodes = Vec::new();
        let mut know = |fd: BorrowedFd<'_>, kind| {
            inodes.extend(inode(fd.as_raw_fd()).map(|inode| (inode, kind)));
        };
        know(container.as_fd(), Kind::Container);
        let (mut groups, mut devices) = (Vec::new(), Vec::new());
        for index in 0..n_functions {
            let group = memfd(c"mlx5-vfio-group").map_err(os)?;
            know(group.as_fd(), Kind::Group(index));
            groups.push(group);
            let function = model.function(index).map_err(|error| error.to_string())?;
            // BAR0 is at offset 0 of the device, so its memfd is the device's descriptor.
            know(function.bar_fd(), Kind::Device(index));
            devices.push(DeviceState::new(function));
        }
        // SAFETY: a function of the right type, which lives as long as this library.
        unsafe { libc::atexit(report) };
        Ok(Self { model, container, groups, devices, inodes, progress: Mutex::default() })
    }

    pub(crate) fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new descriptor that stands for `kind`.
    pub(crate) fn descriptor(&self, kind: Kind) -> Result<RawFd, c_int> {
        let fd = match kind {
            Kind::Container => self.container.as_fd(),
            Kind::Group(index) => self.groups.get(index).ok_or(libc::ENODEV)?.as_fd(),
            Kind::Device(index) => self.devices.get(index).ok_or(libc::ENODEV)?.function.bar_fd(),
        };
        let copy = fd.try_clone_to_owned().map_err(|error| error.raw_os_error().unwrap_or(libc::EMFILE))?;
        Ok(copy.into_raw_fd())
    }
}

/// What `fd` stands for, if it is one of ours.
pub(crate) fn kind(fd: RawFd) -> Option<(&'static StandIn, Kind)> {
    let card = opened()?;
    let inode = inode(fd)?;
    let found = card.inodes.iter().find(|(known, _)| *known == inode);
    found.map(|(_, kind)| (card, *kind))
}

/// What a path names, if it is ours.
pub(crate) fn named(path: &CStr) -> Option<Kind> {
    let name = path.to_str().ok()?.strip_prefix("/dev/vfio/")?;
    if name == "vfio" {
        return Some(Kind::Container);
    }
    let index = name.parse::<u32>().ok()?.checked_sub(FIRST_GROUP)?;
    (index < 2).then_some(Kind::Group(index as usize))
}

/// Opens a path that is ours.
pub(crate) fn open(kind: Kind) -> Result<RawFd, c_int> {
    let card = CARD.get_or_init(|| StandIn::new().inspect_err(|error| complain(error)));
    card.as_ref().map_err(|_| libc::ENODEV)?.descriptor(kind)
}

/// The rules broken, when the process ends.
extern "C" fn report() {
    let Some(card) = opened() else { return };
    let violations = card.model.violations();
    for violation in &violations {
        eprintln!("model: {violation}");
    }
    eprintln!("model: {} violations", violations.len());
    if let Err(error) = card.model.trace().finish() {
        complain(&format!("the trace is not complete: {error}"));
    }
}
