//! What the messages of a client do to the function.
#![forbid(unsafe_code)]

use crate::memory::ClientMemory;
use mlx5_direct::backend::pci::PciFunction;
use mlx5_model::{
    ModelConfig, ModelFunction,
    pci::{BAR_LEN_BYTES, plain_pages},
};
use std::{
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd},
    sync::Arc,
};
use vfio_bindings::bindings::vfio::*;
use vfio_user::{DmaMapFlags, DmaUnmapFlags, IrqInfo, ServerBackend, ServerRegion, SparseArea};

/// Bytes of config space.
const CONFIG_LEN_BYTES: u64 = 4096;
/// The longest store that reaches a device in one piece.
const MAX_STORE_BYTES: usize = 64;

/// The regions of a PCI function: BAR0 and config space, the others empty.
pub(crate) fn regions(function: &ModelFunction, config: &ModelConfig) -> Vec<ServerRegion> {
    let mut regions: Vec<_> = (0..VFIO_PCI_NUM_REGIONS).map(|index| region(index, 0)).collect();
    let mut bar0 = region(VFIO_PCI_BAR0_REGION_INDEX, BAR_LEN_BYTES);
    let plain = plain_pages(config.bar);
    if !plain.is_empty() {
        bar0.region_info.flags |= VFIO_REGION_INFO_FLAG_MMAP;
        let area = vfio_region_sparse_mmap_area { offset: plain.start, size: plain.end - plain.start };
        bar0.sparse_areas.push(SparseArea { area });
        bar0.mmap_fd = Some(function.bar_fd().as_raw_fd());
    }
    regions[VFIO_PCI_BAR0_REGION_INDEX as usize] = bar0;
    regions[VFIO_PCI_CONFIG_REGION_INDEX as usize] = region(VFIO_PCI_CONFIG_REGION_INDEX, CONFIG_LEN_BYTES);
    regions
}

fn region(index: u32, size: u64) -> ServerRegion {
    let flags = if size == 0 { 0 } else { VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE };
    let argsz = size_of::<vfio_region_info>() as u32;
    let region_info = vfio_region_info { argsz, flags, index, size, ..Default::default() };
    ServerRegion { region_info, sparse_areas: Vec::new(), mmap_fd: None }
}

/// The kinds of interrupts of a PCI function: MSI-X, the others empty.
pub(crate) fn irqs(config: &ModelConfig) -> Vec<IrqInfo> {
    let info = |index| {
        let count = if index == VFIO_PCI_MSIX_IRQ_INDEX { u32::from(config.n_vectors) } else { 0 };
        let flags = if count == 0 { 0 } else { VFIO_IRQ_INFO_EVENTFD };
        IrqInfo { index, flags, count }
    };
    (0..VFIO_PCI_NUM_IRQS).map(info).collect()
}

/// One client's use of the function. Dropped, the function is as it was before: reset, and reaching nothing.
pub(crate) struct Session<'a> {
    function: Arc<ModelFunction>,
    memory: ClientMemory,
    report: &'a mut (dyn FnMut(&str) + Send),
}

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

/// A range of a region that a client may read or write.
fn within(region: u32, offset: u64, len_bytes: usize) -> io::Result<()> {
    let size = match region {
        VFIO_PCI_BAR0_REGION_INDEX => BAR_LEN_BYTES,
        VFIO_PCI_CONFIG_REGION_INDEX => CONFIG_LEN_BYTES,
        _ => 0,
    };
    if len_bytes == 0 || offset.checked_add(len_bytes as u64).is_none_or(|end| end > size) {
        return Err(invalid(format!(
            "region {region}: offset 0x{offset:x} and length 0x{len_bytes:x} must be inside its 0x{size:x} bytes"
        )));
    }
    Ok(())
}

impl<'a> Session<'a> {
    pub(crate) fn new(function: Arc<ModelFunction>, report: &'a mut (dyn FnMut(&str) + Send)) -> Self {
        Self { memory: ClientMemory::new(Arc::clone(&function)), function, report }
    }

    /// Hands a result on, and reports what was refused: the protocol carries no reasons.
    fn told(&mut self, result: io::Result<()>) -> io::Result<()> {
        if let Err(error) = &result {
            (self.report)(&format!("refused: {error}"));
        }
        result
    }

    fn write(&self, region: u32, offset: u64, data: &[u8]) -> io::Result<()> {
        within(region, offset, data.len())?;
        if region == VFIO_PCI_CONFIG_REGION_INDEX {
            // `within` keeps the offset below 4096.
            return self.function.config_write(offset as u16, data);
        }
        if data.len() > MAX_STORE_BYTES {
            return Err(invalid(format!(
                "BAR0: a write of {} bytes at 0x{offset:x}; a device takes 1 to {MAX_STORE_BYTES} at once",
                data.len()
            )));
        }
        self.function.bar_write(offset, data);
        Ok(())
    }

