//! Queues that no device has: what a request would be in memory, without a card.
//!
//! A [`SendDraft`] or [`RecvDraft`] is a real queue over memory of its own. Nobody reads the ring, so that any memory may be
//! named without a promise: [`Anything`] gives leases of it, which these queues alone take.

use super::{
    Bindable, IndirectKey, KeyAccess, Lease, PostError, PostList, QueueId, Ready, RecvList, RecvQueue,
    RecvQueueParts, Request, SendLedgerEntry, SendLimits, SendQueue, SendQueueParts, Sge, Strided, Transport,
    transport::Paired,
};
use crate::{
    doorbell::{DoorbellMode, DoorbellRecord, Sharing, UarPage},
    mlx5::{
        be::Be32,
        ids::{Lkey, Qpn},
        uar::BF_OFFSET,
    },
    queue::Flags,
    wqe::{SEGMENT_BYTES, WQEBB_BYTES},
};
use core::ptr::NonNull;
use std::{
    alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error},
    vec::Vec,
};

/// What the register holds before it is rung: no WQE has such a byte where its signature is.
const UNTOUCHED: u8 = 0x5a;

/// Log2 of a register's bytes, as of every card so far.
const LOG_BF_REG_SIZE: u8 = 9;

/// A request, and what tells the device of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drafted {
    /// Counter of the first WQEBB (of a receive queue, of the WQE).
    pub wqe_index: u16,
    /// The WQE in order: `ds` times 16 bytes, or the whole stride of a receive queue.
    pub wqe: Vec<u8>,
    /// WQEBBs that it takes; 1 of a receive queue.
    pub n_wqebbs: u32,
    /// Its word of the doorbell record, as in memory.
    pub record: [u8; 4],
    /// What is written to the register: 8 bytes, or whole lines of 64 by BlueFlame; nothing by a receive queue.
    pub register: Vec<u8>,
}

/// Leases of whatever memory, for one queue that no device has.
#[derive(Debug, Clone, Copy)]
pub struct Anything {
    owner: QueueId,
}

impl Anything {
    /// `len_bytes` from `addr` on, under `lkey`.
    pub fn lease(self, lkey: Lkey, addr: u64, len_bytes: u64) -> Lease {
        // SAFETY: `owner` is a queue that no device reads, so nothing happens to the range.
        unsafe { Lease::new(self.owner, lkey, addr, len_bytes) }
    }

    /// The same, to be opened by memory windows.
    pub fn bindable(self, lkey: Lkey, addr: u64, len_bytes: u64) -> Bindable {
        // SAFETY: as above.
        unsafe { Bindable::new(self.owner, lkey, addr, len_bytes) }
    }

    /// [`PostList::umr_list`].
    ///
    /// # Errors
    /// As of that; [`NotLeased`](PostError::NotLeased) for a list of another queue.
    pub fn umr_list<'l, 'q, T: Paired>(
        self,
        list: &'l mut PostList<'q, T>,
        key: IndirectKey,
        pieces: &[Sge],
        access: KeyAccess,
        flags: Flags,
    ) -> Result<Request<'l, 'q, Ready, T>, PostError> {
        self.check(list)?;
        // SAFETY: the list is of a queue that no device reads.
        unsafe { list.umr_list(0, key, pieces, access, flags) }
    }

    /// [`PostList::umr_interleaved`].
    ///
    /// # Errors
    /// As of that; [`NotLeased`](PostError::NotLeased) for a list of another queue.
    pub fn umr_interleaved<'l, 'q, T: Paired>(
        self,
        list: &'l mut PostList<'q, T>,
        key: IndirectKey,
        repeat_count: u32,
        pieces: &[Strided],
        access: KeyAccess,
        flags: Flags,
    ) -> Result<Request<'l, 'q, Ready, T>, PostError> {
        self.check(list)?;
        // SAFETY: the list is of a queue that no device reads.
        unsafe { list.umr_interleaved(0, key, repeat_count, pieces, access, flags) }
    }

    fn check<T>(self, list: &PostList<'_, T>) -> Result<(), PostError> {
        if list.queue.id == self.owner { Ok(()) } else { Err(PostError::NotLeased) }
    }
}

