//! Memory that the device reaches: where it comes from, and under which address.

mod huge;
mod iova;
mod memory;

pub use iova::IovaAllocator;
pub use memory::HostMemory;

use super::pci::PciFunction;
use crate::{Error, Result};
use huge::HugePool;
use std::{
    num::NonZero,
    os::fd::AsFd,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

/// The device's page, and the unit of every mapping.
pub const PAGE_BYTES: usize = 4096;

/// A huge page of 2 MiB.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Largest device page that a registration is translated by: 1 GiB.
const MAX_LOG_PAGE: u32 = 30;

/// Pages that memory is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PageSize {
    /// The system's usual pages.
    #[default]
    Default,
    /// Huge pages of 2 MiB, which the system must have in reserve (`vm.nr_hugepages`).
    Huge2M,
}

/// How memory gets the address by which the device reaches it.
#[derive(Debug)]
enum Addresses {
    /// One that is chosen here, and translated by an IOMMU.
    Virtual(Mutex<IovaAllocator>),
    /// Its own physical one. Only huge pages keep theirs.
    Physical(Arc<HugePool>),
}

/// The addresses of one function: maps memory for it.
#[derive(Debug)]
pub struct DmaSpace {
    function: Arc<dyn PciFunction>,
    addresses: Addresses,
    /// The function could not be stopped.
    distrusted: AtomicBool,
}

impl DmaSpace {
    /// The whole space of `function`.
    pub fn new(function: Arc<dyn PciFunction>) -> Arc<Self> {
        let addresses = match function.physical_memory() {
            Some(_) => Addresses::Physical(HugePool::new()),
            None => Addresses::Virtual(Mutex::new(IovaAllocator::new(&function.iova_ranges()))),
        };
        Arc::new(Self { function, addresses, distrusted: AtomicBool::new(false) })
    }

    /// Maps the pages that `memory` lies in. The first page's address is `residue`, a multiple of 4 KiB,
    /// modulo `align_bytes`, a power of two: then device pages of that size can translate it. A physical address
    /// is what it is: [`log_page_size`](Self::log_page_size) has taken it into account.
    pub fn map(
        self: &Arc<Self>,
        memory: Arc<HostMemory>,
        align_bytes: u64,
        residue: u64,
    ) -> Result<DmaRegion> {
        let start = memory.base().addr().get();
        let page_offset = start % PAGE_BYTES;
        let Some(len_bytes) = (page_offset + memory.len_bytes()).checked_next_multiple_of(PAGE_BYTES) else {
            return Err(Error::invalid(format!("memory of {} bytes is too large", memory.len_bytes())));
        };
        let place = match &self.addresses {
            Addresses::Virtual(iova) => {
                let align_bytes = align_bytes.max(PAGE_BYTES as u64);
                let mut allocator = iova.lock().unwrap_or_else(PoisonError::into_inner);
                let first_page = allocator.alloc(len_bytes as u64, align_bytes, residue)?;
                drop(allocator);
                let page =
                    memory.base().map_addr(|base| NonZero::new(base.get() - page_offset).unwrap_or(base));
                let file = memory.file().map(AsFd::as_fd);
                // SAFETY: the region owns a handle to the memory and unmaps it before it lets go. Bytes around
                // lent memory in its first and last page are mapped too, as every registration does; the device
                // reaches only what an mkey or a queue names.
                if let Err(source) = unsafe { self.function.dma_map(first_page, page, len_bytes, file) } {
                    self.give_back(first_page, len_bytes as u64);
                    let what = format!("mapping {len_bytes} bytes for DMA at 0x{first_page:x}");
                    return Err(Error::os(what, source));
                }
                Place::Virtual { first_page, len_bytes, page_offset }
            }
            Addresses::Physical(_) => self.find(&memory)?,
        };
        Ok(DmaRegion { space: Arc::clone(self), memory, place })
    }

    /// Where the huge pages are that `memory` lies in.
    fn find(&self, memory: &HostMemory) -> Result<Place> {
        let start = memory.base().addr().get();
        let offset_bytes = start % HUGE_PAGE_BYTES;
        let n_pages = (offset_bytes + memory.len_bytes()).div_ceil(HUGE_PAGE_BYTES);
        let huge_pages = (0..n_pages).map(|n| {
            let page = start - offset_bytes + n * HUGE_PAGE_BYTES;
            let physical = self.function.physical_memory().expect("as when the space was made");
            physical.address_of(page).map_err(|source| {
                Error::os(format!("finding the physical address of memory at 0x{page:x}"), source)
            })
        });
        Ok(Place::Physical { huge_pages: huge_pages.collect::<Result<_>>()?, offset_bytes })
    }

    /// log2 of the largest device page that translates `memory`, named from `start_addr` on, and is no larger than the
    /// memory: then there are few translations, whatever its size.
    pub fn log_page_size(&self, memory: &HostMemory, start_addr: u64) -> u32 {
        let log_bytes = memory.len_bytes().max(1).ilog2().clamp(PAGE_BYTES.ilog2(), MAX_LOG_PAGE);
        match self.addresses {
            Addresses::Virtual(_) => log_bytes,
            // Both addresses of a page must agree modulo its size, and so must the name.
            Addresses::Physical(_) => {
                let differ = memory.base().addr().get() as u64 ^ start_addr;
                log_bytes.min(HUGE_PAGE_BYTES.ilog2()).min(differ.trailing_zeros())
            }
        }
    }

