//! The receive queue: a ring of scatter lists, retired in the order in which they were posted.

use super::{
    Completion, CompletionQueue, Lease, LeaseSlice, PostError, QueueId, RetireError, Retired, Sge, Taken,
    completion::{Kind, Owner},
    segment::store,
    send::other_queue,
};
use crate::{
    doorbell::{DoorbellRecord, before_doorbell_record},
    mistake::mistake,
    mlx5::ids::{Lkey, Qpn, UserIndex},
    wqe::{DataSeg, SEGMENT_BYTES},
};
use core::{ops::Range, ptr::NonNull};

/// The longest receive WQE: `log_rq_stride` has three bits, and counts from 16 bytes.
pub const MAX_RECV_WQE_BYTES: usize = 16 << 7;

/// What a receive queue is made of.
#[derive(Debug)]
pub struct RecvQueueParts {
    /// Number of the queue pair.
    pub qpn: Qpn,
    /// Shared with the queue pair's [`SendQueue`](super::SendQueue) and its leases.
    pub id: QueueId,
    /// The ring: 2^`log_wq_size` WQEs of 2^`log_wq_stride` bytes, 16-byte aligned.
    pub ring: NonNull<u8>,
    /// Log2 of the ring's WQEs, 0 to 15.
    pub log_wq_size: u8,
    /// Log2 of a WQE's bytes, 4 to 11.
    pub log_wq_stride: u8,
    /// One `wr_id` a WQE, in memory that the device cannot reach.
    pub ledger: NonNull<u64>,
    /// The receive word of the queue pair's doorbell record.
    pub record: DoorbellRecord,
    /// Pieces of memory that one request may name; more than the stride holds are not.
    pub max_sge: u8,
}

/// A receive queue: one producer, by type.
#[derive(Debug)]
pub struct RecvQueue {
    ring: *mut u8,
    ledger: *mut u64,
    mask: u32,
    log_wq_stride: u8,
    /// Published WQEs, free-running.
    pi: u32,
    /// Retired WQEs, free-running.
    ci: u32,
    /// WQEs that may be outstanding: the ring's, or 0 before `open`, when none are.
    capacity: u32,
    max_sge: u32,
    /// Most segments that a request has written so far. Those after them are terminators in every slot.
    n_used: u32,
    qpn: Qpn,
    owner: Owner,
    id: QueueId,
    record: DoorbellRecord,
}

// SAFETY: ring, ledger and record are this queue's alone by the contract of `new`.
unsafe impl Send for RecvQueue {}

