//! The send queue: a ring of WQEBBs, a ledger of what was posted, and the credits between them.

use super::{
    Atomic, Completion, Gather, PostError, QueueId, Ready, Remote, Request, RetireError, Retired, Scatter,
    completion::Owner,
};
use crate::{
    doorbell::{DoorbellMode, DoorbellRecord, UarRegister, before_doorbell_record},
    mlx5::ids::{Qpn, Rkey, UserIndex},
    wqe::{CompletionMode, FenceMode, MAX_WQEBBS, SendOpcode, WQEBB_BYTES},
};
use core::ptr::NonNull;

/// What a request asks beside its operation. The bits are those of the control segment's `fm_ce_se`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags(u8);

impl Flags {
    /// Nothing: silent unless it fails.
    pub const NONE: Self = Self(0);
    /// Makes a completion, which retires all silent requests before it too.
    pub const SIGNALED: Self = Self(CompletionMode::ALWAYS.0 << 2);
    /// The receiver's completion is a solicited event.
    pub const SOLICITED: Self = Self(1 << 1);
    /// Waits for earlier READs and atomics (`IBV_SEND_FENCE`), and for earlier local invalidations.
    pub const FENCE: Self = Self(FenceMode::SMALL_AND_FENCE.0 << 5);

    /// Whether all of `other` is asked.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    #[inline(always)]
    pub(super) const fn fm(self) -> FenceMode {
        FenceMode(self.0 >> 5)
    }

    #[inline(always)]
    pub(super) const fn ce(self) -> CompletionMode {
        CompletionMode(self.0 >> 2 & 3)
    }

    #[inline(always)]
    pub(super) const fn se(self) -> bool {
        self.0 & Self::SOLICITED.0 != 0
    }
}

impl core::ops::BitOr for Flags {
    type Output = Self;
    #[inline(always)]
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// `ctrl.ds` counts 63 segments at most, of which up to two come before the data.
const MAX_SGE: u32 = 63 - 2;
/// So many bytes, with their header, fill these segments.
const MAX_INLINE_BYTES: u32 = MAX_SGE * 16 - 4;

/// What one request may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendLimits {
    /// Pieces of local memory, at most 61; an RDMA READ takes at most 30 of them.
    pub max_sge: u8,
    /// Bytes of inline data, at most 972.
    pub max_inline_bytes: u16,
    /// Bytes of a message, at most 2³¹ (`log_max_msg`).
    pub max_message_bytes: u32,
}

/// What the ledger remembers of a posted request.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct SendLedgerEntry {
    wr_id: u64,
    /// Free-running index of the first WQEBB: tells this lap's entry from an old one.
    index: u32,
    n_wqebbs: u32,
}

/// What a send queue is made of.
#[derive(Debug)]
pub struct SendQueueParts {
    /// Number of the queue pair.
    pub qpn: Qpn,
    /// Shared with the queue pair's [`RecvQueue`](super::RecvQueue) and its leases.
    pub id: QueueId,
    /// The ring: 2^`log_wq_size` WQEBBs, 64-byte aligned.
    pub ring: NonNull<u8>,
    /// Log2 of the ring's WQEBBs, 0 to 15.
    pub log_wq_size: u8,
    /// One entry a WQEBB, in memory that the device cannot reach.
    pub ledger: NonNull<SendLedgerEntry>,
    /// The send word of the queue pair's doorbell record.
    pub record: DoorbellRecord,
    /// Where to ring.
    pub register: UarRegister,
    /// How to ring.
    pub doorbell: DoorbellMode,
    /// What one request may hold.
    pub limits: SendLimits,
}

/// A send queue: one producer, by type.
#[derive(Debug)]
pub struct SendQueue {
    pub(super) ring: *mut u8,
    pub(super) ring_end: *mut u8,
    ledger: *mut SendLedgerEntry,
    mask: u32,
    /// Published WQEBBs, free-running.
    pi: u32,
    /// Retired WQEBBs, free-running.
    ci: u32,
    /// WQEBBs that may be outstanding: the ring's, or 0 before `open`, when none are.
    capacity: u32,
    pub(super) qpn: Qpn,
    owner: Owner,
    pub(super) max_sge: u32,
    pub(super) max_inline_bytes: u32,
    pub(super) max_message_bytes: u32,
    blue_flame_max_wqebbs: u32,
    pub(super) id: QueueId,
    record: DoorbellRecord,
    register: UarRegister,
}

