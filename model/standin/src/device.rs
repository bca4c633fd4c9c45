//! The device: its ioctls, and its registers and config space as read, written and mapped through the descriptor.

use crate::{Answer, complain, descriptor, give, ioctls::*, iommufd::Iommufd, irqs, irqs::Vectors, take};
use mlx5_direct::{backend::pci::PciFunction, mlx5::pci::PciCommand};
use mlx5_model::{ModelFunction, pci::plain_pages, preload::Mappings};
use std::{
    ffi::c_int,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};
use vfio_bindings::bindings::vfio::*;

/// Where region `index` begins in the descriptor: as the kernel places them, so that BAR0 is at 0.
const REGION_SHIFT: u32 = 40;
/// Bytes of config space.
const CONFIG_LEN_BYTES: u64 = 4096;
/// Bytes of `vfio_device_info` up to `num_irqs`, which every version has.
const DEVICE_INFO_LEAST_BYTES: u32 = 16;
/// How long another driver has a function that was given back.
const BETWEEN: Duration = Duration::from_millis(50);

/// What the program has mapped of all functions.
pub(crate) static MAPPINGS: Mappings = Mappings::new();

/// One function as a device.
#[derive(Debug)]
pub(crate) struct DeviceState {
    pub(crate) function: Arc<ModelFunction>,
    pub(crate) vectors: Vectors,
    is_open: AtomicBool,
    /// Somebody unbinds it, and holds its lock until it is closed: nobody resets it meanwhile.
    wanted_back: AtomicBool,
    /// It was closed like that, and goes to its next driver as it was left.
    left_as_is: AtomicBool,
    /// What it is bound to if it was opened by its own file.
    iommufd: Mutex<Option<Arc<Iommufd>>>,
}

fn region_len_bytes(function: &ModelFunction, index: u32) -> u64 {
    match index {
        VFIO_PCI_BAR0_REGION_INDEX => function.bar_size_bytes(),
        VFIO_PCI_CONFIG_REGION_INDEX => CONFIG_LEN_BYTES,
        _ => 0,
    }
}

impl DeviceState {
    pub(crate) fn new(function: Arc<ModelFunction>) -> Self {
        Self {
            function,
            vectors: Vectors::default(),
            is_open: AtomicBool::new(false),
            wanted_back: AtomicBool::new(false),
            left_as_is: AtomicBool::new(false),
            iommufd: Mutex::default(),
        }
    }

    /// A device is reset when it is opened, and its registers answer: the kernel has turned memory on, and left bus
    /// mastering to the program. rdma-core's provider writes registers before the command register.
    pub(crate) fn open(&self) -> Result<(), c_int> {
        self.is_open.store(true, Ordering::Relaxed);
        let memory = PciCommand::new().with_memory(true);
        let set = |command: PciCommand| {
            self.function.config_write(PciCommand::OFFSET, &command.into_bits().to_le_bytes())
        };
        if self.left_as_is.swap(false, Ordering::Relaxed) {
            // Another driver had it in between, which lets it write without a reset, as mlx5_core does.
            let _ = set(memory.with_bus_master(true));
            thread::sleep(BETWEEN);
        }
        let ready = self.function.reset().and_then(|()| set(memory));
        ready.map_err(|error| descriptor::errno_of(&error))
    }

    /// Somebody unbinds it.
    pub(crate) fn want_back(&self) {
        self.wanted_back.store(true, Ordering::Relaxed);
        self.vectors.request_release();
    }

    fn has_left(&self) -> bool {
        let mut vendor = [0; 2];
        self.function.config_read(0, &mut vendor).is_err() || vendor == [0xff; 2]
    }

    fn reset(&self) -> Result<(), c_int> {
        if self.wanted_back.load(Ordering::Relaxed) {
            return Err(libc::EAGAIN);
        }
        self.function.reset().map_err(|error| descriptor::errno_of(&error))
    }

