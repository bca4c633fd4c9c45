//! A function of the card as a PCI device: [`ModelFunction`].

mod bar;
pub(crate) mod config_space;
mod mappings;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod store;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod trap;

pub(crate) use bar::BarMemory;
pub use bar::PAGE_BYTES;
pub use config_space::BAR_LEN_BYTES;
pub(crate) use config_space::{ConfigSpace, Effect};
pub use mappings::Mappings;

use crate::{
    config::{Bar, Drive},
    fw::{alloc::FIRST_UAR, memic::OPERATIONS},
    mem::{DmaMap, IOVA_RANGES, MapError},
    model::{Card, Engine},
};
use memmap2::{MmapOptions, MmapRaw};
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
use trap::Trap;
/// No page can be trapped on this machine.
#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
type Trap = std::convert::Infallible;
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

/// Bytes of BAR0 that are UAR pages: doorbell registers.
pub const UAR_PAGES: Range<u64> = FIRST_UAR as u64 * PAGE_BYTES..OPERATIONS.start;

/// UAR pages that a program may map as plain memory, which the model looks at: stores to them are announced by nobody.
pub const fn plain_pages(bar: Bar) -> Range<u64> {
    match bar {
        Bar::Mapped => UAR_PAGES,
        // Linux rings all its event queues in its first page (`priv->uar`), and an event queue has no doorbell record
        // that would tell of a doorbell which another one overwrote.
        Bar::Sparse => UAR_PAGES.start + PAGE_BYTES..UAR_PAGES.end,
        Bar::Trapped => UAR_PAGES.end..UAR_PAGES.end,
    }
}

/// The parts of a range of BAR0 in which a program's stores are trapped.
fn trapped_parts(bar: Bar, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let plain = match bar {
        // The program asked for it: the init segment and device memory too.
        Bar::Mapped => 0..BAR_LEN_BYTES,
        Bar::Sparse | Bar::Trapped => plain_pages(bar),
    };
    let parts = [range.start..range.end.min(plain.start), range.start.max(plain.end)..range.end];
    parts.into_iter().filter(|part| !part.is_empty())
}

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

    /// Tells the model that its driver unmaps a range, before that is done: no object may have its address any more.
    /// For front ends whose clients unmap as drivers do.
    pub fn check_unmap(&self, iova: u64, len_bytes: u64) {
        self.card().with_function(self.index, |function| function.check_unmap(iova, len_bytes));
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
        self.card().store(self.index, offset, bytes);
    }

    /// Tells the model that someone outside maps BAR0 and stores to it unseen: registers of the UAR pages are
    /// watched, and those of the init segment too if that is mapped.
    pub fn watch_bar(&self, init_segment: bool) {
        self.card().with_function(self.index, |function| function.watch(init_segment));
    }

    /// Takes notice of a mapping of BAR0 in this process, from `offset` on: its pages are watched, or made read-only so
    /// that stores to them fault and are carried out, until the result is dropped. Which, says `bar=`.
    ///
    /// # Errors
    /// The signal handler could not be installed, or a page is to be trapped and the machine is not x86-64.
    ///
    /// # Safety
    /// `len_bytes` at `base`, whole pages inside BAR0, are a shared mapping of [`bar_fd`](Self::bar_fd) that may be
    /// written, and stay one until the result is dropped.
    pub unsafe fn adopt_mapping(
        &self,
        base: NonNull<u8>,
        len_bytes: usize,
        offset: u64,
    ) -> io::Result<TrappedPages> {
        let end = offset + len_bytes as u64;
        let mut trapped = TrappedPages::default();
        for part in trapped_parts(self.bar(), offset..end) {
            // SAFETY: the part is inside the mapping.
            let at = unsafe { base.add((part.start - offset) as usize) };
            let len_bytes = (part.end - part.start) as usize;
            // SAFETY: pages of the caller's mapping, of which no Rust reference exists.
            if unsafe { libc::mprotect(at.as_ptr().cast(), len_bytes, libc::PROT_READ) } != 0 {
                return Err(io::Error::last_os_error());
            }
            trapped.parts.push(self.trap(at, len_bytes, part.start)?);
        }
        let plain = plain_pages(self.bar());
        if self.bar() == Bar::Mapped || offset < plain.end && plain.start < end {
            self.watch_bar(self.bar() == Bar::Mapped && offset < UAR_PAGES.start);
        }
        Ok(trapped)
    }

    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    fn trap(&self, base: NonNull<u8>, len_bytes: usize, offset: u64) -> io::Result<Trap> {
        let sink = Sink { engine: Arc::clone(&self.engine), index: self.index };
        Trap::new(base, len_bytes, offset, Arc::new(sink))
    }

    #[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
    fn trap(&self, base: NonNull<u8>, len_bytes: usize, offset: u64) -> io::Result<Trap> {
        Err(invalid(format!(
            "stores to {len_bytes} bytes at {base:p} (0x{offset:x}) are trapped on x86-64 only: use bar=mapped"
        )))
    }

    /// WQEs that drivers copied whole into BlueFlame buffers since the card was made, NOPs aside: Linux posts those to
    /// find out whether writes are combined.
    pub fn n_blue_flames(&self) -> u64 {
        self.card().with_function(self.index, |function| function.n_blue_flames).unwrap_or_default()
    }

    /// Sessions of compressed CQEs that were written since the card was made.
    pub fn n_sessions(&self) -> u64 {
        self.card().with_function(self.index, |function| function.n_sessions).unwrap_or_default()
    }

    /// Messages that took a tag of an XRQ's list since the card was made.
    pub fn n_tagged(&self) -> u64 {
        self.card().with_function(self.index, |function| function.n_tagged).unwrap_or_default()
    }

    /// Raises an MSI-X vector as the function itself does.
    pub fn raise_irq(&self, vector: u16) {
        self.card().with_function(self.index, |function| function.irqs.raise(vector));
    }
}

/// The pages of a mapping whose stores fault and are carried out: [`ModelFunction::adopt_mapping`].
#[derive(Debug, Default)]
pub struct TrappedPages {
    parts: Vec<Trap>,
}

impl TrappedPages {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
impl trap::StoreSink for Sink {
    fn store(&self, offset: u64, bytes: &[u8]) {
        self.engine.card.store(self.index, offset, bytes);
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
    _trapped: TrappedPages,
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
        let map = MmapOptions::new().offset(offset).len(len_bytes).map_raw(self.bar.file())?;
        let base = NonNull::new(map.as_mut_ptr()).ok_or_else(|| invalid("BAR0 was mapped at address 0"))?;
        // SAFETY: whole pages of BAR0, just mapped; the result is dropped before the mapping is, by the order of fields.
        let trapped = unsafe { self.adopt_mapping(base, len_bytes, offset)? };
        Ok(Box::new(Mapping { _trapped: trapped, base, _map: map, _engine: Arc::clone(&self.engine) }))
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
        self.check_unmap(iova, len_bytes);
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
            Drive::Thread | Drive::Store => thread::sleep(pause),
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
