//! A list of requests under construction: the one way into a send queue.

use super::{
    AddressHandle, Atomic, Connected, Flags, Gather, PostError, Rc, Ready, Remote, Request, Scatter,
    SendLedgerEntry, SendQueue, Transport, Ud,
};
use crate::{
    doorbell::before_doorbell_record,
    mistake::mistake,
    mlx5::ids::Rkey,
    wqe::{SendOpcode, WQEBB_BYTES},
};

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
pub struct PostList<'q, T = Rc> {
    pub(super) queue: &'q mut SendQueue<T>,
    /// First WQEBB of the list, free-running: the queue's `pi`, where the compiler knows that no store to the
    /// ring changes it.
    first: u32,
    /// First WQEBB of the next request.
    pi: u32,
    /// WQEBBs that are free from there on.
    n_free: u32,
    /// First WQEBB of the last finished request.
    last: u32,
    /// First 8 bytes of that request, as they lie in memory: what the doorbell will say.
    doorbell: u64,
}

impl<'q, T: Connected> PostList<'q, T> {
    /// SEND: a message into the peer's next receive request.
    ///
    /// # Errors
    /// Of this and all other operations: [`QueueFull`](PostError::QueueFull) and
    /// [`WrongState`](PostError::WrongState), with nothing written.
    #[inline(always)]
    pub fn send(&mut self, wr_id: u64, flags: Flags) -> Result<Request<'_, 'q, Gather, T>, PostError> {
        self.request(SendOpcode::SEND, wr_id, flags, 0, None)
    }

    /// SEND with 32 bits of immediate data, given as the host's integer.
    #[inline(always)]
    pub fn send_imm(
        &mut self,
        wr_id: u64,
        imm: u32,
        flags: Flags,
    ) -> Result<Request<'_, 'q, Gather, T>, PostError> {
        self.request(SendOpcode::SEND_IMM, wr_id, flags, imm, None)
    }

    /// RDMA WRITE to `remote`.
    #[inline(always)]
    pub fn rdma_write(
        &mut self,
        wr_id: u64,
        remote: Remote,
        flags: Flags,
    ) -> Result<Request<'_, 'q, Gather, T>, PostError> {
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
    ) -> Result<Request<'_, 'q, Gather, T>, PostError> {
        self.request(SendOpcode::RDMA_WRITE_IMM, wr_id, flags, imm, Some(remote))
    }
}

impl<'q> PostList<'q, Rc> {
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
}

impl<'q> PostList<'q, Ud> {
    /// SEND: a datagram into the next receive request of the queue pair that `to` names. It is one packet: as long as
    /// the port's MTU allows.
    ///
    /// # Errors
    /// As of [all operations](PostList::nop).
    #[inline(always)]
    pub fn send(
        &mut self,
        wr_id: u64,
        to: &AddressHandle,
        flags: Flags,
    ) -> Result<Request<'_, 'q, Gather, Ud>, PostError> {
        Ok(self.request(SendOpcode::SEND, wr_id, flags, 0, None)?.address(to))
    }

    /// SEND with 32 bits of immediate data, given as the host's integer.
    #[inline(always)]
    pub fn send_imm(
        &mut self,
        wr_id: u64,
        to: &AddressHandle,
        imm: u32,
        flags: Flags,
    ) -> Result<Request<'_, 'q, Gather, Ud>, PostError> {
        Ok(self.request(SendOpcode::SEND_IMM, wr_id, flags, imm, None)?.address(to))
    }
}

impl<'q, T: Transport> PostList<'q, T> {
    /// An empty list at `pi`, with room for `n_free` WQEBBs.
    #[inline(always)]
    pub(super) fn new(pi: u32, n_free: u32, queue: &'q mut SendQueue<T>) -> Self {
        Self { queue, first: pi, pi, n_free, last: pi, doorbell: 0 }
    }

    /// Does nothing, in its turn.
    #[inline(always)]
    pub fn nop(&mut self, wr_id: u64, flags: Flags) -> Result<Request<'_, 'q, Ready, T>, PostError> {
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
        let n_wqebbs = pi.wrapping_sub(first);
        queue.pi = pi;
        queue.n_outstanding = queue.n_outstanding.wrapping_add(n_wqebbs);
        // The device fetches WQEs up to the record's count: they are complete before it says so.
        before_doorbell_record();
        if !mistake!(RecordMissing) && !mistake!(RecordLate) {
            queue.record.write(pi & 0xffff);
        }
        if mistake!(DoorbellMissing) {
            return;
        }
        // The device may read the record as soon as it sees the doorbell. Both forms below order it first.
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
        if mistake!(RecordLate) {
            queue.record.write(pi & 0xffff);
        }
        if mistake!(DoorbellTwice) {
            queue.register.ring(doorbell);
        }
        if mistake!(SlotReused) {
            // SAFETY: the last byte of a WQEBB of the ring.
            unsafe { *queue.ring.add((first & queue.mask) as usize * WQEBB_BYTES + WQEBB_BYTES - 1) ^= 1 };
        }
    }

    /// Room and place for the next request.
    #[inline(always)]
    pub(super) fn request<K>(
        &mut self,
        opcode: SendOpcode,
        wr_id: u64,
        flags: Flags,
        imm: u32,
        remote: Option<Remote>,
    ) -> Result<Request<'_, 'q, K, T>, PostError> {
        let n_free = self.n_free;
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
        let end = self.pi.wrapping_add(n_wqebbs);
        let entry = SendLedgerEntry { wr_id, index: self.pi, end };
        // SAFETY: the slot is masked to the ledger.
        unsafe { self.queue.ledger.add((self.pi & self.queue.mask) as usize).write(entry) };
        if !mistake!(DoorbellOfFirst) || self.pi == self.first {
            self.doorbell = doorbell;
        }
        self.last = self.pi;
        self.pi = end;
        self.n_free -= n_wqebbs;
    }

    /// `ctrl.wqe_index` of the next request.
    #[inline(always)]
    pub(super) fn wqe_index(&self) -> u16 {
        self.pi as u16
    }
}