    /// What it is bound to.
    pub(crate) fn iommufd(&self) -> MutexGuard<'_, Option<Arc<Iommufd>>> {
        self.iommufd.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the program has a descriptor of it.
    pub(crate) fn is_given_away(&self) -> bool {
        descriptor::is_given_away(self.function.bar_fd())
    }

    /// The last descriptor is closed: off the bus, so that nothing reaches for memory that goes, and reset if that can be.
    pub(crate) fn close(&self) {
        if self.is_open.swap(false, Ordering::Relaxed) {
            // None of it can fail: the register is there.
            let _ = self.function.config_write(PciCommand::OFFSET, &[0, 0]);
            let was_reset = self.reset().is_ok();
            self.left_as_is.store(!was_reset, Ordering::Relaxed);
            self.wanted_back.store(false, Ordering::Relaxed);
            self.vectors.disable(&self.function);
        }
    }

    /// An ioctl of the device.
    ///
    /// # Safety
    /// `argument` is what the ioctl's definition asks for.
    pub(crate) unsafe fn ioctl(&self, request: u32, argument: *mut u8) -> Answer {
        match request {
            DEVICE_GET_INFO => {
                // SAFETY: promised by the caller.
                let argsz: u32 = unsafe { take(argument) };
                if argsz < DEVICE_INFO_LEAST_BYTES {
                    return Err(libc::EINVAL);
                }
                let flags = VFIO_DEVICE_FLAGS_PCI | VFIO_DEVICE_FLAGS_RESET;
                let head = [argsz, flags, VFIO_PCI_NUM_REGIONS, VFIO_PCI_NUM_IRQS];
                for (at, word) in head.into_iter().enumerate() {
                    // SAFETY: inside the first 16 bytes.
                    unsafe { give(argument.add(at * 4), word) };
                }
                Ok(0)
            }
            // SAFETY: promised by the caller.
            DEVICE_GET_REGION_INFO => unsafe { self.region_info(argument) },
            // SAFETY: promised by the caller.
            DEVICE_GET_IRQ_INFO => unsafe { irqs::info(&self.function, argument) },
            // SAFETY: promised by the caller.
            DEVICE_SET_IRQS => unsafe { self.vectors.set(&self.function, argument) },
            DEVICE_RESET if self.has_left() => {
                complain("a reset of a function that has left the bus: the kernel waits a minute for it");
                Err(libc::ENOTTY)
            }
            DEVICE_RESET => self.reset().map(|()| 0),
            // A function alone in its group has its own reset, and no migration or low-power features: what
            // the kernel says of such a device.
            DEVICE_GET_PCI_HOT_RESET_INFO => Err(libc::ENODEV),
            DEVICE_FEATURE => Err(libc::ENOTTY),
            _ => {
                complain(&format!("ioctl 0x{request:x} of the device is not done"));
                Err(libc::ENOTTY)
            }
        }
    }

