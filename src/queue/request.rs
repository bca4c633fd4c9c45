//! One send request while it is written: segment after segment, the control segment last.

use super::{
    AddressHandle, Flags, Lease, Paired, PostError, PostList, Rc, Remote, Sge, Transport, Ud,
    segment::{halves, store},
};
use crate::{
    mistake::mistake,
    mlx5::ids::Lkey,
    wqe::{AtomicSeg, CtrlSeg, FenceMode, InlineSeg, RaddrSeg, SEGMENT_BYTES, SendOpcode, WQEBB_BYTES},
};
use core::{arch::asm, marker::PhantomData, ops::Range};

/// A request that sends local memory or inline data: SEND and RDMA WRITE.
#[derive(Debug)]
pub struct Gather;
/// A request whose local memory the device cuts into frames: a large send of raw packets.
#[derive(Debug)]
pub struct Segmented;
/// A request that fills local memory: RDMA READ.
#[derive(Debug)]
pub struct Scatter;
/// A request that still needs its 8 bytes of local memory.
#[derive(Debug)]
pub struct Atomic;
/// A request that carries inline data.
#[derive(Debug)]
pub struct Inline;
/// A request that needs nothing more.
#[derive(Debug)]
pub struct Ready;

/// Requests that name a list of local memory.
pub trait SgeList: sealed::Sealed {}
impl SgeList for Gather {}
impl SgeList for Scatter {}
impl SgeList for Segmented {}

/// Requests that may be finished.
pub trait Complete: sealed::Sealed {}
impl Complete for Gather {}
impl Complete for Scatter {}
impl Complete for Segmented {}
impl Complete for Inline {}
impl Complete for Ready {}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Gather {}
    impl Sealed for super::Scatter {}
    impl Sealed for super::Segmented {}
    impl Sealed for super::Inline {}
    impl Sealed for super::Ready {}
}

/// Segments before the data.
#[inline(always)]
const fn n_header<T: Transport>(opcode: SendOpcode) -> u32 {
    1 + T::N_AV_SEGMENTS + opcode.has_raddr() as u32 + opcode.is_atomic() as u32
}

/// Data segments that an operation may have on a queue whose requests may have `max_sge`.
#[inline(always)]
fn max_sge(opcode: SendOpcode, max_sge: u32) -> u32 {
    match opcode {
        // A READ takes no more than 512 bytes (`MLX5_MAX_SGE_RD`).
        SendOpcode::RDMA_READ if !mistake!(ReadOfManyPieces) => max_sge.min(30),
        SendOpcode::ATOMIC_CS | SendOpcode::ATOMIC_FA => 1,
        _ => max_sge,
    }
}

/// A request being written. `K` says what may follow.
///
/// Dropped before [`finish`](Self::finish) it was never there.
#[derive(Debug)]
#[must_use = "a request is in the list only after `finish`"]
pub struct Request<'l, 'q, K, T = Rc> {
    pub(super) list: &'l mut PostList<'q, T>,
    /// First byte of the WQE: 64-byte aligned.
    start: *mut u8,
    /// Where the next segment (or inline byte) goes.
    pub(super) at: *mut u8,
    /// Segments so far, inline data not counted.
    pub(super) ds: u32,
    /// Those before the data.
    pub(super) n_header: u32,
    /// WQEBBs for which there are credits; at least one.
    pub(super) n_free: u32,
    /// Bytes that may still be added to the message.
    budget_bytes: u32,
    /// Bytes of inline data so far.
    n_inline_bytes: u32,
    wr_id: u64,
    opcode: SendOpcode,
    flags: Flags,
    imm: u32,
    kind: PhantomData<K>,
}

impl<'l, 'q, K, T: Transport> Request<'l, 'q, K, T> {
    /// Starts a WQE at `start`.
    ///
    /// # Safety
    /// `start` is the first of `n_free` WQEBBs of the list's ring (they may go on at the ring's start) that are
    /// free and that nothing else writes while this lives.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)]
    pub(super) unsafe fn new(
        list: &'l mut PostList<'q, T>,
        start: *mut u8,
        n_free: u32,
        opcode: SendOpcode,
        wr_id: u64,
        flags: Flags,
        imm: u32,
    ) -> Self {
        Self {
            start,
            // SAFETY: within the first WQEBB.
            at: unsafe { start.add(SEGMENT_BYTES) },
            ds: 1,
            n_header: n_header::<T>(opcode),
            n_free,
            budget_bytes: if mistake!(DatagramTooLong) { 1 << 30 } else { list.queue.max_message_bytes },
            n_inline_bytes: 0,
            list,
            wr_id,
            opcode,
            flags,
            imm,
            kind: PhantomData,
        }
    }