// SAFETY: ring, ledger, record and register are this queue's alone by the contract of `new`.
unsafe impl Send for SendQueue {}

impl SendQueue {
    /// Makes an empty queue that does not accept requests before [`open`](Self::open).
    ///
    /// # Safety
    /// - `ring` and `ledger` are valid for reads and writes for the sizes that [`SendQueueParts`] says, as long as
    ///   the queue lives, and this process reaches them through the queue alone.
    /// - `record` and `register` are those of the queue pair `qpn`, whose send queue is at index 0.
    /// - The ring's memory is what the device was told it is.
    pub unsafe fn new(parts: SendQueueParts) -> Self {
        let SendQueueParts { qpn, id, ring, log_wq_size, ledger, record, register, doorbell, limits } = parts;
        debug_assert!(log_wq_size <= 15 && ring.as_ptr().addr().is_multiple_of(WQEBB_BYTES));
        let n_wqebbs = 1u32 << log_wq_size;
        for slot in 0..n_wqebbs as usize {
            // An index that no request at this slot will have.
            let never = SendLedgerEntry { wr_id: 0, index: !(slot as u32), n_wqebbs: 1 };
            // SAFETY: the ledger has an entry for each WQEBB.
            unsafe { ledger.add(slot).write(never) };
        }
        let blue_flame_max_bytes = match doorbell {
            DoorbellMode::Auto => register.blue_flame_max_bytes(),
            DoorbellMode::Doorbell => 0,
        };
        Self {
            ring: ring.as_ptr(),
            // SAFETY: one past the ring.
            ring_end: unsafe { ring.as_ptr().add(n_wqebbs as usize * WQEBB_BYTES) },
            ledger: ledger.as_ptr(),
            mask: n_wqebbs - 1,
            pi: 0,
            ci: 0,
            capacity: 0,
            qpn,
            owner: Owner::qpn(qpn),
            max_sge: u32::from(limits.max_sge).min(MAX_SGE),
            max_inline_bytes: u32::from(limits.max_inline_bytes).min(MAX_INLINE_BYTES),
            max_message_bytes: limits.max_message_bytes.min(1 << 31),
            blue_flame_max_wqebbs: (blue_flame_max_bytes / WQEBB_BYTES) as u32,
            id,
            record,
            register,
        }
    }

    /// Has completions told by the number that software gave the queue pair, not by the queue pair's number: what
    /// is left of a destroyed queue pair in a completion queue is then not taken for a completion of a later one
    /// with the same number.
    ///
    /// Only if the device writes it (`cqe_version` 1), and no two queue pairs that share a completion queue have
    /// the same.
    #[must_use]
    pub fn with_user_index(mut self, user_index: UserIndex) -> Self {
        self.owner = Owner::user_index(user_index);
        self
    }

    /// Accepts requests from now on: the queue pair is in RTS (or SQD, SQE, ERR).
    pub fn open(&mut self) {
        self.capacity = self.mask + 1;
    }

    /// Empties the queue, as a move to RESET does on the device: counters and record are 0 again, and
    /// nothing is accepted before [`open`](Self::open). What was outstanding is forgotten.
    pub fn reset(&mut self) {
        (self.pi, self.ci, self.capacity) = (0, 0, 0);
        self.record.write(0);
    }

    /// Number of the queue pair.
    pub fn qpn(&self) -> Qpn {
        self.qpn
    }

    /// How its queue pair's completions are told.
    pub(super) fn owner(&self) -> Owner {
        self.owner
    }

    /// The queue pair's identity, for leases.
    pub fn id(&self) -> QueueId {
        self.id
    }

    /// What one request may hold.
    pub fn limits(&self) -> SendLimits {
        SendLimits {
            max_sge: self.max_sge as u8,
            max_inline_bytes: self.max_inline_bytes as u16,
            max_message_bytes: self.max_message_bytes,
        }
    }