    /// Bytes of addresses that are free: of I/O virtual ones, or of the huge pages that are held.
    pub fn free_bytes(&self) -> u64 {
        match &self.addresses {
            Addresses::Virtual(iova) => iova.lock().unwrap_or_else(PoisonError::into_inner).free_bytes(),
            Addresses::Physical(pool) => pool.free_bytes(),
        }
    }

    /// Allocates zeroed pages and maps them at a multiple of `align_bytes`, a power of two up to 2 MiB.
    pub fn alloc(self: &Arc<Self>, len_bytes: usize, align_bytes: usize) -> Result<DmaRegion> {
        let memory = match &self.addresses {
            Addresses::Virtual(_) => self.alloc_memory(len_bytes, PageSize::Default)?,
            Addresses::Physical(pool) => HostMemory::alloc_in_pool(pool, len_bytes, align_bytes)?,
        };
        self.map(memory, align_bytes as u64, 0)
    }

    /// Allocates zeroed memory of the kind that the function can reach, to be mapped later.
    pub fn alloc_memory(&self, len_bytes: usize, page_size: PageSize) -> Result<Arc<HostMemory>> {
        match &self.addresses {
            Addresses::Physical(pool) => {
                let align_bytes =
                    1 << len_bytes.max(1).ilog2().clamp(PAGE_BYTES.ilog2(), HUGE_PAGE_BYTES.ilog2());
                HostMemory::alloc_in_pool(pool, len_bytes, align_bytes)
            }
            Addresses::Virtual(_) if self.function.needs_files() => {
                HostMemory::alloc_in_file(len_bytes, page_size)
            }
            Addresses::Virtual(_) => HostMemory::alloc(len_bytes, page_size),
        }
    }

    /// The function could not be stopped: from now on memory becomes free only if an IOMMU keeps the function out of it.
    pub(crate) fn distrust(&self) {
        self.distrusted.store(true, Ordering::Relaxed);
    }

    fn give_back(&self, iova: u64, len_bytes: u64) {
        if let Addresses::Virtual(allocator) = &self.addresses {
            allocator.lock().unwrap_or_else(PoisonError::into_inner).free(iova, len_bytes);
        }
    }
}

/// Where a region is for the device.
#[derive(Debug)]
enum Place {
    /// In pages with addresses in a row. The memory starts at `page_offset` in the first.
    Virtual { first_page: u64, len_bytes: usize, page_offset: usize },
    /// In huge pages at these addresses. The memory starts at `offset_bytes` in the first.
    Physical { huge_pages: Box<[u64]>, offset_bytes: usize },
}

/// Memory that is mapped for the device, until dropped.
#[derive(Debug)]
pub struct DmaRegion {
    space: Arc<DmaSpace>,
    memory: Arc<HostMemory>,
    place: Place,
}

impl DmaRegion {
    /// Address of the byte at `offset_bytes` of the memory for the device.
    ///
    /// # Panics
    /// If a physical one is asked for past the last page.
    pub fn address_of(&self, offset_bytes: usize) -> u64 {
        match &self.place {
            Place::Virtual { first_page, page_offset, .. } => {
                first_page + (page_offset + offset_bytes) as u64
            }
            Place::Physical { huge_pages, offset_bytes: first } => {
                let at = first + offset_bytes;
                huge_pages[at / HUGE_PAGE_BYTES] + (at % HUGE_PAGE_BYTES) as u64
            }
        }
    }

    /// The memory.
    pub fn memory(&self) -> &Arc<HostMemory> {
        &self.memory
    }

    /// Addresses of the device pages of `page_bytes`, a power of two, that hold the first `len_bytes`.
    pub fn pages(&self, len_bytes: usize, page_bytes: usize) -> impl Iterator<Item = u64> {
        let first = self.address_of(0);
        let lead = (first % page_bytes as u64) as usize;
        let others = (page_bytes..lead + len_bytes).step_by(page_bytes);
        let first = (len_bytes != 0).then_some(first - lead as u64);
        first.into_iter().chain(others.map(move |at| self.address_of(at - lead)))
    }
}

impl Drop for DmaRegion {
    fn drop(&mut self) {
        let out_of_reach = match self.place {
            Place::Virtual { first_page, len_bytes, .. } => {
                let unmapped = self.space.function.dma_unmap(first_page, len_bytes).is_ok();
                if unmapped {
                    self.space.give_back(first_page, len_bytes as u64);
                }
                unmapped
            }
            Place::Physical { .. } => !self.space.distrusted.load(Ordering::Relaxed),
        };
        if !out_of_reach {
            // The device may still write the memory: it is never freed.
            std::mem::forget(Arc::clone(&self.memory));
        }
    }
}

#[cfg(test)]
mod tests;