/// A send queue that no device has.
#[derive(Debug)]
pub struct SendDraft<T> {
    // Dropped before what it is over.
    queue: SendQueue<T>,
    ring: Memory,
    record: Memory,
    uar: Memory,
    _ledger: Memory,
}

impl<T: Transport> SendDraft<T> {
    /// A queue of 2^`log_wq_size` WQEBBs, at most 2^15, whose next request begins at counter `wqe_index`.
    pub fn new(
        qpn: Qpn,
        log_wq_size: u8,
        wqe_index: u16,
        limits: SendLimits,
        doorbell: DoorbellMode,
    ) -> Self {
        let log_wq_size = log_wq_size.min(15);
        let n_wqebbs = 1usize << log_wq_size;
        let ring = Memory::new(n_wqebbs * WQEBB_BYTES);
        let ledger = Memory::new(n_wqebbs * size_of::<SendLedgerEntry>());
        let (record, uar) = (Memory::new(8), Memory::new(4096));
        // SAFETY: memory that stands for a UAR page, and lives as long as the queue; the register is taken once.
        let register =
            unsafe { UarPage::new(uar.base, true).register(0, LOG_BF_REG_SIZE, Sharing::Exclusive) };
        let (id, ring_at) = (QueueId::next(), ring.base);
        let (ledger_at, record_at) = (ledger.base.cast(), record.record(4));
        // SAFETY: the memory is as large as the parts say, lives as long as the queue, and is reached otherwise only between its
        // methods. No device knows of it.
        let mut queue = unsafe {
            SendQueue::new(SendQueueParts {
                qpn,
                id,
                ring: ring_at,
                log_wq_size,
                ledger: ledger_at,
                record: record_at,
                register,
                doorbell,
                limits,
            })
        };
        queue.open();
        queue.pi = wqe_index.into();
        Self { queue, ring, record, uar, _ledger: ledger }
    }

    /// Writes one request, and gives what it came to.
    ///
    /// # Errors
    /// Whatever `write` refuses. Nothing was posted then.
    pub fn post<E>(
        mut self,
        write: impl FnOnce(&mut PostList<'_, T>, Anything) -> Result<(), E>,
    ) -> Result<Drafted, E> {
        let first = self.queue.pi;
        let anything = Anything { owner: self.queue.id };
        self.uar.fill(UNTOUCHED);
        let mut list = self.queue.post_list();
        write(&mut list, anything)?;
        let n_wqebbs = list.n_wqebbs();
        list.ring();
        let slot = (first & self.queue.mask) as usize;
        let ring_bytes = self.queue.n_wqebbs() as usize * WQEBB_BYTES;
        let whole: Vec<u8> = (0..n_wqebbs as usize * WQEBB_BYTES)
            .map(|i| self.ring.byte((slot * WQEBB_BYTES + i) % ring_bytes))
            .collect();
        let ds = whole.get(7).map_or(0, |byte| usize::from(byte & 0x3f));
        // The first half of the register is rung first. A doorbell leaves all behind its 8 bytes alone.
        let is_whole = self.uar.byte(BF_OFFSET + 8) != UNTOUCHED;
        let len_bytes = match n_wqebbs {
            0 => 0,
            _ if is_whole => whole.len(),
            _ => 8,
        };
        Ok(Drafted {
            wqe_index: first as u16,
            wqe: whole[..(ds * SEGMENT_BYTES).min(whole.len())].to_vec(),
            n_wqebbs,
            record: core::array::from_fn(|i| self.record.byte(4 + i)),
            register: (0..len_bytes).map(|i| self.uar.byte(BF_OFFSET + i)).collect(),
        })
    }
}

/// A receive queue that no device has.
#[derive(Debug)]
pub struct RecvDraft {
    // Dropped before what it is over.
    queue: RecvQueue,
    ring: Memory,
    record: Memory,
    _ledger: Memory,
    log_wq_stride: u8,
}

impl RecvDraft {
    /// A queue of 2^`log_wq_size` WQEs of 2^`log_wq_stride` bytes (4 to 9), whose next request is at counter `wqe_index`.
    pub fn new(qpn: Qpn, log_wq_size: u8, log_wq_stride: u8, wqe_index: u16) -> Self {
        let (log_wq_size, log_wq_stride) = (log_wq_size.min(15), log_wq_stride.clamp(4, 9));
        let ring = Memory::new(1 << (log_wq_size + log_wq_stride));
        let ledger = Memory::new(8 << log_wq_size);
        let record = Memory::new(8);
        // SAFETY: as of `SendDraft::new`.
        let mut queue = unsafe {
            RecvQueue::new(RecvQueueParts {
                qpn,
                id: QueueId::next(),
                ring: ring.base,
                log_wq_size,
                log_wq_stride,
                ledger: ledger.base.cast(),
                record: record.record(0),
                max_sge: (1u8 << (log_wq_stride - 4)).min(32),
            })
        };
        queue.open();
        queue.start_at(wqe_index.into());
        Self { queue, ring, record, _ledger: ledger, log_wq_stride }
    }

