//! Objects of an application that uses verbs already, taken in; and ours, handed out to it.

use super::{
    Device, Object, PdEntry, VerbsControl,
    cq::CqEntry,
    ffi::{IbvContext, IbvCq, IbvMr, IbvPd, IbvQp},
    lock,
    qp::QpEntry,
    unknown,
};
use crate::{
    Error, Result,
    backend::{CqParts, QpParts},
    mlx5::{
        context::QpState,
        ids::{Cqn, Lkey, Pdn, Qpn},
    },
};
use std::{
    ptr::NonNull,
    sync::{Arc, Mutex},
};

/// Taking in what the application has made, by the pointers that libibverbs gave it. Pointers of other bindings are the
/// same ones: [`cast`](NonNull::cast) them.
///
/// What was taken in is never destroyed here: ending it only forgets it.
impl VerbsControl {
    /// A device that the application has opened itself, by `ibv_open_device` or librdmacm.
    ///
    /// Asynchronous events go to whoever reads them first, the application or
    /// [`next_async_event`](crate::backend::Control::next_async_event); the descriptor becomes non-blocking.
    ///
    /// # Errors
    /// The libraries are not there, or it is no device that libmlx5 drives.
    ///
    /// # Safety
    /// `context` was opened by this process's libibverbs, and stays open until the value, and all that is made from it,
    /// is dropped.
    pub unsafe fn import(context: NonNull<IbvContext>) -> Result<Arc<Self>> {
        // SAFETY: the caller's promise.
        Self::on(unsafe { Device::import(context)? })
    }

    /// A protection domain of the application's: give its number to [`Pd::adopt`](crate::Pd::adopt).
    ///
    /// # Safety
    /// It is of this device, and lives until it is [freed](crate::backend::Control::dealloc_pd) here, which is when its
    /// [`Pd`](crate::Pd) is dropped.
    pub unsafe fn import_pd(&self, pd: NonNull<IbvPd>) -> Result<Pdn> {
        let pdn = self.device.pdn(Object(pd))?;
        let mut pds = lock(&self.pds);
        if pds.contains_key(&pdn) {
            return Err(already("protection domain", pdn.get()));
        }
        pds.insert(pdn, Arc::new(PdEntry { pd: Object(pd), owned: None }));
        Ok(pdn)
    }

    /// A completion queue of the application's: give the parts to [`Context::adopt_cq`](crate::Context::adopt_cq). From
    /// now on it is polled here alone. Events of it go to the application.
    ///
    /// # Safety
    /// - It is of this device, and lives until it is destroyed here, which is when its [`Cq`](crate::Cq) is dropped.
    /// - No queue pair uses it yet, and nothing was polled from it or is, by `ibv_poll_cq` or as extended queue; it was
    ///   never armed.
    pub unsafe fn import_cq(&self, cq: NonNull<IbvCq>) -> Result<CqParts> {
        let parts = self.take_over_cq(Object(cq))?;
        let entry = CqEntry::new(Object(cq), &parts, None, false);
        match lock(&self.cqs).insert(parts.cqn, Arc::new(entry)) {
            None => Ok(parts),
            Some(former) => {
                lock(&self.cqs).insert(parts.cqn, former);
                Err(already("completion queue", parts.cqn.get()))
            }
        }
    }

    /// A queue pair of the application's (RC, UC or UD), made by verbs or librdmacm: give the parts to
    /// [`Pd::adopt_qp`](crate::Pd::adopt_qp). The completion queues that it was made with are ones of this device,
    /// [handed out](Self::raw_cq) or [taken in](Self::import_cq).
    ///
    /// # Errors
    /// Its completion queues are not known here, or it is of another type.
    ///
    /// # Safety
    /// - It is of this device, and lives until it is destroyed here, which is when its [`Qp`](crate::Qp) is dropped.
    /// - Nothing was posted to it, and nothing will be by `ibv_post_send`, `ibv_post_recv` or as extended queue pair.
    /// - It was made without payload in CQEs: with `MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE`, or while the environment
    ///   had `MLX5_SCATTER_TO_CQE=0`. Completions of other queue pairs would come with an error.
    pub unsafe fn import_qp(&self, qp: NonNull<IbvQp>) -> Result<QpParts> {
        // SAFETY: the caller's promise: it lives.
        let (send_cq, recv_cq, pd) = unsafe {
            let qp = qp.as_ptr();
            ((*qp).send_cq, (*qp).recv_cq, (*qp).pd)
        };
        let pd = NonNull::new(pd).ok_or_else(|| Error::invalid("a queue pair without protection domain"))?;
        let (send_cq, recv_cq) = (self.known_cq(send_cq)?, self.known_cq(recv_cq)?);
        let cap = self.cap(Object(qp))?;
        let parts = self.take_over_qp(Object(qp), &cap, false)?;
        let entry = QpEntry {
            qp: Object(qp),
            owned: false,
            service: parts.service,
            state: Mutex::new(Some(QpState::RST)),
            _domain: None,
            pd: Arc::new(PdEntry { pd: Object(pd), owned: None }),
            cqs: [send_cq, recv_cq],
        };
        let mut qps = lock(&self.qps);
        if qps.contains_key(&parts.qpn) {
            return Err(already("queue pair", parts.qpn.get()));
        }
        qps.insert(parts.qpn, Arc::new(entry));
        Ok(parts)
    }

    fn known_cq(&self, cq: *mut IbvCq) -> Result<Arc<CqEntry>> {
        let cqs = lock(&self.cqs);
        let found = cqs.values().find(|entry| entry.cq.as_ptr() == cq).cloned();
        found.ok_or_else(|| {
            Error::invalid("a queue pair with a completion queue that is not known here; take that in first")
        })
    }
}

fn already(what: &str, number: u32) -> Error {
    Error::invalid(format!("{what} 0x{number:x} was taken in already"))
}

/// Handing out: pointers for calls of libibverbs and librdmacm, such as `rdma_create_qp` with a protection domain and
/// completion queues of ours. Each is valid until its object is destroyed here.
///
/// The rings are ours alone: do not post, poll or arm through them.
impl VerbsControl {
    /// The open device.
    pub fn raw_context(&self) -> NonNull<IbvContext> {
        self.device.raw()
    }

    /// A protection domain.
    ///
    /// # Errors
    /// It does not exist, as with the other numbers below.
    pub fn raw_pd(&self, pd: Pdn) -> Result<NonNull<IbvPd>> {
        Ok(self.pd(pd)?.pd.0)
    }

    /// A memory registration.
    ///
    /// # Errors
    /// It does not exist.
    pub fn raw_mr(&self, lkey: Lkey) -> Result<NonNull<IbvMr>> {
        let mrs = lock(&self.mrs);
        let mr = mrs.get(&lkey).map(|entry| entry.mr.0);
        mr.ok_or_else(|| unknown("memory registration with lkey", lkey.get()))
    }

    /// A completion queue.
    ///
    /// # Errors
    /// It does not exist.
    pub fn raw_cq(&self, cqn: Cqn) -> Result<NonNull<IbvCq>> {
        Ok(self.cq(cqn)?.cq.0)
    }

    /// A queue pair. Its state may be changed by `ibv_modify_qp`, as librdmacm does: tell by
    /// [`Qp::refresh`](crate::Qp::refresh).
    ///
    /// # Errors
    /// It does not exist.
    pub fn raw_qp(&self, qpn: Qpn) -> Result<NonNull<IbvQp>> {
        Ok(self.qp(qpn)?.qp.0)
    }
}
