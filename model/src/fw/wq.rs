//! What SQs, RQs and shared receive queues have in common: a ring, and three states.
#![forbid(unsafe_code)]

use super::{
    Function,
    buffer::Buffer,
    caps,
    devx::{BufferSource, UmemPart},
    refusal::Refusal,
};
use mlx5_direct::mlx5::context::{Wq, WqType};

/// State of a work queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WqState {
    Reset,
    Ready,
    Error,
}

impl WqState {
    pub(crate) fn from_wire(state: u8) -> Option<Self> {
        match state {
            0 => Some(Self::Reset),
            1 => Some(Self::Ready),
            3 => Some(Self::Error),
            _ => None,
        }
    }

    pub(crate) fn to_wire(self) -> u8 {
        match self {
            Self::Reset => 0,
            Self::Ready => 1,
            Self::Error => 3,
        }
    }

    /// Whether the queue may go there.
    pub(crate) fn to(self, to: Self) -> Result<(), Refusal> {
        let legal = self == to
            || matches!((self, to), (Self::Reset, Self::Ready) | (_, Self::Error) | (_, Self::Reset));
        if legal { Ok(()) } else { Err(Refusal::WQ_STATE) }
    }
}

impl Function {
    /// Ring and doorbell record of a work queue, from its description and the page list behind the input.
    pub(super) fn wq_memory(&self, wq: &Wq, list: &[u8]) -> Result<(Buffer, u64), Refusal> {
        if matches!(wq.wq_type(), WqType::TYPE_LINKED_LIST_STRIDING_RQ | WqType::TYPE_CYCLIC_STRIDING_RQ) {
            return Err(Refusal::WQ_TYPE);
        }
        if wq.log_wq_sz() > caps::LOG_MAX_WQ_SZ || wq.log_wq_stride() > caps::LOG_MAX_STRIDE {
            return Err(Refusal::QUEUE_SIZE);
        }
        let umem = UmemPart { id: wq.wq_umem_id(), offset_bytes: wq.wq_umem_offset() };
        let source = BufferSource {
            log_page_size: wq.log_wq_pg_sz(),
            page_offset: wq.page_offset(),
            list,
            umem: wq.wq_umem_valid().then_some(umem),
        };
        let buffer = self.buffer(source, 1u64 << (wq.log_wq_sz() + wq.log_wq_stride()), false)?;
        let record = self.record_address(wq.dbr_umem_valid().then_some(wq.dbr_umem_id()), wq.dbr_addr())?;
        Ok((buffer, record))
    }
}