    /// Writes one request, and gives what it came to.
    ///
    /// # Errors
    /// Whatever `write` refuses. Nothing was posted then.
    pub fn post<E>(
        mut self,
        write: impl FnOnce(&mut RecvList<'_>, Anything) -> Result<(), E>,
    ) -> Result<Drafted, E> {
        let (first, slot, owner) = self.queue.place();
        let mut list = self.queue.post_list();
        write(&mut list, Anything { owner })?;
        list.publish();
        let at = slot << self.log_wq_stride;
        Ok(Drafted {
            wqe_index: first as u16,
            wqe: (at..at + (1 << self.log_wq_stride)).map(|i| self.ring.byte(i)).collect(),
            n_wqebbs: 1,
            record: core::array::from_fn(|i| self.record.byte(i)),
            register: Vec::new(),
        })
    }
}

/// Page-aligned memory, reached by copies.
#[derive(Debug)]
struct Memory {
    base: NonNull<u8>,
    layout: Layout,
}

impl Memory {
    fn new(len_bytes: usize) -> Self {
        let page = 4096;
        let layout = match Layout::from_size_align(len_bytes.max(1), page) {
            Ok(layout) => layout,
            Err(_) => unreachable!("a ring of at most 2 MiB"),
        };
        // SAFETY: the size is not 0.
        let base = unsafe { alloc_zeroed(layout) };
        let Some(base) = NonNull::new(base) else { handle_alloc_error(layout) };
        Self { base, layout }
    }

    fn byte(&self, at: usize) -> u8 {
        assert!(at < self.layout.size());
        // SAFETY: within the allocation, to which no reference is kept.
        unsafe { self.base.add(at).read_volatile() }
    }

    fn fill(&self, byte: u8) {
        // SAFETY: within the allocation, to which no reference is kept.
        unsafe { self.base.as_ptr().write_bytes(byte, self.layout.size()) }
    }

