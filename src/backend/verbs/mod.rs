//! The kernel's verbs: a device that its kernel driver keeps, with rings of our own on it.
//!
//! libibverbs and libmlx5 make the objects, and tell by direct verbs (`mlx5dv_init_obj`) where their rings, records
//! and doorbell registers are. From then on the rings are ours: nothing is posted, polled or armed through the
//! libraries. State changes, events and destruction go through them, so that kernel and libraries know what there is.
//!
//! The libraries are loaded when a device is listed or opened; nothing of them is needed to build.
//!
//! ```no_run
//! # fn f() -> mlx5_direct::Result<()> {
//! use mlx5_direct::{Context, backend::verbs::VerbsControl};
//! let ctx = Context::on(VerbsControl::open("mlx5_0")?);
//! println!("{}: firmware {}", ctx.name(), ctx.device().fw_ver);
//! # Ok(()) }
//! ```
//!
//! What is the kernel's stays the kernel's: addresses of ports ([`set_gid`](Control::set_gid)) and their state
//! ([`set_port`](Control::set_port)) are refused with the command of the administrator that does it; the MAC address
//! of a peer is what the kernel's neighbour table says.

mod channel;
mod cq;
mod device;
mod events;
pub mod ffi;
mod import;
mod library;
mod mr;
mod mw;
mod port;
mod qp;
mod sysfs;

pub use device::devices;

use super::{
    AddressVector, AsyncEvent, CompChannel, Control, CqParams, CqParts, DeviceAttr, GidEntry, Keys, MrParams,
    PortAttr, QpAttr, QpModify, QpParams, QpParts, SpecialContexts,
};
use crate::{
    Error, Gone, Result,
    mlx5::ids::{Cqn, Lkey, Pdn, Qpn, Rkey},
    wqe::AvSeg,
};
use channel::Channel;
use cq::CqEntry;
use device::Device;
use ffi::IbvPd;
use library::{Library, done, made};
use mr::MrEntry;
use mw::MwEntry;
use qp::{Parked, QpEntry};
use std::{
    collections::HashMap,
    fmt,
    hash::Hash,
    os::fd::BorrowedFd,
    ptr::NonNull,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

/// A pointer to an object of the libraries, which they lock themselves.
struct Object<T>(NonNull<T>);

// SAFETY: objects of libibverbs may be used from any thread, at the same time too.
unsafe impl<T> Send for Object<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Object<T> {}

impl<T> Object<T> {
    fn as_ptr(&self) -> *mut T {
        self.0.as_ptr()
    }
}

impl<T> Clone for Object<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Object<T> {}

impl<T> fmt::Debug for Object<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A protection domain. Objects in it hold it; the last that does frees it.
#[derive(Debug)]
struct PdEntry {
    pd: Object<IbvPd>,
    /// Made here, and freed here: by this library.
    owned: Option<&'static Library>,
}

impl Drop for PdEntry {
    fn drop(&mut self) {
        if let Some(library) = self.owned {
            // SAFETY: nobody has it any more, so that this is done once. One that is refused, since the application uses
            // it, stays until the device is closed.
            unsafe { (library.ibv_dealloc_pd)(self.pd.as_ptr()) };
        }
    }
}

/// What was made and not yet destroyed, by its number.
type Table<K, V> = Mutex<HashMap<K, V>>;

/// A device that its kernel driver keeps, opened through libibverbs.
pub struct VerbsControl {
    // Objects before the device that they are of.
    qps: Table<Qpn, Arc<QpEntry>>,
    /// Destroyed for their owners.
    parked: Mutex<Vec<Parked>>,
    cqs: Table<Cqn, Arc<CqEntry>>,
    mws: Table<Rkey, MwEntry>,
    mrs: Table<Lkey, MrEntry>,
    pds: Table<Pdn, Arc<PdEntry>>,
    channels: Mutex<Vec<Weak<Channel>>>,
    attr: DeviceAttr,
    device: Arc<Device>,
}

impl VerbsControl {
    /// Opens the device that [`devices`] lists as `name`.
    ///
    /// # Errors
    /// The libraries are not there, there is no such device, or the kernel refuses: each with what to do.
    pub fn open(name: &str) -> Result<Arc<Self>> {
        Self::on(Device::open(name)?)
    }

    fn on(device: Device) -> Result<Arc<Self>> {
        let attr = device.query()?;
        Ok(Arc::new(Self {
            qps: Mutex::default(),
            parked: Mutex::default(),
            cqs: Mutex::default(),
            mws: Mutex::default(),
            mrs: Mutex::default(),
            pds: Mutex::default(),
            channels: Mutex::default(),
            attr,
            device: Arc::new(device),
        }))
    }

    fn pd(&self, pd: Pdn) -> Result<Arc<PdEntry>> {
        lock(&self.pds).get(&pd).cloned().ok_or_else(|| unknown("protection domain", pd.get()))
    }

    /// Destroys whatever is left, users before what they use.
    fn shut_down(&self) -> Result<()> {
        let mut result = Ok(());
        let mut keep_first = |step: Result<()>| {
            if result.is_ok() {
                result = step;
            }
        };
        let qps: Vec<_> = lock(&self.qps).keys().copied().collect();
        qps.into_iter().for_each(|qpn| keep_first(self.end_qp(qpn)));
        keep_first(self.reap_all());
        let cqs: Vec<_> = lock(&self.cqs).keys().copied().collect();
        cqs.into_iter().for_each(|cqn| keep_first(self.end_cq(cqn)));
        let mws: Vec<_> = lock(&self.mws).keys().copied().collect();
        mws.into_iter().for_each(|rkey| keep_first(self.end_mw(rkey)));
        let mrs: Vec<_> = lock(&self.mrs).keys().copied().collect();
        mrs.into_iter().for_each(|lkey| keep_first(self.end_mr(lkey)));
        let pds: Vec<_> = lock(&self.pds).keys().copied().collect();
        pds.into_iter().for_each(|pd| keep_first(self.end_pd(pd)));
        result
    }

    /// Parked queue pairs may hold the domain a while longer. For others it is in use.
    fn end_pd(&self, pd: Pdn) -> Result<()> {
        self.reap(None);
        let mut pds = lock(&self.pds);
        let entry = pds.get(&pd).ok_or_else(|| unknown("protection domain", pd.get()))?;
        let n_parked = lock(&self.parked).iter().filter(|parked| parked.is_in(entry)).count();
        match Arc::strong_count(entry) - 1 - n_parked {
            0 => drop(pds.remove(&pd)),
            n => return Err(in_use("protection domain", pd.get(), n)),
        }
        Ok(())
    }
}

impl Drop for VerbsControl {
    fn drop(&mut self) {
        // Failures can be had from `close`; here there is nobody to tell.
        let _ = self.shut_down();
    }
}

impl fmt::Debug for VerbsControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerbsControl").field("device", &self.device.name()).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn unknown(what: &str, number: u32) -> Error {
    Error::invalid(format!("{what} 0x{number:x} does not exist, or was destroyed already"))
}

