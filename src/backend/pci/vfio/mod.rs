//! A function of a card through Linux's VFIO.
//!
//! | room | what is in it |
//! |---|---|
//! | `group` | the IOMMU group as this process has it, shared by functions in it |
//! | `iommu` | an address space, made in one of these ways: |
//! | `container`, `type1` | container and group, by `/dev/vfio/vfio` |
//! | `iommufd` | `/dev/iommu`, and a file for each device |
//! | `container`, `pagemap` | none: physical addresses, if asked for by name |
//! | `region` | BAR0 and config space |
//! | `irqs` | MSI-X |
//! | `ioctl` | numbers, calls, capability chains |
//! | `problem` | what keeps a function from being driven, and what helps |
//!
//! Registers are read and written by system calls, not through a mapping: a kernel that has turned a device's memory
//! off answers those with an error, where a mapped access would end the process by SIGBUS.

mod container;
mod group;
mod ioctl;
mod iommu;
mod iommufd;
mod irqs;
mod pagemap;
pub(crate) mod problem;
mod region;
mod type1;

use super::{BarMapping, EventFd, PciFunction, PhysicalMemory};
use crate::{
    Error, Result, doorbell,
    host::{Host, PciAddress, PciDevice},
};
use group::Membership;
use pagemap::Pagemap;
use region::{Bar0, Region};
use std::{
    fs::File,
    io,
    ops::RangeInclusive,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::FileExt,
    },
    ptr::NonNull,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};
use vfio_bindings::bindings::vfio::*;

/// How long a reset may be held off by others that hold the device's lock.
const RESET_PATIENCE: Duration = Duration::from_secs(5);

/// Drivers through which a function can be opened.
pub const VFIO_DRIVERS: [&str; 2] = ["vfio-pci", "mlx5_vfio_pci"];

/// Which of the kernel's two interfaces to open a function by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum VfioApi {
    /// iommufd if the kernel has it for the function and this process may use it; else the group.
    #[default]
    Auto,
    /// Container and group: `/dev/vfio/vfio`, `/dev/vfio/N`.
    Group,
    /// iommufd: `/dev/iommu`, `/dev/vfio/devices/vfioN`.
    Iommufd,
    /// A group of VFIO's no-IOMMU mode: `/dev/vfio/noiommu-N`. The device reaches all memory of the computer, and so
    /// does whoever programs it. Takes root, and huge pages for all memory that the device shall reach.
    NoIommu,
}

/// How a function is opened over VFIO.
#[derive(Debug, Clone)]
pub struct VfioOptions {
    /// The kernel's interface.
    pub api: VfioApi,
    /// Most MSI-X vectors to take from the kernel: one for the control path, and one for each completion channel.
    pub max_vectors: u16,
    /// Maps UAR pages with write-combining where sysfs offers it (`resource0_wc`).
    pub write_combining: bool,
}

impl Default for VfioOptions {
    fn default() -> Self {
        Self { api: VfioApi::Auto, max_vectors: 64, write_combining: true }
    }
}

/// A function of a card, which is bound to vfio-pci. The kernel resets it when it is opened and when it is dropped.
#[derive(Debug)]
pub struct VfioFunction {
    address: PciAddress,
    // Closed before the group that it is in: fields are dropped in this order.
    device: File,
    bar0: Bar0,
    config: Region,
    n_vectors: u16,
    /// Readable when the kernel wants the device back.
    release_requests: Option<EventFd>,
    has_reset: bool,
    /// In no-IOMMU mode.
    pagemap: Option<Pagemap>,
    membership: Membership,
}

impl VfioFunction {
    /// Opens the function at `address`.
    ///
    /// # Errors
    /// [`Error::Host`]: the IOMMU is off, another driver has the function, another process the group, this one no
    /// permission. Each says what to do.
    pub fn open(address: PciAddress, options: &VfioOptions) -> Result<Arc<Self>> {
        Self::open_on(&Host::default(), address, options)
    }

    fn open_on(host: &Host, address: PciAddress, options: &VfioOptions) -> Result<Arc<Self>> {
        let found = PciDevice::find(host, address).ok_or_else(|| problem::no_device(address))?;
        if !found.is_mlx5() {
            return Err(problem::not_mlx5(&found));
        }
        if !found.driver.as_deref().is_some_and(|driver| VFIO_DRIVERS.contains(&driver)) {
            let (text, remedy) = problem::other_driver(&found);
            return Err(Error::host(text, remedy, None));
        }
        let without_iommu = options.api == VfioApi::NoIommu;
        let group = match found.iommu_group {
            None if without_iommu => return Err(problem::no_noiommu_group(address)),
            None => {
                let (text, remedy) = problem::no_iommu(address);
                return Err(Error::host(text, remedy, None));
            }
            Some(group) if found.is_in_noiommu_mode(host) => {
                if !without_iommu {
                    let (text, remedy) = problem::noiommu_mode(address, group);
                    return Err(Error::host(text, remedy, None));
                }
                group
            }
            Some(group) if without_iommu => return Err(problem::has_iommu(address, group)),
            Some(group) => group,
        };
        let pagemap = without_iommu.then(Pagemap::open).transpose()?;
        let (membership, device) = Membership::open(host, &found, group, options.api)?;
        let failed = |what: &'static str| move |source| Error::os(format!("{address}: {what}"), source);
        let mut info =
            vfio_device_info { argsz: size_of::<vfio_device_info>() as u32, ..vfio_device_info::default() };
        // SAFETY: this ioctl takes a `vfio_device_info`.
        let asked = unsafe { ioctl::call(device.as_fd(), ioctl::DEVICE_GET_INFO, (&raw mut info).cast()) };
        asked.map_err(failed("VFIO_DEVICE_GET_INFO"))?;
        let region = |index| Region::of(&device, index).map_err(failed("VFIO_DEVICE_GET_REGION_INFO"));
        let bar0 = Bar0::new(region(VFIO_PCI_BAR0_REGION_INDEX)?, host, address, options.write_combining);
        let config = region(VFIO_PCI_CONFIG_REGION_INDEX)?;
        let vectors = irqs::n_vectors(&device).map_err(failed("VFIO_DEVICE_GET_IRQ_INFO"))?;
        let vectors = irqs::enable(&device, vectors.min(options.max_vectors.into()));
        let vectors = vectors.map_err(failed("turning MSI-X on"))?;
        let release_requests = irqs::release_requests(&device).map_err(failed("listening to the kernel"))?;
        Ok(Arc::new(Self {
            address,
            release_requests,
            bar0,
            config,
            // Cut to `max_vectors`, which has 16 bits.
            n_vectors: vectors as u16,
            has_reset: info.flags & VFIO_DEVICE_FLAGS_RESET != 0,
            device,
            pagemap,
            membership,
        }))
    }

