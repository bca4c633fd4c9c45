//! Requests of an operation, and the far memory that they name.

use crate::{
    endpoint::{Endpoint, Places},
    explain::Shown,
    failure::Failure,
    payload::Payload,
    plan::Op,
    qp::AnyQp,
};
use mlx5_direct::{
    Qp,
    queue::{
        AddressHandle, Connected, Flags, Gather, Lease, PostError, PostList, Rc, Remote, Request, Transport,
        Uc, Ud,
    },
};

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

/// What the requests of a list have in common, and what they are made of.
struct Writer<'e, F> {
    requests: Requests,
    places: Places,
    lease: Lease,
    op: Op,
    size: u64,
    /// Bytes of a message by its number, if they go inline.
    inline: Option<F>,
    to: Option<&'e AddressHandle>,
}

/// A transport's way to write requests.
trait Write: Transport {
    fn write<'b, F: Fn(u64) -> &'b [u8]>(
        writer: &Writer<'_, F>,
        list: &mut PostList<'_, Self>,
        number: u64,
        flags: Flags,
    ) -> Result<(), Failure>;
}

impl<'b, F: Fn(u64) -> &'b [u8]> Writer<'_, F> {
    /// Ends a request with the message to be sent.
    fn message<T: Transport>(
        &self,
        request: Request<'_, '_, Gather, T>,
        number: u64,
    ) -> Result<(), PostError> {
        match &self.inline {
            Some(inline) => request.inline(inline(number))?.finish(),
            None => {
                let from = self.places.outgoing(self.requests.lane, number) as u64;
                request.local(self.lease, from..from + self.size)?.finish();
            }
        }
        Ok(())
    }

    /// What connections have in common.
    fn connected<T: Connected>(
        &self,
        list: &mut PostList<'_, T>,
        number: u64,
        flags: Flags,
    ) -> Result<(), Failure> {
        let remote = self.requests.far.incoming(self.requests.lane, number);
        let request = match self.op {
            Op::Send => list.send(number, flags)?,
            Op::Write => list.rdma_write(number, remote, flags)?,
            Op::WriteImm => list.rdma_write_imm(number, remote, number as u32, flags)?,
            Op::Read | Op::Cas | Op::Faa => return Err(self.lacking::<T>()),
        };
        Ok(self.message(request, number)?)
    }

    /// The plan has been checked, so that nobody comes here.
    #[cold]
    fn lacking<T: Transport>(&self) -> Failure {
        Failure::Run(format!("{} has no {}", T::SERVICE, self.op.name()))
    }
}

impl Write for Rc {
    #[inline]
    fn write<'b, F: Fn(u64) -> &'b [u8]>(
        writer: &Writer<'_, F>,
        list: &mut PostList<'_, Self>,
        number: u64,
        flags: Flags,
    ) -> Result<(), Failure> {
        let Requests { lane, far, word, payload, .. } = writer.requests;
        let to = writer.places.incoming(lane, number) as u64;
        match writer.op {
            Op::Send | Op::Write | Op::WriteImm => return writer.connected(list, number, flags),
            Op::Read => {
                let request = list.rdma_read(number, far.outgoing(lane, number), flags)?;
                request.local(writer.lease, to..to + writer.size)?.finish();
            }
            Op::Cas => {
                let (compare, swap) = (payload.word(lane, number), payload.word(lane, number + 1));
                list.compare_swap(number, word, compare, swap, flags)?.local(writer.lease, to)?.finish();
            }
            Op::Faa => {
                let addend = payload.word(lane, 0);
                list.fetch_add(number, word, addend, flags)?.local(writer.lease, to)?.finish();
            }
        }
        Ok(())
    }
}

impl Write for Uc {
    #[inline]
    fn write<'b, F: Fn(u64) -> &'b [u8]>(
        writer: &Writer<'_, F>,
        list: &mut PostList<'_, Self>,
        number: u64,
        flags: Flags,
    ) -> Result<(), Failure> {
        writer.connected(list, number, flags)
    }
}

impl Write for Ud {
    #[inline]
    fn write<'b, F: Fn(u64) -> &'b [u8]>(
        writer: &Writer<'_, F>,
        list: &mut PostList<'_, Self>,
        number: u64,
        flags: Flags,
    ) -> Result<(), Failure> {
        match (writer.op, writer.to) {
            (Op::Send, Some(to)) => Ok(writer.message(list.send(number, to, flags)?, number)?),
            _ => Err(writer.lacking::<Self>()),
        }
    }
}

impl Endpoint {
    /// Posts `n` requests of the plan's operation and rings once. `inline` gives the bytes of a message by its number,
    /// where the plan says inline.
    #[inline]
    pub(crate) fn request<'b, F: Fn(u64) -> &'b [u8]>(
        &mut self,
        requests: Requests,
        n: u32,
        inline: F,
    ) -> Result<(), Failure> {
        let (plan, lane) = (&self.plan, &mut self.lanes[requests.lane]);
        let mut writer = Writer {
            requests,
            places: self.places,
            lease: lane.lease,
            op: plan.op,
            size: plan.size.into(),
            inline: plan.inline.then_some(inline),
            to: None,
        };
        let (first, every, shown) = (lane.posted, plan.signal_every, &mut self.shown);
        match &mut lane.qp {
            AnyQp::Rc(qp) => post(qp, &writer, first, n, every, shown)?,
            AnyQp::Uc(qp) => post(qp, &writer, first, n, every, shown)?,
            AnyQp::Ud(qp, to) => {
                writer.to = to.as_ref();
                post(qp, &writer, first, n, every, shown)?;
            }
        }
        lane.posted += u64::from(n);
        Ok(())
    }
}

/// Posts `n` requests from number `first` on and rings once. The very last one is always signalled.
#[inline]
fn post<'b, T: Write, F: Fn(u64) -> &'b [u8]>(
    qp: &mut Qp<T>,
    writer: &Writer<'_, F>,
    first: u64,
    n: u32,
    signal_every: u32,
    shown: &mut Option<Shown>,
) -> Result<(), Failure> {
    let mut list = qp.post_list();
    for number in first..first + u64::from(n) {
        let signalled = (number + 1).is_multiple_of(signal_every.into()) || number == writer.requests.last;
        let flags = if signalled { Flags::SIGNALED } else { Flags::NONE };
        T::write(writer, &mut list, number, flags)?;
    }
    let n_wqebbs = list.n_wqebbs();
    list.ring();
    if let Some(shown) = shown {
        shown.posted(qp.send_queue(), n, n_wqebbs);
    }
    Ok(())
}
