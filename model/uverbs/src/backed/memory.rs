//! The program's memory, lent to the card.

use super::complain;
use mlx5_direct::backend::dma::{HostMemory, PAGE_BYTES};
use std::{ffi::c_int, ptr::NonNull, sync::Arc};

/// Memory at an address of the program's.
///
/// What the kernel has pinned stays when a program unmaps it. Here it must stay mapped for as long as the program has the
/// object that names it, which is what programs do that mean to use it.
pub(super) fn lend(address: u64, len_bytes: u64) -> Result<Arc<HostMemory>, c_int> {
    let base = NonNull::new(std::ptr::with_exposed_provenance_mut::<u8>(address as usize));
    let (Some(base), Some(end)) = (base, address.checked_add(len_bytes)) else {
        return Err(libc::EINVAL);
    };
    if len_bytes == 0 {
        return Err(libc::EINVAL);
    }
    check_mapped(address & !(PAGE_BYTES as u64 - 1), end)?;
    // SAFETY: there is memory, as just checked, which the program has named for the card's use; no reference of Rust's
    // is in it. A page that it may only read is in a registration without a right to write, which the card honours.
    Ok(unsafe { HostMemory::lend(base, len_bytes as usize) })
}

/// Refuses addresses where nothing is mapped, as the kernel does.
fn check_mapped(first_page: u64, end: u64) -> Result<(), c_int> {
    /// Pages that are asked for at once.
    const N_PAGES: usize = 1 << 16;
    let mut resident = vec![0_u8; N_PAGES.min((end - first_page).div_ceil(PAGE_BYTES as u64) as usize)];
    for from in (first_page..end).step_by(N_PAGES * PAGE_BYTES) {
        let len_bytes = (end - from).min((N_PAGES * PAGE_BYTES) as u64) as usize;
        let at = std::ptr::without_provenance_mut(from as usize);
        // SAFETY: any range may be asked for; there is room for a byte a page.
        if unsafe { libc::mincore(at, len_bytes, resident.as_mut_ptr()) } != 0 {
            complain(&format!("memory from 0x{from:x} to 0x{end:x} is not mapped"));
            return Err(libc::EFAULT);
        }
    }
    Ok(())
}
