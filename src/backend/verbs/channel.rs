//! Completion channels: a descriptor of the kernel's, from which events of completion queues are read.

use super::{
    Device, Object,
    ffi::{IbvCompChannel, IbvCq},
    lock, made,
};
use crate::{
    Error, Result,
    backend::{ChannelId, CompChannel, pci::wait_readable},
    mlx5::ids::Cqn,
};
use std::{
    collections::VecDeque,
    ffi::c_void,
    io,
    os::fd::BorrowedFd,
    ptr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

/// Tells channels of this process apart.
static NEXT: AtomicU32 = AtomicU32::new(1);

#[derive(Debug)]
pub(super) struct Channel {
    id: ChannelId,
    channel: Object<IbvCompChannel>,
    /// Events that were read. Locked while one is read, so that none is read of a queue that is forgotten.
    fired: Mutex<VecDeque<Cqn>>,
    device: Arc<Device>,
}

impl Channel {
    pub(super) fn create(device: &Arc<Device>) -> Result<Arc<Self>> {
        // SAFETY: an open context.
        let channel = unsafe { (device.library().ibv_create_comp_channel)(device.context()) };
        let channel = Self {
            id: ChannelId(NEXT.fetch_add(1, Ordering::Relaxed)),
            channel: Object(made(|| format!("creating a completion channel of {}", device.name()), channel)?),
            fired: Mutex::default(),
            device: Arc::clone(device),
        };
        device.set_nonblocking(channel.fd())?;
        Ok(Arc::new(channel))
    }

    pub(super) fn number(&self) -> ChannelId {
        self.id
    }

    pub(super) fn as_ptr(&self) -> *mut IbvCompChannel {
        self.channel.as_ptr()
    }

    /// A completion queue has ended: its events are for nobody.
    pub(super) fn forget(&self, cqn: Cqn) {
        lock(&self.fired).retain(|fired| *fired != cqn);
    }

    /// The next event, if the kernel has one.
    fn read(&self) -> Result<Option<Cqn>> {
        let (mut cq, mut context) = (ptr::null_mut::<IbvCq>(), ptr::null_mut::<c_void>());
        let library = self.device.library();
        // SAFETY: a channel that lives as long as `self`, and room for both pointers.
        if unsafe { (library.ibv_get_cq_event)(self.as_ptr(), &raw mut cq, &raw mut context) } != 0 {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
                _ => Err(Error::os(format!("reading a completion event of {}", self.device.name()), error)),
            };
        }
        // SAFETY: the kernel does not destroy a queue before its events are acknowledged: it lives.
        unsafe { (library.ibv_ack_cq_events)(cq, 1) };
        // Queues of a channel are made here, with their number as context.
        Ok(Some(Cqn::new(context.addr() as u32)))
    }
}

impl CompChannel for Channel {
    fn id(&self) -> ChannelId {
        self.id
    }

    fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: open as long as the channel.
        unsafe { BorrowedFd::borrow_raw((*self.as_ptr()).fd) }
    }

    fn try_event(&self) -> Result<Option<Cqn>> {
        let mut fired = lock(&self.fired);
        if let Some(cqn) = fired.pop_front() {
            return Ok(Some(cqn));
        }
        let event = self.read()?;
        if event.is_none() {
            self.device.alive()?;
        }
        Ok(event)
    }

    fn wait(&self, timeout: Duration) -> Result<Option<Cqn>> {
        let deadline = Instant::now().checked_add(timeout);
        loop {
            if let Some(cqn) = self.try_event()? {
                return Ok(Some(cqn));
            }
            if !readable(self.fd(), deadline)? {
                return Ok(None);
            }
        }
    }
}

/// Sleeps until a descriptor is readable; whether it is before the deadline.
pub(super) fn readable(fd: BorrowedFd<'_>, deadline: Option<Instant>) -> Result<bool> {
    wait_readable(&[fd], deadline).map_err(|source| Error::os("waiting for an event", source))
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: no queue uses it: each holds it. One that is refused ends with the device.
        unsafe { (self.device.library().ibv_destroy_comp_channel)(self.as_ptr()) };
    }
}