impl RecvQueue {
    /// Makes an empty queue that does not accept requests before [`open`](Self::open).
    ///
    /// # Safety
    /// - `ring` and `ledger` are valid for reads and writes for the sizes that [`RecvQueueParts`] says, as long
    ///   as the queue lives, and this process reaches them through the queue alone.
    /// - `record` is that of the queue pair `qpn`, whose receive queue is at index 0.
    /// - The ring's memory is what the device was told it is.
    pub unsafe fn new(parts: RecvQueueParts) -> Self {
        let RecvQueueParts { qpn, id, ring, log_wq_size, log_wq_stride, ledger, record, max_sge } = parts;
        debug_assert!(log_wq_size <= 15 && (4..=11).contains(&log_wq_stride));
        debug_assert!(ring.as_ptr().addr().is_multiple_of(SEGMENT_BYTES));
        let n_segments = 1u32 << log_wq_stride >> 4;
        for segment in 0..(n_segments as usize) << log_wq_size {
            // SAFETY: a segment of the ring.
            unsafe { store(ring.as_ptr().add(segment * SEGMENT_BYTES), DataSeg::terminator().to_bytes()) };
        }
        Self {
            ring: ring.as_ptr(),
            ledger: ledger.as_ptr(),
            mask: (1 << log_wq_size) - 1,
            log_wq_stride,
            pi: 0,
            ci: 0,
            capacity: 0,
            max_sge: u32::from(max_sge).min(n_segments),
            n_used: 0,
            qpn,
            owner: Owner::qpn(qpn),
            id,
            record,
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

    /// Accepts requests from now on: the queue pair is in INIT or beyond.
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

    /// Pieces of memory that one request may name.
    pub fn max_sge(&self) -> u32 {
        self.max_sge
    }

    /// WQEs of the ring.
    pub fn n_wqes(&self) -> u32 {
        self.mask + 1
    }

    /// WQEs posted and not yet retired.
    pub fn n_outstanding(&self) -> u32 {
        self.pi.wrapping_sub(self.ci)
    }

    /// Starts a list of requests. Nothing of it exists for the device before [`RecvList::publish`].
    #[inline(always)]
    pub fn post_list(&mut self) -> RecvList<'_> {
        RecvList { pi: self.pi, pi_limit: self.ci.wrapping_add(self.capacity), queue: self }
    }

    /// Posts one request over leased memory.
    ///
    /// # Errors
    /// [`QueueFull`](PostError::QueueFull), [`WrongState`](PostError::WrongState),
    /// [`TooManySge`](PostError::TooManySge), [`NotLeased`](PostError::NotLeased),
    /// [`OutOfRange`](PostError::OutOfRange): nothing is posted.
    #[inline]
    pub fn post(&mut self, wr_id: u64, slices: &[LeaseSlice]) -> Result<(), PostError> {
        let mut list = self.post_list();
        let mut request = list.recv(wr_id)?;
        for slice in slices {
            let (lkey, addr, len_bytes) = slice.check(request.list.queue.id)?;
            request = request.data(Sge { lkey, addr, len_bytes })?;
        }
        request.finish();
        list.publish();
        Ok(())
    }

    /// Posts one request over the application's own memory.
    ///
    /// # Errors
    /// As [`post`](Self::post).
    ///
    /// # Safety
    /// As [`RecvRequest::sge`], for each of `sges`.
    #[inline]
    pub unsafe fn post_raw(&mut self, wr_id: u64, sges: &[Sge]) -> Result<(), PostError> {
        let mut list = self.post_list();
        let mut request = list.recv(wr_id)?;
        for sge in sges {
            request = request.data(*sge)?;
        }
        request.finish();
        list.publish();
        Ok(())
    }

    /// Retires the oldest request, which is the one that `completion` is of, and gives back its `wr_id`.
    ///
    /// A reliable connection takes its receive requests in order, so that the completion's `wqe_counter` is
    /// not needed, and no driver looks at it.
    ///
    /// # Errors
    /// A completion of another queue pair, of a send, or while nothing is outstanding; nothing changes then.
    #[inline]
    pub fn retire(&mut self, completion: &Completion<'_>) -> Result<Retired, RetireError> {
        if !completion.is_plain_recv() {
            return self.retire_unusual(*completion);
        }
        self.take(*completion)
    }

    /// Takes the next completion of `cq` if it is a success of this queue, retires its request, and gives what `read` makes of
    /// both: see [`SendQueue::take_one`](super::SendQueue::take_one).
    #[inline(always)]
    pub fn take_one<R>(
        &mut self,
        cq: &mut CompletionQueue,
        read: impl FnOnce(Retired, &Completion<'_>) -> R,
    ) -> Taken<R> {
        cq.take_one(Kind::is_plain_recv, |completion| {
            self.take(completion).ok().map(|retired| read(retired, &completion))
        })
    }

    /// As [`retire`](Self::retire), for completions that are no plain successes.
    #[cold]
    #[inline] // so that it is compiled where it is called, by its name
    fn retire_unusual(&mut self, completion: Completion<'_>) -> Result<Retired, RetireError> {
        if !completion.is_recv() && completion.is_of(self.owner) {
            return Err(RetireError::OtherDirection { opcode: completion.opcode() });
        }
        self.take(completion)
    }

    /// Retires the oldest request, which a completion of receives is of.
    #[inline(always)]
    fn take(&mut self, completion: Completion<'_>) -> Result<Retired, RetireError> {
        if !completion.is_of(self.owner) {
            return Err(other_queue(completion, self.qpn));
        }
        if self.ci == self.pi {
            return Err(RetireError::NotOutstanding {
                wqe_counter: completion.wqe_counter(),
                ci: self.ci as u16,
                pi: self.pi as u16,
            });
        }
        // SAFETY: the slot is masked to the ledger, and was written when the request was posted.
        let wr_id = unsafe { *self.ledger.add((self.ci & self.mask) as usize) };
        self.ci = self.ci.wrapping_add(1);
        Ok(Retired { wr_id, n_freed: 1 })
    }

    /// The WQE at counter `wqe_counter`, to be explained, copied out of the ring; `None` if it was overwritten since or never
    /// posted.
    pub fn copy_wqe<'b>(
        &self,
        wqe_counter: u16,
        buffer: &'b mut [u8; MAX_RECV_WQE_BYTES],
    ) -> Option<&'b [u8]> {
        // How far back it is; the ring has the last so many.
        let back = (self.pi as u16).wrapping_sub(wqe_counter);
        if back == 0 || u32::from(back) > self.pi.min(self.n_wqes()) {
            return None;
        }
        let slot = (u32::from(wqe_counter) & self.mask) as usize;
        let bytes = buffer.get_mut(..1 << self.log_wq_stride)?;
        // SAFETY: a WQE of the ring, which the device only reads.
        unsafe {
            self.ring.add(slot << self.log_wq_stride).copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len())
        };
        Some(bytes)
    }

    /// Begins at counter `pi`, with nothing outstanding: for a queue that no device has.
    #[cfg(feature = "std")]
    pub(super) fn start_at(&mut self, pi: u32) {
        (self.pi, self.ci) = (pi, pi);
    }

    /// Counter and slot of the next WQE, and whose leases it takes.
    #[cfg(feature = "std")]
    pub(super) fn place(&self) -> (u32, usize, QueueId) {
        (self.pi, (self.pi & self.mask) as usize, self.id)
    }

    #[cold]
    fn refusal(&self) -> PostError {
        if self.capacity == 0 { PostError::WrongState } else { PostError::QueueFull }
    }
}