    fn read(&self, region: u32, offset: u64, data: &mut [u8]) -> io::Result<()> {
        within(region, offset, data.len())?;
        if region == VFIO_PCI_CONFIG_REGION_INDEX {
            return self.function.config_read(offset as u16, data);
        }
        self.function.bar_read(offset, data);
        Ok(())
    }

    fn irqs(&self, index: u32, flags: u32, start: u32, count: u32, fds: &[File]) -> io::Result<()> {
        let n_vectors = u32::from(self.function.n_vectors());
        let n_irqs = if index == VFIO_PCI_MSIX_IRQ_INDEX { n_vectors } else { 0 };
        if start.checked_add(count).is_none_or(|end| end > n_irqs) {
            return Err(invalid(format!(
                "interrupts {start} to {start}+{count} of index {index}: it has {n_irqs}; \
                 MSI-X (index {VFIO_PCI_MSIX_IRQ_INDEX}) has {n_vectors}"
            )));
        }
        let by_eventfd = VFIO_IRQ_SET_ACTION_TRIGGER | VFIO_IRQ_SET_DATA_EVENTFD;
        let off = VFIO_IRQ_SET_ACTION_TRIGGER | VFIO_IRQ_SET_DATA_NONE;
        let vectors = match count {
            // Nothing, of the whole index: interrupts off.
            0 if flags == off => 0..n_irqs,
            _ if flags == by_eventfd && (fds.is_empty() || fds.len() == count as usize) => {
                start..start + count
            }
            _ => {
                return Err(io::Error::new(
                    io::ErrorKind::Unsupported,
                    format!(
                        "SET_IRQS flags 0x{flags:x} for {count} vectors with {} file descriptors: vectors are \
                         set by eventfd (flags 0x{by_eventfd:x}), one each or none, at most 16 in a message",
                        fds.len()
                    ),
                ));
            }
        };
        let mut eventfds = fds.iter();
        for vector in vectors {
            // Below `n_vectors`, which has 16 bits.
            self.function.set_irq(vector as u16, eventfds.next().map(AsFd::as_fd))?;
        }
        Ok(())
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        // Off the bus first, so that nothing reaches for memory that goes. None of it can fail here: the
        // offsets and the vectors exist.
        let _ = self.function.config_write(0x04, &[0, 0]);
        let _ = self.function.reset();
        for vector in 0..self.function.n_vectors() {
            let _ = self.function.set_irq(vector, None);
        }
        self.memory.clear();
    }
}

impl ServerBackend for Session<'_> {
    fn region_read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> io::Result<()> {
        let result = self.read(region, offset, data);
        self.told(result)
    }

    fn region_write(&mut self, region: u32, offset: u64, data: &[u8]) -> io::Result<()> {
        let result = self.write(region, offset, data);
        self.told(result)
    }

    fn dma_map(
        &mut self,
        flags: DmaMapFlags,
        offset: u64,
        address: u64,
        size: u64,
        fd: Option<File>,
    ) -> io::Result<()> {
        if fd.is_none() {
            (self.report)(&format!(
                "memory at IOVA 0x{address:x}, 0x{size:x} bytes, came without a file descriptor: the card \
                 cannot reach it"
            ));
        }
        let file = fd.as_ref().map(|file| (file, offset));
        let result = self.memory.map(address, size, file, flags.contains(DmaMapFlags::WRITE));
        self.told(result)
    }

    fn dma_unmap(&mut self, flags: DmaUnmapFlags, address: u64, size: u64) -> io::Result<()> {
        let result = if flags.contains(DmaUnmapFlags::UNMAP_ALL) {
            self.memory.clear();
            Ok(())
        } else if flags.contains(DmaUnmapFlags::GET_DIRTY_PAGE_INFO) {
            Err(io::Error::new(io::ErrorKind::Unsupported, "DMA_UNMAP with dirty pages: none are tracked"))
        } else {
            self.memory.unmap(address, size)
        };
        self.told(result)
    }

    fn reset(&mut self) -> io::Result<()> {
        let result = self.function.reset();
        self.told(result)
    }

    fn set_irqs(&mut self, index: u32, flags: u32, start: u32, count: u32, fds: Vec<File>) -> io::Result<()> {
        let result = self.irqs(index, flags, start, count, &fds);
        self.told(result)
    }
}
