//! Control paths: how objects are made. The data path does not pass here.
//!
//! Objects of the crate root are written against [`Control`]. The device's own command interface, over any
//! [`pci::PciFunction`], is one way to implement it; the kernel's verbs are another.

mod attr;
pub mod dma;
mod gid;
mod params;
pub mod pci;
pub mod prm;
mod steer;
mod transition;
mod uar;
pub mod verbs;

pub use attr::{AsyncEvent, DeviceAttr, LinkLayer, PhysState, PortAttr, PortState, SpecialContexts};
pub use gid::{GidEntry, GidType, gid_of, link_local_gid, link_local_mac};
pub use params::{
    Access, AddressVector, CqParams, CqParts, Keys, MrParams, QpAttr, QpModify, QpParams, QpParts,
    QueueMemory,
};
pub use steer::{FlowId, FrameMatch};
pub use uar::{Register, UarPage};

use crate::{
    Error, Result,
    mlx5::ids::{Cqn, Lkey, Pdn, Qpn, Rkey},
    wqe::AvSeg,
};
use dma::{HostMemory, PageSize};
use std::{fmt, os::fd::BorrowedFd, sync::Arc, time::Duration};

/// Longest sleep between two looks at completions or at an event queue: bounds what a lost event or interrupt costs.
pub(crate) const LOOK: Duration = Duration::from_millis(100);

/// A device as its objects are made on it. Methods may be called from any thread at once.
///
/// Every method that asks the device has a deadline, and answers
/// [`DeviceGone`](crate::Error::DeviceGone) at once when the device is known to be dead. One that the host wants back
/// ([`Gone::Released`](crate::Gone::Released)) can still be taken down: methods that destroy work.
///
/// An implementation keeps the memory that the device may reach (queues, registered memory) until the
/// device has confirmed that the object is destroyed, whatever the caller drops. The caller does not touch the
/// memory of a queue, nor ring for it, once it has asked to destroy it.
pub trait Control: Send + Sync + fmt::Debug {
    /// What the user calls the device: `model:0`, `vfio:0000:01:00.0`.
    fn name(&self) -> String;

    /// Limits and identity, read once at open.
    fn device_attr(&self) -> &DeviceAttr;

    /// State of a port, counted from 1.
    fn query_port(&self, port: u8) -> Result<PortAttr>;

    /// Enables or disables the link of a port. The state follows later: see
    /// [`AsyncEvent::PortChange`].
    fn set_port(&self, port: u8, up: bool) -> Result<()>;

    /// An entry of a port's GID table. An empty entry is refused.
    fn query_gid(&self, port: u8, index: u16) -> Result<GidEntry>;

    /// Fills an entry of a port's GID table, or empties it.
    fn set_gid(&self, port: u8, index: u16, entry: Option<&GidEntry>) -> Result<()>;

    /// An entry of a port's partition table.
    fn query_pkey(&self, port: u8, index: u16) -> Result<u16>;

    /// Keys that every function has.
    fn special_contexts(&self) -> Result<SpecialContexts>;

    /// The device's free-running clock in ticks of
    /// [`hca_core_clock_khz`](DeviceAttr::hca_core_clock_khz).
    fn read_clock(&self) -> Result<u64>;

    /// Makes a protection domain.
    fn alloc_pd(&self) -> Result<Pdn>;

    /// Ends a protection domain. Refused by the device while objects use it.
    fn dealloc_pd(&self, pd: Pdn) -> Result<()>;

    /// Zeroed memory that can be registered with the device.
    fn alloc_memory(&self, len_bytes: usize, page_size: PageSize) -> Result<Arc<HostMemory>> {
        HostMemory::alloc(len_bytes, page_size)
    }

    /// Registers memory: gives keys by which requests can name it.
    fn reg_mr(&self, params: &MrParams) -> Result<Keys>;

    /// Ends a registration. The keys are invalid when it returns.
    fn dereg_mr(&self, lkey: Lkey) -> Result<()>;

    /// Makes a memory window of type 2. It opens nothing before a queue pair of the domain
    /// [binds](crate::queue::PostList::bind_mw) it. The low byte of its key is the user's.
    fn alloc_mw(&self, pd: Pdn) -> Result<Rkey>;

