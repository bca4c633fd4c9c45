//! The card of this process, and what its descriptors stand for.
//!
//! The card is made when a program first opens a container or a group, and lives as long as the process.

use crate::{
    complain,
    container::Container,
    descriptor::{self, Inode},
    device::DeviceState,
    group::Group,
    host::{self, Host},
    iommufd::Iommufd,
};
use mlx5_model::{
    Model, ModelConfig,
    fault::{Fault, FaultScript, Mishap},
    preload,
};
use std::{
    collections::HashMap,
    ffi::c_int,
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
    sync::{Arc, Mutex, MutexGuard, Once, OnceLock, PoisonError, RwLock},
    thread,
};

/// What a descriptor stands for.
#[derive(Debug, Clone)]
pub(crate) enum Kind {
    /// An opened `/dev/vfio/vfio`.
    Container(Arc<Container>),
    /// `/dev/vfio/N`, by function.
    Group(usize),
    /// An opened `/dev/iommu`.
    Iommufd(Arc<Iommufd>),
    /// `/proc/self/pagemap`, and `/proc/kpageflags`.
    Pagemap,
    KpageFlags,
    /// What GROUP_GET_DEVICE_FD gives, and an opened `/dev/vfio/devices/vfioN`, by function.
    Device(usize),
}

/// The card.
#[derive(Debug)]
pub(crate) struct StandIn {
    model: Model,
    pub(crate) host: &'static Host,
    pub(crate) devices: Vec<DeviceState>,
    groups: Mutex<Vec<Group>>,
    /// The tables of physical memory.
    physical: [OwnedFd; 2],
    descriptors: RwLock<HashMap<Inode, Kind>>,
}

/// What the environment says of the card.
pub(crate) fn config() -> Result<&'static ModelConfig, &'static str> {
    static CONFIG: OnceLock<Result<ModelConfig, String>> = OnceLock::new();
    CONFIG.get_or_init(preload::config).as_ref().map_err(String::as_str)
}

static CARD: OnceLock<Result<StandIn, String>> = OnceLock::new();

/// The card, if a program has opened it.
pub(crate) fn opened() -> Option<&'static StandIn> {
    CARD.get().and_then(|card| card.as_ref().ok())
}

/// A device was opened: it may be pulled out later, or asked for.
pub(crate) fn schedule_mishaps() {
    static ONCE: Once = Once::new();
    let Some(card) = opened() else { return };
    ONCE.call_once(|| {
        if let Some(after) = card.host.unplug {
            thread::spawn(move || {
                thread::sleep(after);
                card.model.inject(&FaultScript::from(Fault::now(Mishap::Gone)));
            });
        }
        if let Some(after) = card.host.reclaim {
            thread::spawn(move || {
                thread::sleep(after);
                card.devices.iter().for_each(DeviceState::want_back);
            });
        }
    });
}

/// The card, made now if need be.
pub(crate) fn open() -> Result<&'static StandIn, c_int> {
    let card = CARD.get_or_init(|| StandIn::new().inspect_err(|error| complain(error)));
    card.as_ref().map_err(|_| libc::ENODEV)
}

/// What `fd` stands for, if it is one of ours.
pub(crate) fn kind(fd: RawFd) -> Option<(&'static StandIn, Kind)> {
    let card = opened()?;
    let inode = descriptor::inode(fd)?;
    let descriptors = card.descriptors.read().unwrap_or_else(PoisonError::into_inner);
    descriptors.get(&inode).map(|kind| (card, kind.clone()))
}

