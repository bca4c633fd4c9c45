//! Events that are not completions.

use super::{VerbsControl, channel::readable, ffi::*, lock};
use crate::{
    Error, Gone, Result,
    backend::AsyncEvent,
    mlx5::{
        eqe::{CqErrorSyndrome, EventType, PortChange},
        ids::{Cqn, Qpn},
    },
};
use std::{
    io, ptr,
    time::{Duration, Instant},
};

impl VerbsControl {
    pub(super) fn next_event(&self, timeout: Duration) -> Result<Option<AsyncEvent>> {
        let deadline = Instant::now().checked_add(timeout);
        loop {
            if let Some(event) = self.read_event()? {
                return Ok(Some(event));
            }
            self.device.alive()?;
            if !readable(self.device.async_fd(), deadline)? {
                return Ok(None);
            }
        }
    }

    /// The next event, if the kernel has one.
    fn read_event(&self) -> Result<Option<AsyncEvent>> {
        let library = self.device.library();
        let mut event = IbvAsyncEvent { element: ptr::null_mut(), event_type: -1 };
        // SAFETY: an open context, and room for an event.
        if unsafe { (library.ibv_get_async_event)(self.device.context(), &raw mut event) } != 0 {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
                _ => Err(Error::os(format!("reading an event of {}", self.device.name()), error)),
            };
        }
        let told = self.told(&event);
        // SAFETY: the event that was read, acknowledged once: its object is not destroyed before.
        unsafe { (library.ibv_ack_async_event)(&raw mut event) };
        Ok(Some(told))
    }

    fn told(&self, event: &IbvAsyncEvent) -> AsyncEvent {
        // SAFETY: of an event of a queue pair, which is not destroyed before the event is acknowledged.
        let qpn = || Qpn::new(unsafe { (*event.element.cast::<IbvQp>()).qp_num });
        // The union's other member, which is at the pointer's lower half.
        let port = (event.element.addr() & 0xff) as u8;
        let port_change =
            |change: PortChange| AsyncEvent::Other { event_type: EventType::PORT_CHANGE, sub_type: change.0 };
        let other = |event_type| AsyncEvent::Other { event_type, sub_type: 0 };
        match event.event_type {
            IBV_EVENT_CQ_ERR => {
                let cqs = lock(&self.cqs);
                let cq = cqs.iter().find(|(_, entry)| entry.cq.as_ptr().cast() == event.element);
                let cqn = cq.map_or(Cqn::new(0), |(cqn, _)| *cqn);
                // The kernel passes the event on, and not its reason.
                AsyncEvent::CqError { cqn, syndrome: CqErrorSyndrome(0) }
            }
            IBV_EVENT_QP_FATAL => AsyncEvent::QpFatal { qpn: qpn() },
            IBV_EVENT_QP_REQ_ERR => AsyncEvent::QpInvalidRequest { qpn: qpn() },
            IBV_EVENT_QP_ACCESS_ERR => AsyncEvent::QpAccess { qpn: qpn() },
            IBV_EVENT_COMM_EST => AsyncEvent::CommEst { qpn: qpn() },
            IBV_EVENT_SQ_DRAINED => AsyncEvent::SqDrained { qpn: qpn() },
            IBV_EVENT_QP_LAST_WQE_REACHED => AsyncEvent::LastWqe { qpn: qpn() },
            IBV_EVENT_PORT_ACTIVE => AsyncEvent::PortChange { port, up: true },
            IBV_EVENT_PORT_ERR => AsyncEvent::PortChange { port, up: false },
            IBV_EVENT_DEVICE_FATAL => {
                self.device.declare(Gone::KernelDriver);
                AsyncEvent::DeviceFatal(Gone::KernelDriver)
            }
            IBV_EVENT_PATH_MIG => other(EventType::PATH_MIG),
            IBV_EVENT_PATH_MIG_ERR => other(EventType::PATH_MIG_FAILED),
            IBV_EVENT_LID_CHANGE => port_change(PortChange::LID),
            IBV_EVENT_PKEY_CHANGE => port_change(PortChange::PKEY),
            IBV_EVENT_GID_CHANGE => port_change(PortChange::GUID),
            IBV_EVENT_CLIENT_REREGISTER => port_change(PortChange::CLIENT_REREG),
            // Of shared receive queues and work queues, which are not made here.
            event_type => AsyncEvent::Other { event_type: EventType(0xff), sub_type: event_type as u8 },
        }
    }
}
