//! Memory windows.

use crate::{
    Access, Error, Mr, Pd, Qp, Result,
    mlx5::ids::Rkey,
    queue::{Bindable, Remote, Transport, Window},
};

/// A memory window (type 2): a key by which a queue pair opens part of its memory to its peer, and closes it again, by
/// requests in its send queue instead of commands. Ended on drop, bound or not.
///
/// ```no_run
/// # use mlx5_direct::{Pd, Qp, queue::{Flags, WindowAccess}};
/// # fn f(pd: &Pd, qp: &mut Qp) -> Result<(), Box<dyn std::error::Error>> {
/// use mlx5_direct::Access;
/// // No rights for peers: those come from windows.
/// let mr = pd.alloc_mr(4096, Access::LOCAL_WRITE | Access::MW_BIND)?;
/// let memory = qp.bindable(&mr)?;
/// let mut mw = pd.alloc_mw()?;
///
/// let view = memory.view(1024..2048, WindowAccess::REMOTE_WRITE | WindowAccess::ZERO_BASED);
/// let mut list = qp.post_list();
/// list.bind_mw(1, mw.window(), &view, Flags::NONE)?.finish();
/// // The peer is told when the window is open.
/// let rkey = mw.rkey().get().to_be_bytes();
/// list.send(2, Flags::SIGNALED | Flags::AFTER_INVALIDATE)?.inline(&rkey)?.finish();
/// list.ring();
/// // … the peer writes to `Remote { addr: 0, rkey }`, and closes it with its answer (`send_inval`). Or this end does:
/// let mut list = qp.post_list();
/// list.local_inv(3, mw.rkey(), Flags::SIGNALED)?.finish();
/// list.ring();
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Mw {
    window: Window,
    /// The key that the control path knows it by.
    made_as: Rkey,
    pd: Pd,
}

impl Pd {
    /// Makes a memory window, which is open to nothing yet.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the device has none of type 2.
    pub fn alloc_mw(&self) -> Result<Mw> {
        let made_as = self.context().control().alloc_mw(self.pdn())?;
        Ok(Mw { window: Window::new(made_as), made_as, pd: self.clone() })
    }
}

impl Mw {
    /// The key of its last bind, by which the peer names it.
    pub fn rkey(&self) -> Rkey {
        self.window.rkey()
    }

    /// The place `addr` as a peer's requests name it: an address of the memory, or, if the view is
    /// [zero-based](crate::queue::WindowAccess::ZERO_BASED), an offset in it.
    pub fn remote(&self, addr: u64) -> Remote {
        Remote { addr, rkey: self.rkey() }
    }

    /// Its name, for [`bind_mw`](crate::queue::PostList::bind_mw).
    pub fn window(&mut self) -> &mut Window {
        &mut self.window
    }
}

impl Drop for Mw {
    fn drop(&mut self) {
        // A device that refuses is at fault; the window names memory that is registered as long as it needs to be.
        let _ = self.pd.context().control().dealloc_mw(self.made_as);
    }
}

impl<T: Transport> Qp<T> {
    /// Lets this queue pair open parts of `mr` to its peer by memory windows. The memory stays registered until the
    /// queue pair is destroyed, and with it everything that it has bound: nobody else's requests pass a window of its.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the memory was registered without [`Access::MW_BIND`], or is of another protection
    /// domain.
    pub fn bindable(&mut self, mr: &Mr) -> Result<Bindable> {
        if !mr.registration().access().contains(Access::MW_BIND) {
            return Err(Error::invalid(format!(
                "memory with lkey {} was registered for {:?}: windows need MW_BIND too",
                mr.lkey(),
                mr.registration().access()
            )));
        }
        self.lease(mr)?;
        // SAFETY: the lease just made: the registration is held until the device has destroyed the queue pair, with
        // which every window that it has bound closes.
        Ok(unsafe { Bindable::new(self.send_queue().id(), mr.lkey(), mr.addr(), mr.len_bytes() as u64) })
    }
}
