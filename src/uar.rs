//! UAR pages of a context, and who owns which BlueFlame register in them.

use crate::{
    Result,
    backend::{Control, UarPage},
    doorbell::{self, Sharing, UarRegister},
    mlx5::ids::UarIndex,
};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Hands out BlueFlame registers, each to one owner, from as few UAR pages as possible.
#[derive(Debug)]
pub(crate) struct UarPool {
    control: Arc<dyn Control>,
    pages: Mutex<Pages>,
}

#[derive(Debug, Default)]
struct Pages {
    /// The page through which completion queues are armed: single stores, so that all may share it.
    arming: Option<Arc<Page>>,
    /// Pages of which a register may be free.
    open: Vec<Weak<Page>>,
}

/// A UAR page of the device, given back on drop.
#[derive(Debug)]
pub(crate) struct Page {
    control: Arc<dyn Control>,
    uar: UarPage,
    /// Bit k: register k has an owner.
    taken: Mutex<u32>,
}

/// A BlueFlame register of its owner's own, given back on drop.
#[derive(Debug)]
pub(crate) struct OwnedRegister {
    page: Arc<Page>,
    k: usize,
}

impl UarPool {
    pub(crate) fn new(control: Arc<dyn Control>) -> Self {
        Self { control, pages: Mutex::default() }
    }

    /// The page through which completion queues are armed.
    pub(crate) fn arming(&self) -> Result<Arc<Page>> {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(page) = &pages.arming {
            return Ok(Arc::clone(page));
        }
        let page = Page::alloc(&self.control)?;
        pages.arming = Some(Arc::clone(&page));
        Ok(page)
    }

    /// A register that nobody else has.
    pub(crate) fn register(&self) -> Result<OwnedRegister> {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        pages.open.retain(|page| page.strong_count() > 0);
        if let Some(register) = pages.open.iter().filter_map(Weak::upgrade).find_map(|page| page.take()) {
            return Ok(register);
        }
        let page = Page::alloc(&self.control)?;
        pages.open.push(Arc::downgrade(&page));
        // A new page has a free register; without BlueFlame registers it has one place to ring all the same.
        Ok(page.take().unwrap_or(OwnedRegister { page, k: 0 }))
    }

    /// Lets go of the page that the pool itself holds.
    pub(crate) fn clear(&self) {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner).arming = None;
    }
}

impl Page {
    fn alloc(control: &Arc<dyn Control>) -> Result<Arc<Self>> {
        let uar = control.alloc_uar()?;
        Ok(Arc::new(Self { control: Arc::clone(control), uar, taken: Mutex::new(0) }))
    }

    pub(crate) fn index(&self) -> UarIndex {
        self.uar.index()
    }

    /// The doorbells of completion and event queues in this page.
    ///
    /// # Safety
    /// The result is not used after `self` is gone.
    pub(crate) unsafe fn doorbells(&self) -> doorbell::UarPage {
        // SAFETY: a mapped UAR page for as long as `self` lives, reached through such values alone.
        unsafe { doorbell::UarPage::new(self.uar.base(), self.uar.write_combining()) }
    }

    fn take(self: &Arc<Self>) -> Option<OwnedRegister> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let k = (0..self.uar.n_bf_regs().max(1)).find(|k| *taken & 1 << k == 0)?;
        *taken |= 1 << k;
        Some(OwnedRegister { page: Arc::clone(self), k })
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // A device that refuses keeps the number; the mapping goes in any case, and nobody rings it any more.
        let _ = self.control.dealloc_uar(self.uar.index());
    }
}

impl OwnedRegister {
    pub(crate) fn uar(&self) -> UarIndex {
        self.page.index()
    }

    /// The register itself.
    ///
    /// # Safety
    /// Called once, and the result is not used after `self` is gone.
    pub(crate) unsafe fn register(&self) -> UarRegister {
        let size_bytes = self.page.uar.bf_reg_size_bytes();
        let (log_size, sharing) = match size_bytes {
            // No BlueFlame: the first register's place takes 8-byte doorbells all the same.
            0 => (9, Sharing::Shared),
            _ => (size_bytes.ilog2() as u8, Sharing::Exclusive),
        };
        // SAFETY: the page lives as long as `self`, and the bit in `taken` makes us the only owner of `k`.
        unsafe { self.page.doorbells().register(self.k, log_size, sharing) }
    }
}

impl Drop for OwnedRegister {
    fn drop(&mut self) {
        *self.page.taken.lock().unwrap_or_else(PoisonError::into_inner) &= !(1 << self.k);
    }
}
