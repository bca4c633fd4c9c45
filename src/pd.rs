//! Protection domains.

use crate::{
    Access, Context, Cq, Error, Mr, Qp, QpInit, RawPacketQp, Result, UcQp, UdQp,
    backend::{QpParts, dma::PageSize},
    doorbell::DoorbellMode,
    mlx5::ids::Pdn,
    queue::Transport,
};
use std::sync::Arc;

/// A protection domain: memory and queue pairs of one domain can name each other.
///
/// Clones are the same domain. It ends when the last clone and the last object made from it are gone.
#[derive(Debug, Clone)]
pub struct Pd {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    ctx: Context,
    pdn: Pdn,
    /// The device has taken it back.
    freed: bool,
}

impl Pd {
    pub(crate) fn alloc(ctx: &Context) -> Result<Self> {
        let pdn = ctx.control().alloc_pd()?;
        Ok(Self { inner: Arc::new(Inner { ctx: ctx.clone(), pdn, freed: false }) })
    }

    /// A protection domain that the control path has, and nobody else ends: one that it
    /// [took in](crate::backend::verbs::VerbsControl::import_pd).
    pub fn adopt(ctx: &Context, pdn: Pdn) -> Self {
        Self { inner: Arc::new(Inner { ctx: ctx.clone(), pdn, freed: false }) }
    }

    /// Its number.
    pub fn pdn(&self) -> Pdn {
        self.inner.pdn
    }

    /// Registers `len_bytes` of zeroed memory that the crate owns.
    ///
    /// ```no_run
    /// # fn f(pd: &mlx5_direct::Pd) -> mlx5_direct::Result<()> {
    /// use mlx5_direct::Access;
    /// let mr = pd.alloc_mr(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    /// mr.write(0, b"ping");
    /// # Ok(()) }
    /// ```
    pub fn alloc_mr(&self, len_bytes: usize, access: Access) -> Result<Mr> {
        Mr::alloc(self, len_bytes, access, PageSize::Default, None)
    }

    /// As [`alloc_mr`](Self::alloc_mr), for an address of one's own choice: requests name byte 0 by `start_addr`, a multiple of
    /// 4 KiB, whatever address this process has it at (`ibv_reg_mr_iova`).
    ///
    /// ```no_run
    /// # fn f(pd: &mlx5_direct::Pd) -> mlx5_direct::Result<()> {
    /// use mlx5_direct::Access;
    /// let mr = pd.alloc_mr_at(4096, 0xa000_0000, Access::LOCAL_WRITE)?;
    /// assert_eq!(mr.addr(), 0xa000_0000);
    /// # Ok(()) }
    /// ```
    pub fn alloc_mr_at(&self, len_bytes: usize, start_addr: u64, access: Access) -> Result<Mr> {
        Mr::alloc(self, len_bytes, access, PageSize::Default, Some(start_addr))
    }

    /// As [`alloc_mr`](Self::alloc_mr), on huge pages of 2 MiB.
    pub fn alloc_huge_mr(&self, len_bytes: usize, access: Access) -> Result<Mr> {
        Mr::alloc(self, len_bytes, access, PageSize::Huge2M, None)
    }

    /// Makes a reliable-connection queue pair in state RST.
    pub fn create_qp(&self, init: &QpInit, send_cq: &Cq, recv_cq: &Cq) -> Result<Qp> {
        Qp::create(self, init, send_cq, recv_cq)
    }

    /// Makes an unreliable-connection queue pair in state RST.
    pub fn create_uc_qp(&self, init: &QpInit, send_cq: &Cq, recv_cq: &Cq) -> Result<UcQp> {
        Qp::create(self, init, send_cq, recv_cq)
    }

    /// Makes a queue pair for datagrams, in state RST.
    pub fn create_ud_qp(&self, init: &QpInit, send_cq: &Cq, recv_cq: &Cq) -> Result<UdQp> {
        Qp::create(self, init, send_cq, recv_cq)
    }

    /// Makes a queue pair for Ethernet frames, in state RST. It receives what [rules](RawPacketQp::steer) give it.
    pub fn create_raw_packet_qp(&self, init: &QpInit, send_cq: &Cq, recv_cq: &Cq) -> Result<RawPacketQp> {
        Qp::create(self, init, send_cq, recv_cq)
    }

    /// Makes a queue pair of a transport that the type tells, in state RST.
    pub fn create_qp_of<T: Transport>(&self, init: &QpInit, send_cq: &Cq, recv_cq: &Cq) -> Result<Qp<T>> {
        Qp::create(self, init, send_cq, recv_cq)
    }

    /// A queue pair that the control path has made or [taken in](crate::backend::verbs::VerbsControl::import_qp), in
    /// whatever state.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if it is of another transport than `T`, and what the device says when it is asked for
    /// the state.
    ///
    /// # Safety
    /// `parts` are those of a queue pair of this device that uses `send_cq` and `recv_cq`. Its queues are empty, at index
    /// 0, and nobody else posts to them.
    pub unsafe fn adopt_qp<T: Transport>(
        &self,
        parts: QpParts,
        doorbell: DoorbellMode,
        send_cq: &Cq,
        recv_cq: &Cq,
    ) -> Result<Qp<T>> {
        if parts.service != T::SERVICE {
            return Err(Error::invalid(format!(
                "queue pair {} is of transport {}, and is taken for one of {}",
                parts.qpn,
                parts.service,
                T::SERVICE
            )));
        }
        // SAFETY: the caller's promise.
        let mut qp = unsafe { Qp::adopt(self, parts, doorbell, send_cq, recv_cq) };
        qp.refresh()?;
        Ok(qp)
    }

    /// The device it is of.
    pub fn context(&self) -> &Context {
        &self.inner.ctx
    }

    /// Ends the domain now, and tells what went wrong, which dropping cannot.
    ///
    /// # Errors
    /// Refused, with the domain back, while objects made from it or clones of it live.
    pub fn dealloc(self) -> std::result::Result<(), (Self, Error)> {
        match Arc::try_unwrap(self.inner) {
            Ok(mut inner) => match inner.ctx.control().dealloc_pd(inner.pdn) {
                Ok(()) => {
                    inner.freed = true;
                    Ok(())
                }
                Err(error) => Err((Self { inner: Arc::new(inner) }, error)),
            },
            Err(inner) => {
                let error = Error::invalid(format!(
                    "protection domain {} cannot be freed: {} objects or clones still use it; drop them first",
                    inner.pdn,
                    Arc::strong_count(&inner) - 1
                ));
                Err((Self { inner }, error))
            }
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !self.freed {
            // Nothing of ours uses the domain any more. A device that refuses is at fault; the number is lost.
            let _ = self.ctx.control().dealloc_pd(self.pdn);
        }
    }
}
