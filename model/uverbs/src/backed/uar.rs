//! UAR pages of an open device, and which queue pair rings where on them.

use super::card::Host;
use crate::uapi::AllocUcontextReq;
use mlx5_direct::{
    backend::{
        pci::PciFunction,
        prm::{PrmControl, Uar},
    },
    mlx5::uar::NON_FP_BFREGS_PER_UAR,
};
use mlx5_model::preload::Mappings;
use std::ffi::c_int;

/// Registers of a page, of which the last two are not for general use.
const BFREGS_PER_UAR: u32 = 4;
/// Most registers that a program gets (`MLX5_MAX_BFREGS`).
const MAX_BFREGS: u32 = 512;

/// The pages of an open device.
#[derive(Debug)]
pub(super) struct Pages {
    pub(super) pages: Vec<Uar>,
    /// Queue pairs by register, registers counted as the library does.
    users: Vec<u32>,
    /// The last so many have one queue pair each: the library rings them without a lock.
    n_own: u32,
}

impl Pages {
    /// As many as the program has asked for.
    pub(super) fn alloc(control: &PrmControl, request: AllocUcontextReq) -> mlx5_direct::Result<Self> {
        let per_page = NON_FP_BFREGS_PER_UAR as u32;
        let n = request.total_num_bfregs.clamp(per_page, MAX_BFREGS).next_multiple_of(per_page);
        let pages = (0..n / per_page).map(|_| control.alloc_uar()).collect::<Result<_, _>>()?;
        let n_own = request.num_low_latency_bfregs.min(n - 1);
        Ok(Self { pages, users: vec![0; n as usize], n_own })
    }

    /// Registers for general use.
    pub(super) fn n_bfregs(&self) -> u32 {
        self.users.len() as u32
    }

    /// A register for a queue pair: one of its own while there are any, then the one that fewest share. The first is
    /// rung with 8 bytes only, and is for those that find no other.
    pub(super) fn take(&mut self) -> (u32, Uar) {
        let n_shared = self.users.len() - self.n_own as usize;
        let own = (n_shared..self.users.len()).find(|at| self.users[*at] == 0);
        let at = own.or_else(|| (1..n_shared).min_by_key(|at| self.users[*at])).unwrap_or(0);
        self.users[at] += 1;
        let (page, register) = (at / NON_FP_BFREGS_PER_UAR, at % NON_FP_BFREGS_PER_UAR);
        (page as u32 * BFREGS_PER_UAR + register as u32, self.pages[page].clone())
    }

    /// A queue pair is gone.
    pub(super) fn give_back(&mut self, bfreg_index: u32) {
        let (page, register) = (bfreg_index / BFREGS_PER_UAR, bfreg_index % BFREGS_PER_UAR);
        self.users[(page * NON_FP_BFREGS_PER_UAR as u32 + register) as usize] -= 1;
    }
}

/// What programs have mapped.
pub(crate) static MAPPINGS: Mappings = Mappings::new();

/// A program has mapped a page of the BAR.
///
/// # Safety
/// `len_bytes` at `base` are that mapping, and may be written.
pub(crate) unsafe fn mapped(host: &Host, base: *mut u8, len_bytes: usize, offset: u64) -> Result<(), c_int> {
    // SAFETY: promised by the caller; `munmap` tells of it first.
    let mapped = unsafe { MAPPINGS.mapped(&host.function, base, len_bytes, offset) };
    mapped.map_err(|error| {
        super::complain(&format!("{}: a mapped page: {error}", host.function.name()));
        error.raw_os_error().unwrap_or(libc::EINVAL)
    })
}
