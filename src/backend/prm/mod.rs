//! The device's own command interface, over any [`PciFunction`].
//!
//! [`PrmControl::open`] brings a function up the way Linux does. Commands of any thread go through one command
//! queue; one thread watches events and health, another serves the firmware's page requests.
#![forbid(unsafe_code)]

mod address;
mod bringup;
mod channel;
mod cmd_queue;
mod cq;
mod eq;
mod events;
mod health;
mod lent;
mod mailbox;
mod mr;
mod mw;
mod pages;
mod port;
mod qp;
mod raw_packet;
mod regs;
mod steering;
mod tables;
mod uar;

pub use lent::LentQueue;
pub use uar::Uar;

use super::{
    AddressVector, AsyncEvent, CompChannel, Control, CqParams, CqParts, DeviceAttr, FlowId, FrameMatch,
    GidEntry, Keys, MrParams, PortAttr, QpAttr, QpModify, QpParams, QpParts, SpecialContexts,
    dma::{DmaRegion, DmaSpace, HostMemory, PageSize},
    pci::PciFunction,
};
use crate::{
    Error, Gone, Result,
    mlx5::{
        cmd::{AllocPdIn, AllocUarIn, Command, DeallocPdIn, DeallocUarIn, QuerySpecialContextsIn},
        ids::{Cqn, Lkey, Pdn, Qpn, Rkey, UarIndex},
    },
    wqe::AvSeg,
};
use bringup::{Caps, Stage};
use channel::Vectors;
use cmd_queue::{CommandQueue, Lane};
use events::{AsyncEvents, Monitor};
use health::Health;
use pages::FirmwarePages;
use std::{
    fmt,
    os::fd::{AsFd, BorrowedFd},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tables::Tables;
use uar::UarPool;

/// How a function is opened.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// Deadline of each command.
    pub command_timeout: Duration,
    /// How long the device may initialise itself.
    pub fw_init_timeout: Duration,
    /// Pause between two looks at the health registers.
    pub health_interval: Duration,
    /// Most 4 KiB pages that firmware may borrow at once.
    pub max_firmware_pages: usize,
    /// Signs mailboxes and checks the device's signatures (`cmdif_checksum`).
    pub command_signatures: bool,
    /// Resets the function first: what a killed owner left behind goes away.
    pub reset: bool,
    /// Enables the link, and fills GID entries 0 and 1 with the link-local address in RoCE v1 and v2, as
    /// Linux does.
    pub set_up_ports: bool,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            command_timeout: Duration::from_secs(60),
            fw_init_timeout: Duration::from_secs(120),
            health_interval: Duration::from_secs(2),
            max_firmware_pages: 1 << 20,
            command_signatures: false,
            reset: false,
            set_up_ports: true,
        }
    }
}

/// What all parts of an open function share.
#[derive(Debug)]
pub(crate) struct Core {
    function: Arc<dyn PciFunction>,
    dma: Arc<DmaSpace>,
    health: Arc<Health>,
    cmd: CommandQueue,
    pages: FirmwarePages,
    events: AsyncEvents,
    vectors: Vectors,
    tables: Tables,
    /// Memory of objects that the device did not let go of.
    graves: Mutex<Vec<DmaRegion>>,
}

impl Core {
    /// Keeps memory until the function is down.
    fn bury(&self, region: DmaRegion) {
        lock(&self.graves).push(region);
    }

    /// A command that would have given `memory` to the device failed with `error`. Unless the device has
    /// refused it, the device may have the memory, and keeps it.
    fn failed(&self, error: Error, memory: impl IntoIterator<Item = DmaRegion>) -> Error {
        if !matches!(error, Error::Command { .. } | Error::Delivery { .. }) {
            memory.into_iter().for_each(|region| self.bury(region));
        }
        error
    }

    /// The device is gone: whoever waits learns it now.
    fn declare_gone(&self, gone: Gone) {
        self.health.declare(gone);
        self.tell_gone();
    }

