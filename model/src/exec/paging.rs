//! Paging on demand: queues that wait for pages.
//!
//! An access that meets a page which is not there ([`KeyFault::Absent`](super::KeyFault::Absent)) is told to the driver, and
//! its queue waits until the driver resumes it: a requester sends nothing more; a responder answers that it is not ready, and
//! holds the READ response that it cannot go on with. Then the access is tried again. Each side of a queue pair has one
//! fault at a time that the driver knows of.

use super::{
    completion::Failure,
    config::QpConfig,
    host::{Host, Ring},
    requester::Requester,
    wqe::SendWqe,
};
use mlx5_direct::mlx5::{eqe::PageFaultType, ids::Qpn};

/// What is told of a page fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageFault {
    /// The queue pair or DC target that waits.
    pub qpn: Qpn,
    /// Bytes of the message that were moved before.
    pub bytes_committed: u64,
    /// Bytes of the packet that met the page.
    pub packet_bytes: usize,
    /// The memory that the message is in.
    pub memory: FaultedMemory,
}

/// Who named the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultedMemory {
    /// A WQE did.
    Wqe {
        /// Of which queue.
        kind: PageFaultType,
        /// The queue's number: of a shared receive queue, or `qpn`.
        queue: u32,
        /// Its index there.
        index: u16,
    },
    /// A peer did.
    Remote {
        /// Key.
        rkey: u32,
        /// Where the message's memory begins.
        addr: u64,
        /// And how long it is.
        len_bytes: u32,
        /// It is written, or read.
        is_written: bool,
    },
}

impl PageFault {
    /// Of a send WQE, after `bytes_committed` of its message.
    pub(super) fn of_send(config: &QpConfig, wqe: &SendWqe, bytes_committed: u64) -> Self {
        let kind = match wqe.is_read_or_atomic() {
            true => PageFaultType::REQ_READ_OR_ATOMIC,
            false => PageFaultType::REQ_SEND_OR_WRITE,
        };
        Self {
            qpn: config.qpn,
            bytes_committed,
            packet_bytes: wqe.len_bytes.saturating_sub(bytes_committed).min(config.mtu_bytes.into()) as usize,
            memory: FaultedMemory::Wqe { kind, queue: config.qpn.get(), index: wqe.index },
        }
    }

    /// The side that waits: the send queue, or what answers a peer.
    pub const fn side(&self) -> Ring {
        match self.memory {
            FaultedMemory::Wqe { kind, .. } if kind.is_requester() => Ring::Send,
            _ => Ring::Receive,
        }
    }
}

/// A requester waits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waiting {
    /// The WQE whose pages are missing.
    index: u16,
    /// The driver was told so. If not, it still has to answer for another fault, of before a reset.
    told: bool,
    /// A response was dropped: what it answered is asked for again.
    pub(super) dropped: bool,
}

impl Waiting {
    /// Tells the driver of a fault of `wqe`.
    pub(super) fn begin(host: &mut dyn Host, config: &QpConfig, wqe: &SendWqe, bytes_committed: u64) -> Self {
        let told = host.page_fault(&PageFault::of_send(config, wqe, bytes_committed));
        Self { index: wqe.index, told, dropped: false }
    }

    /// The WQE that fails if the driver answers with `error`.
    pub(super) fn failed(self, error: bool) -> Option<u16> {
        (error && self.told).then_some(self.index)
    }
}

impl Requester {
    /// `pending[at]` cannot go on without pages; if `dropped`, with the response that came.
    pub(super) fn wait_for_pages(
        &mut self,
        host: &mut dyn Host,
        config: &QpConfig,
        at: usize,
        dropped: bool,
    ) {
        let Some(request) = self.pending.get(at) else { return };
        let n_packets = if request.wqe.is_read_or_atomic() { request.acked } else { request.sent };
        let done = u64::from(n_packets) * u64::from(config.mtu_bytes);
        let waiting = self.waiting.get_or_insert_with(|| Waiting::begin(host, config, &request.wqe, done));
        if dropped {
            waiting.dropped = true;
            self.ack_deadline = None;
        }
    }

    /// The driver has brought the pages, or could not.
    pub(super) fn resume(&mut self, error: bool) {
        let Some(waiting) = self.waiting.take() else { return };
        if waiting.dropped {
            self.step_back();
        }
        let failed = waiting.failed(error);
        if let Some(request) = self.pending.iter_mut().find(|request| Some(request.wqe.index) == failed) {
            request.failed = Some(Failure::SEND_PROTECTION);
        }
    }
}

/// What of a responder waits for pages.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Paging {
    #[default]
    Nothing,
    /// The request that is expected next. It is refused until then.
    Request,
    /// The driver could not bring its pages.
    RequestFailed,
    /// The READ response that is due.
    Response,
    /// The driver could not bring its pages.
    ResponseFailed,
}

impl Paging {
    /// The driver has brought the pages, or could not.
    pub(super) const fn resumed(self, error: bool) -> Self {
        match self {
            Self::Request if error => Self::RequestFailed,
            Self::Response if error => Self::ResponseFailed,
            _ => Self::Nothing,
        }
    }
}
