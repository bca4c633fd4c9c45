//! Memory regions.
//!
//! [`Mr`] is memory of the crate's own, for the common case: it is reached by copies, so that no Rust
//! reference ever overlaps what the device reads or writes. [`RawMr`] registers the application's memory; what
//! must then hold is the application's promise.

use crate::{
    Access, Error, Pd, Result,
    backend::{
        Keys, MrParams,
        dma::{HostMemory, PageSize},
    },
    mlx5::ids::{Lkey, Rkey},
    queue::Remote,
};
use std::{cell::Cell, marker::PhantomData, ops::Range, ptr, ptr::NonNull, sync::Arc};

/// A registration with the device, ended on drop.
#[derive(Debug)]
pub(crate) struct Registration {
    pd: Pd,
    memory: Arc<HostMemory>,
    keys: Keys,
    access: Access,
    /// Address by which requests name byte 0.
    start_addr: u64,
}

impl Registration {
    /// `start_addr` is `None` for the address that this process has the memory at.
    fn new(pd: &Pd, memory: Arc<HostMemory>, access: Access, start_addr: Option<u64>) -> Result<Arc<Self>> {
        access.check_mr()?;
        let params = MrParams { pd: pd.pdn(), memory: Arc::clone(&memory), access, start_addr };
        let keys = pd.context().control().reg_mr(&params)?;
        let start_addr = start_addr.unwrap_or(memory.base().addr().get() as u64);
        Ok(Arc::new(Self { pd: pd.clone(), memory, keys, access, start_addr }))
    }

    /// Address by which requests name byte 0.
    pub(crate) fn addr(&self) -> u64 {
        self.start_addr
    }

    pub(crate) fn len_bytes(&self) -> usize {
        self.memory.len_bytes()
    }

    pub(crate) fn pd(&self) -> &Pd {
        &self.pd
    }

    pub(crate) fn access(&self) -> Access {
        self.access
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // If the device does not confirm, the control path keeps the memory mapped and alive.
        let _ = self.pd.context().control().dereg_mr(self.keys.lkey);
    }
}

/// Registered memory of the crate's own.
///
/// It stays registered while the value lives, and beyond that while a queue pair holds a
/// [lease](crate::Qp::lease) of it. A peer that was given [`remote`](Self::remote) may access it at any time
/// that `access` allows.
///
/// `Send`, not `Sync`: copies into and out of it have one thread at a time. To share it, [split](Self::split_at)
/// it.
#[derive(Debug)]
pub struct Mr {
    registration: Arc<Registration>,
    range: Range<usize>,
    one_thread: PhantomData<Cell<()>>,
}

impl Mr {
    pub(crate) fn alloc(
        pd: &Pd,
        len_bytes: usize,
        access: Access,
        page_size: PageSize,
        start_addr: Option<u64>,
    ) -> Result<Self> {
        let memory = pd.context().control().alloc_memory(len_bytes, page_size)?;
        let registration = Registration::new(pd, memory, access, start_addr)?;
        Ok(Self { registration, range: 0..len_bytes, one_thread: PhantomData })
    }

    /// Length in bytes.
    pub fn len_bytes(&self) -> usize {
        self.range.len()
    }

    /// The key by which one's own requests name it.
    pub fn lkey(&self) -> Lkey {
        self.registration.keys.lkey
    }

    /// The key by which a peer's requests name it.
    pub fn rkey(&self) -> Rkey {
        self.registration.keys.rkey
    }

    /// Device address of byte 0.
    pub fn addr(&self) -> u64 {
        self.registration.addr() + self.range.start as u64
    }

    /// The place `offset` bytes in, as a peer's requests name it.
    pub fn remote(&self, offset: usize) -> Remote {
        Remote { addr: self.addr() + offset as u64, rkey: self.rkey() }
    }

    /// Divides it in two at `offset`. Both parts are under the same keys.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if `offset` is beyond the end.
    pub fn split_at(self, offset: usize) -> Result<(Self, Self)> {
        self.check(offset, 0)?;
        let middle = self.range.start + offset;
        let part =
            |range| Self { registration: Arc::clone(&self.registration), range, one_thread: PhantomData };
        Ok((part(self.range.start..middle), part(middle..self.range.end)))
    }

