//! The device: its ioctls, and its registers and config space as read and written through the descriptor.

use crate::{Answer, complain, container::number, give, take};
use mlx5_direct::backend::pci::PciFunction;
use mlx5_model::ModelFunction;
use std::{
    ffi::c_int,
    os::fd::BorrowedFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};
use vfio_bindings::bindings::vfio::*;

const GET_INFO: u32 = number(7);
const GET_REGION_INFO: u32 = number(8);
const GET_IRQ_INFO: u32 = number(9);
const SET_IRQS: u32 = number(10);
const RESET: u32 = number(11);
const GET_PCI_HOT_RESET_INFO: u32 = number(12);
const FEATURE: u32 = number(17);

/// Where region `index` begins in the descriptor: as the kernel places them, so that BAR0 is at 0.
const REGION_SHIFT: u32 = 40;
/// Bytes of config space.
const CONFIG_LEN_BYTES: u64 = 4096;
/// Bytes of the head of `vfio_irq_set`.
const IRQ_SET_HEAD_BYTES: usize = 20;

/// One function as a device.
#[derive(Debug)]
pub(crate) struct DeviceState {
    pub(crate) function: Arc<ModelFunction>,
    watched: AtomicBool,
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
        Self { function, watched: AtomicBool::new(false) }
    }

    pub(crate) fn open(&self) -> Result<(), c_int> {
        self.function.reset().map_err(|_| libc::EIO)
    }

    /// A program maps BAR0: its doorbells come unseen from now on.
    pub(crate) fn mapped(&self) {
        if !self.watched.swap(true, Ordering::Relaxed) {
            self.function.watch_bar();
        }
    }

    /// An ioctl of the device.
    ///
    /// # Safety
    /// `argument` is what the ioctl's definition asks for.
    pub(crate) unsafe fn ioctl(&self, request: u32, argument: *mut u8) -> Answer {
        match request {
            GET_INFO => {
                // SAFETY: promised by the caller; all versions of the structure begin with these 16 bytes.
                let argsz: u32 = unsafe { take(argument) };
                if argsz < 16 {
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
            GET_REGION_INFO => unsafe { self.region_info(argument) },
            // SAFETY: promised by the caller.
            GET_IRQ_INFO => unsafe { self.irq_info(argument) },
            // SAFETY: promised by the caller.
            SET_IRQS => unsafe { self.set_irqs(argument) },
            RESET => self.function.reset().map(|()| 0).map_err(|_| libc::EIO),
            // A function alone in its slot has its own reset, and no migration or low-power features: what
            // the kernel says of such a device.
            GET_PCI_HOT_RESET_INFO => Err(libc::ENODEV),
            FEATURE => Err(libc::ENOTTY),
            _ => {
                complain(&format!("ioctl 0x{request:x} of the device is not done"));
                Err(libc::ENOTTY)
            }
        }
    }

    /// # Safety
    /// `argument` is the address of a `vfio_region_info`.
    unsafe fn region_info(&self, argument: *mut u8) -> Answer {
        // SAFETY: promised by the caller.
        let mut info: vfio_region_info = unsafe { take(argument) };
        if info.index >= VFIO_PCI_VGA_REGION_INDEX {
            return Err(libc::EINVAL);
        }
        info.argsz = size_of::<vfio_region_info>() as u32;
        info.size = region_len_bytes(&self.function, info.index);
        info.offset = u64::from(info.index) << REGION_SHIFT;
        info.cap_offset = 0;
        // Not to be mapped: each access is seen with its exact width, order and bytes. A program that maps
        // BAR0 all the same gets what a mapping gives, doorbells that may merge.
        let accessible = VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE;
        info.flags = if info.size == 0 { 0 } else { accessible };
        // SAFETY: promised by the caller.
        unsafe { give(argument, info) };
        Ok(0)
    }

    /// # Safety
    /// `argument` is the address of a `vfio_irq_info`.
    unsafe fn irq_info(&self, argument: *mut u8) -> Answer {
        // SAFETY: promised by the caller.
        let mut info: vfio_irq_info = unsafe { take(argument) };
        info.flags = VFIO_IRQ_INFO_EVENTFD | VFIO_IRQ_INFO_NORESIZE;
        info.count = match info.index {
            VFIO_PCI_MSIX_IRQ_INDEX => self.function.n_vectors().into(),
            VFIO_PCI_INTX_IRQ_INDEX | VFIO_PCI_MSI_IRQ_INDEX => 0,
            // Errors and requests to release: never raised here.
            _ => return Err(libc::EINVAL),
        };
        // SAFETY: promised by the caller.
        unsafe { give(argument, info) };
        Ok(0)
    }

    /// # Safety
    /// `argument` is the address of a `vfio_irq_set` and its data.
    unsafe fn set_irqs(&self, argument: *mut u8) -> Answer {
        let mut head = [0u32; 5];
        for (at, word) in head.iter_mut().enumerate() {
            // SAFETY: promised by the caller.
            *word = unsafe { take(argument.add(at * 4)) };
        }
        let [argsz, flags, index, start, count] = head;
        let (action, data) = (flags & VFIO_IRQ_SET_ACTION_TYPE_MASK, flags & VFIO_IRQ_SET_DATA_TYPE_MASK);
        let n_vectors = u32::from(self.function.n_vectors());
        let inside = start.checked_add(count).is_some_and(|end| end <= n_vectors);
        if index != VFIO_PCI_MSIX_IRQ_INDEX || action != VFIO_IRQ_SET_ACTION_TRIGGER || !inside {
            complain(&format!(
                "VFIO_DEVICE_SET_IRQS: index {index}, action 0x{action:x}, vectors {start} to {}: only \
                 triggers of the {n_vectors} MSI-X vectors are done",
                u64::from(start) + u64::from(count)
            ));
            return Err(libc::EINVAL);
        }
        match data {
            VFIO_IRQ_SET_DATA_NONE if count == 0 => {
                for vector in 0..n_vectors {
                    self.set_irq(vector, -1)?;
                }
                Ok(0)
            }
            VFIO_IRQ_SET_DATA_EVENTFD if argsz as usize >= IRQ_SET_HEAD_BYTES + 4 * count as usize => {
                for at in 0..count {
                    // SAFETY: promised by the caller, with `argsz` for the length.
                    let fd: c_int = unsafe { take(argument.add(IRQ_SET_HEAD_BYTES + at as usize * 4)) };
                    self.set_irq(start + at, fd)?;
                }
                Ok(0)
            }
            _ => {
                complain(&format!(
                    "VFIO_DEVICE_SET_IRQS: data type 0x{data:x} for {count} vectors is not done"
                ));
                Err(libc::EINVAL)
            }
        }
    }

    /// Lets a vector signal an eventfd, or nothing if `fd` is negative.
    fn set_irq(&self, vector: u32, fd: c_int) -> Result<(), c_int> {
        // SAFETY: a descriptor of the calling program, open while it is in this ioctl; it is copied.
        let fd = (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) });
        self.function.set_irq(vector as u16, fd).map_err(|error| error.raw_os_error().unwrap_or(libc::EINVAL))
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
}
