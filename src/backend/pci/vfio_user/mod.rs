//! A function that another process serves on a vfio-user socket.
//!
//! The server reaches this process's memory through files that it is sent, and its UAR pages are mapped here:
//! the data path makes no call. Registers of the init segment are messages.

mod protocol;

use super::{BarMapping, IOVA_RANGES_OF_X86, PciFunction, mapped::MappedPages};
use memmap2::MmapOptions;
use protocol::{
    Command, Connection, DeviceInfo, DmaMap, DmaUnmap, IrqInfo, RegionAccess, RegionInfo, Reply, SetIrqs,
    malformed,
};
use std::{
    fs::File,
    io,
    ops::{Range, RangeInclusive},
    os::fd::{BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    ptr::NonNull,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use vfio_bindings::bindings::vfio::{
    VFIO_DEVICE_FLAGS_PCI, VFIO_IRQ_SET_ACTION_TRIGGER, VFIO_IRQ_SET_DATA_EVENTFD,
    VFIO_PCI_BAR0_REGION_INDEX, VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_MSIX_IRQ_INDEX,
    VFIO_REGION_INFO_CAP_SPARSE_MMAP, VFIO_REGION_INFO_FLAG_CAPS, VFIO_REGION_INFO_FLAG_MMAP,
};
use zerocopy::{FromBytes, IntoBytes};

/// Longest wait for an answer. A server answers from its own state: one that takes longer is gone.
const TIMEOUT: Duration = Duration::from_secs(10);

/// `flags` of DMA_MAP: the device may read and write.
const READ_WRITE: u32 = 3;

/// A PCI function behind a vfio-user socket: `mlx5 model serve --socket PATH`, or any other server.
///
/// ```no_run
/// use mlx5_direct::{Context, backend::{pci::VfioUserFunction, prm::OpenOptions}};
/// let function = VfioUserFunction::connect("/run/mlx5.sock".as_ref())?;
/// let ctx = Context::open(function, OpenOptions::default())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Memory that the device shall reach has to be a file's: that of the crate is ([`Pd::alloc_mr`](crate::Pd::alloc_mr)),
/// each allocation with a file descriptor; memory of the application cannot be registered.
#[derive(Debug)]
pub struct VfioUserFunction {
    path: PathBuf,
    connection: Mutex<Connection>,
    bar: Bar,
    n_vectors: u16,
}

/// BAR0.
#[derive(Debug)]
struct Bar {
    size_bytes: u64,
    /// What can be mapped, and where BAR0 begins in it.
    file: Option<(File, u64)>,
    /// Which parts of BAR0 can be mapped.
    areas: Vec<Range<u64>>,
}

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

impl VfioUserFunction {
    /// Connects to the server at `path`.
    ///
    /// # Errors
    /// Nobody serves there; the server does not speak the protocol, or not of a PCI function with a BAR0.
    pub fn connect(path: &Path) -> io::Result<Arc<Self>> {
        let named = |error: io::Error| {
            let hint = match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                    "; start a server with `mlx5 model serve --socket PATH`"
                }
                _ => "",
            };
            io::Error::new(error.kind(), format!("vfio-user socket {}: {error}{hint}", path.display()))
        };
        let mut connection = Connection::open(path, TIMEOUT).map_err(named)?;
        let (bar, n_vectors) = ask(&mut connection).map_err(named)?;
        Ok(Arc::new(Self { path: path.into(), connection: Mutex::new(connection), bar, n_vectors }))
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn call(&self, command: Command, body: &[u8], file: Option<BorrowedFd<'_>>) -> io::Result<Reply> {
        self.connection().call(command, body, file)
    }

    fn region_read(&self, region: u32, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let access = RegionAccess { offset, region, count: bytes.len() as u32 };
        let reply = self.call(Command::RegionRead, access.as_bytes(), None)?;
        match reply.bytes().get(size_of::<RegionAccess>()..) {
            Some(data) if data.len() == bytes.len() => bytes.copy_from_slice(data),
            _ => {
                return Err(malformed(format!(
                    "{} bytes in answer to a read of {}",
                    reply.bytes().len(),
                    bytes.len()
                )));
            }
        }
        Ok(())
    }

    fn region_write(&self, region: u32, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let access = RegionAccess { offset, region, count: bytes.len() as u32 };
        let body = [access.as_bytes(), bytes].concat();
        self.call(Command::RegionWrite, &body, None).map(|_| ())
    }
}

/// What the function has.
fn ask(connection: &mut Connection) -> io::Result<(Bar, u16)> {
    let info = DeviceInfo { argsz: size_of::<DeviceInfo>() as u32, flags: 0, num_regions: 0, num_irqs: 0 };
    let info: DeviceInfo = connection.call(Command::DeviceGetInfo, info.as_bytes(), None)?.head()?;
    if info.flags & VFIO_DEVICE_FLAGS_PCI == 0 {
        return Err(invalid(format!("the device (flags 0x{:x}) is not a PCI function", info.flags)));
    }
    let bar = region(connection, VFIO_PCI_BAR0_REGION_INDEX)?;
    let vectors =
        IrqInfo { argsz: size_of::<IrqInfo>() as u32, flags: 0, index: VFIO_PCI_MSIX_IRQ_INDEX, count: 0 };
    let vectors: IrqInfo = connection.call(Command::DeviceGetIrqInfo, vectors.as_bytes(), None)?.head()?;
    Ok((bar, vectors.count.try_into().unwrap_or(u16::MAX)))
}

/// BAR0 with all its capabilities.
fn region(connection: &mut Connection, index: u32) -> io::Result<Bar> {
    let mut argsz = size_of::<RegionInfo>() as u32;
    // Once to hear how long the answer is, once more for all of it.
    for _ in 0..2 {
        let ask = RegionInfo { argsz, flags: 0, index, cap_offset: 0, size: 0, offset: 0 };
        let reply = connection.call(Command::DeviceGetRegionInfo, ask.as_bytes(), None)?;
        let info: RegionInfo = reply.head()?;
        if info.argsz > argsz {
            argsz = info.argsz;
            continue;
        }
        let mut areas = Vec::new();
        if info.flags & VFIO_REGION_INFO_FLAG_MMAP != 0 {
            areas = sparse_areas(&info, reply.bytes())?;
        }
        let file = reply.file.map(|file: OwnedFd| (File::from(file), info.offset));
        return Ok(Bar { size_bytes: info.size, file, areas });
    }
    Err(malformed(format!("region {index}: the answer grows each time that it is asked for")))
}

/// The parts that can be mapped: all, if no capability says which. `bytes` begins with `info`.
fn sparse_areas(info: &RegionInfo, bytes: &[u8]) -> io::Result<Vec<Range<u64>>> {
    let word = |at: usize| -> io::Result<u32> {
        let found = bytes.get(at..).and_then(|rest| u32::read_from_prefix(rest).ok());
        found.map(|(word, _)| word).ok_or_else(|| malformed(format!("a capability ends at byte {at}")))
    };
    let long = |at: usize| Ok::<_, io::Error>(u64::from(word(at)?) | u64::from(word(at + 4)?) << 32);
    let mut at = if info.flags & VFIO_REGION_INFO_FLAG_CAPS == 0 { 0 } else { info.cap_offset as usize };
    while at != 0 {
        let next = word(at + 4)? as usize;
        if word(at)? & 0xffff == VFIO_REGION_INFO_CAP_SPARSE_MMAP {
            let mut areas = Vec::new();
            for i in 0..word(at + 8)? as usize {
                let (start, size) = (long(at + 16 + 16 * i)?, long(at + 24 + 16 * i)?);
                areas.push(start..start.saturating_add(size));
            }
            return Ok(areas);
        }
        if next != 0 && next <= at {
            return Err(malformed(format!("the capability at byte {at} is followed by the one at {next}")));
        }
        at = next;
    }
    Ok(std::iter::once(0..info.size).collect())
}

impl PciFunction for VfioUserFunction {
    fn name(&self) -> String {
        format!("vfio-user:{}", self.path.display())
    }

    fn config_read(&self, offset: u16, bytes: &mut [u8]) -> io::Result<()> {
        self.region_read(VFIO_PCI_CONFIG_REGION_INDEX, offset.into(), bytes)
    }

    fn config_write(&self, offset: u16, bytes: &[u8]) -> io::Result<()> {
        self.region_write(VFIO_PCI_CONFIG_REGION_INDEX, offset.into(), bytes)
    }

    fn bar_size_bytes(&self) -> u64 {
        self.bar.size_bytes
    }

    fn bar_read32(&self, offset: u64) -> u32 {
        let mut bytes = [0; 4];
        match self.region_read(VFIO_PCI_BAR0_REGION_INDEX, offset, &mut bytes) {
            Ok(()) => u32::from_be_bytes(bytes),
            // As a function that has left the bus.
            Err(_) => u32::MAX,
        }
    }

    fn bar_write32(&self, offset: u64, value: u32) {
        // A server that is gone is noticed at the next read.
        let _ = self.region_write(VFIO_PCI_BAR0_REGION_INDEX, offset, &value.to_be_bytes());
    }

    fn map_bar(&self, offset: u64, len_bytes: usize) -> io::Result<Box<dyn BarMapping>> {
        let end = offset.saturating_add(len_bytes as u64);
        let inside = |area: &Range<u64>| area.start <= offset && end <= area.end;
        let file = self.bar.file.as_ref().filter(|_| self.bar.areas.iter().any(inside));
        let Some((file, start)) = file else {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                format!(
                    "the vfio-user server does not let bytes 0x{offset:x} to 0x{end:x} of BAR0 be mapped, only \
                     {:x?}; the software ConnectX does with bar=mapped",
                    self.bar.areas
                ),
            ));
        };
        let map = MmapOptions::new().offset(start + offset).len(len_bytes).map_raw(file)?;
        // Memory that the server looks at: whole lines arrive.
        Ok(Box::new(MappedPages::new(map, true)?))
    }

    fn iova_ranges(&self) -> Vec<RangeInclusive<u64>> {
        IOVA_RANGES_OF_X86.to_vec()
    }

    fn needs_files(&self) -> bool {
        true
    }

    unsafe fn dma_map(
        &self,
        iova: u64,
        _memory: NonNull<u8>,
        len_bytes: usize,
        file: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let Some(file) = file else {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "a vfio-user server reaches memory of files only: let the crate allocate it (Pd::alloc_mr)",
            ));
        };
        let map = DmaMap {
            argsz: size_of::<DmaMap>() as u32,
            flags: READ_WRITE,
            offset: 0,
            address: iova,
            size: len_bytes as u64,
        };
        self.call(Command::DmaMap, map.as_bytes(), Some(file)).map(|_| ())
    }

    fn dma_unmap(&self, iova: u64, len_bytes: usize) -> io::Result<()> {
        let unmap =
            DmaUnmap { argsz: size_of::<DmaUnmap>() as u32, flags: 0, address: iova, size: len_bytes as u64 };
        let mut connection = self.connection();
        match connection.call(Command::DmaUnmap, unmap.as_bytes(), None) {
            Ok(reply) => {
                let unmapped: DmaUnmap = reply.head()?;
                if unmapped.size == len_bytes as u64 {
                    return Ok(());
                }
                Err(malformed(format!("it unmapped {} bytes of {len_bytes} at 0x{iova:x}", unmapped.size)))
            }
            // It holds pages of the file, not of this process: what is freed here is not what it reaches.
            Err(_) if connection.is_broken() => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn n_vectors(&self) -> u16 {
        self.n_vectors
    }

    fn set_irq(&self, vector: u16, eventfd: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let set = SetIrqs {
            argsz: size_of::<SetIrqs>() as u32,
            flags: VFIO_IRQ_SET_ACTION_TRIGGER | VFIO_IRQ_SET_DATA_EVENTFD,
            index: VFIO_PCI_MSIX_IRQ_INDEX,
            start: vector.into(),
            count: 1,
        };
        self.call(Command::DeviceSetIrqs, set.as_bytes(), eventfd).map(|_| ())
    }

    fn reset(&self) -> io::Result<()> {
        self.call(Command::DeviceReset, &[], None).map(|_| ())
    }
}
