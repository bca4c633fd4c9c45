//! The data path: send, receive and completion queues over plain shared memory.
//!
//! An owner (the verbs-level objects of this crate, or an embedder of `no_std` code) makes the memory, has
//! the device told of it, and gives it here as raw parts. From then on a queue is ordinary Rust:
//!
//! - one producer, by `&mut`; queues are `Send` and not `Sync`;
//! - nothing is visible to the device before [`PostList::ring`] or [`RecvList::publish`]: dropping or
//!   forgetting a list posts nothing;
//! - the fields of a completion are reachable only through the [`Completion`] that the ownership test gives;
//! - what was posted is remembered in host-private memory (the ledger); nothing is read back from a ring to
//!   be trusted;
//! - no allocation, lock, panic or formatting on post and poll.
//!
//! Counters (`pi`, `ci`) run free over 32 bits; the device sees 16 of them (24 for a completion queue). A
//! slot is a counter masked to the ring.

mod completion;
mod datagram;
#[cfg(feature = "std")]
mod draft;
mod error;
mod indirect;
mod lease;
mod poll;
mod post_list;
mod raw_packet;
mod recv;
mod request;
mod segment;
mod send;
mod transport;
mod umr;
mod window;
mod xrc;

pub use completion::{Completion, CompletionError, CqeCopy};
pub use datagram::{AddressHandle, Grh, Source};
#[cfg(feature = "std")]
pub use draft::{Anything, Drafted, RecvDraft, SendDraft};
pub use error::{PostError, RetireError};
pub use indirect::{IndirectKey, KeyAccess, Strided};
pub use lease::{Lease, LeaseSlice, QueueId};
pub use poll::{CompletionQueue, CompletionQueueParts, CqeSize, Poll, Taken};
pub use post_list::PostList;
pub use raw_packet::Checksums;
pub use recv::{MAX_RECV_WQE_BYTES, RecvList, RecvQueue, RecvQueueParts, RecvRequest};
pub use request::{Atomic, Complete, Gather, Inline, Ready, Request, Scatter, Segmented, SgeList};
pub use segment::{Remote, Sge};
pub use send::{Flags, SendLedgerEntry, SendLimits, SendQueue, SendQueueParts};
pub use transport::{Connected, Paired, RawPacket, Rc, Transport, Uc, Ud, Xrc};
pub use window::{Bindable, View, Window, WindowAccess};
pub use xrc::RemoteSrq;

/// What [`SendQueue::retire`] and [`RecvQueue::retire`] give back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retired {
    /// The number under which the completed request was posted.
    pub wr_id: u64,
    /// Units that are free again, those of silent requests before it included: WQEBBs of a send queue,
    /// WQEs of a receive queue.
    pub n_freed: u32,
}