    /// WQEBBs of the ring.
    pub fn n_wqebbs(&self) -> u32 {
        self.mask + 1
    }

    /// Most WQEBBs of a single request that BlueFlame carries to the device; 0 if it is not used.
    pub fn blue_flame_max_wqebbs(&self) -> u32 {
        self.blue_flame_max_wqebbs
    }

    /// WQEBBs posted and not yet retired.
    pub fn n_outstanding(&self) -> u32 {
        self.pi.wrapping_sub(self.ci)
    }

    /// Starts a list of requests. Nothing of it exists for the device before [`PostList::ring`].
    ///
    /// One list at a time:
    /// ```compile_fail,E0499
    /// fn two(queue: &mut mlx5_direct::queue::SendQueue) {
    ///     let first = queue.post_list();
    ///     let second = queue.post_list();
    ///     first.ring();
    /// }
    /// ```
    #[inline(always)]
    pub fn post_list(&mut self) -> PostList<'_> {
        PostList {
            first: self.pi,
            pi: self.pi,
            pi_limit: self.ci.wrapping_add(self.capacity),
            last: self.pi,
            doorbell: 0,
            queue: self,
        }
    }

    /// Retires the request that `completion` is of and all before it, and gives back its `wr_id`.
    ///
    /// An error completion retires too: the request is done, if not well.
    ///
    /// # Errors
    /// A completion of another queue pair, of a receive, or of nothing outstanding; nothing changes then.
    #[inline]
    pub fn retire(&mut self, completion: &Completion<'_>) -> Result<Retired, RetireError> {
        if !completion.is_of(self.owner) {
            return Err(other_queue(completion, self.qpn));
        }
        if !completion.is_send() {
            return Err(RetireError::OtherDirection { opcode: completion.opcode() });
        }
        let wqe_counter = completion.wqe_counter();
        let slot = u32::from(wqe_counter) & self.mask;
        // SAFETY: the slot is masked to the ledger.
        let entry = unsafe { *self.ledger.add(slot as usize) };
        // The new `ci` comes from the ledger alone, not from the old one: successive retirements do not wait
        // for each other. The tests beside it only have to be right.
        let ci = entry.index.wrapping_add(entry.n_wqebbs);
        let n_freed = ci.wrapping_sub(self.ci);
        if entry.index as u16 != wqe_counter || n_freed.wrapping_sub(1) >= self.n_outstanding() {
            return Err(RetireError::NotOutstanding { wqe_counter, ci: self.ci as u16, pi: self.pi as u16 });
        }
        self.ci = ci;
        Ok(Retired { wr_id: entry.wr_id, n_freed })
    }

    /// The WQE at counter `wqe_counter`, to be explained, copied out of the ring: as many bytes as were
    /// posted, or `None` if it was overwritten since or never posted.
    pub fn copy_wqe<'b>(
        &self,
        wqe_counter: u16,
        buffer: &'b mut [u8; MAX_WQEBBS * WQEBB_BYTES],
    ) -> Option<&'b [u8]> {
        let slot = u32::from(wqe_counter) & self.mask;
        // SAFETY: the slot is masked to the ledger.
        let entry = unsafe { *self.ledger.add(slot as usize) };
        if entry.index as u16 != wqe_counter {
            return None;
        }
        for (i, line) in buffer.chunks_exact_mut(WQEBB_BYTES).take(entry.n_wqebbs as usize).enumerate() {
            let at = ((slot as usize + i) & self.mask as usize) * WQEBB_BYTES;
            // SAFETY: a WQEBB of the ring, which the device only reads.
            unsafe { self.ring.add(at).copy_to_nonoverlapping(line.as_mut_ptr(), WQEBB_BYTES) };
        }
        buffer.get(..entry.n_wqebbs as usize * WQEBB_BYTES)
    }

    /// Why there is no room.
    #[cold]
    fn refusal(&self) -> PostError {
        if self.capacity == 0 { PostError::WrongState } else { PostError::QueueFull }
    }
}

