//! UAR pages of a function: who rings where, on as few of them as possible.
#![forbid(unsafe_code)]

use super::{Core, lock};
use crate::{
    Error, Result,
    backend::{Register, UarPage, dma::PAGE_BYTES, pci::BarMapping},
    mistake::mistake,
    mlx5::{
        cmd::{AllocUarIn, Command, DeallocUarIn},
        ids::UarIndex,
    },
};
use std::{
    ptr::NonNull,
    sync::{Arc, Mutex, Weak},
};

/// A UAR page of the function, and the number by which contexts name it (`uar_page`). The device has it back when the
/// last handle of the page is dropped.
#[derive(Debug, Clone)]
pub struct Uar {
    index: UarIndex,
    page: Arc<UarPage>,
}

impl Uar {
    pub(super) fn alloc(core: &Arc<Core>, bf_reg_size_bytes: usize) -> Result<Self> {
        let index = core.cmd.call(&AllocUarIn::request())?.uar();
        let mapped = core.function.map_bar(u64::from(index.get()) * PAGE_BYTES as u64, PAGE_BYTES);
        match mapped {
            Ok(mapping) => {
                core.tables.add_uar(index);
                let mapping = Mapping { core: Arc::clone(core), index, mapping };
                Ok(Self { index, page: UarPage::new(Box::new(mapping), 0, bf_reg_size_bytes) })
            }
            Err(source) => {
                core.cmd.call(&DeallocUarIn::request().with_uar(index))?;
                Err(Error::os(format!("mapping UAR page {index}"), source))
            }
        }
    }

    /// The number.
    pub fn index(&self) -> UarIndex {
        self.index
    }

    /// The page.
    pub fn page(&self) -> &Arc<UarPage> {
        &self.page
    }
}

/// Ends the page in the device together with its mapping.
#[derive(Debug)]
struct Mapping {
    core: Arc<Core>,
    index: UarIndex,
    mapping: Box<dyn BarMapping>,
}

impl BarMapping for Mapping {
    fn base(&self) -> NonNull<u8> {
        self.mapping.base()
    }

    fn write_combining(&self) -> bool {
        self.mapping.write_combining()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // A device that refuses keeps the number; the mapping goes in any case, and nobody rings it any more.
        let _ = dealloc(&self.core, self.index);
    }
}

/// Ends a page in the device, whether it is mapped or not.
pub(super) fn dealloc(core: &Core, uar: UarIndex) -> Result<()> {
    core.tables.remove_uar(uar)?;
    if mistake!(UarLeaked) {
        return Ok(());
    }
    let result = core.cmd.call(&DeallocUarIn::request().with_uar(uar));
    if result.is_err() {
        core.tables.add_uar(uar);
    }
    result.map(|_| ())
}

/// Pages of which somebody may still take a part.
#[derive(Debug, Default)]
pub(super) struct UarPool {
    pages: Mutex<Pages>,
}

#[derive(Debug, Default)]
struct Pages {
    /// The page through which completion queues are armed: single stores, so that all may share it.
    arming: Option<Uar>,
    /// Pages of which a register may be free.
    open: Vec<(UarIndex, Weak<UarPage>)>,
}

impl UarPool {
    /// The page through which completion queues are armed.
    pub(super) fn arming(&self, alloc: impl FnOnce() -> Result<Uar>) -> Result<Uar> {
        let mut pages = lock(&self.pages);
        if let Some(uar) = &pages.arming {
            return Ok(uar.clone());
        }
        let uar = alloc()?;
        pages.arming = Some(uar.clone());
        Ok(uar)
    }

    /// A register that nobody else has.
    pub(super) fn register(&self, alloc: impl FnOnce() -> Result<Uar>) -> Result<(UarIndex, Register)> {
        let mut pages = lock(&self.pages);
        pages.open.retain(|(_, page)| page.strong_count() > 0);
        let mut open = pages.open.iter().filter_map(|(index, page)| Some((*index, page.upgrade()?.take()?)));
        if let Some(found) = open.next() {
            return Ok(found);
        }
        drop(open);
        let Uar { index, page } = alloc()?;
        pages.open.push((index, Arc::downgrade(&page)));
        let register = page.take().unwrap_or_else(|| Register::shared(page, 0));
        Ok((index, register))
    }

    /// Lets go of the page that the pool itself holds.
    pub(super) fn clear(&self) {
        lock(&self.pages).arming = None;
    }
}