impl StandIn {
    fn new() -> Result<Self, String> {
        let config = config()?;
        let host = host::host()?;
        let model = preload::card(config.clone())?;
        let (mut groups, mut devices, mut descriptors) = (Vec::new(), Vec::new(), HashMap::new());
        let mut know = |fd: BorrowedFd<'_>, kind| {
            descriptors.extend(descriptor::inode(fd.as_raw_fd()).map(|inode| (inode, kind)));
        };
        for index in 0..usize::from(config.ports) {
            if index == 0 || !host.one_group {
                let group = Group::new().map_err(|errno| io::Error::from_raw_os_error(errno).to_string())?;
                know(group.fd(), Kind::Group(index));
                groups.push(group);
            }
            let function = model.function(index).map_err(|error| error.to_string())?;
            // BAR0 is at offset 0 of the device, so its memfd is the device's descriptor.
            know(function.bar_fd(), Kind::Device(index));
            devices.push(DeviceState::new(function));
        }
        let table =
            |name| descriptor::memfd(name).map_err(|errno| io::Error::from_raw_os_error(errno).to_string());
        let physical = [table(c"mlx5-pagemap")?, table(c"mlx5-kpageflags")?];
        know(physical[0].as_fd(), Kind::Pagemap);
        know(physical[1].as_fd(), Kind::KpageFlags);
        // SAFETY: a function of the right type, which lives as long as this library.
        unsafe { libc::atexit(report) };
        Ok(Self {
            model,
            host,
            devices,
            groups: Mutex::new(groups),
            physical,
            descriptors: RwLock::new(descriptors),
        })
    }

    /// Which container each group is in.
    pub(crate) fn groups(&self) -> MutexGuard<'_, Vec<Group>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The container behind a descriptor.
    pub(crate) fn container(&self, fd: RawFd) -> Option<Arc<Container>> {
        match kind(fd) {
            Some((_, Kind::Container(container))) => Some(container),
            _ => None,
        }
    }

    /// Opens a container, which is a new one each time.
    pub(crate) fn open_container(&self) -> Result<RawFd, c_int> {
        let container = Arc::new(Container::new()?);
        let given = descriptor::give_away(container.fd())?;
        let inode = descriptor::inode(given).ok_or(libc::EBADF)?;
        let mut descriptors = self.descriptors.write().unwrap_or_else(PoisonError::into_inner);
        descriptors.insert(inode, Kind::Container(container));
        Ok(given)
    }

    /// Opens `/dev/iommu`, which is a new one each time.
    pub(crate) fn open_iommufd(&self) -> Result<RawFd, c_int> {
        let iommufd = Arc::new(Iommufd::new()?);
        let given = descriptor::give_away(iommufd.fd())?;
        let inode = descriptor::inode(given).ok_or(libc::EBADF)?;
        let mut descriptors = self.descriptors.write().unwrap_or_else(PoisonError::into_inner);
        descriptors.insert(inode, Kind::Iommufd(iommufd));
        Ok(given)
    }

    /// Opens a device by its own file.
    pub(crate) fn open_cdev(&self, index: usize) -> Result<RawFd, c_int> {
        self.settle();
        let device = self.devices.get(index).ok_or(libc::ENOENT)?;
        if self.host.group_errno != 0 {
            return Err(self.host.group_errno);
        }
        descriptor::give_away(device.function.bar_fd())
    }

    /// Opens a table of physical memory.
    pub(crate) fn open_physical(&self, table: usize) -> Result<RawFd, c_int> {
        descriptor::give_away(self.physical[table].as_fd())
    }

    /// Opens a group, which one program at a time can.
    pub(crate) fn open_group(&self, index: usize) -> Result<RawFd, c_int> {
        self.settle();
        if self.host.group_errno != 0 {
            return Err(self.host.group_errno);
        }
        let groups = self.groups();
        let group = groups.get(index).ok_or(libc::ENOENT)?;
        if descriptor::is_given_away(group.fd()) {
            return Err(libc::EBUSY);
        }
        descriptor::give_away(group.fd())
    }

    /// Sees to what the program has closed: a device that nobody has open is off the bus, a group that nobody has open
    /// leaves its container, and a container that is closed and empty is gone.
    pub(crate) fn settle(&self) {
        let mut groups = self.groups();
        for index in 0..groups.len() {
            let members = self.members(index);
            members.iter().filter(|device| !device.is_given_away()).for_each(DeviceState::close);
            let open = members.iter().any(DeviceState::is_given_away);
            if !open && !descriptor::is_given_away(groups[index].fd()) {
                self.leave(&mut groups, index);
            }
        }
        for (index, device) in self.devices.iter().enumerate() {
            if !device.is_given_away()
                && let Some(iommufd) = device.iommufd().take()
            {
                iommufd.forget(index);
                device.function.dma().clear();
            }
        }
        let mut descriptors = self.descriptors.write().unwrap_or_else(PoisonError::into_inner);
        let is_gone = |_: &Inode, kind: &mut Kind| match kind {
            Kind::Container(container) => {
                !groups.iter().any(|group| group.is_in(container))
                    && !descriptor::is_given_away(container.fd())
            }
            // A device that is bound keeps it.
            Kind::Iommufd(iommufd) => {
                Arc::strong_count(iommufd) == 1 && !descriptor::is_given_away(iommufd.fd())
            }
            _ => false,
        };
        let gone: Vec<_> = descriptors.extract_if(is_gone).collect();
        drop((descriptors, groups));
        // Their descriptors are closed by our own `close`, which looks them up: not under the locks.
        drop(gone);
    }
}

/// The rules broken, when the process ends.
extern "C" fn report() {
    let Some(card) = opened() else { return };
    if let Err(error) = preload::report(&card.model, card.devices.iter().map(|device| &*device.function)) {
        complain(&error);
    }
}
