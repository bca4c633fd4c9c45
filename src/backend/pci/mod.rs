//! A PCI function as a user-space driver sees it: config space, BAR0, DMA windows, interrupts.
//!
//! The control path in [`backend::prm`](crate::backend) drives any [`PciFunction`]: the software
//! ConnectX, a card through VFIO, a device served over vfio-user.

mod eventfd;
#[cfg(test)]
pub(crate) mod fake;
mod mapped;
mod vfio;
mod vfio_user;

pub use eventfd::EventFd;
pub(crate) use eventfd::wait_readable;
pub(crate) use vfio::problem as vfio_problem;
pub use vfio::{VFIO_DRIVERS, VfioApi, VfioFunction, VfioOptions};
pub use vfio_user::VfioUserFunction;

use std::{fmt, io, ops::RangeInclusive, os::fd::BorrowedFd, ptr::NonNull, time::Duration};

/// Addresses for DMA that every IOMMU has: 39 bits, without the window of message-signalled interrupts.
const IOVA_RANGES_OF_X86: [RangeInclusive<u64>; 2] = [0x1_0000..=0xfedf_ffff, 0xfef0_0000..=(1 << 39) - 1];

/// One PCI function. Methods may be called from any thread.
pub trait PciFunction: Send + Sync + fmt::Debug {
    /// What the user calls it: `model:0`, `vfio:0000:01:00.0`.
    fn name(&self) -> String;

    /// Reads config space.
    fn config_read(&self, offset: u16, bytes: &mut [u8]) -> io::Result<()>;

    /// Writes config space.
    fn config_write(&self, offset: u16, bytes: &[u8]) -> io::Result<()>;

    /// Size of BAR0 in bytes.
    fn bar_size_bytes(&self) -> u64;

    /// Reads one big-endian 32-bit register of BAR0. A function that is gone reads all ones.
    fn bar_read32(&self, offset: u64) -> u32;

    /// Writes one big-endian 32-bit register of BAR0. What this thread wrote to memory before is visible to
    /// the device first.
    fn bar_write32(&self, offset: u64, value: u32);

    /// Maps pages of BAR0 into this process, for doorbells by plain stores.
    ///
    /// `offset` and `len_bytes` are multiples of 4 KiB.
    fn map_bar(&self, offset: u64, len_bytes: usize) -> io::Result<Box<dyn BarMapping>>;

    /// The I/O virtual addresses that the function may use for DMA, lowest first.
    fn iova_ranges(&self) -> Vec<RangeInclusive<u64>>;

    /// Whether the function is in another process, which reaches memory through its file only: then memory
    /// for it comes from [`HostMemory::alloc_in_file`](super::dma::HostMemory::alloc_in_file).
    fn needs_files(&self) -> bool {
        false
    }

    /// Who knows physical addresses, if no IOMMU translates for the function: it is given those, of huge pages only,
    /// and `iova_ranges`, `dma_map` and `dma_unmap` are not called.
    fn physical_memory(&self) -> Option<&dyn PhysicalMemory> {
        None
    }

    /// Lets the function reach `len_bytes` of memory at `memory` through address `iova`. `file` is what is
    /// mapped there, from its first byte on, if the memory is a file's.
    ///
    /// # Safety
    /// The memory stays mapped, readable and writable until [`dma_unmap`](Self::dma_unmap) of it returns,
    /// and no Rust reference to it lives while the function may write it.
    unsafe fn dma_map(
        &self,
        iova: u64,
        memory: NonNull<u8>,
        len_bytes: usize,
        file: Option<BorrowedFd<'_>>,
    ) -> io::Result<()>;

    /// Takes back exactly what [`dma_map`](Self::dma_map) gave.
    fn dma_unmap(&self, iova: u64, len_bytes: usize) -> io::Result<()>;

    /// Number of MSI-X vectors.
    fn n_vectors(&self) -> u16;

    /// Signals `eventfd` on each interrupt of `vector`, or nothing more if `None`.
    fn set_irq(&self, vector: u16, eventfd: Option<BorrowedFd<'_>>) -> io::Result<()>;

    /// Whether the host wants the function back, and waits until it is closed. It can still be taken down: it answers, and
    /// nobody resets it for its next driver.
    fn is_wanted_back(&self) -> bool {
        false
    }

    /// Function-level reset: the device forgets everything.
    fn reset(&self) -> io::Result<()>;

    /// Waits about as long as `pause` while polling a register or memory that the device will change.
    /// A device that is stepped by its caller makes its step here.
    fn relax(&self, pause: Duration) {
        std::thread::sleep(pause);
    }

    /// Whether the device moves only inside [`relax`](Self::relax): who waits for it calls that instead
    /// of sleeping until an interrupt.
    fn is_stepped(&self) -> bool {
        false
    }
}

/// Where this process's memory is in the computer's.
pub trait PhysicalMemory {
    /// Physical address of the huge page of 2 MiB that starts at address `page` of this process. An error if none does.
    fn address_of(&self, page: usize) -> io::Result<u64>;
}

/// Pages of BAR0 in this process, unmapped on drop.
pub trait BarMapping: Send + Sync + fmt::Debug {
    /// First byte of the mapping.
    fn base(&self) -> NonNull<u8>;
    /// Whether stores are combined into whole lines (write-combining), so that BlueFlame pays.
    fn write_combining(&self) -> bool;
}
