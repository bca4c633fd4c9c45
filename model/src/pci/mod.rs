//! A function of the card as a PCI device: [`ModelFunction`].

mod bar;
pub(crate) mod config_space;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod store;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod trap;

pub(crate) use bar::BarMemory;
pub use bar::PAGE_BYTES;
pub use config_space::BAR_LEN_BYTES;
pub(crate) use config_space::{ConfigSpace, Effect};

use crate::{
    config::{Bar, Drive},
    fw::{alloc::FIRST_UAR, memic::MEMIC},
    mem::{DmaMap, IOVA_RANGES, MapError},
    model::{Card, Engine},
};
use memmap2::{MmapOptions, MmapRaw};
use mlx5_direct::backend::pci::{BarMapping, PciFunction};
use std::{
    fmt, io,
    ops::{Range, RangeInclusive},
    os::fd::{BorrowedFd, OwnedFd},
    ptr::NonNull,
    sync::Arc,
    thread,
    time::Duration,
};

/// Bytes of BAR0 that are UAR pages: doorbell registers, which may be mapped.
pub const UAR_PAGES: Range<u64> = FIRST_UAR as u64 * PAGE_BYTES..MEMIC.start;

/// One PCI function of a [`Model`](crate::Model).
pub struct ModelFunction {
    engine: Arc<Engine>,
    index: usize,
    dma: Arc<DmaMap>,
    bar: Arc<BarMemory>,
}

impl fmt::Debug for ModelFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelFunction").field("index", &self.index).finish_non_exhaustive()
    }
}

fn invalid(text: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text.into())
}

fn map_error(error: MapError, iova: u64, len_bytes: u64) -> io::Error {
    let kind = match error {
        MapError::Exists(_) => io::ErrorKind::AlreadyExists,
        MapError::Full => io::ErrorKind::StorageFull,
        MapError::NotMapped => io::ErrorKind::NotFound,
        _ => io::ErrorKind::InvalidInput,
    };
    io::Error::new(kind, format!("IOVA 0x{iova:x}, {len_bytes} bytes: {error}"))
}

impl ModelFunction {
    pub(crate) fn new(engine: Arc<Engine>, index: usize) -> Self {
        let (dma, bar) = {
            let state = engine.card.lock();
            let function = &state.functions[index];
            (Arc::clone(&function.dma), Arc::clone(&function.bar))
        };
        Self { engine, index, dma, bar }
    }

    fn card(&self) -> &Card {
        &self.engine.card
    }

    /// The function's map of DMA addresses, for front ends that map and unmap by their own rules.
    pub fn dma(&self) -> &DmaMap {
        &self.dma
    }

    /// The memfd with BAR0, for front ends that let others map it.
    pub fn bar_fd(&self) -> BorrowedFd<'_> {
        self.bar.fd()
    }

    /// How stores to mapped UAR pages are to reach the model.
    pub fn bar(&self) -> Bar {
        self.card().config.bar
    }

    /// Reads bytes of BAR0, in memory order.
    pub fn bar_read(&self, offset: u64, into: &mut [u8]) {
        let read = self.card().with_function(self.index, |function| function.bar_read(offset, into));
        debug_assert!(read.is_some());
    }

    /// One store to BAR0 of 1 to 64 bytes, in memory order.
    pub fn bar_write(&self, offset: u64, bytes: &[u8]) {
        self.card().with_function(self.index, |function| function.bar_write(offset, bytes));
    }

    /// Tells the model that someone outside maps BAR0 and stores to it unseen: registers of the UAR pages are
    /// watched, and those of the init segment too if that is mapped.
    pub fn watch_bar(&self, init_segment: bool) {
        self.card().with_function(self.index, |function| function.watch(init_segment));
    }

    /// Makes stores to `len_bytes` at `base`, a read-only mapping of this process of BAR0 from `offset` on,
    /// fault and be carried out as stores to the registers, until the result is dropped.
    ///
    /// # Errors
    /// The signal handler could not be installed, or the machine is not x86-64.
    pub fn trap_stores(&self, base: NonNull<u8>, len_bytes: usize, offset: u64) -> io::Result<TrappedPages> {
        #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
        {
            let sink = Sink { engine: Arc::clone(&self.engine), index: self.index };
            Ok(TrappedPages { _trap: trap::Trap::new(base, len_bytes, offset, Arc::new(sink))? })
        }
        #[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
        Err(invalid(format!(
            "stores to {len_bytes} bytes at {base:p} (0x{offset:x}): trapped on x86-64 only"
        )))
    }

    /// Raises an MSI-X vector as the function itself does.
    pub fn raise_irq(&self, vector: u16) {
        self.card().with_function(self.index, |function| function.irqs.raise(vector));
    }
}

/// A mapping of BAR0 whose stores fault and are carried out: [`ModelFunction::trap_stores`].
#[derive(Debug)]
pub struct TrappedPages {
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    _trap: trap::Trap,
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
impl trap::StoreSink for Sink {
    fn store(&self, offset: u64, bytes: &[u8]) {
        self.engine.card.with_function(self.index, |function| function.bar_write(offset, bytes));
    }
}

/// Where trapped stores go: keeps the card alive.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
struct Sink {
    engine: Arc<Engine>,
    index: usize,
}

/// Pages of BAR0 in this process.
#[derive(Debug)]
struct Mapping {
    _trap: Option<TrappedPages>,
    base: NonNull<u8>,
    _map: MmapRaw,
    _engine: Arc<Engine>,
}

// SAFETY: `base` points into `_map`, shared memory that every thread may store to; nothing else is here.
unsafe impl Send for Mapping {}
// SAFETY: as above; the methods only copy the pointer.
unsafe impl Sync for Mapping {}

impl BarMapping for Mapping {
    fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn write_combining(&self) -> bool {
        // Plain memory behaves like a write-combining mapping whose lines arrive whole.
        true
    }
}

impl PciFunction for ModelFunction {
    fn name(&self) -> String {
        format!("model:{}", self.index)
    }

