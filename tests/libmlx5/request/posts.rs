//! How we post a request, by transport.

use super::{Data, MR_INTERLEAVED, MR_LIST, Wr};
use crate::rival::ffi::*;
use mlx5_direct::{
    mlx5::ids::Rkey,
    queue::{
        Connected, Flags, Paired, PostError, PostList, QueueId, RawPacket, Rc, RemoteSrq, Transport, Uc, Ud,
        Xrc,
    },
};
use std::ffi::c_int;

/// A transport: its operations for libmlx5 and for us.
pub(crate) trait Posts: Transport {
    const QP_TYPE: c_int;
    /// `IBV_QP_EX_WITH_…` of what it can do.
    const SEND_OPS: u64;
    const OPCODES: &[u32];
    /// `MLX5DV_QP_EX_WITH_…` besides.
    const DV_OPS: u64 = 0;
    /// Adds a request to our list, of the queue pair with this identity.
    fn post(list: &mut PostList<'_, Self>, wr: &Wr, flags: Flags, owner: QueueId) -> Result<(), PostError>;
}

impl Posts for Rc {
    const QP_TYPE: c_int = IBV_QPT_RC;
    const SEND_OPS: u64 = RC_OPS;
    const DV_OPS: u64 = UMR_OPS;
    const OPCODES: &[u32] = &[
        IBV_WR_SEND,
        IBV_WR_SEND_WITH_IMM,
        IBV_WR_SEND_WITH_INV,
        IBV_WR_RDMA_WRITE,
        IBV_WR_RDMA_WRITE_WITH_IMM,
        IBV_WR_RDMA_READ,
        IBV_WR_ATOMIC_CMP_AND_SWP,
        IBV_WR_ATOMIC_FETCH_AND_ADD,
        IBV_WR_LOCAL_INV,
        IBV_WR_BIND_MW,
        MR_LIST,
        MR_INTERLEAVED,
    ];

    fn post(list: &mut PostList<'_, Self>, wr: &Wr, flags: Flags, owner: QueueId) -> Result<(), PostError> {
        match wr.opcode {
            IBV_WR_SEND_WITH_INV => wr.finish(list.send_inval(1, Rkey::new(wr.imm_or_rkey), flags)?),
            IBV_WR_RDMA_READ => {
                wr.sges(list.rdma_read(1, wr.remote(), flags)?)?.finish();
                Ok(())
            }
            IBV_WR_ATOMIC_FETCH_AND_ADD => {
                wr.finish_atomic(list.fetch_add(1, wr.remote(), wr.compare_add, flags)?)
            }
            IBV_WR_ATOMIC_CMP_AND_SWP => {
                wr.finish_atomic(list.compare_swap(1, wr.remote(), wr.compare_add, wr.swap, flags)?)
            }
            MR_LIST | MR_INTERLEAVED => {
                let Data::Indirect(indirect) = &wr.data else { unreachable!("a key over others") };
                indirect.ours(list, flags)
            }
            _ => post_connected(list, wr, flags, owner),
        }
    }
}

impl Posts for Xrc {
    const QP_TYPE: c_int = IBV_QPT_XRC_SEND;
    const SEND_OPS: u64 = RC_OPS;
    const OPCODES: &[u32] = &[
        IBV_WR_SEND,
        IBV_WR_SEND_WITH_IMM,
        IBV_WR_SEND_WITH_INV,
        IBV_WR_RDMA_WRITE,
        IBV_WR_RDMA_WRITE_WITH_IMM,
        IBV_WR_RDMA_READ,
        IBV_WR_ATOMIC_CMP_AND_SWP,
        IBV_WR_ATOMIC_FETCH_AND_ADD,
        IBV_WR_LOCAL_INV,
        IBV_WR_BIND_MW,
    ];

