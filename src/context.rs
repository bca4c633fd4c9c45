//! An open device.

use crate::{
    CompChannel, Cq, CqAttr, Error, Pd, Result,
    backend::{
        AsyncEvent, Control, CqParts, DeviceAttr, GidEntry, PortAttr, SpecialContexts,
        pci::PciFunction,
        prm::{OpenOptions, PrmControl},
    },
    mlx5::ids::UserIndex,
};
use std::{
    fmt,
    net::IpAddr,
    os::fd::BorrowedFd,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

/// An open device, from which objects are made. Cheap to clone; any thread may use it.
///
/// The device is taken down when the last clone and the last object made from it are gone, or by
/// [`close`](Self::close).
#[derive(Clone)]
pub struct Context {
    shared: Arc<Shared>,
}

struct Shared {
    control: Arc<dyn Control>,
    next_user_index: AtomicU32,
}

impl Context {
    /// Brings up a PCI function by the device's own command interface, and opens it.
    ///
    /// # Errors
    /// Whatever step fails, with the numbers; what was done before it is undone.
    pub fn open(function: Arc<dyn PciFunction>, options: OpenOptions) -> Result<Self> {
        Ok(Self::on(PrmControl::open(function, &options)?))
    }

    /// Opens a device through a control path that is already up.
    pub fn on(control: Arc<dyn Control>) -> Self {
        Self { shared: Arc::new(Shared { control, next_user_index: AtomicU32::new(0) }) }
    }

    /// What the user calls the device.
    pub fn name(&self) -> String {
        self.control().name()
    }

    /// Limits and identity.
    pub fn device(&self) -> &DeviceAttr {
        self.shared.control.device_attr()
    }

    /// State of a port, counted from 1.
    pub fn port(&self, port: u8) -> Result<PortAttr> {
        self.control().query_port(port)
    }

    /// Enables or disables the link of a port.
    pub fn set_port(&self, port: u8, up: bool) -> Result<()> {
        self.control().set_port(port, up)
    }

    /// An entry of a port's GID table. An empty entry is an error.
    pub fn gid(&self, port: u8, index: u16) -> Result<GidEntry> {
        self.control().query_gid(port, index)
    }

    /// The entry of a port's GID table that serves when none is chosen: that of its
    /// [link layer](crate::backend::LinkLayer::usual_gid_index).
    pub fn usual_gid_index(&self, port: u8) -> Result<u8> {
        Ok(self.port(port)?.link_layer.usual_gid_index())
    }

    /// Fills an entry of a port's GID table, or empties it.
    pub fn set_gid(&self, port: u8, index: u16, entry: Option<&GidEntry>) -> Result<()> {
        self.control().set_gid(port, index, entry)
    }

    /// Gives a port the IP address `address` in RoCE v2, in the first empty entry of its GID table, and says in which.
    /// An address that the port has already stays where it is.
    ///
    /// ```no_run
    /// # fn f(ctx: &mlx5_direct::Context) -> mlx5_direct::Result<()> {
    /// use mlx5_direct::Connection;
    /// let gid_index = ctx.add_address(1, [10, 0, 0, 1].into())?;
    /// let how = Connection { gid_index: Some(gid_index), ..Connection::default() };
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the table is full, or the address is no station's.
    pub fn add_address(&self, port: u8, address: IpAddr) -> Result<u8> {
        if address.is_unspecified() || address.is_multicast() {
            return Err(Error::invalid(format!("{address} is not the address of one station")));
        }
        let attr = self.port(port)?;
        let entry = GidEntry::roce_v2(address, attr.mac);
        let mut empty = None;
        for index in 0..attr.gid_tbl_len.min(u8::MAX.into()) {
            match self.gid(port, index) {
                // Below 255.
                Ok(found) if (GidEntry { mac: entry.mac, ..found }) == entry => return Ok(index as u8),
                Ok(_) => {}
                Err(Error::InvalidArgument(_)) => empty = empty.or(Some(index)),
                Err(error) => return Err(error),
            }
        }
        let index = empty.ok_or_else(|| {
            Error::invalid(format!(
                "no room for {address}: all {} GID entries of port {port} are in use; empty one",
                attr.gid_tbl_len
            ))
        })?;
        self.set_gid(port, index, Some(&entry))?;
        Ok(index as u8)
    }

    /// An entry of a port's partition table.
    pub fn pkey(&self, port: u8, index: u16) -> Result<u16> {
        self.control().query_pkey(port, index)
    }

    /// Keys that every function has.
    pub fn special_contexts(&self) -> Result<SpecialContexts> {
        self.control().special_contexts()
    }

    /// The device's free-running clock, in ticks of `hca_core_clock_khz`.
    pub fn read_clock(&self) -> Result<u64> {
        self.control().read_clock()
    }

    /// Makes a protection domain.
    pub fn alloc_pd(&self) -> Result<Pd> {
        Pd::alloc(self)
    }

    /// Makes a completion queue.
    pub fn create_cq(&self, attr: &CqAttr<'_>) -> Result<Cq> {
        Cq::create(self, attr)
    }

    /// A completion queue that the control path has made or
    /// [taken in](crate::backend::verbs::VerbsControl::import_cq). It has no channel to [wait](Cq::wait) on.
    ///
    /// # Safety
    /// `parts` are those of a completion queue of this device in which the device has written nothing yet, and nobody else
    /// polls or arms it.
    pub unsafe fn adopt_cq(&self, parts: CqParts) -> Cq {
        // SAFETY: the caller's promise.
        unsafe { Cq::adopt(self, parts, None, None) }
    }

    /// Makes a channel by which many completion queues can wake one sleeper.
    pub fn create_comp_channel(&self) -> Result<CompChannel> {
        CompChannel::create(self)
    }

    /// Readable when [`next_async_event`](Self::next_async_event) has something.
    pub fn async_fd(&self) -> BorrowedFd<'_> {
        self.shared.control.async_fd()
    }

    /// The next event that is not a completion; `None` if none comes within `timeout`.
    pub fn next_async_event(&self, timeout: Duration) -> Result<Option<AsyncEvent>> {
        self.control().next_async_event(timeout)
    }

    /// Reads the device's health registers.
    ///
    /// # Errors
    /// [`Error::DeviceGone`], as every other call from then on.
    pub fn health(&self) -> Result<()> {
        self.control().health()
    }

    /// Takes the device down and tells what went wrong, which dropping cannot.
    ///
    /// # Errors
    /// Refused, with the context back, while objects made from it or clones of it live.
    pub fn close(self) -> std::result::Result<(), (Self, Error)> {
        let holders = Arc::strong_count(&self.shared);
        if holders > 1 {
            let error = Error::invalid(format!(
                "{} cannot be closed: {} objects or clones still use it; drop them first",
                self.name(),
                holders - 1
            ));
            return Err((self, error));
        }
        self.control().close().map_err(|error| (self, error))
    }

    pub(crate) fn control(&self) -> &Arc<dyn Control> {
        &self.shared.control
    }

    /// A number that no queue pair of this device had before, until 2²⁴ of them were made: completions of
    /// a destroyed queue pair are not taken for those of a later one with the same QP number.
    pub(crate) fn next_user_index(&self) -> UserIndex {
        UserIndex::new(self.shared.next_user_index.fetch_add(1, Ordering::Relaxed))
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Context({})", self.name())
    }
}