#[cold]
pub(super) fn other_queue(completion: &Completion<'_>, qpn: Qpn) -> RetireError {
    match completion.qpn() == qpn {
        true => RetireError::FormerQueue { user_index: completion.user_index().get(), qpn: qpn.get() },
        false => RetireError::OtherQueue { completion_qpn: completion.qpn().get(), qpn: qpn.get() },
    }
}

/// Requests being written, one after another, and rung for together.
///
/// Dropped or forgotten, it has posted nothing. It cannot be used after [`ring`](Self::ring):
/// ```compile_fail,E0382
/// # use mlx5_direct::queue::{Flags, SendQueue};
/// fn late(queue: &mut SendQueue) {
///     let mut list = queue.post_list();
///     list.ring();
///     list.nop(1, Flags::SIGNALED).unwrap().finish();
/// }
/// ```
#[derive(Debug)]
#[must_use = "nothing is posted before `ring`"]
pub struct PostList<'q> {
    pub(super) queue: &'q mut SendQueue,
    /// First WQEBB of the list, free-running: the queue's `pi`, where the compiler knows that no store to the
    /// ring changes it.
    first: u32,
    /// First WQEBB of the next request.
    pi: u32,
    /// `pi` may go so far.
    pi_limit: u32,
    /// First WQEBB of the last finished request.
    last: u32,
    /// First 8 bytes of that request, as they lie in memory: what the doorbell will say.
    doorbell: u64,
}

impl<'q> PostList<'q> {
    /// SEND: a message into the peer's next receive request.
    ///
    /// # Errors
    /// Of this and all other operations: [`QueueFull`](PostError::QueueFull) and
    /// [`WrongState`](PostError::WrongState), with nothing written.
    #[inline(always)]
    pub fn send(&mut self, wr_id: u64, flags: Flags) -> Result<Request<'_, 'q, Gather>, PostError> {
        self.request(SendOpcode::SEND, wr_id, flags, 0, None)
    }

    /// SEND with 32 bits of immediate data, given as the host's integer.
    #[inline(always)]
    pub fn send_imm(
        &mut self,
        wr_id: u64,
        imm: u32,
        flags: Flags,
    ) -> Result<Request<'_, 'q, Gather>, PostError> {
        self.request(SendOpcode::SEND_IMM, wr_id, flags, imm, None)
    }

    /// SEND that invalidates the peer's key `rkey` when it arrives.
    #[inline(always)]
    pub fn send_inval(
        &mut self,
        wr_id: u64,
        rkey: Rkey,
        flags: Flags,
    ) -> Result<Request<'_, 'q, Gather>, PostError> {
        self.request(SendOpcode::SEND_INVAL, wr_id, flags, rkey.get(), None)
    }

    /// RDMA WRITE to `remote`.
    #[inline(always)]
    pub fn rdma_write(
        &mut self,
        wr_id: u64,
        remote: Remote,
        flags: Flags,
    ) -> Result<Request<'_, 'q, Gather>, PostError> {
        self.request(SendOpcode::RDMA_WRITE, wr_id, flags, 0, Some(remote))
    }

    /// RDMA WRITE to `remote` that then completes one of the peer's receive requests with `imm`.
    #[inline(always)]
    pub fn rdma_write_imm(
        &mut self,
        wr_id: u64,
        remote: Remote,
        imm: u32,
        flags: Flags,
    ) -> Result<Request<'_, 'q, Gather>, PostError> {
        self.request(SendOpcode::RDMA_WRITE_IMM, wr_id, flags, imm, Some(remote))
    }

    /// RDMA READ from `remote`. At most 30 pieces of local memory (`MLX5_MAX_SGE_RD`).
    #[inline(always)]
    pub fn rdma_read(
        &mut self,
        wr_id: u64,
        remote: Remote,
        flags: Flags,
    ) -> Result<Request<'_, 'q, Scatter>, PostError> {
        self.request(SendOpcode::RDMA_READ, wr_id, flags, 0, Some(remote))
    }

