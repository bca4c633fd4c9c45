//! UAR pages in this process, and who owns which BlueFlame register in them.

use super::pci::BarMapping;
use crate::{
    doorbell::{self, Sharing, UarRegister},
    mlx5::uar,
};
use std::{
    fmt,
    ptr::NonNull,
    sync::{Arc, Mutex, PoisonError},
};

/// A 4 KiB page of doorbell registers in this process. The mapping ends with the last handle.
pub struct UarPage {
    mapping: Box<dyn BarMapping>,
    offset_bytes: usize,
    bf_reg_size_bytes: usize,
    /// Bit k: register k has an owner.
    taken: Mutex<u32>,
}

impl UarPage {
    /// A page at `offset_bytes` in `mapping`, with BlueFlame registers of `bf_reg_size_bytes`, or 0.
    pub fn new(mapping: Box<dyn BarMapping>, offset_bytes: usize, bf_reg_size_bytes: usize) -> Arc<Self> {
        Arc::new(Self { mapping, offset_bytes, bf_reg_size_bytes, taken: Mutex::new(0) })
    }

    /// First byte of the page. Valid for as long as `self` lives.
    pub fn base(&self) -> NonNull<u8> {
        // Stays inside the mapping, or right at its base: `offset_bytes` is given by who mapped it.
        self.mapping.base().map_addr(|base| base.saturating_add(self.offset_bytes))
    }

    /// Whether stores are combined into whole lines, so that BlueFlame pays.
    pub fn write_combining(&self) -> bool {
        self.mapping.write_combining()
    }

    /// Bytes of one BlueFlame register, two buffers of half that size; 0 if the device has none.
    pub fn bf_reg_size_bytes(&self) -> usize {
        self.bf_reg_size_bytes
    }

    /// BlueFlame registers for general use in the page.
    pub fn n_bf_regs(&self) -> usize {
        if self.bf_reg_size_bytes == 0 { 0 } else { uar::NON_FP_BFREGS_PER_UAR }
    }

    /// A register that nobody else has. A page without BlueFlame registers has one place to ring all the same.
    pub fn take(self: &Arc<Self>) -> Option<Register> {
        (0..self.n_bf_regs().max(1)).find_map(|k| self.take_register(k))
    }

    /// Register `k`, unless it has an owner.
    pub fn take_register(self: &Arc<Self>, k: usize) -> Option<Register> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let free = k < uar::BFREGS_PER_UAR && *taken & 1 << k == 0;
        free.then(|| {
            *taken |= 1 << k;
            Register { page: Arc::clone(self), k, taken: true }
        })
    }

    /// The doorbells of completion and event queues in this page.
    ///
    /// # Safety
    /// The result is not used after `self` is gone.
    pub unsafe fn doorbells(&self) -> doorbell::UarPage {
        // SAFETY: a mapped UAR page for as long as `self` lives, reached through such values alone.
        unsafe { doorbell::UarPage::new(self.base(), self.write_combining()) }
    }
}

impl fmt::Debug for UarPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UarPage")
            .field("write_combining", &self.write_combining())
            .field("bf_reg_size_bytes", &self.bf_reg_size_bytes)
            .finish_non_exhaustive()
    }
}

/// Where a send queue rings: a BlueFlame register of its owner's own, given back on drop, or one that others ring
/// too.
#[derive(Debug)]
pub struct Register {
    page: Arc<UarPage>,
    k: usize,
    taken: bool,
}

impl Register {
    /// Register `k` of a page, which others ring too: 8 bytes at a time.
    pub fn shared(page: Arc<UarPage>, k: usize) -> Self {
        Self { page, k, taken: false }
    }

    /// The page that it is in.
    pub fn page(&self) -> &Arc<UarPage> {
        &self.page
    }

    /// Whether nobody else rings it, so that BlueFlame is allowed, and there is BlueFlame.
    pub fn sharing(&self) -> Sharing {
        if self.taken && self.page.bf_reg_size_bytes > 0 { Sharing::Exclusive } else { Sharing::Shared }
    }

    /// The register itself.
    ///
    /// # Safety
    /// Called once, and the result is not used after `self` is gone.
    pub unsafe fn register(&self) -> UarRegister {
        // Without BlueFlame the place of the first register takes 8-byte doorbells all the same.
        let log_size = self.page.bf_reg_size_bytes.checked_ilog2().unwrap_or(9) as u8;
        // SAFETY: the page lives as long as `self`. If exclusive, the bit in `taken` makes us the only owner of `k`.
        unsafe { self.page.doorbells().register(self.k, log_size, self.sharing()) }
    }
}

impl Drop for Register {
    fn drop(&mut self) {
        if self.taken {
            *self.page.taken.lock().unwrap_or_else(PoisonError::into_inner) &= !(1 << self.k);
        }
    }
}
