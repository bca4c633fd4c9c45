//! The send queue: a ring of WQEBBs, a ledger of what was posted, and the credits between them.

use super::{
    Completion, CompletionQueue, PostError, PostList, QueueId, Rc, RetireError, Retired, Taken, Transport,
    completion::{Kind, Owner},
};
use crate::{
    doorbell::{DoorbellMode, DoorbellRecord, Sharing, UarRegister},
    mistake::mistake,
    mlx5::ids::{Qpn, UserIndex},
    wqe::{CompletionMode, FenceMode, MAX_WQEBBS, WQEBB_BYTES},
};
use core::{marker::PhantomData, ptr::NonNull};

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
    /// Waits for earlier READs and atomics (`IBV_SEND_FENCE`), and for earlier changes of keys.
    pub const FENCE: Self = Self(FenceMode::SMALL_AND_FENCE.0 << 5);

    /// Waits for earlier changes of keys alone (local invalidations, binds of memory windows): the small fence.
    /// [`FENCE`](Self::FENCE) has it in itself.
    pub const AFTER_INVALIDATE: Self = Self(FenceMode::INITIATOR_SMALL.0 << 5);

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
        let both = self.0 | other.0;
        // The fence is a mode, not a bit: the full one takes the place of the small one.
        let has_fence = (both & Self::FENCE.0) >> 2;
        Self(both & !has_fence)
    }
}

/// Data segments that a request may have: `ctrl.ds` counts 63 segments at most.
const fn max_sge<T: Transport>() -> u32 {
    63 - T::N_HEADER_SEGMENTS
}

/// What one request may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendLimits {
    /// Pieces of local memory, at most 61 (59 of a datagram, 60 of XRC, 45 of a raw packet); an RDMA READ takes at most
    /// 30 of them.
    pub max_sge: u8,
    /// Bytes of inline data, at most 972 (940 of a datagram, 956 of XRC, 716 of a raw packet).
    pub max_inline_bytes: u16,
    /// Bytes of a message, at most 2³¹ (`log_max_msg`).
    pub max_message_bytes: u32,
    /// Bytes of a raw packet's head that its request must carry (`min_wqe_inline_mode`). No other transport has such.
    pub min_header_bytes: u8,
}

/// What the ledger remembers of a posted request.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct SendLedgerEntry {
    pub(super) wr_id: u64,
    /// Free-running index of the first WQEBB: tells this lap's entry from an old one.
    pub(super) index: u32,
    /// And of the first after the request.
    pub(super) end: u32,
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
pub struct SendQueue<T = Rc> {
    pub(super) ring: *mut u8,
    pub(super) ring_end: *mut u8,
    pub(super) ledger: *mut SendLedgerEntry,
    pub(super) mask: u32,
    /// Published WQEBBs, free-running.
    pub(super) pi: u32,
    /// WQEBBs posted and not yet retired.
    pub(super) n_outstanding: u32,
    /// WQEBBs that may be outstanding: the ring's, or 0 before `open`, when none are.
    capacity: u32,
    pub(super) qpn: Qpn,
    owner: Owner,
    pub(super) max_sge: u32,
    pub(super) max_inline_bytes: u32,
    pub(super) max_message_bytes: u32,
    pub(super) min_header_bytes: u32,
    pub(super) blue_flame_max_wqebbs: u32,
    pub(super) id: QueueId,
    pub(super) record: DoorbellRecord,
    pub(super) register: UarRegister,
    transport: PhantomData<T>,
}

// SAFETY: ring, ledger, record and register are this queue's alone by the contract of `new`.
unsafe impl<T> Send for SendQueue<T> {}

