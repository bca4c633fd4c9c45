//! Requests of an XRC initiator: those of a reliable connection, each for a shared receive queue that it names.

use super::{Atomic, Flags, Gather, PostError, PostList, Remote, Request, Scatter, Xrc};
use crate::{
    mlx5::ids::Rkey,
    wqe::{SendOpcode, XrcSeg},
};

/// A shared receive queue of the peer's XRC domain (`xrc_srqn`), which the peer tells. A request's messages go to it, its
/// protection domain is that of the keys, and its completion queue is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RemoteSrq(u32);

impl RemoteSrq {
    /// From its number; bits above 24 are dropped.
    pub const fn new(srqn: u32) -> Self {
        Self(srqn & 0xff_ffff)
    }

    /// Its number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl<'q> PostList<'q, Xrc> {
    /// SEND: a message into the next receive request of `srq`.
    ///
    /// # Errors
    /// As of [all operations](PostList::nop).
    #[inline(always)]
    pub fn send(
        &mut self,
        wr_id: u64,
        srq: RemoteSrq,
        flags: Flags,
    ) -> Result<Request<'_, 'q, Gather, Xrc>, PostError> {
        Ok(self.request(SendOpcode::SEND, wr_id, flags, 0, None)?.through(srq))
    }

    /// SEND with 32 bits of immediate data, given as the host's integer.
    #[inline(always)]
    pub fn send_imm(
        &mut self,
        wr_id: u64,
        srq: RemoteSrq,
        imm: u32,
        flags: Flags,
    ) -> Result<Request<'_, 'q, Gather, Xrc>, PostError> {
        Ok(self.request(SendOpcode::SEND_IMM, wr_id, flags, imm, None)?.through(srq))
    }

    /// SEND that invalidates the peer's key `rkey` when it arrives.
    #[inline(always)]
    pub fn send_inval(
        &mut self,
        wr_id: u64,
        srq: RemoteSrq,
        rkey: Rkey,
        flags: Flags,
    ) -> Result<Request<'_, 'q, Gather, Xrc>, PostError> {
        Ok(self.request(SendOpcode::SEND_INVAL, wr_id, flags, rkey.get(), None)?.through(srq))
    }

    /// RDMA WRITE to `remote`, a key of the protection domain of `srq`.
    #[inline(always)]
    pub fn rdma_write(
        &mut self,
        wr_id: u64,
        srq: RemoteSrq,
        remote: Remote,
        flags: Flags,
    ) -> Result<Request<'_, 'q, Gather, Xrc>, PostError> {
        Ok(self.request(SendOpcode::RDMA_WRITE, wr_id, flags, 0, None)?.through(srq).remote(remote))
    }

    /// RDMA WRITE to `remote` that then completes a receive request of `srq` with `imm`.
    #[inline(always)]
    pub fn rdma_write_imm(
        &mut self,
        wr_id: u64,
        srq: RemoteSrq,
        remote: Remote,
        imm: u32,
        flags: Flags,
    ) -> Result<Request<'_, 'q, Gather, Xrc>, PostError> {
        let request = self.request(SendOpcode::RDMA_WRITE_IMM, wr_id, flags, imm, None)?;
        Ok(request.through(srq).remote(remote))
    }

    /// RDMA READ from `remote`. At most 30 pieces of local memory (`MLX5_MAX_SGE_RD`).
    #[inline(always)]
    pub fn rdma_read(
        &mut self,
        wr_id: u64,
        srq: RemoteSrq,
        remote: Remote,
        flags: Flags,
    ) -> Result<Request<'_, 'q, Scatter, Xrc>, PostError> {
        Ok(self.request(SendOpcode::RDMA_READ, wr_id, flags, 0, None)?.through(srq).remote(remote))
    }

    /// Compares 8 bytes at `remote` with `compare`, and if equal puts `swap` there. What was there comes back to local
    /// memory, in host order. `remote.addr` is a multiple of 8.
    #[inline(always)]
    pub fn compare_swap(
        &mut self,
        wr_id: u64,
        srq: RemoteSrq,
        remote: Remote,
        compare: u64,
        swap: u64,
        flags: Flags,
    ) -> Result<Request<'_, 'q, Atomic, Xrc>, PostError> {
        let request = self.request(SendOpcode::ATOMIC_CS, wr_id, flags, 0, None)?;
        Ok(request.through(srq).remote(remote).operands(swap, compare))
    }

    /// Adds `add` to 8 bytes at `remote`. What was there comes back to local memory, in host order. `remote.addr` is a
    /// multiple of 8.
    #[inline(always)]
    pub fn fetch_add(
        &mut self,
        wr_id: u64,
        srq: RemoteSrq,
        remote: Remote,
        add: u64,
        flags: Flags,
    ) -> Result<Request<'_, 'q, Atomic, Xrc>, PostError> {
        let request = self.request(SendOpcode::ATOMIC_FA, wr_id, flags, 0, None)?;
        Ok(request.through(srq).remote(remote).operands(add, 0))
    }
}

impl<K> Request<'_, '_, K, Xrc> {
    /// Adds the XRC segment. With the longest operation, an atomic, the header fills the first WQEBB.
    #[inline(always)]
    fn through(self, srq: RemoteSrq) -> Self {
        self.header(XrcSeg::new().with_xrc_srqn(srq.get()).to_bytes())
    }
}
