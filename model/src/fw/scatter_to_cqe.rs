//! Small payloads in CQEs: `qpc.cs_req`, `qpc.cs_res` and `dctc.cs_res`.
#![forbid(unsafe_code)]

use super::{Function, refusal::Refusal};
use mlx5_direct::mlx5::{
    context::{CqeSize, Dctc, Qpc, ScatterToCqe, ServiceType},
    ids::Cqn,
};

/// What comes back to a requester: bytes of the CQE that have room for it.
pub(super) fn of_requester(code: ScatterToCqe) -> Option<usize> {
    match code {
        ScatterToCqe::REQ_DISABLE => Some(0),
        ScatterToCqe::REQ_UP_TO_32B => Some(32),
        ScatterToCqe::REQ_UP_TO_64B => Some(64),
        _ => None,
    }
}

/// The same of a message received.
pub(super) fn of_responder(code: ScatterToCqe) -> Option<usize> {
    match code {
        ScatterToCqe::REQ_DISABLE => Some(0),
        ScatterToCqe::RES_UP_TO_32B => Some(32),
        ScatterToCqe::RES_UP_TO_64B => Some(64),
        _ => None,
    }
}

impl Function {
    /// Data of more than 32 bytes stand before the CQE, which takes slots of 128.
    fn has_room(&self, cqn: Cqn, n_bytes: usize) -> bool {
        let size = self.cqs.get(cqn.get()).map(|cq| cq.context.cqe_sz());
        n_bytes <= 32 || size != Some(CqeSize::STRIDE_64)
    }

    /// Datagrams have no data in CQEs: where the sender's address is, they would stand.
    pub(super) fn check_scatter_of_qp(&self, context: &Qpc) -> Result<(), Refusal> {
        let requester = of_requester(context.cs_req()).ok_or(Refusal::SCATTER_TO_CQE)?;
        let responder = of_responder(context.cs_res()).ok_or(Refusal::SCATTER_TO_CQE)?;
        let has_room =
            self.has_room(context.cqn_snd(), requester) && self.has_room(context.cqn_rcv(), responder);
        let is_datagram = matches!(context.st(), ServiceType::UD | ServiceType::QP0 | ServiceType::QP1);
        if !has_room || is_datagram && (requester, responder) != (0, 0) {
            return Err(Refusal::SCATTER_TO_CQE);
        }
        Ok(())
    }

    /// A DC target has 64 bytes or none: it needs to know whose message it is.
    pub(super) fn check_scatter_of_dct(&self, context: &Dctc) -> Result<(), Refusal> {
        match of_responder(context.cs_res()) {
            Some(n_bytes) if n_bytes != 32 && self.has_room(context.cqn(), n_bytes) => Ok(()),
            _ => Err(Refusal::SCATTER_TO_CQE),
        }
    }
}