    /// Ends a memory window, bound or not, by the key with which it was made.
    fn dealloc_mw(&self, rkey: Rkey) -> Result<()>;

    /// Makes a memory key that leads to nothing before a work request
    /// [sets it](crate::queue::PostList::umr_list), with room for `n_entries` entries.
    fn create_indirect_key(&self, pd: Pdn, n_entries: u32) -> Result<Rkey> {
        let reason = format!(
            "a key of domain {pd} over {n_entries} others; this control path makes none, so open the function by VFIO"
        );
        Err(Error::Unsupported { capability: "umr_extended_translation_offset", reason })
    }

    /// Ends such a key, whatever it leads to.
    fn destroy_indirect_key(&self, key: Rkey) -> Result<()> {
        Err(Error::invalid(format!("there is no indirect key {key}")))
    }

    /// Makes a completion queue, every CQE marked invalid and owned by the device.
    fn create_cq(&self, params: &CqParams) -> Result<CqParts>;

    /// Ends a completion queue. Refused by the device while queue pairs use it.
    fn destroy_cq(&self, cqn: Cqn) -> Result<()>;

    /// Makes a queue pair in state RST.
    fn create_qp(&self, params: &QpParams) -> Result<QpParts>;

    /// Moves a queue pair to the state `modify.to`. A transition that does not exist, lacks a mandatory
    /// attribute or has one too many is refused before the device is asked.
    fn modify_qp(&self, qpn: Qpn, modify: &QpModify) -> Result<()>;

    /// State and attributes of a queue pair as the device has them.
    fn query_qp(&self, qpn: Qpn) -> Result<QpAttr>;

    /// Ends a queue pair.
    fn destroy_qp(&self, qpn: Qpn) -> Result<()>;

    /// Has the Ethernet frames that match go to raw packet queue pair `qpn`, until the rule or the queue pair ends.
    fn create_flow(&self, qpn: Qpn, frames: &FrameMatch) -> Result<FlowId> {
        let reason = format!(
            "queue pair {qpn} cannot be given {frames:?} on this control path; open the function by VFIO"
        );
        Err(Error::Unsupported { capability: "nic_flow_table", reason })
    }

    /// Ends a rule of a raw packet queue pair.
    fn destroy_flow(&self, qpn: Qpn, flow: FlowId) -> Result<()> {
        Err(Error::invalid(format!("queue pair {qpn} has no rule {}", flow.0)))
    }

    /// The way `ah` as datagrams of queue pair `local`, of protection domain `pd`, carry it to `remote`, without a
    /// Q_Key. The device keeps nothing of it.
    fn address_vector(&self, pd: Pdn, ah: &AddressVector, local: Qpn, remote: Qpn) -> Result<AvSeg>;

    /// Makes a channel through which completion queues wake a sleeper.
    fn create_comp_channel(&self) -> Result<Arc<dyn CompChannel>>;

    /// A descriptor that is readable when [`next_async_event`](Self::next_async_event) has something.
    fn async_fd(&self) -> BorrowedFd<'_>;

    /// The next asynchronous event; `None` if none comes within `timeout`.
    fn next_async_event(&self, timeout: Duration) -> Result<Option<AsyncEvent>>;

    /// Whether the device works: reads its health registers now.
    fn health(&self) -> Result<()>;

    /// Takes the device down: every object ends, memory lent to the device comes back. Dropping the
    /// last handle does the same; here failures are told. A second call does nothing.
    fn close(&self) -> Result<()>;
}

/// A completion event channel: an event queue with a file descriptor, to which completion queues are
/// bound at creation.
pub trait CompChannel: Send + Sync + fmt::Debug {
    /// Tells channels of one device apart.
    fn id(&self) -> ChannelId;

    /// Readable when there may be an event. It stays readable until
    /// [`try_event`](Self::try_event) has answered `None`.
    fn fd(&self) -> BorrowedFd<'_>;

    /// The next completion queue that fired, without waiting. Each event means that an armed queue got
    /// a completion, and that the queue has to be armed anew (with the next `cmd_sn`) for another event.
    fn try_event(&self) -> Result<Option<Cqn>>;

    /// As [`try_event`](Self::try_event), sleeping up to `timeout`.
    fn wait(&self, timeout: Duration) -> Result<Option<Cqn>>;
}

/// A completion channel's number on its device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ChannelId(pub u32);
