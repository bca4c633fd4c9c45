//! SET_IRQS in every combination.

use crate::rig::{Vfio, eventfd, ioctl, is_inside, on_card, signals};
use std::{
    ffi::c_int,
    os::fd::{AsRawFd, OwnedFd},
};
use vfio_bindings::bindings::vfio::*;

const MSIX: u32 = VFIO_PCI_MSIX_IRQ_INDEX;
const TRIGGER: u32 = VFIO_IRQ_SET_ACTION_TRIGGER;

/// SET_IRQS with this data behind the head.
fn set(vfio: &Vfio, flags: u32, index: u32, start: u32, count: u32, data: &[u8]) -> Result<c_int, c_int> {
    let argsz = 20 + data.len() as u32;
    let mut bytes: Vec<u8> =
        [argsz, flags, index, start, count].iter().flat_map(|word| word.to_ne_bytes()).collect();
    bytes.extend(data);
    ioctl(&vfio.device, 10, bytes.as_mut_ptr())
}

fn set_eventfds(vfio: &Vfio, start: u32, fds: &[c_int]) -> Result<c_int, c_int> {
    let data: Vec<u8> = fds.iter().flat_map(|fd| fd.to_ne_bytes()).collect();
    set(vfio, VFIO_IRQ_SET_DATA_EVENTFD | TRIGGER, MSIX, start, fds.len() as u32, &data)
}

/// Raises vectors from `start` on; how often each eventfd was signalled.
fn raise(vfio: &Vfio, start: u32, count: u32, fds: &[OwnedFd]) -> Vec<u64> {
    set(vfio, VFIO_IRQ_SET_DATA_NONE | TRIGGER, MSIX, start, count, &[]).expect("raise");
    fds.iter().map(signals).collect()
}

#[test]
fn info_by_index() {
    on_card("irqs::info_by_index", "vectors=7", || {
        let vfio = Vfio::open();
        let info = |index| {
            let mut info = vfio_irq_info { argsz: 16, flags: 0, index, count: 99 };
            ioctl(&vfio.device, 9, &raw mut info).map(|_| (info.flags, info.count))
        };
        assert_eq!(info(MSIX), Ok((VFIO_IRQ_INFO_EVENTFD | VFIO_IRQ_INFO_NORESIZE, 7)));
        assert_eq!(info(VFIO_PCI_INTX_IRQ_INDEX), Ok((VFIO_IRQ_INFO_EVENTFD, 0)));
        assert_eq!(info(VFIO_PCI_MSI_IRQ_INDEX), Ok((VFIO_IRQ_INFO_EVENTFD, 0)));
        assert_eq!(info(VFIO_PCI_ERR_IRQ_INDEX), Err(libc::EINVAL));
        assert_eq!(info(99), Err(libc::EINVAL));
    });
}

#[test]
fn eventfds_are_set_changed_and_taken_away() {
    on_card("irqs::eventfds_are_set_changed_and_taken_away", "vectors=4", || {
        let vfio = Vfio::open();
        let fds = [eventfd(), eventfd(), eventfd(), eventfd()];
        let numbers: Vec<c_int> = fds.iter().map(AsRawFd::as_raw_fd).collect();
        assert_eq!(set_eventfds(&vfio, 0, &numbers), Ok(0));
        assert_eq!(raise(&vfio, 0, 4, &fds), [1, 1, 1, 1]);
        assert_eq!(raise(&vfio, 1, 2, &fds), [0, 1, 1, 0]);
        assert_eq!(set_eventfds(&vfio, 1, &[-1, numbers[3]]), Ok(0), "none for 1, and 2 has that of 3");
        assert_eq!(raise(&vfio, 0, 4, &fds), [1, 0, 0, 2]);
        // By a byte each.
        let bools = VFIO_IRQ_SET_DATA_BOOL | TRIGGER;
        assert_eq!(set(&vfio, bools, MSIX, 0, 4, &[0, 1, 2, 0]), Ok(0));
        assert_eq!(fds.iter().map(signals).collect::<Vec<_>>(), [0, 0, 0, 1]);
        // All off.
        assert_eq!(set(&vfio, VFIO_IRQ_SET_DATA_NONE | TRIGGER, MSIX, 0, 0, &[]), Ok(0));
        assert_eq!(set(&vfio, VFIO_IRQ_SET_DATA_NONE | TRIGGER, MSIX, 0, 1, &[]), Err(libc::EINVAL), "off");
        assert_eq!(set(&vfio, bools, MSIX, 0, 1, &[1]), Err(libc::EINVAL), "off");
        assert_eq!(fds.iter().map(signals).collect::<Vec<_>>(), [0; 4]);
    });
}

