//! Initiators of extended reliable connections.
#![forbid(unsafe_code)]

use super::{Qp, QpInit};
use crate::{Cq, Pd, Result, queue::Xrc};

/// An initiator of extended reliable connections: one connection to a process of the peer's, for all its shared receive
/// queues. The target's end is not made here.
///
/// ```no_run
/// # fn f(pd: &mlx5_direct::Pd, cq: &mlx5_direct::Cq, target: &mlx5_direct::QpAddress, srqn: u32)
/// # -> Result<(), Box<dyn std::error::Error>> {
/// use mlx5_direct::{Connection, QpInit, queue::{Flags, RemoteSrq}};
/// let mut qp = pd.create_xrc_qp(&QpInit::default(), cq)?;
/// qp.connect(target, &Connection::default())?;
/// let mut list = qp.post_list();
/// list.send(1, RemoteSrq::new(srqn), Flags::SIGNALED)?.inline(b"for this queue")?.finish();
/// list.ring();
/// # Ok(()) }
/// ```
pub type XrcQp = Qp<Xrc>;

impl Pd {
    /// Makes an initiator of extended reliable connections, in state RST. It receives nothing, and what `init` says of
    /// receives is passed over.
    pub fn create_xrc_qp(&self, init: &QpInit, cq: &Cq) -> Result<XrcQp> {
        Qp::create(self, &QpInit { max_recv_wr: 0, ..*init }, cq, cq)
    }
}