    /// Compares 8 bytes at `remote` with `compare`, and if equal puts `swap` there. What was there comes
    /// back to local memory, in host order. `remote.addr` is a multiple of 8.
    #[inline(always)]
    pub fn compare_swap(
        &mut self,
        wr_id: u64,
        remote: Remote,
        compare: u64,
        swap: u64,
        flags: Flags,
    ) -> Result<Request<'_, 'q, Atomic>, PostError> {
        Ok(self.request(SendOpcode::ATOMIC_CS, wr_id, flags, 0, Some(remote))?.operands(swap, compare))
    }

    /// Adds `add` to 8 bytes at `remote`. What was there comes back to local memory, in host order.
    /// `remote.addr` is a multiple of 8.
    #[inline(always)]
    pub fn fetch_add(
        &mut self,
        wr_id: u64,
        remote: Remote,
        add: u64,
        flags: Flags,
    ) -> Result<Request<'_, 'q, Atomic>, PostError> {
        Ok(self.request(SendOpcode::ATOMIC_FA, wr_id, flags, 0, Some(remote))?.operands(add, 0))
    }

    /// Does nothing, in its turn.
    #[inline(always)]
    pub fn nop(&mut self, wr_id: u64, flags: Flags) -> Result<Request<'_, 'q, Ready>, PostError> {
        self.request(SendOpcode::NOP, wr_id, flags, 0, None)
    }

    /// Requests in the list take so many WQEBBs.
    pub fn n_wqebbs(&self) -> u32 {
        self.pi.wrapping_sub(self.first)
    }

    /// Posts the list: the only point at which the device learns of it.
    ///
    /// An empty list posts nothing.
    #[inline(always)]
    pub fn ring(self) {
        let Self { queue, first, pi, last, doorbell, .. } = self;
        if pi == first {
            return;
        }
        queue.pi = pi;
        // The device fetches WQEs up to the record's count: they are complete before it says so.
        before_doorbell_record();
        queue.record.write(pi & 0xffff);
        // The device may read the record as soon as it sees the doorbell. Both forms below order it first.
        let n_wqebbs = pi.wrapping_sub(first);
        let ds_above_1 = doorbell.to_be() & 0x3e != 0;
        if last == first && n_wqebbs <= queue.blue_flame_max_wqebbs && ds_above_1 {
            // SAFETY: the slot is a WQEBB of the ring; the length was compared with the register's limit.
            unsafe {
                let wqe = queue.ring.add((first & queue.mask) as usize * WQEBB_BYTES);
                queue.register.blue_flame(wqe, n_wqebbs, queue.ring, queue.ring_end);
            }
        } else {
            queue.register.ring(doorbell);
        }
    }

    /// Room and place for the next request.
    #[inline(always)]
    fn request<K>(
        &mut self,
        opcode: SendOpcode,
        wr_id: u64,
        flags: Flags,
        imm: u32,
        remote: Option<Remote>,
    ) -> Result<Request<'_, 'q, K>, PostError> {
        let n_free = self.pi_limit.wrapping_sub(self.pi);
        if n_free == 0 {
            return Err(self.queue.refusal());
        }
        // SAFETY: the slot is masked to the ring.
        let start = unsafe { self.queue.ring.add((self.pi & self.queue.mask) as usize * WQEBB_BYTES) };
        // SAFETY: a WQEBB of the ring, free since `n_free` is not 0, of which no other request has a part:
        // this one holds `self` and starts where the last finished one ended.
        let request = unsafe { Request::new(self, start, n_free, opcode, wr_id, flags, imm) };
        Ok(match remote {
            Some(remote) => request.remote(remote),
            None => request,
        })
    }

    /// Takes a finished request into the list and the ledger.
    #[inline(always)]
    pub(super) fn push(&mut self, wr_id: u64, n_wqebbs: u32, doorbell: u64) {
        let entry = SendLedgerEntry { wr_id, index: self.pi, n_wqebbs };
        // SAFETY: the slot is masked to the ledger.
        unsafe { self.queue.ledger.add((self.pi & self.queue.mask) as usize).write(entry) };
        self.last = self.pi;
        self.doorbell = doorbell;
        self.pi = self.pi.wrapping_add(n_wqebbs);
    }

    /// `ctrl.wqe_index` of the next request.
    #[inline(always)]
    pub(super) fn wqe_index(&self) -> u16 {
        self.pi as u16
    }
}
