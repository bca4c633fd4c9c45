//! The completion queue: which slots are new, and when they are given back.

use super::{Completion, SendQueue, completion::Kind};
use crate::{
    cqe::{CQE_BYTES, OP_OWN_INIT, OP_OWN_OFFSET},
    doorbell::{DoorbellRecord, UarPage, after_owner_test, before_consumer_index},
    mistake::mistake,
    mlx5::{be::Be32, ids::Cqn, record::CqArm, uar::CqDoorbell},
};
use core::{arch::asm, ptr::NonNull};

/// Size of a completion queue's slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CqeSize {
    /// 64 bytes.
    #[default]
    B64,
    /// 128 bytes, of which the second 64 are the CQE.
    B128,
}

/// What a completion queue is made of.
#[derive(Debug)]
pub struct CompletionQueueParts {
    /// Number of the queue.
    pub cqn: Cqn,
    /// The ring: 2^`log_cq_size` slots, 64-byte aligned.
    pub ring: NonNull<u8>,
    /// Log2 of the ring's slots, 0 to 22.
    pub log_cq_size: u8,
    /// Size of a slot.
    pub cqe_size: CqeSize,
    /// First word of the queue's doorbell record: the consumer index.
    pub consumer_index: DoorbellRecord,
    /// Second word: the arm word.
    pub arm: DoorbellRecord,
    /// The UAR page that the queue was created with.
    pub uar: UarPage,
}

/// A completion queue: one consumer, by type.
#[derive(Debug)]
pub struct CompletionQueue {
    next: Slot,
    /// Consumed CQEs, free-running: `next` is the slot of this index.
    ci: u32,
    mask: u32,
    slot_bytes: usize,
    /// Last byte (`op_own`) of slot 0's CQE.
    first: *const u8,
    /// Last byte of the last slot's.
    last: *const u8,
    consumer_index: DoorbellRecord,
    cqn: Cqn,
    arm: DoorbellRecord,
    uar: UarPage,
    /// Completion events received, by which the device tells a new arm from a repeated one.
    arm_sn: u8,
}

/// A slot, and in which lap of the ring it is looked at.
#[derive(Debug, Clone, Copy)]
struct Slot {
    /// Its last byte.
    op_own: *const u8,
    /// 0x80 in odd laps, else 0.
    lap: u8,
}

impl Slot {
    /// What is in it now.
    #[inline(always)]
    fn kind(self) -> Kind {
        // SAFETY: in the ring. Volatile: the device writes it.
        Kind::of(unsafe { self.op_own.read_volatile() }, self.lap)
    }

    /// The CQE in it, which was read as `kind`.
    ///
    /// # Safety
    /// The device has written it, and it is not given back before `'p` ends.
    #[inline(always)]
    unsafe fn completion<'p>(self, kind: Kind) -> Completion<'p> {
        // The device writes the last byte last: what was before it in the CQE is there now.
        after_owner_test();
        // SAFETY: the CQE that ends there, and the caller's promise.
        unsafe { Completion::new(self.op_own.sub(OP_OWN_OFFSET), kind) }
    }
}

/// What a queue pair found when it asked a completion queue for its next completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken<R> {
    /// A success of its own: the request is retired, and the CQE's slot given back.
    Done(R),
    /// No completion is there.
    Nothing,
    /// Something else, which is still there: a failure, or a completion of another queue. [`CompletionQueue::poll`]
    /// gives it.
    Other,
}

// SAFETY: ring and records are this queue's alone by the contract of the constructors.
unsafe impl Send for CompletionQueue {}

impl CompletionQueue {
    /// Makes an empty queue: fills the ring with CQEs that read as not written, and zeroes the record.
    ///
    /// To be done before the first queue pair is created with the queue, since memory of zeros would read as
    /// CQEs of the first lap.
    ///
    /// # Safety
    /// - `ring` is valid for reads and writes for the size that [`CompletionQueueParts`] says, as long as the queue lives;
    ///   this process reaches it through the queue alone, and the device writes only CQEs there.
    /// - `consumer_index`, `arm` and `uar` are those of the queue `cqn`, in which the device has written nothing yet.
    pub unsafe fn new(parts: CompletionQueueParts) -> Self {
        let CompletionQueueParts { cqn, ring, log_cq_size, cqe_size, mut consumer_index, mut arm, uar } =
            parts;
        debug_assert!(log_cq_size <= 22 && ring.as_ptr().addr().is_multiple_of(CQE_BYTES));
        consumer_index.write(0);
        arm.write(0);
        let slot_bytes = match cqe_size {
            CqeSize::B64 => 64,
            CqeSize::B128 => 128,
        };
        let n_slots = 1usize << log_cq_size;
        // SAFETY: the last byte of each slot of the ring.
        let op_own = |slot: usize| unsafe { ring.as_ptr().add((slot + 1) * slot_bytes - 1) };
        for slot in 0..n_slots {
            // SAFETY: in the ring.
            unsafe { op_own(slot).write_volatile(OP_OWN_INIT) };
        }
        Self {
            next: Slot { op_own: op_own(0), lap: 0 },
            ci: 0,
            mask: (1 << log_cq_size) - 1,
            slot_bytes,
            first: op_own(0),
            last: op_own(n_slots - 1),
            consumer_index,
            cqn,
            arm,
            uar,
            arm_sn: 0,
        }
    }

