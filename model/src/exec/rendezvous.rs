//! Requests that the device makes by itself, on a queue pair that an XRQ has lent it: the RDMA READ of a rendezvous, and the
//! message to the sender that its data were read.

use super::{
    config::QpConfig,
    host::Host,
    psn::n_packets,
    request::Request,
    requester::Requester,
    tag_matching::{self, Rendezvous},
    wqe::{Piece, SendWqe},
};
use mlx5_direct::{
    mlx5::ids::Pdn,
    wqe::{SendOpcode, TmhOp},
};

/// One such request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Offload {
    /// Reads the data.
    Read(Rendezvous),
    /// Tells the sender, with its own headers.
    Finish(Rendezvous),
}

impl Offload {
    /// In whose name memory is touched: the list's.
    pub(super) const fn pd(&self) -> Pdn {
        let (Self::Read(rendezvous) | Self::Finish(rendezvous)) = self;
        rendezvous.queue.pd
    }

    /// The request as software would have posted it, without a completion.
    fn request(self, config: &QpConfig) -> Request {
        let mut wqe = SendWqe { offload: Some(self), ..SendWqe::default() };
        match self {
            Self::Read(Rendezvous { tag, data, .. }) => {
                wqe.opcode = SendOpcode::RDMA_READ.0;
                (wqe.raddr, wqe.rkey, wqe.len_bytes) = (data.va(), data.rkey(), data.len_bytes().into());
                let memory = tag.memory;
                wqe.pieces.push(Piece::Memory {
                    lkey: memory.lkey,
                    addr: memory.addr,
                    len: data.len_bytes().into(),
                });
            }
            Self::Finish(Rendezvous { header, data, .. }) => {
                wqe.opcode = SendOpcode::SEND.0;
                wqe.inline.extend(header.with_opcode(TmhOp::FIN).to_bytes());
                wqe.inline.extend(data.to_bytes());
                wqe.len_bytes = wqe.inline.len() as u64;
                wqe.pieces.push(Piece::Inline { start: 0, len: wqe.len_bytes });
            }
        }
        let n_psns = n_packets(wqe.len_bytes, config.mtu_bytes);
        Request { wqe, n_psns, ..Request::default() }
    }

    /// It will not be executed, or was in vain. Of a sender that is not told nothing is known here.
    pub(super) fn fail(self, host: &mut dyn Host, config: &QpConfig) {
        if let Self::Read(Rendezvous { queue, tag, .. }) = self {
            tag_matching::canceled(host, config, queue, tag.index);
        }
    }
}

impl Requester {
    /// Takes over rendezvous whose data are to be read.
    pub(super) fn offload(&mut self, rendezvous: impl IntoIterator<Item = Rendezvous>) {
        self.offloaded.extend(rendezvous.into_iter().map(Offload::Read));
    }

    /// The next request of the device's own.
    pub(super) fn next_offloaded(&mut self, config: &QpConfig) -> Option<Request> {
        self.offloaded.pop_front().map(|offload| offload.request(config))
    }

    /// One of these was executed.
    pub(super) fn offload_done(&mut self, host: &mut dyn Host, config: &QpConfig, offload: Offload) {
        if let Offload::Read(rendezvous) = offload {
            self.offloaded.push_back(Offload::Finish(rendezvous));
            tag_matching::expected(host, config, &rendezvous);
        }
    }

    /// None that waits will be executed.
    pub(super) fn fail_offloaded(&mut self, host: &mut dyn Host, config: &QpConfig) {
        for offload in self.offloaded.drain(..) {
            offload.fail(host, config);
        }
    }
}