fn in_use(what: &str, number: u32, n: usize) -> Error {
    Error::invalid(format!("{what} 0x{number:x} is in use by {n} objects; destroy them first"))
}

/// Takes an object out of its table before the kernel is asked to destroy it: once it has, another thread may get the
/// same number.
fn take<K: Eq + Hash, V>(table: &Table<K, V>, key: K, what: &str, number: u32) -> Result<V> {
    lock(table).remove(&key).ok_or_else(|| unknown(what, number))
}

/// As [`take`], for objects that others hold while they use them: those in use are refused, as the device does.
fn take_unused<K: Eq + Hash, V>(table: &Table<K, Arc<V>>, key: K, what: &str, number: u32) -> Result<Arc<V>> {
    let mut table = lock(table);
    let entry = table.remove(&key).ok_or_else(|| unknown(what, number))?;
    // Nobody can get it meanwhile: the table is locked.
    match Arc::strong_count(&entry) - 1 {
        0 => Ok(entry),
        n => {
            table.insert(key, entry);
            Err(in_use(what, number, n))
        }
    }
}

impl Control for VerbsControl {
    fn name(&self) -> String {
        format!("verbs:{}", self.device.name())
    }

    fn device_attr(&self) -> &DeviceAttr {
        &self.attr
    }

    fn query_port(&self, port: u8) -> Result<PortAttr> {
        self.device.alive()?;
        self.port_attr(port)
    }

    fn set_port(&self, port: u8, up: bool) -> Result<()> {
        let way = if up { "up" } else { "down" };
        let netdev = self.netdev(port);
        Err(Error::Unsupported {
            capability: "port control",
            reason: format!("port {port} of {} is the kernel's: `ip link set {netdev} {way}`", self.name()),
        })
    }