    fn config_read(&self, offset: u16, bytes: &mut [u8]) -> io::Result<()> {
        let read = |function: &mut crate::fw::Function| function.config_read(offset, bytes);
        self.card().with_function(self.index, read);
        Ok(())
    }

    fn config_write(&self, offset: u16, bytes: &[u8]) -> io::Result<()> {
        self.card().with_function(self.index, |function| function.config_write(offset, bytes));
        Ok(())
    }

    fn bar_size_bytes(&self) -> u64 {
        BAR_LEN_BYTES
    }

    fn bar_read32(&self, offset: u64) -> u32 {
        let mut bytes = [0xff; 4];
        self.bar_read(offset, &mut bytes);
        u32::from_be_bytes(bytes)
    }

    fn bar_write32(&self, offset: u64, value: u32) {
        self.bar_write(offset, &value.to_be_bytes());
    }

    fn map_bar(&self, offset: u64, len_bytes: usize) -> io::Result<Box<dyn BarMapping>> {
        let whole_pages = offset.is_multiple_of(PAGE_BYTES)
            && (len_bytes as u64).is_multiple_of(PAGE_BYTES)
            && len_bytes != 0;
        if !whole_pages || offset.checked_add(len_bytes as u64).is_none_or(|end| end > BAR_LEN_BYTES) {
            return Err(invalid(format!(
                "mapping of BAR0: offset 0x{offset:x} and length 0x{len_bytes:x} must be multiples of 0x1000 \
                 inside 0x{BAR_LEN_BYTES:x} bytes"
            )));
        }
        let trapped = self.card().config.bar == Bar::Trapped;
        let mut options = MmapOptions::new();
        options.offset(offset).len(len_bytes);
        let map = if trapped {
            options.map_raw_read_only(self.bar.file())?
        } else {
            options.map_raw(self.bar.file())?
        };
        let base = NonNull::new(map.as_mut_ptr()).ok_or_else(|| invalid("BAR0 was mapped at address 0"))?;
        if !trapped {
            self.card().with_function(self.index, |function| function.watch(offset == 0));
        }
        Ok(Box::new(Mapping {
            _trap: trapped.then(|| self.trap_stores(base, len_bytes, offset)).transpose()?,
            base,
            _map: map,
            _engine: Arc::clone(&self.engine),
        }))
    }

    fn iova_ranges(&self) -> Vec<RangeInclusive<u64>> {
        IOVA_RANGES.to_vec()
    }

    unsafe fn dma_map(
        &self,
        iova: u64,
        memory: NonNull<u8>,
        len_bytes: usize,
        _file: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        // SAFETY: the caller promises what `DmaMap::map` asks for.
        let result = unsafe { self.dma.map(iova, memory, len_bytes as u64, true) };
        result.map_err(|error| map_error(error, iova, len_bytes as u64))
    }

    fn dma_unmap(&self, iova: u64, len_bytes: usize) -> io::Result<()> {
        let len_bytes = len_bytes as u64;
        let result = match self.dma.unmap(iova, len_bytes) {
            Ok(n) if n == len_bytes => Ok(()),
            Ok(_) => Err(MapError::NotMapped),
            Err(error) => Err(error),
        };
        result.map_err(|error| map_error(error, iova, len_bytes))
    }

    fn n_vectors(&self) -> u16 {
        self.card().config.n_vectors
    }

    fn set_irq(&self, vector: u16, eventfd: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let n_vectors = self.n_vectors();
        if vector >= n_vectors {
            return Err(invalid(format!("MSI-X vector {vector}: the function has {n_vectors}, from 0")));
        }
        let eventfd = eventfd.map(|fd| fd.try_clone_to_owned()).transpose()?;
        self.card().with_function(self.index, |function| function.irqs.set(vector, eventfd));
        Ok(())
    }

    fn reset(&self) -> io::Result<()> {
        self.card().with_function(self.index, crate::fw::Function::reset);
        Ok(())
    }

    fn relax(&self, pause: Duration) {
        match self.card().config.drive {
            Drive::Step => self.card().advance(pause),
            Drive::Thread => thread::sleep(pause),
        }
    }

    fn is_stepped(&self) -> bool {
        self.card().config.drive == Drive::Step
    }
}

/// The MSI-X vectors of a function: eventfds.
#[derive(Debug, Default)]
pub(crate) struct Irqs {
    eventfds: Vec<Option<OwnedFd>>,
}

impl Irqs {
    fn set(&mut self, vector: u16, eventfd: Option<OwnedFd>) {
        let vector = usize::from(vector);
        if self.eventfds.len() <= vector {
            self.eventfds.resize_with(vector + 1, || None);
        }
        self.eventfds[vector] = eventfd;
    }

    /// Signals a vector, if someone listens.
    pub(crate) fn raise(&self, vector: u16) {
        use std::os::fd::AsRawFd;
        if let Some(Some(eventfd)) = self.eventfds.get(usize::from(vector)) {
            let one = 1u64.to_ne_bytes();
            // SAFETY: the descriptor is owned by `self` and the buffer has 8 bytes. It fails only if the
            // counter is full: then the listener has an interrupt pending anyway.
            let _ = unsafe { libc::write(eventfd.as_raw_fd(), one.as_ptr().cast(), one.len()) };
        }
    }
}