impl<T: Transport> SendQueue<T> {
    /// Makes an empty queue that does not accept requests before [`open`](Self::open).
    ///
    /// # Safety
    /// - `ring` and `ledger` are valid for reads and writes for the sizes that [`SendQueueParts`] says, as long as
    ///   the queue lives, and this process reaches them through the queue alone.
    /// - `record` and `register` are those of the queue pair `qpn`, of transport `T`, whose send queue is at index 0.
    /// - The ring's memory is what the device was told it is.
    pub unsafe fn new(parts: SendQueueParts) -> Self {
        let SendQueueParts { qpn, id, ring, log_wq_size, ledger, record, register, doorbell, limits } = parts;
        debug_assert!(log_wq_size <= 15 && ring.as_ptr().addr().is_multiple_of(WQEBB_BYTES));
        let n_wqebbs = 1u32 << log_wq_size;
        for slot in 0..n_wqebbs as usize {
            // An index that no request at this slot will have.
            let never = SendLedgerEntry { wr_id: 0, index: !(slot as u32), end: 0 };
            // SAFETY: the ledger has an entry for each WQEBB.
            unsafe { ledger.add(slot).write(never) };
        }
        let blue_flame_max_bytes = match doorbell {
            DoorbellMode::Auto => register.blue_flame_max_bytes(),
            DoorbellMode::Doorbell => 0,
        };
        let mut queue = Self {
            ring: ring.as_ptr(),
            // SAFETY: one past the ring.
            ring_end: unsafe { ring.as_ptr().add(n_wqebbs as usize * WQEBB_BYTES) },
            ledger: ledger.as_ptr(),
            mask: n_wqebbs - 1,
            pi: 0,
            n_outstanding: 0,
            capacity: 0,
            qpn,
            owner: Owner::qpn(qpn),
            max_sge: 0,
            max_inline_bytes: 0,
            max_message_bytes: 0,
            min_header_bytes: 0,
            blue_flame_max_wqebbs: (blue_flame_max_bytes / WQEBB_BYTES) as u32,
            id,
            record,
            register,
            transport: PhantomData,
        };
        queue.set_limits(limits);
        queue
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
        (self.pi, self.n_outstanding, self.capacity) = (0, 0, 0);
        if !mistake!(RecordNotZeroed) {
            self.record.write(0);
        }
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

    /// Has requests hold no more than `limits` from now on, nor more than a WQE can.
    pub fn set_limits(&mut self, limits: SendLimits) {
        self.max_sge = u32::from(limits.max_sge).min(max_sge::<T>());
        // So many bytes, with their header, fill these segments.
        self.max_inline_bytes = u32::from(limits.max_inline_bytes).min(max_sge::<T>() * 16 - 4);
        self.max_message_bytes = limits.max_message_bytes.min(1 << 31);
        self.min_header_bytes = limits.min_header_bytes.into();
    }

    /// What one request may hold.
    pub fn limits(&self) -> SendLimits {
        SendLimits {
            max_sge: self.max_sge as u8,
            max_inline_bytes: self.max_inline_bytes as u16,
            max_message_bytes: self.max_message_bytes,
            min_header_bytes: self.min_header_bytes as u8,
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

    /// Whether others ring its doorbell register too, so that BlueFlame cannot be used.
    pub fn sharing(&self) -> Sharing {
        self.register.sharing()
    }

    /// WQEBBs posted and not yet retired.
    pub fn n_outstanding(&self) -> u32 {
        self.n_outstanding
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
    pub fn post_list(&mut self) -> PostList<'_, T> {
        // Nothing is outstanding before `open`, and never more than the capacity.
        let capacity = if mistake!(CreditsIgnored) { 2 * self.capacity } else { self.capacity };
        PostList::new(self.pi, capacity.wrapping_sub(self.n_outstanding), self)
    }

    /// Retires the request that `completion` is of and all before it, and gives back its `wr_id`.
    ///
    /// An error completion retires too: the request is done, if not well.
    ///
    /// # Errors
    /// A completion of another queue pair, of a receive, or of nothing outstanding; nothing changes then.
    #[inline]
    pub fn retire(&mut self, completion: &Completion<'_>) -> Result<Retired, RetireError> {
        if !completion.is_plain_send() {
            return self.retire_unusual(*completion);
        }
        self.take(*completion)
    }

    /// Takes the next completion of `cq` if it is a success of this queue, retires its request, and gives what `read` makes of
    /// both. All in one, for whoever waits for a single completion: the shortest way there is.
    #[inline(always)]
    pub fn take_one<R>(
        &mut self,
        cq: &mut CompletionQueue,
        read: impl FnOnce(Retired, &Completion<'_>) -> R,
    ) -> Taken<R> {
        cq.take_one(Kind::is_plain_send, |completion| {
            self.take(completion).ok().map(|retired| read(retired, &completion))
        })
    }

    /// As [`retire`](Self::retire), for completions that are no plain successes: so that the others need not be asked twice
    /// what they are.
    #[cold]
    #[inline] // so that it is compiled where it is called, by its name
    fn retire_unusual(&mut self, completion: Completion<'_>) -> Result<Retired, RetireError> {
        if !completion.is_send() && completion.is_of(self.owner) {
            return Err(RetireError::OtherDirection { opcode: completion.opcode() });
        }
        self.take(completion)
    }

    /// Retires up to the request that a completion of sends is of.
    #[inline(always)]
    fn take(&mut self, completion: Completion<'_>) -> Result<Retired, RetireError> {
        if !completion.is_of(self.owner) {
            return Err(other_queue(completion, self.qpn));
        }
        let wqe_counter = completion.wqe_counter();
        let slot = u32::from(wqe_counter) & self.mask;
        // SAFETY: the slot is masked to the ledger.
        let entry = unsafe { *self.ledger.add(slot as usize) };
        // What is outstanding then comes from the ledger alone, not from what is now: successive retirements do not
        // wait for each other. The tests beside it only have to be right.
        let n_outstanding = self.pi.wrapping_sub(entry.end);
        if entry.index as u16 != wqe_counter || n_outstanding >= self.n_outstanding {
            let ci = self.pi.wrapping_sub(self.n_outstanding) as u16;
            return Err(RetireError::NotOutstanding { wqe_counter, ci, pi: self.pi as u16 });
        }
        let n_freed = self.n_outstanding - n_outstanding;
        self.n_outstanding = n_outstanding;
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
        let n_wqebbs = entry.end.wrapping_sub(entry.index) as usize;
        for (i, line) in buffer.chunks_exact_mut(WQEBB_BYTES).take(n_wqebbs).enumerate() {
            let at = ((slot as usize + i) & self.mask as usize) * WQEBB_BYTES;
            // SAFETY: a WQEBB of the ring, which the device only reads.
            unsafe { self.ring.add(at).copy_to_nonoverlapping(line.as_mut_ptr(), WQEBB_BYTES) };
        }
        buffer.get(..n_wqebbs * WQEBB_BYTES)
    }

    /// Why there is no room.
    #[cold]
    pub(super) fn refusal(&self) -> PostError {
        if self.capacity == 0 { PostError::WrongState } else { PostError::QueueFull }
    }
}

#[cold]
pub(super) fn other_queue(completion: Completion<'_>, qpn: Qpn) -> RetireError {
    match completion.qpn() == qpn {
        true => RetireError::FormerQueue { user_index: completion.user_index().get(), qpn: qpn.get() },
        false => RetireError::OtherQueue { completion_qpn: completion.qpn().get(), qpn: qpn.get() },
    }
}