    fn query_gid(&self, port: u8, index: u16) -> Result<GidEntry> {
        self.device.alive()?;
        self.gid_entry(port, index)
    }

    fn set_gid(&self, port: u8, _: u16, entry: Option<&GidEntry>) -> Result<()> {
        let netdev = self.netdev(port);
        let command = match entry {
            None => format!("ip addr del ADDRESS dev {netdev}"),
            Some(entry) => format!("ip addr add {} dev {netdev}", port::prefix(&entry.gid)),
        };
        Err(Error::Unsupported {
            capability: "GID table control",
            reason: format!(
                "the GIDs of port {port} of {} follow from the addresses that the kernel has: `{command}`",
                self.name()
            ),
        })
    }

    fn query_pkey(&self, port: u8, index: u16) -> Result<u16> {
        self.device.alive()?;
        self.pkey_entry(port, index)
    }

    fn special_contexts(&self) -> Result<SpecialContexts> {
        Err(Error::Unsupported {
            capability: "QUERY_SPECIAL_CONTEXTS",
            reason: format!("verbs do not tell the keys that every function of {} has", self.name()),
        })
    }

    fn read_clock(&self) -> Result<u64> {
        self.device.alive()?;
        self.device.read_clock()
    }

    fn alloc_pd(&self) -> Result<Pdn> {
        self.device.alive()?;
        // SAFETY: the context is open as long as `self`.
        let pd = unsafe { (self.device.library().ibv_alloc_pd)(self.device.context()) };
        let pd = Object(made(|| "allocating a protection domain".into(), pd)?);
        let entry = Arc::new(PdEntry { pd, owned: Some(self.device.library()) });
        let pdn = self.device.pdn(pd)?;
        lock(&self.pds).insert(pdn, entry);
        Ok(pdn)
    }

    fn dealloc_pd(&self, pd: Pdn) -> Result<()> {
        self.end_pd(pd)
    }

    fn reg_mr(&self, params: &MrParams) -> Result<Keys> {
        self.device.alive()?;
        self.make_mr(params)
    }

    fn dereg_mr(&self, lkey: Lkey) -> Result<()> {
        self.end_mr(lkey)
    }

    fn alloc_mw(&self, pd: Pdn) -> Result<Rkey> {
        self.device.alive()?;
        self.make_mw(pd)
    }

    fn dealloc_mw(&self, rkey: Rkey) -> Result<()> {
        self.end_mw(rkey)
    }

    fn create_cq(&self, params: &CqParams) -> Result<CqParts> {
        self.device.alive()?;
        self.make_cq(params)
    }

    fn destroy_cq(&self, cqn: Cqn) -> Result<()> {
        self.end_cq(cqn)
    }

    fn create_qp(&self, params: &QpParams) -> Result<QpParts> {
        self.device.alive()?;
        self.make_qp(params)
    }

    fn modify_qp(&self, qpn: Qpn, modify: &QpModify) -> Result<()> {
        self.device.alive()?;
        self.move_qp(qpn, modify)
    }

    fn query_qp(&self, qpn: Qpn) -> Result<QpAttr> {
        self.device.alive()?;
        self.qp_attr(qpn)
    }

    fn address_vector(&self, pd: Pdn, ah: &AddressVector, _: Qpn, remote: Qpn) -> Result<AvSeg> {
        self.device.alive()?;
        self.make_av(pd, ah, remote)
    }

    fn destroy_qp(&self, qpn: Qpn) -> Result<()> {
        self.end_qp(qpn)
    }

    fn create_comp_channel(&self) -> Result<Arc<dyn CompChannel>> {
        self.device.alive()?;
        let channel = Channel::create(&self.device)?;
        let mut channels = lock(&self.channels);
        channels.retain(|channel| channel.strong_count() > 0);
        channels.push(Arc::downgrade(&channel));
        Ok(channel)
    }

    fn async_fd(&self) -> BorrowedFd<'_> {
        self.device.async_fd()
    }

    fn next_async_event(&self, timeout: Duration) -> Result<Option<AsyncEvent>> {
        self.next_event(timeout)
    }

    fn health(&self) -> Result<()> {
        self.device.alive()?;
        // A device that has failed fatally answers no command; the kernel says so.
        self.port_attr(1).map(|_| ())
    }

    fn close(&self) -> Result<()> {
        let result = self.shut_down();
        self.device.declare(Gone::Closed);
        result
    }
}