    /// Copies `bytes` to `offset`.
    ///
    /// A request that reads the range at the same time carries old bytes, new bytes, or both.
    ///
    /// # Panics
    /// If they do not fit; see [`try_write`](Self::try_write).
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        self.try_write(offset, bytes).unwrap_or_else(|error| panic!("{error}"));
    }

    /// As [`write`](Self::write), with an error instead of a panic.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if they do not fit.
    pub fn try_write(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        let to = self.check(offset, bytes.len())?;
        // SAFETY: `to` is valid for the length. `bytes` does not overlap it: no reference into it is ever made.
        // Other threads of this process do not access it: `self` is the only handle to its range and is not
        // `Sync`. The device may, and is outside of the language.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        Ok(())
    }

    /// Copies from `offset` into `bytes`.
    ///
    /// What a completed request wrote is seen; of one still running some bytes may be.
    ///
    /// # Panics
    /// If the region ends before; see [`try_read`](Self::try_read).
    pub fn read(&self, offset: usize, bytes: &mut [u8]) {
        self.try_read(offset, bytes).unwrap_or_else(|error| panic!("{error}"));
    }

    /// As [`read`](Self::read), with an error instead of a panic.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the region ends before.
    pub fn try_read(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let from = self.check(offset, bytes.len())?;
        // SAFETY: as in `try_write`.
        unsafe { ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }

    /// One load of the 8 aligned bytes at `offset` in host order: what an atomic, or a peer's RDMA WRITE, left
    /// there. Later reads of registered memory are not moved before it.
    ///
    /// # Panics
    /// If they are outside, or `offset` is not a multiple of 8.
    pub fn load_u64(&self, offset: usize) -> u64 {
        let from = self.word(offset);
        // SAFETY: valid and aligned. Volatile: the device writes it behind our back.
        let value = unsafe { from.read_volatile() };
        crate::doorbell::after_owner_test();
        value
    }

    /// One store of 8 aligned bytes at `offset` in host order.
    ///
    /// # Panics
    /// If they are outside, or `offset` is not a multiple of 8.
    pub fn store_u64(&self, offset: usize, value: u64) {
        let to = self.word(offset);
        // SAFETY: valid and aligned. Volatile: the device reads it behind our back.
        unsafe { to.write_volatile(value) }
    }

    /// One load of the byte at `offset`, as a target that waits for an RDMA WRITE polls its last byte. Later
    /// reads of registered memory are not moved before it.
    ///
    /// # Panics
    /// If it is outside.
    pub fn load_u8(&self, offset: usize) -> u8 {
        let from = self.check(offset, 1).unwrap_or_else(|error| panic!("{error}"));
        // SAFETY: valid. Volatile: the device writes it behind our back.
        let value = unsafe { from.read_volatile() };
        crate::doorbell::after_owner_test();
        value
    }

    pub(crate) fn registration(&self) -> &Arc<Registration> {
        &self.registration
    }

    fn word(&self, offset: usize) -> *mut u64 {
        let word = self.check(offset, 8).unwrap_or_else(|error| panic!("{error}")).cast::<u64>();
        assert!(word.is_aligned(), "offset {offset} is not a multiple of 8");
        word
    }

    fn check(&self, offset: usize, len: usize) -> Result<*mut u8> {
        if offset.checked_add(len).is_none_or(|end| end > self.len_bytes()) {
            return Err(Error::invalid(format!(
                "{len} bytes at offset {offset} do not fit in a memory region of {} bytes",
                self.len_bytes()
            )));
        }
        let base = self.registration.memory.base().as_ptr();
        // SAFETY: within the memory: the range is, and the offset within the range was just checked.
        Ok(unsafe { base.add(self.range.start + offset) })
    }
}

/// A registration of the application's own memory.
#[derive(Debug)]
pub struct RawMr {
    registration: Arc<Registration>,
}

impl Pd {
    /// Registers `len_bytes` of the application's memory at `base`, of any alignment.
    ///
    /// # Errors
    /// Flags that break the rules of [`Access`], a length of 0, or what the device says.
    ///
    /// # Safety
    /// - The memory stays valid for reads and writes until the [`RawMr`] is dropped.
    /// - While a request, or a peer with the rkey, may write some of it, no Rust reference to those bytes
    ///   lives and nobody else accesses them; while it may be read, nobody writes it.
    pub unsafe fn reg_mr(&self, base: NonNull<u8>, len_bytes: usize, access: Access) -> Result<RawMr> {
        if len_bytes == 0 {
            return Err(Error::invalid("a memory region has at least 1 byte"));
        }
        // SAFETY: the caller's promise.
        let memory = unsafe { HostMemory::lend(base, len_bytes) };
        Ok(RawMr { registration: Registration::new(self, memory, access, None)? })
    }
}

impl RawMr {
    /// Length in bytes.
    pub fn len_bytes(&self) -> usize {
        self.registration.len_bytes()
    }

    /// The key by which one's own requests name it.
    pub fn lkey(&self) -> Lkey {
        self.registration.keys.lkey
    }

    /// The key by which a peer's requests name it.
    pub fn rkey(&self) -> Rkey {
        self.registration.keys.rkey
    }

    /// Device address of byte 0: its address in this process.
    pub fn addr(&self) -> u64 {
        self.registration.addr()
    }

    /// The place `offset` bytes in, as a peer's requests name it.
    pub fn remote(&self, offset: usize) -> Remote {
        Remote { addr: self.addr() + offset as u64, rkey: self.rkey() }
    }
}