    fn post(list: &mut PostList<'_, Self>, wr: &Wr, flags: Flags, owner: QueueId) -> Result<(), PostError> {
        let (srq, remote) = (RemoteSrq::new(wr.srqn), wr.remote());
        wr.finish(match wr.opcode {
            IBV_WR_SEND => list.send(1, srq, flags)?,
            IBV_WR_SEND_WITH_IMM => list.send_imm(1, srq, wr.imm_or_rkey, flags)?,
            IBV_WR_SEND_WITH_INV => list.send_inval(1, srq, Rkey::new(wr.imm_or_rkey), flags)?,
            IBV_WR_RDMA_WRITE => list.rdma_write(1, srq, remote, flags)?,
            IBV_WR_RDMA_WRITE_WITH_IMM => list.rdma_write_imm(1, srq, remote, wr.imm_or_rkey, flags)?,
            IBV_WR_RDMA_READ => {
                wr.sges(list.rdma_read(1, srq, remote, flags)?)?.finish();
                return Ok(());
            }
            IBV_WR_ATOMIC_FETCH_AND_ADD => {
                return wr.finish_atomic(list.fetch_add(1, srq, remote, wr.compare_add, flags)?);
            }
            IBV_WR_ATOMIC_CMP_AND_SWP => {
                return wr.finish_atomic(list.compare_swap(
                    1,
                    srq,
                    remote,
                    wr.compare_add,
                    wr.swap,
                    flags,
                )?);
            }
            _ => return change_key(list, wr, flags, owner),
        })
    }
}

impl Posts for Uc {
    const QP_TYPE: c_int = IBV_QPT_UC;
    const SEND_OPS: u64 = UC_OPS;
    const OPCODES: &[u32] = &[
        IBV_WR_SEND,
        IBV_WR_SEND_WITH_IMM,
        IBV_WR_RDMA_WRITE,
        IBV_WR_RDMA_WRITE_WITH_IMM,
        IBV_WR_LOCAL_INV,
        IBV_WR_BIND_MW,
    ];

    fn post(list: &mut PostList<'_, Self>, wr: &Wr, flags: Flags, owner: QueueId) -> Result<(), PostError> {
        post_connected(list, wr, flags, owner)
    }
}

impl Posts for Ud {
    const QP_TYPE: c_int = IBV_QPT_UD;
    const SEND_OPS: u64 = UD_OPS;
    const OPCODES: &[u32] = &[IBV_WR_SEND, IBV_WR_SEND_WITH_IMM];

    fn post(list: &mut PostList<'_, Self>, wr: &Wr, flags: Flags, _: QueueId) -> Result<(), PostError> {
        let to = wr.to.expect("a datagram goes somewhere").ours();
        wr.finish(match wr.opcode {
            IBV_WR_SEND => list.send(1, &to, flags)?,
            _ => list.send_imm(1, &to, wr.imm_or_rkey, flags)?,
        })
    }
}

impl Posts for RawPacket {
    const QP_TYPE: c_int = IBV_QPT_RAW_PACKET;
    const SEND_OPS: u64 = RAW_PACKET_OPS;
    const OPCODES: &[u32] = &[IBV_WR_SEND, IBV_WR_TSO];

    fn post(list: &mut PostList<'_, Self>, wr: &Wr, flags: Flags, _: QueueId) -> Result<(), PostError> {
        let frame = wr.frame.as_ref().expect("a frame");
        if let Some((header, mss)) = &frame.large {
            wr.sges(list.lso(1, header, *mss, frame.checksums(), flags)?)?.finish();
            return Ok(());
        }
        // libmlx5 takes the head out of the data, and ours is given both.
        let mut rest = wr.clone();
        let head = frame.take_head(&mut rest.data);
        rest.finish(list.send_with_header(1, &head, frame.checksums(), flags)?)
    }
}

/// What RC and UC have in common.
fn post_connected<T: Connected>(
    list: &mut PostList<'_, T>,
    wr: &Wr,
    flags: Flags,
    owner: QueueId,
) -> Result<(), PostError> {
    wr.finish(match wr.opcode {
        IBV_WR_SEND => list.send(1, flags)?,
        IBV_WR_SEND_WITH_IMM => list.send_imm(1, wr.imm_or_rkey, flags)?,
        IBV_WR_RDMA_WRITE => list.rdma_write(1, wr.remote(), flags)?,
        IBV_WR_RDMA_WRITE_WITH_IMM => list.rdma_write_imm(1, wr.remote(), wr.imm_or_rkey, flags)?,
        _ => return change_key(list, wr, flags, owner),
    })
}

/// What all queue pairs with a peer have in common.
fn change_key<T: Paired>(
    list: &mut PostList<'_, T>,
    wr: &Wr,
    flags: Flags,
    owner: QueueId,
) -> Result<(), PostError> {
    match wr.opcode {
        IBV_WR_BIND_MW => {
            let Data::Bind(bind) = &wr.data else { unreachable!("a window") };
            bind.post(list, flags, owner)
        }
        IBV_WR_LOCAL_INV => {
            list.local_inv(1, Rkey::new(wr.imm_or_rkey), flags)?.finish();
            Ok(())
        }
        other => unreachable!("operation {other}"),
    }
}