#[test]
fn the_number_enabled_first_is_the_most() {
    let said = on_card("irqs::the_number_enabled_first_is_the_most", "vectors=4", || {
        let vfio = Vfio::open();
        let fds = [eventfd(), eventfd()];
        let numbers: Vec<c_int> = fds.iter().map(AsRawFd::as_raw_fd).collect();
        assert_eq!(set_eventfds(&vfio, 0, &numbers[..1]), Ok(0));
        assert_eq!(set_eventfds(&vfio, 0, &numbers), Err(libc::EINVAL));
        assert_eq!(set_eventfds(&vfio, 1, &numbers[1..]), Err(libc::EINVAL));
        assert_eq!(raise(&vfio, 0, 1, &fds), [1, 0], "and the first is as it was");
        assert_eq!(set(&vfio, VFIO_IRQ_SET_DATA_NONE | TRIGGER, MSIX, 0, 0, &[]), Ok(0));
        assert_eq!(set_eventfds(&vfio, 0, &numbers), Ok(0));
        assert_eq!(raise(&vfio, 0, 2, &fds), [1, 1]);
    });
    assert!(is_inside() || said.contains("vectors to 2, and 1 are enabled: disable all"), "{said}");
}

#[test]
fn refusals() {
    let said = on_card("irqs::refusals", "vectors=4", || {
        let vfio = Vfio::open();
        let (none, bools) = (VFIO_IRQ_SET_DATA_NONE, VFIO_IRQ_SET_DATA_BOOL);
        let by_eventfd = VFIO_IRQ_SET_DATA_EVENTFD;
        let (mask, unmask) = (VFIO_IRQ_SET_ACTION_MASK, VFIO_IRQ_SET_ACTION_UNMASK);
        let fd = eventfd();
        assert_eq!(set_eventfds(&vfio, 0, &[fd.as_raw_fd()]), Ok(0));
        for index in [VFIO_PCI_INTX_IRQ_INDEX, VFIO_PCI_MSI_IRQ_INDEX, VFIO_PCI_REQ_IRQ_INDEX, 9] {
            assert_eq!(set(&vfio, none | TRIGGER, index, 0, 0, &[]), Err(libc::EINVAL), "index {index}");
        }
        for (start, count) in [(4, 0), (0, 5), (3, 2), (u32::MAX, 1), (1, u32::MAX)] {
            assert_eq!(
                set(&vfio, none | TRIGGER, MSIX, start, count, &[]),
                Err(libc::EINVAL),
                "{start} {count}"
            );
        }
        for flags in
            [none, bools, none | TRIGGER | mask, TRIGGER, none | bools | TRIGGER, 1 << 6 | none | TRIGGER]
        {
            assert_eq!(set(&vfio, flags, MSIX, 0, 1, &[0; 8]), Err(libc::EINVAL), "flags 0x{flags:x}");
        }
        for action in [mask, unmask] {
            assert_eq!(set(&vfio, none | action, MSIX, 0, 1, &[]), Err(libc::ENOTTY), "masks of MSI-X");
        }
        assert_eq!(
            set(&vfio, by_eventfd | TRIGGER, MSIX, 0, 1, &[0, 0]),
            Err(libc::EINVAL),
            "data too short"
        );
        assert_eq!(set(&vfio, bools | TRIGGER, MSIX, 0, 2, &[0]), Err(libc::EINVAL), "data too short");
        assert_eq!(set_eventfds(&vfio, 0, &[9999]), Err(libc::EBADF));
        assert_eq!(set_eventfds(&vfio, 0, &[vfio.group.as_raw_fd()]), Err(libc::EINVAL), "not an eventfd");
        assert_eq!(raise(&vfio, 0, 1, &[fd]), [1], "nothing of this changed anything");
    });
    assert!(is_inside() || said.contains("the device has 4 MSI-X vectors"), "{said}");
}
