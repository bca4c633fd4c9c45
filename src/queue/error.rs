//! Why a post or a retirement was refused.

use core::fmt;

/// A request that was not posted: nothing of it is visible to the device.
///
/// One byte, so that a post returns it in a register; the numbers behind it are the queue's
/// ([`SendQueue::limits`](super::SendQueue::limits) and its like).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum PostError {
    /// No room: the queue's WQEBBs (or receive WQEs) are all posted and not retired.
    QueueFull,
    /// More pieces of memory than one request may name.
    TooManySge,
    /// More inline data than one request may carry.
    InlineTooLong,
    /// A message, or a piece of memory, longer than the port's limit.
    MessageTooLong,
    /// The queue pair's state does not allow posting to this queue, or the queue was made without room.
    WrongState,
    /// The memory was leased to another queue pair.
    NotLeased,
    /// The range does not lie in the leased memory.
    OutOfRange,
    /// Inline data and pieces of memory in one request.
    MixedInline,
    /// A raw packet's request carries too little or too much of its frame's head.
    HeaderLength,
}

impl fmt::Display for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::QueueFull => {
                "queue full: every WQEBB (of a receive queue, WQE) is posted and not yet retired; poll the \
                 completion queue and retire, make more requests SIGNALED, or create the queue larger"
            }
            Self::TooManySge => {
                "too many SGEs: the request names more pieces of memory than limits().max_sge (and at most \
                 30 for an RDMA READ); split it, or create the queue with a larger max_sge"
            }
            Self::InlineTooLong => {
                "inline data too long: at most limits().max_inline_bytes go in one WQE; post from registered \
                 memory, or create the queue with a larger max_inline"
            }
            Self::MessageTooLong => {
                "message too long: its pieces add up to more than limits().max_message_bytes; split it"
            }
            Self::WrongState => {
                "wrong state: sends may be posted in RTS, SQD, SQE and ERR, receives in INIT and all states \
                 after it, and none to a queue that was created for 0 requests; move the queue pair there first"
            }
            Self::NotLeased => {
                "not leased to this queue pair: memory named safely must be leased by the queue pair that \
                 posts; take the lease from this one"
            }
            Self::OutOfRange => {
                "out of range: the range must lie within the leased memory, start before end; compare it \
                 with the lease's len_bytes()"
            }
            Self::HeaderLength => {
                "header of a wrong length: a raw packet's request carries 14 to 258 bytes of its frame's head, \
                 a SEND limits().min_header_bytes at least, or nothing if that is 0; move bytes between header \
                 and data"
            }
            Self::MixedInline => {
                "inline data after SGEs: a request carries inline data or names memory, not both; post two \
                 requests"
            }
        })
    }
}

impl core::error::Error for PostError {}

/// A completion that does not belong to the queue it was given to. Nothing is retired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RetireError {
    /// It is another queue pair's.
    OtherQueue {
        /// Number in the completion.
        completion_qpn: u32,
        /// Number of this queue.
        qpn: u32,
    },
    /// It is of a queue pair that had the same number before, and is destroyed: nobody waits for it.
    FormerQueue {
        /// User index in the completion.
        user_index: u32,
        /// Number of both.
        qpn: u32,
    },
    /// It is of a send, given to a receive queue, or the reverse; or it is neither.
    OtherDirection {
        /// Opcode of the CQE.
        opcode: crate::cqe::CqeOpcode,
    },
    /// No outstanding request has this counter: the device completed something twice, or something that
    /// was never posted.
    NotOutstanding {
        /// Counter in the completion.
        wqe_counter: u16,
        /// Counter of the oldest outstanding unit.
        ci: u16,
        /// Counter after the newest.
        pi: u16,
    },
}

impl fmt::Display for RetireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherQueue { completion_qpn, qpn } => write!(
                f,
                "completion of queue pair 0x{completion_qpn:x} given to queue pair 0x{qpn:x}; retire it \
                 where its qpn() says"
            ),
            Self::FormerQueue { user_index, qpn } => write!(
                f,
                "completion of a destroyed queue pair (user index 0x{user_index:x}) that had number 0x{qpn:x} \
                 before this one; pass it over"
            ),
            Self::OtherDirection { opcode } => write!(
                f,
                "a CQE of opcode {opcode} does not retire a request of this queue; look at is_send() first"
            ),
            Self::NotOutstanding { wqe_counter, ci, pi } => write!(
                f,
                "completion for WQE 0x{wqe_counter:04x}, but only [0x{ci:04x}, 0x{pi:04x}) is outstanding: \
                 the queue was reset since, or the device misbehaves; reset the queue pair"
            ),
        }
    }
}

impl core::error::Error for RetireError {}