    /// Wakes whoever waits on a device that is gone.
    fn tell_gone(&self) {
        if let Some(gone) = self.health.news().filter(|gone| *gone != Gone::Closed) {
            self.events.push(AsyncEvent::DeviceFatal(gone));
        }
        self.cmd.wake();
        self.vectors.wake_all();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An open function.
pub struct PrmControl {
    core: Arc<Core>,
    caps: Caps,
    attr: DeviceAttr,
    /// Who watches the function; `None` once closed.
    running: Mutex<Option<Monitor>>,
    /// UAR page of the event queues.
    events_uar: UarIndex,
    /// UAR pages of all other queues.
    uars: UarPool,
}

impl PrmControl {
    /// Brings a function up. If a step fails, those before it are undone.
    pub fn open(function: Arc<dyn PciFunction>, options: &OpenOptions) -> Result<Arc<Self>> {
        let core = bringup::attach(function, options)?;
        let mut stage = Stage::Attached;
        let started = bringup::initialise(&core, options, &mut stage).and_then(|caps| {
            let attr = caps.device_attr(&core)?;
            let events_uar = core.cmd.call(&AllocUarIn::request())?.uar();
            match Monitor::start(&core, events_uar, options.health_interval) {
                Ok(monitor) => Ok((caps, attr, events_uar, monitor)),
                Err(error) => {
                    core.cmd.call(&DeallocUarIn::request().with_uar(events_uar))?;
                    Err(error)
                }
            }
        });
        let (caps, attr, events_uar, monitor) = match started {
            Ok(started) => started,
            Err(error) => {
                // The first error is the one to tell.
                let _ = bringup::tear_down(&core, stage);
                return Err(error);
            }
        };
        core.tables.set_control_eqn(monitor.eqn());
        // From here on, dropping it takes the function down.
        let (running, uars) = (Mutex::new(Some(monitor)), UarPool::default());
        let control = Arc::new(Self { core, caps, attr, running, events_uar, uars });
        if options.set_up_ports {
            control.set_up_ports()?;
        }
        Ok(control)
    }

    /// 4 KiB pages that firmware holds.
    pub fn firmware_pages(&self) -> usize {
        self.core.pages.count()
    }

    /// Makes a UAR page of the caller's own, for queues that have no method here.
    pub fn alloc_uar(&self) -> Result<Uar> {
        Uar::alloc(&self.core, self.attr.bf_reg_size_bytes as usize)
    }

    /// Ends a UAR page now, and tells what went wrong, which dropping it cannot. No queue may be bound to it, and no
    /// store to it may follow.
    pub fn dealloc_uar(&self, uar: UarIndex) -> Result<()> {
        uar::dealloc(&self.core, uar)
    }

    /// Executes any command given as bytes, for what has no method here. `output` starts with status and
    /// syndrome, which are looked at: a refusal is an error.
    ///
    /// Objects made this way are the caller's to destroy, and memory that they name is the caller's to map.
    pub fn execute(&self, input: &[u8], output: &mut [u8]) -> Result<()> {
        if output.len() < size_of::<u64>() {
            return Err(Error::invalid(format!("an output of {} bytes: 8 at least", output.len())));
        }
        self.core.cmd.exec_bytes(Lane::Regular, input, output)
    }

    /// Bytes of I/O virtual addresses that are free.
    pub fn free_iova_bytes(&self) -> u64 {
        self.core.dma.free_bytes()
    }

    fn shut_down(&self) -> Result<()> {
        let Some(monitor) = lock(&self.running).take() else { return Ok(()) };
        let core = &*self.core;
        let mut result = core.tables.destroy_all(core);
        self.uars.clear();
        result = result.and(core.vectors.shut_down(core));
        result = result.and(monitor.stop(core));
        if core.health.answers().is_ok() {
            let uar = core.cmd.call(&DeallocUarIn::request().with_uar(self.events_uar));
            result = result.and(uar.map(|_| ()));
        }
        result.and(bringup::tear_down(core, Stage::Initialised))
    }
}

impl Drop for PrmControl {
    fn drop(&mut self) {
        // Failures can be had from `close`; here there is nobody to tell.
        let _ = self.shut_down();
    }
}

impl fmt::Debug for PrmControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrmControl").field("function", &self.core.function.name()).finish_non_exhaustive()
    }
}

impl Control for PrmControl {
    fn name(&self) -> String {
        self.core.function.name()
    }

    fn device_attr(&self) -> &DeviceAttr {
        &self.attr
    }

    fn query_port(&self, port: u8) -> Result<PortAttr> {
        self.port_attr(port)
    }

    fn set_port(&self, port: u8, up: bool) -> Result<()> {
        self.set_port_admin(port, up)
    }

    fn query_gid(&self, port: u8, index: u16) -> Result<GidEntry> {
        self.gid_entry(port, index)
    }

