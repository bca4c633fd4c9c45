//! Requests of an operation, and the far memory that they name.

use crate::{
    endpoint::{Endpoint, Places},
    failure::Failure,
    payload::Payload,
    plan::Op,
};
use mlx5_direct::queue::{Flags, Lease, Remote};

/// Memory of the peer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Far {
    /// Its first byte.
    base: Remote,
    /// Where in it messages lie; all at its start if `None`.
    places: Option<Places>,
}

impl Far {
    /// The memory of an end of our make.
    pub(crate) fn new(base: Remote, places: Places) -> Self {
        Self { base, places: Some(places) }
    }

    /// Memory in which everything has one place.
    pub(crate) fn one_place(base: Remote) -> Self {
        Self { base, places: None }
    }

    /// Its first byte.
    pub(crate) fn base(self) -> Remote {
        self.base
    }

    fn at(self, offset: usize) -> Remote {
        Remote { addr: self.base.addr + offset as u64, rkey: self.base.rkey }
    }

    /// Where message `n` of a lane arrives at the peer.
    pub(crate) fn incoming(self, lane: usize, n: u64) -> Remote {
        self.at(self.places.map_or(0, |places| places.incoming(lane, n)))
    }

    /// Where message `n` of a lane can be fetched from the peer.
    pub(crate) fn outgoing(self, lane: usize, n: u64) -> Remote {
        self.at(self.places.map_or(0, |places| places.outgoing(lane, n)))
    }
}

/// A request to be written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Post {
    /// Its number on its queue pair, which is its `wr_id` too.
    pub(crate) number: u64,
    pub(crate) lease: Lease,
    pub(crate) flags: Flags,
}

/// Requests of one queue pair, but for how many.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Requests {
    pub(crate) lane: usize,
    pub(crate) far: Far,
    /// What atomics change.
    pub(crate) word: Remote,
    /// Number of the very last request of the queue pair.
    pub(crate) last: u64,
    pub(crate) payload: Payload,
}

impl Endpoint {
    /// Posts `n` requests of the plan's operation and rings once. `inline` gives the bytes of a message by its number,
    /// where the plan says inline.
    #[inline]
    pub(crate) fn request<'b>(
        &mut self,
        requests: Requests,
        n: u32,
        inline: impl Fn(u64) -> &'b [u8],
    ) -> Result<(), Failure> {
        let Requests { lane, far, word, last, payload } = requests;
        let (places, op, size, is_inline) =
            (self.places, self.plan.op, u64::from(self.plan.size), self.plan.inline);
        self.post(lane, n, last, |list, Post { number, lease, flags }| {
            let to = places.incoming(lane, number) as u64;
            match op {
                Op::Send | Op::Write | Op::WriteImm => {
                    let remote = far.incoming(lane, number);
                    let request = match op {
                        Op::Send => list.send(number, flags)?,
                        Op::WriteImm => list.rdma_write_imm(number, remote, number as u32, flags)?,
                        _ => list.rdma_write(number, remote, flags)?,
                    };
                    if is_inline {
                        request.inline(inline(number))?.finish();
                    } else {
                        let from = places.outgoing(lane, number) as u64;
                        request.local(lease, from..from + size)?.finish();
                    }
                }
                Op::Read => {
                    let from = far.outgoing(lane, number);
                    list.rdma_read(number, from, flags)?.local(lease, to..to + size)?.finish();
                }
                Op::Cas => {
                    let (compare, swap) = (payload.word(lane, number), payload.word(lane, number + 1));
                    list.compare_swap(number, word, compare, swap, flags)?.local(lease, to)?.finish();
                }
                Op::Faa => {
                    let addend = payload.word(lane, 0);
                    list.fetch_add(number, word, addend, flags)?.local(lease, to)?.finish();
                }
            }
            Ok(())
        })
    }
}
