//! MSI-X and what the kernel itself wants to tell, as eventfds.

use super::ioctl::{DEVICE_GET_IRQ_INFO, DEVICE_SET_IRQS, call};
use crate::backend::pci::EventFd;
use std::{
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
};
use vfio_bindings::bindings::vfio::*;

/// Bytes of `vfio_irq_set` before its data.
const HEAD_BYTES: usize = 20;

/// How many MSI-X vectors the device has.
pub(super) fn n_vectors(device: &File) -> io::Result<u32> {
    n_irqs(device, VFIO_PCI_MSIX_IRQ_INDEX)
}

/// How many interrupts of a kind the device has that can signal eventfds.
fn n_irqs(device: &File, index: u32) -> io::Result<u32> {
    let mut info = vfio_irq_info { argsz: size_of::<vfio_irq_info>() as u32, flags: 0, index, count: 0 };
    // SAFETY: this ioctl takes a `vfio_irq_info`.
    unsafe { call(device.as_fd(), DEVICE_GET_IRQ_INFO, (&raw mut info).cast()) }?;
    Ok(if info.flags & VFIO_IRQ_INFO_EVENTFD == 0 { 0 } else { info.count })
}

/// Turns MSI-X on with `n` vectors that signal nothing yet; how many there are then.
///
/// All at once: kernels before 6.4 give a device no further vectors while it has some.
pub(super) fn enable(device: &File, n: u32) -> io::Result<u32> {
    let mut n = n;
    while n > 0 {
        let answer = set(device, VFIO_PCI_MSIX_IRQ_INDEX, 0, &vec![-1; n as usize])?;
        match u32::try_from(answer) {
            Ok(0) => break,
            // The kernel has fewer to give, says how many, and has done nothing.
            Ok(fewer) if fewer < n => n = fewer,
            _ => {
                return Err(io::Error::other(format!(
                    "VFIO_DEVICE_SET_IRQS of {n} vectors answered {answer}"
                )));
            }
        }
    }
    Ok(n)
}

/// Makes one vector signal `eventfd`, or nothing.
pub(super) fn set_one(device: &File, vector: u16, eventfd: Option<BorrowedFd<'_>>) -> io::Result<()> {
    set(device, VFIO_PCI_MSIX_IRQ_INDEX, vector.into(), &[eventfd.map_or(-1, |fd| fd.as_raw_fd())])
        .map(|_| ())
}

/// An eventfd that the kernel signals when it wants the device back; `None` if it does not tell.
pub(super) fn release_requests(device: &File) -> io::Result<Option<EventFd>> {
    // Kernels before 4.0 do not know of it.
    if n_irqs(device, VFIO_PCI_REQ_IRQ_INDEX).unwrap_or(0) == 0 {
        return Ok(None);
    }
    let eventfd = EventFd::new()?;
    set(device, VFIO_PCI_REQ_IRQ_INDEX, 0, &[eventfd.as_fd().as_raw_fd()])?;
    Ok(Some(eventfd))
}

fn set(device: &File, index: u32, start: u32, eventfds: &[i32]) -> io::Result<i32> {
    let argsz = (HEAD_BYTES + size_of_val(eventfds)) as u32;
    let flags = VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER;
    let head = [argsz, flags, index, start, eventfds.len() as u32];
    // One array of 32-bit words, as the kernel reads it.
    let mut words: Vec<u32> = head.into_iter().chain(eventfds.iter().map(|fd| fd.cast_unsigned())).collect();
    // SAFETY: this ioctl takes a `vfio_irq_set` with its data behind it, `argsz` bytes in all.
    unsafe { call(device.as_fd(), DEVICE_SET_IRQS, words.as_mut_ptr().cast()) }
}
