//! Interrupts: which vectors signal which eventfds.

use crate::{Answer, complain, descriptor, give, host::host, take};
use mlx5_direct::backend::pci::PciFunction;
use mlx5_model::ModelFunction;
use std::{
    ffi::c_int,
    fs,
    os::fd::{AsRawFd, BorrowedFd, OwnedFd},
    sync::{Mutex, PoisonError},
};
use vfio_bindings::bindings::vfio::*;

/// Bytes of the head of `vfio_irq_set`.
const HEAD_BYTES: usize = 20;

/// The MSI-X vectors of one device.
#[derive(Debug, Default)]
pub(crate) struct Vectors {
    /// By vector, up to the number that were enabled: whether it has an eventfd. Empty if MSI-X is off.
    enabled: Mutex<Vec<bool>>,
    /// Where the kernel asks for the device.
    release_requests: Mutex<Option<OwnedFd>>,
}

/// # Safety
/// `argument` is the address of a `vfio_irq_info`.
pub(crate) unsafe fn info(function: &ModelFunction, argument: *mut u8) -> Answer {
    // SAFETY: promised by the caller.
    let mut info: vfio_irq_info = unsafe { take(argument) };
    if (info.argsz as usize) < size_of::<vfio_irq_info>() {
        return Err(libc::EINVAL);
    }
    (info.flags, info.count) = match info.index {
        // The number that is enabled first cannot grow: NORESIZE.
        VFIO_PCI_MSIX_IRQ_INDEX => {
            (VFIO_IRQ_INFO_EVENTFD | VFIO_IRQ_INFO_NORESIZE, function.n_vectors().into())
        }
        VFIO_PCI_INTX_IRQ_INDEX | VFIO_PCI_MSI_IRQ_INDEX => (VFIO_IRQ_INFO_EVENTFD, 0),
        VFIO_PCI_REQ_IRQ_INDEX if host().is_ok_and(|host| host.reclaim.is_some()) => {
            (VFIO_IRQ_INFO_EVENTFD | VFIO_IRQ_INFO_NORESIZE, 1)
        }
        // Errors: never raised here. Requests to release: only where they are.
        _ => return Err(libc::EINVAL),
    };
    // SAFETY: promised by the caller.
    unsafe { give(argument, info) };
    Ok(0)
}

/// What goes with each vector of a SET_IRQS.
enum Data {
    None,
    Bools(Vec<bool>),
    Eventfds(Vec<c_int>),
}

impl Data {
    /// # Safety
    /// The data of `count` vectors is behind the head at `argument`, up to `argsz` bytes.
    unsafe fn read(kind: u32, argument: *const u8, argsz: usize, count: usize) -> Result<Self, c_int> {
        let has = |len_bytes: usize| argsz - HEAD_BYTES >= count * len_bytes;
        match kind {
            VFIO_IRQ_SET_DATA_NONE => Ok(Self::None),
            VFIO_IRQ_SET_DATA_BOOL if has(1) => {
                // SAFETY: promised by the caller.
                let at = |at: usize| unsafe { argument.add(HEAD_BYTES + at).read() } != 0;
                Ok(Self::Bools((0..count).map(at).collect()))
            }
            VFIO_IRQ_SET_DATA_EVENTFD if has(4) => {
                // SAFETY: promised by the caller.
                let at = |at: usize| unsafe { take::<c_int>(argument.add(HEAD_BYTES + 4 * at)) };
                Ok(Self::Eventfds((0..count).map(at).collect()))
            }
            _ => Err(libc::EINVAL),
        }
    }
}

/// A descriptor that a vector may signal.
fn eventfd(fd: &c_int) -> Result<BorrowedFd<'_>, c_int> {
    let link = fs::read_link(format!("/proc/self/fd/{fd}")).map_err(|_| libc::EBADF)?;
    if link.as_os_str() != "anon_inode:[eventfd]" {
        return Err(libc::EINVAL);
    }
    // SAFETY: a descriptor of the calling program, open while it is in this ioctl; it is copied.
    Ok(unsafe { BorrowedFd::borrow_raw(*fd) })
}