    fn record(&self, at: usize) -> DoorbellRecord {
        assert!(at + 4 <= self.layout.size());
        // SAFETY: within the allocation, which lives as long as the queue.
        unsafe { DoorbellRecord::new(self.base.add(at).cast::<Be32>()) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.base.as_ptr(), self.layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        mlx5::ids::Rkey,
        queue::{Rc, Ud},
    };

    const LIMITS: SendLimits =
        SendLimits { max_sge: 61, max_inline_bytes: 972, max_message_bytes: 1 << 31, min_header_bytes: 0 };

    #[test]
    fn a_request_is_what_a_device_would_see() {
        let draft = SendDraft::<Rc>::new(Qpn::new(0x111), 2, 3, LIMITS, DoorbellMode::Auto);
        let drafted = draft
            .post(|list, any| {
                let mut request = list.send(0, Flags::SIGNALED)?;
                for n in 0..4 {
                    request = request.local(any.lease(Lkey::new(9), 0x1000 * n, 16), 0..16)?;
                }
                request.finish();
                Ok::<_, PostError>(())
            })
            .unwrap();
        assert_eq!((drafted.wqe_index, drafted.n_wqebbs, drafted.wqe.len()), (3, 2, 80));
        assert_eq!(drafted.record, [0, 0, 0, 5]);
        assert_eq!(drafted.register.len(), 128);
        assert_eq!(drafted.register[..80], drafted.wqe);
    }

    #[test]
    fn what_is_refused_is_nowhere() {
        let draft = SendDraft::<Rc>::new(Qpn::new(0x111), 0, 0, LIMITS, DoorbellMode::Auto);
        let error = draft.post(|list, _| {
            list.send(0, Flags::NONE)?.inline(&[1; 100])?.finish();
            Ok::<_, PostError>(())
        });
        assert_eq!(error, Err(PostError::QueueFull));
        // A lease of one draft is nothing to another.
        let mut stolen = None;
        let first = SendDraft::<Rc>::new(Qpn::new(0x111), 4, 0, LIMITS, DoorbellMode::Auto);
        let nothing = first.post(|_, any| {
            stolen = Some(any.lease(Lkey::new(9), 0, 64));
            Ok::<_, PostError>(())
        });
        let nothing = nothing.unwrap();
        assert!(nothing.wqe.is_empty() && nothing.register.is_empty());
        let second = SendDraft::<Rc>::new(Qpn::new(0x111), 4, 0, LIMITS, DoorbellMode::Auto);
        let error = second.post(|list, _| {
            list.send(0, Flags::NONE)?.local(stolen.unwrap(), 0..64)?.finish();
            Ok::<_, PostError>(())
        });
        assert_eq!(error, Err(PostError::NotLeased));
    }

    /// What is there makes its list alone; another draft's is another queue's.
    #[test]
    fn keys_are_changed_in_the_list_of_their_draft() {
        let key = IndirectKey::new(Rkey::new(0x100), 8);
        let piece = Sge { lkey: Lkey::new(9), addr: 0, len_bytes: 64 };
        let strided = Strided { lkey: Lkey::new(9), addr: 0, len_bytes: 1, skip_bytes: 1 };
        let draft = || SendDraft::<Rc>::new(Qpn::new(0x111), 4, 0, LIMITS, DoorbellMode::Auto);
        let list_of = |list: &mut PostList<'_, Rc>, any: Anything| {
            any.umr_list(list, key, &[piece], KeyAccess::LOCAL_READ, Flags::NONE).map(Request::finish)
        };
        let pattern_of = |list: &mut PostList<'_, Rc>, any: Anything| {
            let access = KeyAccess::LOCAL_READ;
            any.umr_interleaved(list, key, 2, &[strided], access, Flags::NONE).map(Request::finish)
        };
        assert_eq!(draft().post(list_of).unwrap().n_wqebbs, 3);
        assert_eq!(draft().post(pattern_of).unwrap().n_wqebbs, 3);
        let stolen = Anything { owner: QueueId::next() };
        assert_eq!(draft().post(|list, _| list_of(list, stolen)), Err(PostError::NotLeased));
        assert_eq!(draft().post(|list, _| pattern_of(list, stolen)), Err(PostError::NotLeased));
    }

    #[test]
    fn a_doorbell_is_8_bytes() {
        let draft = SendDraft::<Ud>::new(Qpn::new(0x111), 4, 7, LIMITS, DoorbellMode::Doorbell);
        let nop = draft.post(|list, _| {
            list.nop(0, Flags::SIGNALED)?.finish();
            Ok::<_, PostError>(())
        });
        let nop = nop.unwrap();
        assert_eq!(nop.register, [0, 0, 7, 0, 0, 1, 0x11, 1]);
        assert_eq!(nop.wqe[..8], nop.register, "the WQE at its place in the ring");
    }

    #[test]
    fn a_receive_request_ends_with_a_terminator() {
        let draft = RecvDraft::new(Qpn::new(0x111), 4, 6, 0xffff);
        let drafted = draft
            .post(|list, any| {
                let request = list.recv(0)?;
                request.local(any.lease(Lkey::new(9), 0x1000, 64), 0..64)?.finish();
                Ok::<_, PostError>(())
            })
            .unwrap();
        assert_eq!((drafted.wqe_index, drafted.record), (0xffff, [0, 0, 0, 0]));
        assert_eq!(drafted.wqe[..16], [0, 0, 0, 64, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0x10, 0]);
        assert_eq!(drafted.wqe[16..32], [0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }
}
