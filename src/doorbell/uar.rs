//! UAR pages and the registers in them: where doorbells are rung.

use super::{before_doorbell, flush_write_combining};
use crate::mistake::mistake;
use crate::mlx5::{
    be::Be64,
    uar::{BF_OFFSET, BFREGS_PER_UAR, CQ_DOORBELL, CqDoorbell},
};
use crate::wqe::WQEBB_BYTES;
use core::ptr::NonNull;
use volatile_register::WO;

/// A mapped UAR page: the doorbells of completion queues.
///
/// Each doorbell is one store of one word, so that a page may be used from several threads.
#[derive(Debug, Clone, Copy)]
pub struct UarPage {
    base: NonNull<u8>,
    write_combining: bool,
}

// SAFETY: the methods make single stores to device registers; the device takes them one by one.
unsafe impl Send for UarPage {}
// SAFETY: as above.
unsafe impl Sync for UarPage {}

impl UarPage {
    /// Takes a mapped page. `write_combining` says how it is mapped.
    ///
    /// # Safety
    /// `base` is the start of a mapped 4 KiB UAR page (or of memory that stands for one), stays mapped as
    /// long as the value, its copies and its registers live, and is reached through them alone.
    pub unsafe fn new(base: NonNull<u8>, write_combining: bool) -> Self {
        debug_assert!(base.as_ptr().addr().is_multiple_of(64));
        Self { base, write_combining }
    }

    /// Arms a completion queue. Its record's arm word is already written.
    #[inline]
    pub fn arm_cq(&self, doorbell: CqDoorbell) {
        before_doorbell(self.write_combining);
        let value = Be64::from_raw(u64::from_ne_bytes(doorbell.to_bytes()));
        // SAFETY: within the page by the contract of `new`; aligned, being 0x20 of it.
        unsafe { self.base.add(CQ_DOORBELL).cast::<WO<Be64>>().as_ref().write(value) };
        flush_write_combining(self.write_combining);
    }

    /// Takes register `k` of the page's four, of 2^`log_bf_reg_size` bytes (a capability, usually 9).
    ///
    /// # Safety
    /// With [`Sharing::Exclusive`] no other [`UarRegister`] for this register exists, in this process or
    /// another that maps the page.
    ///
    /// # Panics
    /// If the page has no such register.
    pub unsafe fn register(&self, k: usize, log_bf_reg_size: u8, sharing: Sharing) -> UarRegister {
        let size_bytes = 1usize << log_bf_reg_size;
        assert!(
            k < BFREGS_PER_UAR && (7..=9).contains(&log_bf_reg_size),
            "no register {k} of {size_bytes} bytes in a UAR page: 4 registers of 128 to 512 bytes"
        );
        UarRegister {
            // SAFETY: 0x800 + 4 * 512 is the end of the page.
            base: unsafe { self.base.add(BF_OFFSET + k * size_bytes) },
            offset: 0,
            turn: if sharing == Sharing::Exclusive { size_bytes / 2 } else { 0 },
            write_combining: self.write_combining,
        }
    }
}

/// Whether a register has one owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// One owner: BlueFlame is allowed.
    Exclusive,
    /// Others ring it too: single 8-byte stores only, since the lines of two BlueFlames would mix.
    Shared,
}

/// How a send queue rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DoorbellMode {
    /// As libmlx5 does: BlueFlame for one WQE of more than a control segment that fits half the register;
    /// the 8-byte doorbell for all else, and on a register that is shared or not write-combining.
    #[default]
    Auto,
    /// The 8-byte doorbell always.
    Doorbell,
}

/// One BlueFlame register, and the right to ring it.
///
/// Not `Clone`: an exclusive register has one owner, by type.
#[derive(Debug)]
pub struct UarRegister {
    base: NonNull<u8>,
    /// Where to ring next: the start of one half or of the other.
    offset: usize,
    /// From one half to the other; 0 if the register is shared, which is rung at its start.
    turn: usize,
    write_combining: bool,
}

// SAFETY: the register belongs to this value (or, shared, takes single stores from anyone).
unsafe impl Send for UarRegister {}

impl UarRegister {
    /// Whether others ring it too.
    pub fn sharing(&self) -> Sharing {
        if self.turn == 0 { Sharing::Shared } else { Sharing::Exclusive }
    }

    /// Most bytes that a BlueFlame may carry: half the register, or 0 where BlueFlame is refused.
    pub fn blue_flame_max_bytes(&self) -> usize {
        if self.write_combining { self.turn } else { 0 }
    }

    /// Rings with 8 bytes: the first of the last WQE's control segment, as they lie in memory.
    #[inline(always)]
    pub(crate) fn ring(&mut self, ctrl: u64) {
        before_doorbell(self.write_combining);
        if mistake!(DoorbellOf4Bytes) {
            // SAFETY: as below.
            return unsafe { self.base.add(self.offset).cast::<WO<u32>>().as_ref().write(ctrl as u32) };
        }
        let ctrl = if mistake!(DoorbellSwapped) { ctrl.swap_bytes() } else { ctrl };
        // SAFETY: `offset` is the start of a half of the register, which is mapped and 8-byte aligned.
        unsafe { self.base.add(self.offset).cast::<WO<u64>>().as_ref().write(ctrl) };
        flush_write_combining(self.write_combining);
        self.turn();
    }

    /// Rings with a whole WQE: `n_wqebbs` lines from `wqe` on, going on at `ring` after `ring_end`.
    ///
    /// # Safety
    /// `wqe` is a WQEBB of the ring `ring..ring_end`, which is readable, and `n_wqebbs * 64` is at most
    /// [`blue_flame_max_bytes`](Self::blue_flame_max_bytes).
    #[inline(always)]
    pub(crate) unsafe fn blue_flame(
        &mut self,
        wqe: *const u8,
        n_wqebbs: u32,
        ring: *const u8,
        ring_end: *const u8,
    ) {
        before_doorbell(true);
        let mut from = wqe;
        // SAFETY: `offset` is the start of a half of the register.
        let mut to = unsafe { self.base.as_ptr().add(self.offset) };
        for _ in 0..n_wqebbs {
            for at in (0..WQEBB_BYTES).step_by(size_of::<Chunk>()) {
                if mistake!(BlueFlameCutShort) && at >= WQEBB_BYTES / 2 {
                    break;
                }
                let from = if mistake!(BlueFlameOldBytes) { from.wrapping_sub(at) } else { from };
                // SAFETY: a line of the ring, and one of the half register, by the caller's promise; both
                // are aligned to the line.
                unsafe { to.add(at).cast::<Chunk>().write_volatile(from.add(at).cast::<Chunk>().read()) };
            }
            // SAFETY: at most one past the ring, and one past the register's half.
            (from, to) = unsafe { (from.add(WQEBB_BYTES), to.add(WQEBB_BYTES)) };
            if from == ring_end {
                from = ring;
            }
        }
        self.turn();
    }

    /// Takes the other half next, so that a line still on its way is not combined with a new one.
    #[inline(always)]
    fn turn(&mut self) {
        self.offset ^= self.turn;
    }
}

/// The widest store that every processor of the target has: fewer parts of a line to combine.
#[cfg(all(target_arch = "x86_64", target_feature = "avx512f"))]
type Chunk = core::arch::x86_64::__m512i;
#[cfg(all(target_arch = "x86_64", not(target_feature = "avx512f")))]
type Chunk = core::arch::x86_64::__m128i;
#[cfg(target_arch = "aarch64")]
type Chunk = core::arch::aarch64::uint8x16_t;
