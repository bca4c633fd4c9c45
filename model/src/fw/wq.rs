//! What SQs, RQs and shared receive queues have in common: a ring, and three states.
#![forbid(unsafe_code)]

use super::{buffer::Buffer, caps, refusal::Refusal};
use crate::mem::DmaMap;
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

/// The ring of a work queue, from its description and the page list behind the input.
pub(crate) fn wq_buffer(dma: &DmaMap, wq: &Wq, list: &[u8]) -> Result<Buffer, Refusal> {
    if wq.wq_umem_valid() || wq.dbr_umem_valid() {
        return Err(Refusal::UMEM);
    }
    if matches!(wq.wq_type(), WqType::TYPE_LINKED_LIST_STRIDING_RQ | WqType::TYPE_CYCLIC_STRIDING_RQ) {
        return Err(Refusal::WQ_TYPE);
    }
    if wq.log_wq_sz() > caps::LOG_MAX_WQ_SZ || wq.log_wq_stride() > caps::LOG_MAX_STRIDE {
        return Err(Refusal::QUEUE_SIZE);
    }
    let len_bytes = 1u64 << (wq.log_wq_sz() + wq.log_wq_stride());
    Buffer::new(dma, wq.log_wq_pg_sz(), wq.page_offset(), len_bytes, list, false)
}