    fn set_gid(&self, port: u8, index: u16, entry: Option<&GidEntry>) -> Result<()> {
        self.set_gid_entry(port, index, entry)
    }

    fn query_pkey(&self, port: u8, index: u16) -> Result<u16> {
        self.pkey_entry(port, index)
    }

    fn special_contexts(&self) -> Result<SpecialContexts> {
        let out = self.core.cmd.call(&QuerySpecialContextsIn::request())?;
        Ok(SpecialContexts {
            dump_fill_mkey: out.dump_fill_mkey(),
            resd_lkey: out.resd_lkey(),
            null_mkey: out.null_mkey(),
        })
    }

    fn read_clock(&self) -> Result<u64> {
        self.core.health.alive()?;
        Ok(regs::internal_timer(&*self.core.function))
    }

    fn alloc_pd(&self) -> Result<Pdn> {
        let pd = self.core.cmd.call(&AllocPdIn::request())?.pd();
        self.core.tables.add_pd(pd);
        Ok(pd)
    }

    fn dealloc_pd(&self, pd: Pdn) -> Result<()> {
        let core = &*self.core;
        core.tables.remove_pd(pd)?;
        let result = core.cmd.call(&DeallocPdIn::request().with_pd(pd));
        if result.is_err() {
            core.tables.add_pd(pd);
        }
        result.map(|_| ())
    }

    fn alloc_memory(&self, len_bytes: usize, page_size: PageSize) -> Result<Arc<HostMemory>> {
        self.core.dma.alloc_memory(len_bytes, page_size)
    }

    fn reg_mr(&self, params: &MrParams) -> Result<Keys> {
        self.create_mkey(params)
    }

    fn dereg_mr(&self, lkey: Lkey) -> Result<()> {
        mr::destroy(&self.core, lkey)
    }

    fn alloc_mw(&self, pd: Pdn) -> Result<Rkey> {
        self.create_window(pd)
    }

    fn dealloc_mw(&self, rkey: Rkey) -> Result<()> {
        mw::destroy(&self.core, rkey)
    }

    fn create_indirect_key(&self, pd: Pdn, n_entries: u32) -> Result<Rkey> {
        self.create_indirect(pd, n_entries)
    }

    fn destroy_indirect_key(&self, key: Rkey) -> Result<()> {
        mw::destroy(&self.core, key)
    }

    fn create_cq(&self, params: &CqParams) -> Result<CqParts> {
        self.make_cq(params)
    }

    fn destroy_cq(&self, cqn: Cqn) -> Result<()> {
        cq::destroy(&self.core, cqn)
    }

    fn create_qp(&self, params: &QpParams) -> Result<QpParts> {
        self.make_qp(params)
    }

    fn modify_qp(&self, qpn: Qpn, modify: &QpModify) -> Result<()> {
        self.move_qp(qpn, modify)
    }

    fn query_qp(&self, qpn: Qpn) -> Result<QpAttr> {
        self.qp_attr(qpn)
    }

    fn address_vector(&self, _: Pdn, ah: &AddressVector, local: Qpn, remote: Qpn) -> Result<AvSeg> {
        self.make_av(ah, local, remote)
    }

    fn destroy_qp(&self, qpn: Qpn) -> Result<()> {
        qp::destroy(&self.core, qpn)
    }

    fn create_flow(&self, qpn: Qpn, frames: &FrameMatch) -> Result<FlowId> {
        self.add_flow(qpn, frames)
    }

    fn destroy_flow(&self, qpn: Qpn, flow: FlowId) -> Result<()> {
        self.remove_flow(qpn, flow)
    }

    fn create_comp_channel(&self) -> Result<Arc<dyn CompChannel>> {
        Ok(channel::create(&self.core, self.events_uar)?)
    }

    fn async_fd(&self) -> BorrowedFd<'_> {
        self.core.events.fd().as_fd()
    }

    fn next_async_event(&self, timeout: Duration) -> Result<Option<AsyncEvent>> {
        self.core.events.next(&self.core, timeout)
    }

    fn health(&self) -> Result<()> {
        if self.core.health.gone().is_none()
            && let Some(gone) = self.core.health.sense()
        {
            self.core.declare_gone(gone);
        }
        self.core.health.alive()
    }

    fn close(&self) -> Result<()> {
        self.shut_down()
    }
}
