//! Failed requests in words: what the completion says, and what was asked.
#![forbid(unsafe_code)]

use super::Qp;
use crate::{
    mlx5::context::ServiceType,
    queue::{CompletionError, MAX_RECV_WQE_BYTES, Transport},
    wqe::{self, DataSeg, MAX_WQEBBS, Peer, SEGMENT_BYTES, WQEBB_BYTES},
};
use std::fmt;

/// Why a request failed, and its WQE where the queue still has it. Printed, it ends without a newline.
#[derive(Debug, Clone)]
pub struct Explanation {
    /// What the completion says.
    pub error: CompletionError,
    /// The transport, by which a send WQE is read.
    pub service: ServiceType,
    /// Bytes of the WQE; `None` if a later request has its place, or if no request failed.
    pub wqe: Option<Vec<u8>>,
}

impl<T: Transport> Qp<T> {
    /// What `error` is about, with the request that failed taken apart: its WQE, if no later request has taken its place in the
    /// ring. It need not be retired.
    ///
    /// For people: it copies, and is no part of the way that requests go.
    pub fn explain(&self, error: &CompletionError) -> Explanation {
        let ours = error.is_failure() && error.qpn == self.qpn();
        let wqe = if !ours {
            None
        } else if error.send_opcode.is_some() {
            let mut buffer = [0; MAX_WQEBBS * WQEBB_BYTES];
            self.send.copy_wqe(error.wqe_counter, &mut buffer).map(<[u8]>::to_vec)
        } else {
            let mut buffer = [0; MAX_RECV_WQE_BYTES];
            self.recv.copy_wqe(error.wqe_counter, &mut buffer).map(<[u8]>::to_vec)
        };
        Explanation { error: *error, service: T::SERVICE, wqe }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.error)?;
        let Some(bytes) = &self.wqe else {
            return match self.error.is_failure() {
                true => write!(f, "\nits WQE is no more in the queue"),
                false => Ok(()),
            };
        };
        if self.error.send_opcode.is_none() {
            return scatter_list(bytes, f);
        }
        let decoded = match self.service {
            ServiceType::UD => wqe::decode_as(bytes, Peer::Av),
            ServiceType::XRC => wqe::decode_as(bytes, Peer::Xrc),
            ServiceType::RAW_ETHERTYPE => wqe::decode_as(bytes, Peer::Eth),
            _ => wqe::decode(bytes),
        };
        match decoded {
            Ok(wqe) => write!(f, "\n{}", wqe.to_string().trim_end()),
            Err(error) => write!(f, "\nits WQE is broken: {error}"),
        }
    }
}

/// A receive WQE: its pieces of memory, up to the one that ends the list.
fn scatter_list(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "\nreceive WQE:")?;
    let segments = bytes.as_chunks::<SEGMENT_BYTES>().0.iter().map(|bytes| DataSeg::from_bytes(*bytes));
    let mut pieces = segments.take_while(|piece| !piece.is_terminator()).peekable();
    if pieces.peek().is_none() {
        return write!(f, " no memory");
    }
    pieces.try_for_each(|piece| {
        write!(f, "\n  {} bytes at 0x{:x}, lkey {}", piece.byte_count(), piece.addr(), piece.lkey())
    })
}