    /// Adds a segment that cannot reach the end of the first WQEBB: one of the first four.
    #[inline(always)]
    pub(super) fn header(mut self, segment: [u8; 16]) -> Self {
        debug_assert!(self.ds < 4);
        // SAFETY: in the first WQEBB, by the contract of `new`, since no more than three come before it.
        unsafe {
            store(self.at, segment);
            self.at = self.at.add(SEGMENT_BYTES);
        }
        self.ds += 1;
        self
    }

    #[inline(always)]
    pub(super) fn remote(self, remote: Remote) -> Self {
        let mut segment = RaddrSeg::new().with_raddr(remote.addr).with_rkey(remote.rkey).to_bytes();
        if mistake!(ReservedBit) {
            segment[15] = 1;
        }
        self.header(segment)
    }

    #[inline(always)]
    pub(super) fn operands(self, swap_add: u64, compare: u64) -> Self {
        self.header(AtomicSeg::new().with_swap_add(swap_add).with_compare(compare).to_bytes())
    }

    /// Adds one piece of local memory.
    #[inline(always)]
    fn data(mut self, sge: Sge) -> Result<Self, PostError> {
        if sge.len_bytes.wrapping_sub(1) >= self.budget_bytes {
            // As libmlx5 does: `byte_count` 0 would mean 2³¹ bytes.
            return if sge.len_bytes == 0 { Ok(self) } else { Err(PostError::MessageTooLong) };
        }
        if self.ds - self.n_header >= max_sge(self.opcode, self.list.queue.max_sge) {
            return Err(PostError::TooManySge);
        }
        if self.ds / 4 >= self.n_free {
            return Err(PostError::QueueFull);
        }
        self.budget_bytes -= sge.len_bytes;
        // The ring ends where a WQEBB does.
        if self.ds.is_multiple_of(4) && self.at == self.list.queue.ring_end {
            self.at = self.list.queue.ring;
        }
        // SAFETY: segment `ds` lies in one of the WQE's `n_free` free WQEBBs; at the ring's end they go on at
        // its start.
        unsafe {
            store(self.at, sge.segment().to_bytes());
            self.at = self.at.add(SEGMENT_BYTES);
        }
        self.ds += 1;
        Ok(self)
    }

    /// Copies inline data behind what there is.
    #[inline(always)]
    fn inline_data(mut self, data: &[u8]) -> Result<Request<'l, 'q, Inline, T>, PostError> {
        let room_bytes = self.list.queue.max_inline_bytes - self.n_inline_bytes;
        if data.len() > room_bytes as usize {
            return Err(PostError::InlineTooLong);
        }
        let n_inline_bytes = self.n_inline_bytes + data.len() as u32;
        let ds = self.ds + InlineSeg::n_octowords(n_inline_bytes as usize) as u32;
        if ds.div_ceil(4) > self.n_free {
            return Err(PostError::QueueFull);
        }
        let offset =
            self.ds as usize * SEGMENT_BYTES + InlineSeg::HEADER_BYTES + self.n_inline_bytes as usize;
        if self.n_inline_bytes == 0 {
            // The header is written last, when the length is known.
            self.at = self.inline_header().wrapping_add(InlineSeg::HEADER_BYTES);
        }
        // In the first WQEBB nothing wraps. Short data are there, and where their length is known so is this.
        let in_first = offset + data.len() <= WQEBB_BYTES;
        let before_end = self.list.queue.ring_end.addr() - self.at.addr();
        // SAFETY: the segments up to `ds` lie in free WQEBBs, and the data in these segments; where they do
        // not end before the ring does, they go on at its start.
        self.at = unsafe {
            if in_first || data.len() <= before_end {
                copy_inline(self.at, data);
                self.at.add(data.len())
            } else {
                copy_inline_wrapping(self.at, before_end, self.list.queue.ring, data)
            }
        };
        self.n_inline_bytes = n_inline_bytes;
        Ok(self.into_kind())
    }

    /// Place of the header of inline data: segment `ds`, since none counts before it is complete. After ctrl, XRC
    /// segment and raddr that is in the first WQEBB; a datagram's is the first of the second; a raw packet's is behind
    /// as much of the frame's head as there is.
    #[inline(always)]
    fn inline_header(&self) -> *mut u8 {
        let at = self.start.wrapping_add(self.ds as usize * SEGMENT_BYTES);
        let (ring, end) = (self.list.queue.ring, self.list.queue.ring_end);
        if T::N_HEADER_SEGMENTS > 4 && at.addr() >= end.addr() {
            ring.wrapping_add(at.addr() - end.addr())
        } else if self.ds == 4 && at == end {
            ring
        } else {
            at
        }
    }

