//! A group: one function, or with `groups=one` all, which it puts into a container.

use crate::{
    Answer, card, card::StandIn, complain, container::Container, descriptor, device::DeviceState, give,
    ioctls::*, sysfs, take,
};
use std::{
    ffi::{CStr, c_char, c_int},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};
use vfio_bindings::bindings::vfio::*;

/// A group.
#[derive(Debug)]
pub(crate) struct Group {
    fd: OwnedFd,
    pub(crate) container: Option<Arc<Container>>,
}

impl Group {
    pub(crate) fn new() -> Result<Self, c_int> {
        Ok(Self { fd: descriptor::memfd(c"mlx5-vfio-group")?, container: None })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(crate) fn is_in(&self, container: &Arc<Container>) -> bool {
        self.container.as_ref().is_some_and(|own| Arc::ptr_eq(own, container))
    }
}

impl StandIn {
    /// An ioctl of `/dev/vfio/N`.
    ///
    /// # Safety
    /// `argument` is what the ioctl's definition asks for.
    pub(crate) unsafe fn group_ioctl(&self, index: usize, request: u32, argument: *mut u8) -> Answer {
        match request {
            GROUP_GET_STATUS => {
                // SAFETY: promised by the caller.
                let mut status: vfio_group_status = unsafe { take(argument) };
                if (status.argsz as usize) < size_of::<vfio_group_status>() {
                    return Err(libc::EINVAL);
                }
                status.flags = if self.host.viable { VFIO_GROUP_FLAGS_VIABLE } else { 0 };
                if self.groups()[index].container.is_some() {
                    status.flags |= VFIO_GROUP_FLAGS_CONTAINER_SET;
                }
                // SAFETY: promised by the caller.
                unsafe { give(argument, status) };
                Ok(0)
            }
            // SAFETY: promised by the caller.
            GROUP_SET_CONTAINER => self.join(index, unsafe { take(argument) }),
            GROUP_UNSET_CONTAINER => {
                let mut groups = self.groups();
                if groups[index].container.is_none() {
                    return Err(libc::EINVAL);
                }
                if self.members(index).iter().any(DeviceState::is_given_away) {
                    return Err(libc::EBUSY);
                }
                self.leave(&mut groups, index);
                Ok(0)
            }
            // SAFETY: promised by the caller: a C string.
            GROUP_GET_DEVICE_FD => {
                // SAFETY: promised by the caller: a C string.
                let name = unsafe { CStr::from_ptr(argument.cast::<c_char>()) };
                self.open_device(index, name)
            }
            _ => {
                complain(&format!("ioctl 0x{request:x} of a VFIO group is not done"));
                Err(libc::ENOTTY)
            }
        }
    }

    fn join(&self, index: usize, container: c_int) -> Answer {
        let container = match descriptor::inode(container) {
            None => return Err(libc::EBADF),
            Some(_) => self.container(container).ok_or(libc::EINVAL)?,
        };
        let mut groups = self.groups();
        if groups[index].container.is_some() || !self.host.viable {
            return Err(libc::EINVAL);
        }
        for device in self.members(index) {
            // SAFETY: the program promised the same for the memory that is mapped in the container.
            unsafe { device.function.dma().follow(&container.dma) };
        }
        groups[index].container = Some(container);
        Ok(0)
    }

    /// Takes a group out of its container, and its function away from the memory there. An empty container has no
    /// IOMMU.
    pub(crate) fn leave(&self, groups: &mut [Group], index: usize) {
        let Some(container) = groups[index].container.take() else { return };
        for device in self.members(index) {
            device.function.dma().clear();
        }
        if !groups.iter().any(|group| group.is_in(&container)) {
            container.reset();
        }
    }

    /// The devices of a group.
    pub(crate) fn members(&self, group: usize) -> &[DeviceState] {
        if self.host.one_group { &self.devices } else { std::slice::from_ref(&self.devices[group]) }
    }

    fn open_device(&self, group: usize, name: &CStr) -> Answer {
        let groups = self.groups();
        if !groups[group].container.as_ref().is_some_and(|container| container.has_iommu()) {
            complain("VFIO_GROUP_GET_DEVICE_FD: GROUP_SET_CONTAINER and SET_IOMMU come first");
            return Err(libc::EINVAL);
        }
        let first = if self.host.one_group { 0 } else { group };
        let named = (first..).zip(self.members(group));
        let Some((_, device)) =
            { named }.find(|(index, _)| name.to_bytes() == sysfs::address(*index).as_bytes())
        else {
            complain(&format!(
                "VFIO_GROUP_GET_DEVICE_FD: {name:?}; the device here is {}",
                sysfs::address(first)
            ));
            return Err(libc::ENODEV);
        };
        // A second descriptor of an open device is the same device.
        if !device.is_given_away() {
            device.open()?;
            card::schedule_mishaps();
        }
        descriptor::give_away(device.function.bar_fd())
    }
}
