//! A queue pair of the transport that the command line asks for.

use crate::{endpoint::PORT, failure::Failure, plan::Transport};
use mlx5_direct::{
    Connection, Context, Cq, Explanation, Mr, Pd, Qp, QpAddress, QpInit, UcQp, UdQp,
    mlx5::ids::Qpn,
    queue::{AddressHandle, Completion, CompletionError, Lease, RecvList, RetireError, Retired},
};

/// A queue pair and, of datagrams, its peer.
#[derive(Debug)]
pub(crate) enum AnyQp {
    Rc(Qp),
    Uc(UcQp),
    Ud(UdQp, Option<AddressHandle>),
}

/// The Q_Key of both ends, which is that of `ibv_ud_pingpong` too.
const QKEY: u32 = 0x1111_1111;

/// The same for each kind.
macro_rules! each {
    ($any:expr, $qp:ident => $what:expr) => {
        match $any {
            AnyQp::Rc($qp) => $what,
            AnyQp::Uc($qp) => $what,
            AnyQp::Ud($qp, _) => $what,
        }
    };
}

impl AnyQp {
    pub(crate) fn create(pd: &Pd, transport: Transport, init: &QpInit, cq: &Cq) -> Result<Self, Failure> {
        Ok(match transport {
            Transport::Rc => Self::Rc(pd.create_qp(init, cq, cq)?),
            Transport::Uc => Self::Uc(pd.create_uc_qp(init, cq, cq)?),
            Transport::Ud => Self::Ud(pd.create_ud_qp(init, cq, cq)?, None),
        })
    }

    pub(crate) fn qpn(&self) -> Qpn {
        each!(self, qp => qp.qpn())
    }

    pub(crate) fn lease(&mut self, mr: &Mr) -> Result<Lease, Failure> {
        Ok(each!(self, qp => qp.lease(mr))?)
    }

    pub(crate) fn address(&self, how: &Connection) -> Result<QpAddress, Failure> {
        Ok(each!(self, qp => qp.address(how.port, how.gid_index))?)
    }

    /// Makes it ready to talk to `peer`.
    pub(crate) fn connect(&mut self, peer: &QpAddress, how: &Connection) -> Result<(), Failure> {
        match self {
            Self::Rc(qp) => qp.connect(peer, how)?,
            Self::Uc(qp) => qp.connect(peer, how)?,
            Self::Ud(qp, to) => {
                qp.activate(how.port, QKEY)?;
                let mut way = qp.address_to(peer)?;
                way.sgid_index = how.gid_index.unwrap_or(way.sgid_index);
                *to = Some(qp.address_handle(&way, peer.qpn, QKEY)?);
            }
        }
        Ok(())
    }

    pub(crate) fn recv_list(&mut self) -> RecvList<'_> {
        each!(self, qp => qp.recv_list())
    }

    pub(crate) fn retire(&mut self, wc: &Completion<'_>) -> Result<Retired, RetireError> {
        each!(self, qp => qp.retire(wc))
    }

    /// Why a request failed, and what was asked.
    pub(crate) fn explain(&self, error: &CompletionError) -> Explanation {
        each!(self, qp => qp.explain(error))
    }

    /// Payload of a packet.
    pub(crate) fn mtu_bytes(&self, ctx: &Context) -> Result<u32, Failure> {
        let mtu = match self {
            Self::Rc(qp) => qp.query()?.path_mtu,
            Self::Uc(qp) => qp.query()?.path_mtu,
            Self::Ud(..) => ctx.port(PORT)?.active_mtu,
        };
        Ok(mtu.bytes().unwrap_or(0))
    }
}