    /// UAR pages may be mapped, all or but for the first or none, as `bar=` says. The registers before them, with the
    /// MSI-X table, may not: a store to those is an event. rdma-core maps BAR0 without asking.
    ///
    /// # Safety
    /// `argument` is the address of a `vfio_region_info` with room for `argsz` bytes.
    unsafe fn region_info(&self, argument: *mut u8) -> Answer {
        const HEAD_BYTES: u32 = size_of::<vfio_region_info>() as u32;
        // A capability header, the number of areas padded to 64 bits, and one area.
        const WITH_AREA_BYTES: u32 = HEAD_BYTES + 16 + size_of::<vfio_region_sparse_mmap_area>() as u32;
        // SAFETY: promised by the caller.
        let mut info: vfio_region_info = unsafe { take(argument) };
        if info.argsz < HEAD_BYTES || info.index >= VFIO_PCI_NUM_REGIONS {
            return Err(libc::EINVAL);
        }
        if info.index == VFIO_PCI_VGA_REGION_INDEX {
            // As the kernel, of a device that is no display.
            return Err(libc::EINVAL);
        }
        let room = info.argsz;
        let plain = plain_pages(self.function.bar());
        let mappable = info.index == VFIO_PCI_BAR0_REGION_INDEX && !plain.is_empty();
        info.size = region_len_bytes(&self.function, info.index);
        info.offset = u64::from(info.index) << REGION_SHIFT;
        info.flags =
            if info.size == 0 { 0 } else { VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE };
        (info.argsz, info.cap_offset) = (HEAD_BYTES, 0);
        if mappable {
            info.flags |= VFIO_REGION_INFO_FLAG_MMAP | VFIO_REGION_INFO_FLAG_CAPS;
            info.argsz = WITH_AREA_BYTES;
        }
        if mappable && room >= WITH_AREA_BYTES {
            info.cap_offset = HEAD_BYTES;
            let header = VFIO_REGION_INFO_CAP_SPARSE_MMAP | 1 << 16; // version 1, no next
            let capability = [header, 0, 1, 0].map(u32::to_ne_bytes);
            let area = [plain.start, plain.end - plain.start].map(u64::to_ne_bytes);
            // SAFETY: the caller's room is `argsz` bytes, which hold the head and this.
            unsafe {
                let at = argument.add(HEAD_BYTES as usize);
                at.cast::<[[u8; 4]; 4]>().write_unaligned(capability);
                at.add(16).cast::<[[u8; 8]; 2]>().write_unaligned(area);
            }
        }
        // SAFETY: promised by the caller.
        unsafe { give(argument, info) };
        Ok(0)
    }

    /// The region and the offset in it, if all `len_bytes` are inside.
    fn place(&self, offset: i64, len_bytes: usize) -> Result<(u32, u64), c_int> {
        let offset = u64::try_from(offset).map_err(|_| libc::EINVAL)?;
        let (region, at) = ((offset >> REGION_SHIFT) as u32, offset & ((1 << REGION_SHIFT) - 1));
        let inside = at + len_bytes as u64 <= region_len_bytes(&self.function, region);
        if inside { Ok((region, at)) } else { Err(libc::EINVAL) }
    }

    /// Reads registers or config space.
    pub(crate) fn read(&self, into: &mut [u8], offset: i64) -> Result<usize, c_int> {
        match self.place(offset, into.len())? {
            (VFIO_PCI_BAR0_REGION_INDEX, at) => self.function.bar_read(at, into),
            (_, at) => self.function.config_read(at as u16, into).map_err(|_| libc::EIO)?,
        }
        Ok(into.len())
    }

    /// Writes registers or config space.
    pub(crate) fn write(&self, from: &[u8], offset: i64) -> Result<usize, c_int> {
        match self.place(offset, from.len())? {
            (VFIO_PCI_BAR0_REGION_INDEX, at) => self.function.bar_write(at, from),
            (_, at) => self.function.config_write(at as u16, from).map_err(|_| libc::EIO)?,
        }
        Ok(from.len())
    }

    /// What may be mapped: pages of BAR0, shared.
    pub(crate) fn may_map(&self, offset: i64, len_bytes: usize, flags: c_int) -> Result<(), c_int> {
        match self.place(offset, len_bytes)? {
            (VFIO_PCI_BAR0_REGION_INDEX, _) if flags & libc::MAP_SHARED != 0 => Ok(()),
            _ => Err(libc::EINVAL),
        }
    }

    /// A program has mapped part of BAR0: its doorbells come unseen, or by faults, from now on.
    ///
    /// # Safety
    /// `len_bytes` at `base` are that mapping, and may be written.
    pub(crate) unsafe fn mapped(&self, base: *mut u8, len_bytes: usize, offset: u64) -> Result<(), c_int> {
        // SAFETY: promised by the caller; `munmap` tells of it first.
        let mapped = unsafe { MAPPINGS.mapped(&self.function, base, len_bytes, offset) };
        mapped.map_err(|error| descriptor::errno_of(&error))
    }
}