    /// Number of the queue.
    pub fn cqn(&self) -> Cqn {
        self.cqn
    }

    /// Slots of the ring.
    pub fn n_cqes(&self) -> u32 {
        self.mask + 1
    }

    /// CQEs consumed so far, free-running.
    pub fn ci(&self) -> u32 {
        self.ci
    }

    /// Starts to take completions. The slots of those taken are given back when the [`Poll`] is dropped.
    #[inline(always)]
    pub fn poll(&mut self) -> Poll<'_> {
        Poll { next: self.next, n_taken: 0, queue: self }
    }

    /// The slot at `index`, free-running.
    fn slot(&self, index: u32) -> Slot {
        // SAFETY: the slot is masked to the ring.
        let op_own = unsafe { self.first.add((index & self.mask) as usize * self.slot_bytes) };
        // The device writes the parity of the lap as owner: 0 in the first. It was 1 in memory that was never written, as
        // is the opcode INVALID, which a ring of one slot needs in its second lap.
        let lap_is_odd = index & (self.mask + 1) != 0;
        Slot { op_own, lap: u8::from(lap_is_odd) << 7 }
    }

    /// The slot after `slot`.
    #[inline(always)]
    fn after(&self, slot: Slot) -> Slot {
        if slot.op_own == self.last {
            // SAFETY: changes nothing; with it the compiler makes this a branch, which is foreseen, not a choice of values,
            // which waits for the slot.
            unsafe { asm!("", options(nomem, nostack, preserves_flags)) };
            return Slot {
                op_own: self.first,
                lap: if mistake!(LapForgotten) { slot.lap } else { slot.lap ^ 0x80 },
            };
        }
        // SAFETY: not the last slot.
        Slot { op_own: unsafe { slot.op_own.add(self.slot_bytes) }, ..slot }
    }

    /// The CQE in a slot that was not given back, if the device has written it.
    #[inline(always)]
    fn read(&self, slot: Slot) -> Option<Completion<'_>> {
        let kind = slot.kind();
        // SAFETY: the device has written it, and it was not given back.
        kind.is_written().then(|| unsafe { slot.completion(kind) })
    }

    /// Takes the next completion, if it is of the `expected` kind and `retire` knows its request.
    #[inline(always)]
    pub(super) fn take_one<R>(
        &mut self,
        expected: impl FnOnce(Kind) -> bool,
        retire: impl FnOnce(Completion<'_>) -> Option<R>,
    ) -> Taken<R> {
        let slot = self.next;
        let kind = slot.kind();
        if !expected(kind) {
            return if kind.is_written() { Taken::Other } else { Taken::Nothing };
        }
        // SAFETY: the device has written it, since it is of a kind that is expected, and it was not given back.
        let Some(taken) = retire(unsafe { slot.completion(kind) }) else { return Taken::Other };
        self.give_back(self.after(slot), 1);
        Taken::Done(taken)
    }

    /// `n_taken` slots before `next` are the device's again.
    #[inline(always)]
    fn give_back(&mut self, next: Slot, n_taken: u32) {
        self.next = next;
        self.ci = self.ci.wrapping_add(n_taken);
        // The device may write a slot again once its index is published: all reading is done.
        before_consumer_index();
        if mistake!(ConsumerSilent) {
            return;
        }
        let mask = if mistake!(ConsumerMasked) { self.mask } else { 0xff_ffff };
        let ci = self.ci.wrapping_add(u32::from(mistake!(ConsumerAhead)));
        self.consumer_index.write(ci & mask);
    }

    /// Takes out the completions of one queue pair that were not taken yet, and says how many. All others stay,
    /// in their order (`mlx5_cq_clean` in rdma-core).
    ///
    /// For a queue pair that was moved to RESET: it starts at index 0 again, so that what is left of before could
    /// be taken for completions of new requests.
    pub fn sweep(&mut self, queue_pair: &SendQueue) -> u32 {
        let owner = queue_pair.owner();
        let mut end = self.ci;
        // One lap at most: the slot after it is that of `ci` itself.
        while end.wrapping_sub(self.ci) <= self.mask && self.read(self.slot(end)).is_some() {
            end = end.wrapping_add(1);
        }
        // From the newest on, so that survivors move up over those that go.
        let mut to = end;
        for n in (0..end.wrapping_sub(self.ci)).rev() {
            let from = self.ci.wrapping_add(n);
            if self.read(self.slot(from)).is_some_and(|completion| completion.is_of(owner)) {
                continue;
            }
            to = to.wrapping_sub(1);
            if to != from {
                self.move_cqe(from, to);
            }
        }
        let n_taken = to.wrapping_sub(self.ci);
        // Nothing, or slots that no survivor lies in.
        self.give_back(self.slot(to), n_taken);
        n_taken
    }

    /// Moves a CQE to another slot that is software's too, whose owner bit stays.
    fn move_cqe(&mut self, from: u32, to: u32) {
        let (from, to) = (self.slot(from).op_own, self.slot(to).op_own.cast_mut());
        // SAFETY: two slots of the ring that the device has written and not been given back: it leaves them alone.
        unsafe {
            let op_own = from.read_volatile() & !1 | to.read_volatile() & 1;
            from.sub(OP_OWN_OFFSET).copy_to_nonoverlapping(to.sub(OP_OWN_OFFSET), OP_OWN_OFFSET);
            to.write_volatile(op_own);
        }
    }

    /// Asks for one event when the next completion arrives, or with `solicited_only` the next that is
    /// solicited or failed.
    ///
    /// The arm names the first completion not taken yet, and the device makes the event at once if that is
    /// there already: none is lost. Still: arm, **poll again**, and sleep only if that found nothing; it saves
    /// a sleep, and it is what verbs promise on other devices. Tell of each event by
    /// [`event_received`](Self::event_received) before arming again, or the device takes the arm for a
    /// repetition of the last.
    pub fn arm(&mut self, solicited_only: bool) {
        let arm = CqArm::new().with_cmd_sn(self.arm_sn).with_cmd(solicited_only).with_consumer_index(self.ci);
        // The device reads the record when it finds the doorbell's word old: the record goes first.
        if !mistake!(ArmRecordMissing) {
            self.arm.write(Be32::from_raw(u32::from_ne_bytes(arm.to_bytes())).get());
        }
        self.uar.arm_cq(CqDoorbell::new().with_arm(arm).with_cqn(self.cqn));
    }

    /// Counts a completion event of this queue.
    pub fn event_received(&mut self) {
        let n_events = if mistake!(ArmNotCounted) { 0 } else { 1 + u8::from(mistake!(ArmCountedTwice)) };
        self.arm_sn = self.arm_sn.wrapping_add(n_events) & 3;
    }
}