/// Receive requests being written, published together.
///
/// Dropped or forgotten, it has posted nothing.
#[derive(Debug)]
#[must_use = "nothing is posted before `publish`"]
pub struct RecvList<'q> {
    queue: &'q mut RecvQueue,
    /// Index of the next WQE, free-running.
    pi: u32,
    /// `pi` may go so far.
    pi_limit: u32,
}

impl<'q> RecvList<'q> {
    /// Starts a request. One that names no memory takes messages of length 0.
    ///
    /// # Errors
    /// [`QueueFull`](PostError::QueueFull) and [`WrongState`](PostError::WrongState), with nothing written.
    #[inline(always)]
    pub fn recv(&mut self, wr_id: u64) -> Result<RecvRequest<'_, 'q>, PostError> {
        if self.pi == self.pi_limit {
            return Err(self.queue.refusal());
        }
        let slot = (self.pi & self.queue.mask) as usize;
        // SAFETY: the slot is masked to the ring.
        let at = unsafe { self.queue.ring.add(slot << self.queue.log_wq_stride) };
        Ok(RecvRequest { at, n_sge: 0, wr_id, list: self })
    }

    /// Publishes the list: the only point at which the device learns of it. Receive queues have no doorbell.
    #[inline(always)]
    pub fn publish(self) {
        let Self { queue, pi, .. } = self;
        queue.pi = pi;
        // The device fetches WQEs up to the record's count: they are complete before it says so.
        before_doorbell_record();
        if mistake!(ReceiveRecordMissing) {
            return;
        }
        if mistake!(ReceiveReused) {
            let slot = (queue.ci & queue.mask) as usize;
            // SAFETY: the last byte of a WQE of the ring.
            unsafe { *queue.ring.add(((slot + 1) << queue.log_wq_stride) - 1) ^= 8 };
        }
        let ahead = if mistake!(ReceiveRecordAhead) { queue.mask + 2 } else { 0 };
        queue.record.write(pi.wrapping_add(ahead) & 0xffff);
    }
}

/// A receive request being written.
///
/// Dropped before [`finish`](Self::finish) it was never there.
#[derive(Debug)]
#[must_use = "a request is in the list only after `finish`"]
pub struct RecvRequest<'l, 'q> {
    list: &'l mut RecvList<'q>,
    /// Where the next segment goes.
    at: *mut u8,
    n_sge: u32,
    wr_id: u64,
}

impl RecvRequest<'_, '_> {
    #[inline(always)]
    fn data(mut self, sge: Sge) -> Result<Self, PostError> {
        if !(1..=DataSeg::MAX_LEN_BYTES).contains(&sge.len_bytes) {
            // As libmlx5 does: `byte_count` 0 would mean 2³¹ bytes.
            return if sge.len_bytes == 0 { Ok(self) } else { Err(PostError::MessageTooLong) };
        }
        if self.n_sge >= self.list.queue.n_used {
            if self.n_sge >= self.list.queue.max_sge {
                return Err(PostError::TooManySge);
            }
            // Now, since the request may be dropped and its segments stay.
            self.list.queue.n_used = self.n_sge + 1;
        }
        self.push(sge.segment());
        Ok(self)
    }

    #[inline(always)]
    fn push(&mut self, segment: DataSeg) {
        // SAFETY: segment `n_sge` of a free WQE, whose stride holds at least `max_sge` of them; the terminator
        // comes only where fewer are.
        unsafe {
            store(self.at, segment.to_bytes());
            self.at = self.at.add(SEGMENT_BYTES);
        }
        self.n_sge += 1;
    }

    /// Adds `len_bytes` of local memory at device address `addr` to the scatter list. Nothing is added for
    /// length 0.
    ///
    /// # Errors
    /// [`TooManySge`](PostError::TooManySge), [`MessageTooLong`](PostError::MessageTooLong).
    ///
    /// # Safety
    /// Until the request is retired (or its queue pair destroyed) the range stays mapped for the device under
    /// `lkey`, no Rust reference to it lives, and nobody else touches it.
    #[inline(always)]
    pub unsafe fn sge(self, lkey: Lkey, addr: u64, len_bytes: u32) -> Result<Self, PostError> {
        self.data(Sge { lkey, addr, len_bytes })
    }

    /// Adds `range` of memory that is leased to this queue pair.
    ///
    /// # Errors
    /// As [`sge`](Self::sge), and [`NotLeased`](PostError::NotLeased), [`OutOfRange`](PostError::OutOfRange).
    #[inline(always)]
    pub fn local(self, lease: Lease, range: Range<u64>) -> Result<Self, PostError> {
        let (lkey, addr, len_bytes) = lease.check(self.list.queue.id, range)?;
        self.data(Sge { lkey, addr, len_bytes })
    }

    /// Ends the request: it is in the list now, and posted when the list is published.
    #[inline(always)]
    pub fn finish(mut self) {
        // Where no request has written, there is a terminator already.
        if self.n_sge < self.list.queue.n_used {
            self.push(DataSeg::terminator());
        }
        let slot = (self.list.pi & self.list.queue.mask) as usize;
        // SAFETY: the slot is masked to the ledger.
        unsafe { self.list.queue.ledger.add(slot).write(self.wr_id) };
        self.list.pi = self.list.pi.wrapping_add(1);
    }
}
