//! Barriers, named by what they are for.
//!
//! | barrier | x86-64 | aarch64 |
//! |---|---|---|
//! | [`before_doorbell_record`] | compiler | `dmb oshst` |
//! | [`before_doorbell`] | `sfence` if write-combining, else compiler | `dmb oshst` |
//! | [`flush_write_combining`] | `sfence` if write-combining | `dsb st` if write-combining |
//! | [`after_owner_test`] | compiler | `dmb oshld` |
//! | [`before_consumer_index`] | compiler | `dmb oshld` |
//!
//! Other architectures are refused at build: a fence of the language orders memory between threads, not
//! between memory and a device, so there is no safe default.

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!(
    "mlx5-direct knows the barriers of x86-64 and aarch64 only: add them in src/doorbell/barrier.rs"
);

#[cfg(test)]
use super::explore::{Barrier, note};
use core::arch::asm;

/// Keeps the compiler from moving memory accesses, and the processor not at all.
#[inline(always)]
fn compiler_only() {
    // SAFETY: no instruction; not being `nomem`, it is a barrier to the compiler.
    unsafe { asm!("", options(nostack, preserves_flags)) }
}

/// Between the elements of a queue and the doorbell record that counts them.
///
/// The device reads the record, then the elements. x86 keeps stores to write-back memory in order.
#[inline(always)]
pub fn before_doorbell_record() {
    #[cfg(test)]
    note(Barrier::BeforeDoorbellRecord);
    #[cfg(target_arch = "x86_64")]
    compiler_only();
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier has no other effect.
    unsafe {
        asm!("dmb oshst", options(nostack, preserves_flags))
    }
}

/// Between the doorbell record and the doorbell that makes the device read it.
///
/// x86 orders stores to uncached memory after all before them, but not stores to write-combining memory:
/// these alone need the `sfence`.
#[inline(always)]
pub fn before_doorbell(write_combining: bool) {
    #[cfg(test)]
    note(Barrier::BeforeDoorbell { write_combining });
    #[cfg(target_arch = "x86_64")]
    if write_combining {
        // SAFETY: a barrier has no other effect.
        unsafe { asm!("sfence", options(nostack, preserves_flags)) }
    } else {
        compiler_only();
    }
    #[cfg(target_arch = "aarch64")]
    {
        let _ = write_combining;
        // SAFETY: a barrier has no other effect.
        unsafe { asm!("dmb oshst", options(nostack, preserves_flags)) }
    }
}

/// After a doorbell that filled only a part of a write-combining line.
///
/// Such a line may stay in its buffer until something forces it out; a full line leaves by itself, and
/// needs no flush.
#[inline(always)]
pub fn flush_write_combining(write_combining: bool) {
    #[cfg(test)]
    note(Barrier::FlushWriteCombining { write_combining });
    if write_combining {
        // SAFETY: a barrier has no other effect.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            asm!("sfence", options(nostack, preserves_flags));
            #[cfg(target_arch = "aarch64")]
            asm!("dsb st", options(nostack, preserves_flags));
        }
    }
}

/// Between the test that says that an element is new and the reading of its other bytes.
///
/// x86 keeps loads from write-back memory in order: no `lfence`, whose price is that the misses of
/// successive elements cannot overlap.
#[inline(always)]
pub fn after_owner_test() {
    #[cfg(test)]
    note(Barrier::AfterOwnerTest);
    #[cfg(target_arch = "x86_64")]
    compiler_only();
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier has no other effect.
    unsafe {
        asm!("dmb oshld", options(nostack, preserves_flags))
    }
}

/// Between the last reading of an element and the consumer index that gives its slot back.
///
/// x86 never moves a store before an earlier load.
#[inline(always)]
pub fn before_consumer_index() {
    #[cfg(test)]
    note(Barrier::BeforeConsumerIndex);
    #[cfg(target_arch = "x86_64")]
    compiler_only();
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier has no other effect.
    unsafe {
        asm!("dmb oshld", options(nostack, preserves_flags))
    }
}