    /// Where the function is.
    pub fn address(&self) -> PciAddress {
        self.address
    }
}

impl PciFunction for VfioFunction {
    fn name(&self) -> String {
        let kind = if self.pagemap.is_some() { "vfio-noiommu" } else { "vfio" };
        format!("{kind}:{}", self.address)
    }

    fn config_read(&self, offset: u16, bytes: &mut [u8]) -> io::Result<()> {
        self.device.read_exact_at(bytes, self.config.offset + u64::from(offset))
    }

    fn config_write(&self, offset: u16, bytes: &[u8]) -> io::Result<()> {
        self.device.write_all_at(bytes, self.config.offset + u64::from(offset))
    }

    fn bar_size_bytes(&self) -> u64 {
        self.bar0.region.len_bytes
    }

    fn bar_read32(&self, offset: u64) -> u32 {
        let mut bytes = [0; 4];
        match self.device.read_exact_at(&mut bytes, self.bar0.region.offset + offset) {
            Ok(()) => u32::from_be_bytes(bytes),
            // Its memory is off, or it is unplugged: as the bus answers.
            Err(_) => u32::MAX,
        }
    }

    fn bar_write32(&self, offset: u64, value: u32) {
        doorbell::before_doorbell(false);
        // A store on the bus does not tell that nobody took it; whoever waits for an effect looks at the health.
        let _ = self.device.write_all_at(&value.to_be_bytes(), self.bar0.region.offset + offset);
    }

    fn map_bar(&self, offset: u64, len_bytes: usize) -> io::Result<Box<dyn BarMapping>> {
        Ok(Box::new(self.bar0.map(&self.device, offset, len_bytes)?))
    }

    fn iova_ranges(&self) -> Vec<RangeInclusive<u64>> {
        self.membership.ranges()
    }

    fn physical_memory(&self) -> Option<&dyn PhysicalMemory> {
        self.pagemap.as_ref().map(|pagemap| pagemap as _)
    }

    unsafe fn dma_map(
        &self,
        iova: u64,
        memory: NonNull<u8>,
        len_bytes: usize,
        _file: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        // SAFETY: promised by the caller.
        let mapped = unsafe { self.membership.iommu().map(iova, memory, len_bytes) };
        mapped.map_err(|source| problem::map(&source, len_bytes))
    }

    fn dma_unmap(&self, iova: u64, len_bytes: usize) -> io::Result<()> {
        let unmapped = self.membership.iommu().unmap(iova, len_bytes)?;
        if unmapped == len_bytes as u64 {
            return Ok(());
        }
        Err(io::Error::other(format!(
            "unmapping {len_bytes} bytes at 0x{iova:x}: {unmapped} were mapped there"
        )))
    }

    fn n_vectors(&self) -> u16 {
        self.n_vectors
    }

    fn set_irq(&self, vector: u16, eventfd: Option<BorrowedFd<'_>>) -> io::Result<()> {
        if vector >= self.n_vectors {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("MSI-X vector {vector}: the function has {}, from 0", self.n_vectors),
            ));
        }
        irqs::set_one(&self.device, vector, eventfd)
    }

    fn is_wanted_back(&self) -> bool {
        let requests = self.release_requests.as_ref();
        requests.is_some_and(|requests| requests.wait(Duration::ZERO).unwrap_or(false))
    }

    fn reset(&self) -> io::Result<()> {
        if !self.has_reset {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "the kernel knows no way to reset this function alone",
            ));
        }
        let deadline = Instant::now() + RESET_PATIENCE;
        loop {
            // SAFETY: takes nothing.
            match unsafe { ioctl::call_number(self.device.as_fd(), ioctl::DEVICE_RESET, 0) } {
                Ok(_) => return Ok(()),
                // Somebody holds the device's lock for a moment; or until it is closed, if he wants it back.
                Err(error)
                    if error.raw_os_error() == Some(libc::EAGAIN)
                        && Instant::now() < deadline
                        && !self.is_wanted_back() =>
                {
                    thread::sleep(Duration::from_millis(10));
                }
                Err(error) => return Err(error),
            }
        }
    }
}