    #[inline(always)]
    fn into_kind<L>(self) -> Request<'l, 'q, L, T> {
        Request {
            list: self.list,
            start: self.start,
            at: self.at,
            ds: self.ds,
            n_header: self.n_header,
            n_free: self.n_free,
            budget_bytes: self.budget_bytes,
            n_inline_bytes: self.n_inline_bytes,
            wr_id: self.wr_id,
            opcode: self.opcode,
            flags: self.flags,
            imm: self.imm,
            kind: PhantomData,
        }
    }
}

impl<K: Complete, T: Transport> Request<'_, '_, K, T> {
    /// Ends the request: it is in the list now, and posted when the list rings.
    #[inline(always)]
    pub fn finish(mut self) {
        if self.n_inline_bytes != 0 {
            self.close_inline();
        }
        let ctrl = CtrlSeg::new()
            .with_wqe_index(self.list.wqe_index())
            .with_opcode(self.opcode)
            .with_qpn(self.list.queue.qpn)
            .with_opmod(u8::from(mistake!(OpmodSet)))
            .with_ds(if mistake!(DsInWqebbs) { self.ds.div_ceil(4) as u8 } else { self.ds as u8 })
            .with_fm(if mistake!(FenceUnknown) { FenceMode(7) } else { self.flags.fm() })
            .with_ce(self.flags.ce())
            .with_se(self.flags.se())
            .with_imm(self.imm)
            .to_bytes();
        let mut stored = ctrl;
        if mistake!(WqeOfAnotherQueue) {
            stored[6] ^= 0xff;
        }
        if mistake!(IndexMasked) {
            let masked = self.list.wqe_index() & self.list.queue.mask as u16;
            stored[1..3].copy_from_slice(&masked.to_be_bytes());
        }
        // SAFETY: the first segment of the WQE.
        unsafe { store(self.start, stored) };
        self.list.push(self.wr_id, self.ds.div_ceil(4), halves(ctrl)[0]);
    }

    /// Writes the header of inline data, and counts the segments that they take.
    #[inline(always)]
    fn close_inline(&mut self) {
        let header =
            InlineSeg::new().with_inline(true).with_byte_count(self.n_inline_bytes as u16).to_bytes();
        // SAFETY: in one of the request's WQEBBs, since data follow it.
        unsafe { self.inline_header().cast::<[u8; 4]>().write(header) };
        self.ds += InlineSeg::n_octowords(self.n_inline_bytes as usize) as u32;
    }
}

impl<K: SgeList, T: Transport> Request<'_, '_, K, T> {
    /// Names `len_bytes` of local memory at device address `addr`. Nothing is added for length 0.
    ///
    /// # Errors
    /// [`TooManySge`](PostError::TooManySge), [`MessageTooLong`](PostError::MessageTooLong),
    /// [`QueueFull`](PostError::QueueFull): the request is gone, the list as before it.
    ///
    /// # Safety
    /// Until the request is retired (or its queue pair destroyed) the range stays mapped for the device under
    /// `lkey`. For RDMA READ, no Rust reference to it lives and nobody else touches it; for the others, nobody
    /// writes it.
    #[inline(always)]
    pub unsafe fn sge(self, lkey: Lkey, addr: u64, len_bytes: u32) -> Result<Self, PostError> {
        self.data(Sge { lkey, addr, len_bytes })
    }

    /// Names `range` of memory that is leased to this queue pair.
    ///
    /// # Errors
    /// As [`sge`](Self::sge), and [`NotLeased`](PostError::NotLeased), [`OutOfRange`](PostError::OutOfRange).
    #[inline(always)]
    pub fn local(self, lease: Lease, range: Range<u64>) -> Result<Self, PostError> {
        let (lkey, addr, len_bytes) = lease.check(self.list.queue.id, range)?;
        self.data(Sge { lkey, addr, len_bytes })
    }
}

impl<'l, 'q, T: Transport> Request<'l, 'q, Gather, T> {
    /// Carries `data` in the WQE itself. It may be reused at once.
    ///
    /// # Errors
    /// [`InlineTooLong`](PostError::InlineTooLong), [`QueueFull`](PostError::QueueFull), and
    /// [`MixedInline`](PostError::MixedInline) if the request already names memory.
    #[inline(always)]
    pub fn inline(self, data: &[u8]) -> Result<Request<'l, 'q, Inline, T>, PostError> {
        if self.ds != self.n_header {
            return Err(PostError::MixedInline);
        }
        self.inline_data(data)
    }
}

impl<T: Transport> Request<'_, '_, Inline, T> {
    /// Carries more data, behind what there is: it all is one message and one inline segment.
    ///
    /// # Errors
    /// [`InlineTooLong`](PostError::InlineTooLong), [`QueueFull`](PostError::QueueFull).
    #[inline(always)]
    pub fn inline(self, data: &[u8]) -> Result<Self, PostError> {
        self.inline_data(data)
    }
}

