//! `/dev/iommu`: address spaces, to which devices that are opened by a file of their own are attached. There with
//! `iommufd=on`; numbers and errors as in `linux/iommufd.h`.

use crate::{
    Answer,
    card::{self, Kind, StandIn},
    complain, container, descriptor, give, take,
};
use mlx5_model::mem::{DmaMap, IOVA_RANGES, MapError};
use std::{
    collections::BTreeMap,
    ffi::c_int,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    ptr::NonNull,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

const MAP_FIXED_IOVA: u32 = 1;
const MAP_WRITEABLE: u32 = 2;
const MAP_READABLE: u32 = 4;
const PAGE_MASK: u64 = 0xfff;

/// The numbers of its ioctls: `_IO(';', 0x80 + n)`.
pub(crate) mod number {
    pub(crate) const DESTROY: u32 = 0x3b80;
    pub(crate) const IOAS_ALLOC: u32 = 0x3b81;
    pub(crate) const IOAS_IOVA_RANGES: u32 = 0x3b84;
    pub(crate) const IOAS_MAP: u32 = 0x3b85;
    pub(crate) const IOAS_UNMAP: u32 = 0x3b86;
}

/// An opened `/dev/iommu`.
#[derive(Debug)]
pub(crate) struct Iommufd {
    fd: OwnedFd,
    objects: Mutex<Objects>,
}

#[derive(Debug, Default)]
struct Objects {
    last_id: u32,
    spaces: BTreeMap<u32, Space>,
}

/// An address space, and the devices that follow it, by function.
#[derive(Debug, Default)]
struct Space {
    dma: DmaMap,
    devices: Vec<usize>,
}

impl Iommufd {
    pub(crate) fn new() -> Result<Self, c_int> {
        Ok(Self { fd: descriptor::memfd(c"mlx5-iommufd")?, objects: Mutex::default() })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn objects(&self) -> MutexGuard<'_, Objects> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a device go.
    pub(crate) fn forget(&self, device: usize) {
        for space in self.objects().spaces.values_mut() {
            space.devices.retain(|other| *other != device);
        }
    }
}

impl StandIn {
    /// An ioctl of `/dev/iommu`.
    ///
    /// # Safety
    /// `argument` is what the ioctl's definition asks for.
    pub(crate) unsafe fn iommufd_ioctl(&self, iommufd: &Iommufd, request: u32, argument: *mut u8) -> Answer {
        // SAFETY: promised by the caller: the structure's size comes first.
        let size: u32 = unsafe { take(argument) };
        // SAFETY: promised by the caller, for a field of the structure.
        let word = |at: usize| unsafe { take::<u32>(argument.add(at)) };
        // SAFETY: as above.
        let long = |at: usize| unsafe { take::<u64>(argument.add(at)) };
        let least = match request {
            number::DESTROY => 8,
            number::IOAS_ALLOC => 12,
            number::IOAS_IOVA_RANGES => 32,
            number::IOAS_MAP => 40,
            number::IOAS_UNMAP => 24,
            _ => {
                complain(&format!("ioctl 0x{request:x} of /dev/iommu is not done"));
                return Err(libc::ENOTTY);
            }
        };
        if size < least {
            return Err(libc::EINVAL);
        }
        let mut objects = iommufd.objects();
        match request {
            number::DESTROY => {
                let space = objects.spaces.get(&word(4)).ok_or(libc::ENOENT)?;
                if !space.devices.is_empty() {
                    return Err(libc::EBUSY);
                }
                objects.spaces.remove(&word(4));
            }
            number::IOAS_ALLOC => {
                if word(4) != 0 {
                    return Err(libc::EOPNOTSUPP);
                }
                objects.last_id += 1;
                let id = objects.last_id;
                objects.spaces.insert(id, Space::default());
                // SAFETY: promised by the caller.
                unsafe { give(argument.add(8), id) };
            }
            number::IOAS_IOVA_RANGES => {
                objects.spaces.get(&word(4)).ok_or(libc::ENOENT)?;
                let (room, to) = (word(8) as usize, long(16) as usize);
                // SAFETY: promised by the caller: a count, and at the end an alignment.
                unsafe {
                    give(argument.add(8), IOVA_RANGES.len() as u32);
                    give(argument.add(24), 4096_u64);
                }
                let to = std::ptr::with_exposed_provenance_mut::<u64>(to);
                for (at, range) in IOVA_RANGES.iter().take(room).enumerate() {
                    // SAFETY: promised by the caller: room for that many pairs.
                    unsafe {
                        to.add(2 * at).write_unaligned(*range.start());
                        to.add(2 * at + 1).write_unaligned(*range.end());
                    }
                }
                if room < IOVA_RANGES.len() {
                    return Err(libc::EMSGSIZE);
                }
            }
            number::IOAS_MAP => {
                let space = objects.spaces.get(&word(8)).ok_or(libc::ENOENT)?;
                // SAFETY: promised by the caller.
                unsafe { self.ioas_map(space, word(4), long(16), long(24), long(32)) }?;
            }
            _ => {
                let space = objects.spaces.get(&word(4)).ok_or(libc::ENOENT)?;
                let (iova, len_bytes) = (long(8), long(16));
                for device in &space.devices {
                    self.devices[*device].function.dma().unmap(iova, len_bytes).map_err(errno)?;
                }
                let unmapped = space.dma.unmap(iova, len_bytes).map_err(errno)?;
                if unmapped == 0 {
                    return Err(libc::ENOENT);
                }
                // SAFETY: promised by the caller.
                unsafe { give(argument.add(16), unmapped) };
            }
        }
        Ok(0)
    }

    /// # Safety
    /// The memory stays until it is unmapped, as the kernel would see to by itself.
    unsafe fn ioas_map(
        &self,
        space: &Space,
        flags: u32,
        user_va: u64,
        len_bytes: u64,
        iova: u64,
    ) -> Result<(), c_int> {
        if flags & !(MAP_FIXED_IOVA | MAP_WRITEABLE | MAP_READABLE) != 0 || flags & MAP_FIXED_IOVA == 0 {
            complain(&format!(
                "IOMMU_IOAS_MAP: flags 0x{flags:x}; a fixed IOVA, readable and writable, is all that is done"
            ));
            return Err(libc::EOPNOTSUPP);
        }
        if (user_va | len_bytes | iova) & PAGE_MASK != 0 || len_bytes == 0 {
            return Err(libc::EINVAL);
        }
        if self.host.memlock_bytes != u64::MAX
            && space.dma.mapped_bytes() + len_bytes > self.host.memlock_bytes
        {
            return Err(libc::ENOMEM);
        }
        let memory = NonNull::new(user_va as *mut u8).filter(|_| container::is_mapped(user_va, len_bytes));
        let memory = memory.ok_or(libc::EFAULT)?;
        let writable = flags & MAP_WRITEABLE != 0;
        let maps = space.devices.iter().map(|device| self.devices[*device].function.dma());
        for map in [&space.dma].into_iter().chain(maps) {
            // SAFETY: promised by the caller.
            unsafe { map.map(iova, memory, len_bytes, writable) }.map_err(errno)?;
        }
        Ok(())
    }

    /// VFIO_DEVICE_BIND_IOMMUFD.
    ///
    /// # Safety
    /// `argument` is the address of a `vfio_device_bind_iommufd`.
    pub(crate) unsafe fn bind_iommufd(&self, device: usize, argument: *mut u8) -> Answer {
        // SAFETY: promised by the caller.
        let [argsz, flags, fd]: [u32; 3] = std::array::from_fn(|at| unsafe { take(argument.add(4 * at)) });
        if argsz < 16 || flags != 0 {
            return Err(libc::EINVAL);
        }
        let Some((_, Kind::Iommufd(iommufd))) = card::kind(fd.cast_signed()) else {
            return Err(libc::EBADF);
        };
        if !self.host.viable {
            return Err(libc::EBUSY);
        }
        // Opened by the group. Asked before the next lock, which is taken under this one elsewhere.
        let group = if self.host.one_group { 0 } else { device };
        let by_group = self.groups()[group].container.is_some();
        let mut bound = self.devices[device].iommufd();
        if bound.is_some() {
            return Err(libc::EINVAL);
        }
        if by_group {
            return Err(libc::EBUSY);
        }
        self.devices[device].open()?;
        card::schedule_mishaps();
        *bound = Some(iommufd);
        // SAFETY: promised by the caller.
        unsafe { give(argument.add(12), device as u32 + 1) };
        Ok(0)
    }

    /// VFIO_DEVICE_ATTACH_IOMMUFD_PT.
    ///
    /// # Safety
    /// `argument` is the address of a `vfio_device_attach_iommufd_pt`.
    pub(crate) unsafe fn attach_iommufd(&self, device: usize, argument: *mut u8) -> Answer {
        // SAFETY: promised by the caller.
        let [argsz, flags, id]: [u32; 3] = std::array::from_fn(|at| unsafe { take(argument.add(4 * at)) });
        if argsz < 12 || flags != 0 {
            return Err(libc::EINVAL);
        }
        let bound = self.devices[device].iommufd();
        let iommufd: &Arc<Iommufd> = bound.as_ref().ok_or(libc::EINVAL)?;
        let mut objects = iommufd.objects();
        // One group's devices are in one space.
        let others = |space: &Space| space.devices.iter().any(|other| *other != device);
        if self.host.one_group && objects.spaces.iter().any(|(other, space)| *other != id && others(space)) {
            return Err(libc::EINVAL);
        }
        let space = objects.spaces.get_mut(&id).ok_or(libc::ENOENT)?;
        if !space.devices.contains(&device) {
            // SAFETY: the program promised the same for the memory that is mapped in the space.
            unsafe { self.devices[device].function.dma().follow(&space.dma) };
            space.devices.push(device);
        }
        Ok(0)
    }
}

fn errno(error: MapError) -> c_int {
    match error {
        MapError::Exists(_) => libc::EEXIST,
        MapError::Full => libc::ENOSPC,
        MapError::NotMapped => libc::ENOENT,
        _ => libc::EINVAL,
    }
}