/// Completions being taken, one at a time.
///
/// A completion lives until the next is asked for:
/// ```compile_fail,E0499
/// fn keep(queue: &mut mlx5_direct::queue::CompletionQueue) {
///     let mut done = queue.poll();
///     let first = done.next();
///     let second = done.next();
///     drop(first);
/// }
/// ```
/// and not after the poll, which gives its slot back:
/// ```compile_fail,E0505
/// fn leak(queue: &mut mlx5_direct::queue::CompletionQueue) {
///     let mut done = queue.poll();
///     let first = done.next();
///     drop(done);
///     drop(first);
/// }
/// ```
#[derive(Debug)]
pub struct Poll<'q> {
    queue: &'q mut CompletionQueue,
    next: Slot,
    n_taken: u32,
}

impl Poll<'_> {
    /// The next completion, if the device has written one.
    ///
    /// Every CQE advances the queue, unknown ones too: these come as completions with an
    /// [`error`](Completion::error).
    #[inline(always)]
    #[allow(clippy::should_implement_trait)] // a lending iterator, which the trait cannot express
    pub fn next(&mut self) -> Option<Completion<'_>> {
        let completion = self.queue.read(self.next)?;
        self.next = self.queue.after(self.next);
        self.n_taken = self.n_taken.wrapping_add(1);
        Some(completion)
    }
}

impl Drop for Poll<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.n_taken != 0 {
            self.queue.give_back(self.next, self.n_taken);
        }
    }
}
