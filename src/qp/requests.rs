//! Requests and their completions: memory that may be named, posts, and what is given back.

use super::Qp;
use crate::{
    Cq, Error, Mr, Result,
    queue::{
        Completion, Lease, LeaseSlice, PostError, PostList, RecvList, RetireError, Retired, Sge, Taken,
        Transport,
    },
};
use std::sync::Arc;

impl<T: Transport> Qp<T> {
    /// Lets this queue pair name `mr` in its requests. The memory stays registered until the queue pair is
    /// destroyed, even if `mr` is dropped before.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the memory is of another protection domain, which the device would refuse.
    pub fn lease(&mut self, mr: &Mr) -> Result<Lease> {
        let registration = mr.registration();
        if registration.pd().pdn() != self.object.pd.pdn() {
            return Err(Error::invalid(format!(
                "memory of protection domain {} cannot be used by queue pair {} of domain {}; register it there",
                registration.pd().pdn(),
                self.qpn(),
                self.object.pd.pdn()
            )));
        }
        if !self.object.leases.iter().any(|held| Arc::ptr_eq(held, registration)) {
            self.object.leases.push(Arc::clone(registration));
        }
        // SAFETY: the registration is held until the device has destroyed the queue pair, and no reference to
        // memory of an `Mr` is ever made.
        Ok(unsafe { Lease::new(self.send.id(), mr.lkey(), mr.addr(), mr.len_bytes() as u64) })
    }

    /// Starts a list of send requests. Nothing of it exists for the device before [`PostList::ring`].
    #[inline(always)]
    pub fn post_list(&mut self) -> PostList<'_, T> {
        self.send.post_list()
    }

    /// Starts a list of receive requests. Nothing of it exists for the device before [`RecvList::publish`].
    #[inline(always)]
    pub fn recv_list(&mut self) -> RecvList<'_> {
        self.recv.post_list()
    }

    /// Posts one receive request over leased memory.
    ///
    /// # Errors
    /// See [`RecvQueue::post`](crate::queue::RecvQueue::post); nothing is posted then.
    #[inline]
    pub fn post_recv(&mut self, wr_id: u64, slices: &[LeaseSlice]) -> std::result::Result<(), PostError> {
        self.recv.post(wr_id, slices)
    }

    /// Posts one receive request over the application's own memory.
    ///
    /// # Errors
    /// See [`RecvQueue::post`](crate::queue::RecvQueue::post); nothing is posted then.
    ///
    /// # Safety
    /// See [`RecvRequest::sge`](crate::queue::RecvRequest::sge), for each of `sges`.
    #[inline]
    pub unsafe fn post_recv_raw(&mut self, wr_id: u64, sges: &[Sge]) -> std::result::Result<(), PostError> {
        // SAFETY: the caller's promise.
        unsafe { self.recv.post_raw(wr_id, sges) }
    }

    /// Takes the next completion of `cq` if it is a success of this queue pair's sends, and retires its request: the shortest
    /// way to wait for one completion.
    ///
    /// ```no_run
    /// # use mlx5_direct::{Cq, Qp, queue::Taken};
    /// # fn f(qp: &mut Qp, cq: &mut Cq) -> Result<u64, Box<dyn std::error::Error>> {
    /// loop {
    ///     match qp.take_sent(cq, |retired, _| retired.wr_id) {
    ///         Taken::Done(wr_id) => return Ok(wr_id),
    ///         Taken::Nothing => core::hint::spin_loop(),
    ///         // A failure, or another queue's: it is still there.
    ///         Taken::Other => {
    ///             if let Some(wc) = cq.poll().next() {
    ///                 qp.retire(&wc)?;
    ///                 wc.status()?;
    ///             }
    ///         }
    ///     }
    /// }
    /// # }
    /// ```
    #[inline(always)]
    pub fn take_sent<R>(
        &mut self,
        cq: &mut Cq,
        read: impl FnOnce(Retired, &Completion<'_>) -> R,
    ) -> Taken<R> {
        self.send.take_one(cq.queue_mut(), read)
    }

    /// As [`take_sent`](Self::take_sent), of a message received.
    #[inline(always)]
    pub fn take_received<R>(
        &mut self,
        cq: &mut Cq,
        read: impl FnOnce(Retired, &Completion<'_>) -> R,
    ) -> Taken<R> {
        self.recv.take_one(cq.queue_mut(), read)
    }

    /// Retires the request that `completion` is of, and of sends all before it: their room is free again.
    ///
    /// # Errors
    /// A completion of another queue pair; nothing changes then.
    #[inline]
    pub fn retire(&mut self, completion: &Completion<'_>) -> std::result::Result<Retired, RetireError> {
        if completion.is_send() { self.send.retire(completion) } else { self.recv.retire(completion) }
    }
}
