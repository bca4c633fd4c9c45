//! What Q counters count.

/// A counter of a counter set (`query_q_counter_out`), by its PRM name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Counter {
    /// WRITE requests received.
    RxWriteRequests,
    /// READ requests received.
    RxReadRequests,
    /// Atomic requests received.
    RxAtomicRequests,
    /// Messages that found no receive WQE.
    OutOfBuffer,
    /// Packets after a gap in the sequence.
    OutOfSequence,
    /// Requests that were executed before.
    DuplicateRequest,
    /// RNR NAKs received, the retries not being used up.
    RnrNakRetryErr,
    /// NAKs for a sequence error received, the retries not being used up.
    PacketSeqErr,
    /// Acknowledgements that showed a READ or atomic response to be lost.
    ImpliedNakSeqErr,
    /// Times that the acknowledgement timer ended, the retries not being used up.
    LocalAckTimeoutErr,
    /// Receives too short for their message.
    RespLocalLengthError,
    /// Sends too long.
    ReqLocalLengthError,
    /// Receives that cannot be used.
    RespLocalQpError,
    /// Sends that cannot be used.
    LocalOperationError,
    /// Receives without the right to their memory.
    RespLocalProtection,
    /// Sends without the right to their memory.
    ReqLocalProtection,
    /// CQEs of receives in error, flushed ones too.
    RespCqeError,
    /// CQEs of sends in error, flushed ones too.
    ReqCqeError,
    /// Memory windows that could not be bound.
    ReqMwBinding,
    /// Responses that break the transport's rules.
    ReqBadResponse,
    /// Own requests that the peer called invalid.
    ReqRemoteInvalidRequest,
    /// Requests of the peer that are invalid.
    RespRemoteInvalidRequest,
    /// Own requests without the right to the peer's memory.
    ReqRemoteAccessErrors,
    /// Requests of the peer without the right to memory.
    RespRemoteAccessErrors,
    /// Own requests that failed at the peer.
    ReqRemoteOperationErrors,
    /// Requests given up after all retries.
    ReqTransportRetriesExceeded,
    /// CQEs of receives that were flushed.
    RespCqeFlushError,
    /// CQEs of sends that were flushed.
    ReqCqeFlushError,
}