impl Vectors {
    /// # Safety
    /// `argument` is the address of a `vfio_irq_set` and its data.
    pub(crate) unsafe fn set(&self, function: &ModelFunction, argument: *mut u8) -> Answer {
        let mut head = [0u32; HEAD_BYTES / 4];
        for (at, word) in head.iter_mut().enumerate() {
            // SAFETY: promised by the caller.
            *word = unsafe { take(argument.add(at * 4)) };
        }
        let [argsz, flags, index, start, count] = head;
        let (action, kind) = (flags & VFIO_IRQ_SET_ACTION_TYPE_MASK, flags & VFIO_IRQ_SET_DATA_TYPE_MASK);
        if index == VFIO_PCI_REQ_IRQ_INDEX && (action, start, count) == (VFIO_IRQ_SET_ACTION_TRIGGER, 0, 1) {
            // SAFETY: promised by the caller.
            let data = unsafe { Data::read(kind, argument, argsz as usize, 1) }?;
            return self.listen_to_requests(&data);
        }
        let n_vectors = if index == VFIO_PCI_MSIX_IRQ_INDEX { u32::from(function.n_vectors()) } else { 0 };
        let inside = start < n_vectors && start.checked_add(count).is_some_and(|end| end <= n_vectors);
        if (argsz as usize) < HEAD_BYTES || flags != action | kind || !inside {
            complain(&format!(
                "VFIO_DEVICE_SET_IRQS: argsz {argsz}, flags 0x{flags:x}, index {index}, vectors {start} to {}: \
                 the device has {} MSI-X vectors (index {VFIO_PCI_MSIX_IRQ_INDEX}) and no others",
                u64::from(start) + u64::from(count),
                function.n_vectors()
            ));
            return Err(libc::EINVAL);
        }
        // SAFETY: promised by the caller.
        let data = unsafe { Data::read(kind, argument, argsz as usize, count as usize) }?;
        match action {
            VFIO_IRQ_SET_ACTION_TRIGGER => self.trigger(function, start as usize, count as usize, data),
            // As the kernel: vectors of MSI-X are masked in their table, by whoever has it.
            VFIO_IRQ_SET_ACTION_MASK | VFIO_IRQ_SET_ACTION_UNMASK => Err(libc::ENOTTY),
            _ => Err(libc::EINVAL),
        }
    }

    fn listen_to_requests(&self, data: &Data) -> Answer {
        let Data::Eventfds(fds) = data else { return Err(libc::EINVAL) };
        let fd = match fds.first() {
            Some(fd) if *fd >= 0 => {
                Some(eventfd(fd)?.try_clone_to_owned().map_err(|error| descriptor::errno_of(&error))?)
            }
            _ => None,
        };
        *self.release_requests.lock().unwrap_or_else(PoisonError::into_inner) = fd;
        Ok(0)
    }

    /// The kernel wants the device back.
    pub(crate) fn request_release(&self) {
        let requests = self.release_requests.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(fd) = requests.as_ref() {
            let one = 1_u64.to_ne_bytes();
            // SAFETY: the descriptor is owned by `self` and the buffer has 8 bytes.
            let _ = unsafe { libc::write(fd.as_raw_fd(), one.as_ptr().cast(), one.len()) };
        }
    }

    fn trigger(&self, function: &ModelFunction, start: usize, count: usize, data: Data) -> Answer {
        let mut enabled = self.enabled.lock().unwrap_or_else(PoisonError::into_inner);
        let range = start..start + count;
        match data {
            Data::None if count == 0 => {
                for vector in 0..std::mem::take(&mut *enabled).len() {
                    set(function, vector, None)?;
                }
            }
            Data::Eventfds(fds) => {
                if enabled.is_empty() {
                    enabled.resize(range.end, false);
                }
                if range.end > enabled.len() {
                    complain(&format!(
                        "VFIO_DEVICE_SET_IRQS: vectors to {}, and {} are enabled: disable all (DATA_NONE, count 0), \
                         then enable as many as are needed",
                        range.end,
                        enabled.len()
                    ));
                    return Err(libc::EINVAL);
                }
                // All or none: what is wrong with one is found before any is changed.
                let new: Result<Vec<_>, _> =
                    fds.iter().map(|fd| if *fd < 0 { Ok(None) } else { eventfd(fd).map(Some) }).collect();
                for (vector, fd) in range.zip(new?) {
                    enabled[vector] = fd.is_some();
                    set(function, vector, fd)?;
                }
            }
            // Raised by the program itself, to try its own handling.
            Data::None | Data::Bools(_) => {
                if enabled.is_empty() || range.end > enabled.len() {
                    return Err(libc::EINVAL);
                }
                let chosen = |at: usize| match &data {
                    Data::Bools(bools) => bools[at],
                    _ => true,
                };
                for vector in range.filter(|vector| chosen(vector - start) && enabled[*vector]) {
                    function.raise_irq(vector as u16);
                }
            }
        }
        Ok(0)
    }

    /// Turns all interrupts off.
    pub(crate) fn disable(&self, function: &ModelFunction) {
        *self.release_requests.lock().unwrap_or_else(PoisonError::into_inner) = None;
        // With vectors that exist nothing can fail.
        let _ = self.trigger(function, 0, 0, Data::None);
    }
}

fn set(function: &ModelFunction, vector: usize, fd: Option<BorrowedFd<'_>>) -> Result<(), c_int> {
    // Below `n_vectors`, which has 16 bits.
    function.set_irq(vector as u16, fd).map_err(|error| descriptor::errno_of(&error))
}