impl<K> Request<'_, '_, K, Ud> {
    /// Adds the address vector, which ends where the first WQEBB does.
    #[inline(always)]
    pub(super) fn address(mut self, to: &AddressHandle) -> Self {
        for segment in to.segments() {
            self = self.header(segment);
        }
        self
    }
}

impl<'l, 'q, T: Paired> Request<'l, 'q, Atomic, T> {
    /// Names the 8 bytes of local memory that take the old value.
    ///
    /// # Errors
    /// As for the other requests; there is always room for this one segment.
    ///
    /// # Safety
    /// As for RDMA READ: until the request is retired the 8 bytes stay mapped for the device under `lkey`,
    /// and nobody else touches them.
    #[inline(always)]
    pub unsafe fn sge(self, lkey: Lkey, addr: u64) -> Result<Request<'l, 'q, Ready, T>, PostError> {
        Ok(self.data(Sge { lkey, addr, len_bytes: 8 })?.into_kind())
    }

    /// Names 8 bytes of leased memory, from `offset_bytes` on, that take the old value.
    ///
    /// # Errors
    /// [`NotLeased`](PostError::NotLeased), [`OutOfRange`](PostError::OutOfRange).
    #[inline(always)]
    pub fn local(self, lease: Lease, offset_bytes: u64) -> Result<Request<'l, 'q, Ready, T>, PostError> {
        let end = offset_bytes.checked_add(8).ok_or(PostError::OutOfRange)?;
        let (lkey, addr, len_bytes) = lease.check(self.list.queue.id, offset_bytes..end)?;
        let len_bytes = if mistake!(AtomicOf16) { 16 } else { len_bytes };
        Ok(self.data(Sge { lkey, addr, len_bytes })?.into_kind())
    }
}

/// Copies `data` to `to`.
///
/// Not `copy_nonoverlapping`: of a length that is not known it is a call, which costs more than the copy.
///
/// # Safety
/// `to` is valid for writes of `data.len()` bytes.
#[inline(always)]
unsafe fn copy_inline(to: *mut u8, data: &[u8]) {
    let (from, len) = (data.as_ptr(), data.len());
    // SAFETY: every access is within `len` bytes of `from` and `to`: where `len` is not a multiple of the
    // size, the last one ends at `len` and writes some bytes a second time.
    unsafe {
        match len {
            17.. => {
                let mut at = 0;
                while at + 16 < len {
                    copy::<u128>(to, from, at);
                    at += 16;
                    // Without this the compiler makes the loop a call of `memcpy`.
                    asm!("", options(nostack, preserves_flags));
                }
                copy::<u128>(to, from, len - 16);
            }
            16 => copy::<u128>(to, from, 0),
            8.. => {
                copy::<u64>(to, from, 0);
                copy::<u64>(to, from, len - 8);
            }
            4.. => {
                copy::<u32>(to, from, 0);
                copy::<u32>(to, from, len - 4);
            }
            2.. => {
                copy::<u16>(to, from, 0);
                copy::<u16>(to, from, len - 2);
            }
            1 => copy::<u8>(to, from, 0),
            0 => {}
        }
    }
}

/// Copies one word, of any alignment.
///
/// # Safety
/// A word at offset `at` of `from` and `to` is valid for reads and writes.
#[inline(always)]
unsafe fn copy<T>(to: *mut u8, from: *const u8, at: usize) {
    // SAFETY: by the caller's promise.
    unsafe { to.add(at).cast::<T>().write_unaligned(from.add(at).cast::<T>().read_unaligned()) }
}

/// Copies `data` to `to` up to the ring's end, which is `before_end` bytes away, and on from the ring's start.
/// Gives the place after the last byte.
///
/// Byte by byte and in place: it is rare, and a call would make the fast path save registers.
///
/// # Safety
/// `to` is valid for writes of `before_end` bytes and `ring` for the rest; `data` is longer than `before_end`.
#[inline(always)]
unsafe fn copy_inline_wrapping(to: *mut u8, before_end: usize, ring: *mut u8, data: &[u8]) -> *mut u8 {
    let mut i = 0;
    while i < data.len() {
        let to = if i < before_end { to.wrapping_add(i) } else { ring.wrapping_add(i - before_end) };
        // SAFETY: by the caller's promise.
        unsafe { to.write(*data.as_ptr().add(i)) };
        i += 1;
        // SAFETY: changes nothing; the compiler, not knowing that, leaves the loop as short as it is.
        unsafe { asm!("/* {0} */", inout(reg) i, options(nostack, preserves_flags)) };
    }
    ring.wrapping_add(data.len() - before_end)
}
