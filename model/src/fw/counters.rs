//! Counter sets: what happens to the queue pairs that name one.
#![forbid(unsafe_code)]

use super::{
    Function,
    dct::Dct,
    dispatch::{Input, Output, done, out},
    refusal::Refusal,
};
use crate::exec::Counter;
use mlx5_direct::mlx5::cmd::{AllocQCounterOut, DeallocQCounterIn, QueryQCounterIn, QueryQCounterOut};

/// A counter set.
#[derive(Debug)]
pub(crate) struct CounterSet {
    n_users: u32,
    values: QueryQCounterOut,
}

macro_rules! fields {
    ($( $counter:ident $get:ident, $set:ident; )*) => {
        impl CounterSet {
            /// One more; a counter that is full starts again.
            fn count(&mut self, counter: Counter) {
                let values = &mut self.values;
                match counter { $( Counter::$counter => values.$set(values.$get().wrapping_add(1)), )* }
            }
        }
    };
}

fields! {
    RxWriteRequests rx_write_requests, set_rx_write_requests;
    RxReadRequests rx_read_requests, set_rx_read_requests;
    RxAtomicRequests rx_atomic_requests, set_rx_atomic_requests;
    OutOfBuffer out_of_buffer, set_out_of_buffer;
    OutOfSequence out_of_sequence, set_out_of_sequence;
    DuplicateRequest duplicate_request, set_duplicate_request;
    RnrNakRetryErr rnr_nak_retry_err, set_rnr_nak_retry_err;
    PacketSeqErr packet_seq_err, set_packet_seq_err;
    ImpliedNakSeqErr implied_nak_seq_err, set_implied_nak_seq_err;
    LocalAckTimeoutErr local_ack_timeout_err, set_local_ack_timeout_err;
    RespLocalLengthError resp_local_length_error, set_resp_local_length_error;
    ReqLocalLengthError req_local_length_error, set_req_local_length_error;
    RespLocalQpError resp_local_qp_error, set_resp_local_qp_error;
    LocalOperationError local_operation_error, set_local_operation_error;
    RespLocalProtection resp_local_protection, set_resp_local_protection;
    ReqLocalProtection req_local_protection, set_req_local_protection;
    RespCqeError resp_cqe_error, set_resp_cqe_error;
    ReqCqeError req_cqe_error, set_req_cqe_error;
    ReqMwBinding req_mw_binding, set_req_mw_binding;
    ReqBadResponse req_bad_response, set_req_bad_response;
    ReqRemoteInvalidRequest req_remote_invalid_request, set_req_remote_invalid_request;
    RespRemoteInvalidRequest resp_remote_invalid_request, set_resp_remote_invalid_request;
    ReqRemoteAccessErrors req_remote_access_errors, set_req_remote_access_errors;
    RespRemoteAccessErrors resp_remote_access_errors, set_resp_remote_access_errors;
    ReqRemoteOperationErrors req_remote_operation_errors, set_req_remote_operation_errors;
    ReqTransportRetriesExceeded req_transport_retries_exceeded, set_req_transport_retries_exceeded;
    RespCqeFlushError resp_cqe_flush_error, set_resp_cqe_flush_error;
    ReqCqeFlushError req_cqe_flush_error, set_req_cqe_flush_error;
}

impl Function {
    /// A QP is in the set from now on. Set 0 is none.
    pub(super) fn hold_counters(&mut self, number: u32) -> Result<(), Refusal> {
        if number != 0 {
            self.counters.get_mut(number).ok_or(Refusal::NO_SUCH_COUNTER)?.n_users += 1;
        }
        Ok(())
    }

    /// And no longer.
    pub(super) fn release_counters(&mut self, number: u32) {
        if let Some(set) = self.counters.get_mut(number) {
            set.n_users -= 1;
        }
    }

    /// Counts one more for a QP or DCT.
    pub(super) fn count(&mut self, qpn: u32, counter: Counter) {
        let of_qp = self.qps.get(qpn).map(|qp| qp.context.counter_set_id());
        let number = of_qp.or_else(|| self.dcts.get(qpn).map(Dct::counter_set_id)).unwrap_or(0);
        self.count_in(number, counter);
    }

    /// Counts one more in a set, for a queue of Ethernet.
    pub(super) fn count_in(&mut self, set: u8, counter: Counter) {
        if let Some(set) = self.counters.get_mut(set.into()) {
            set.count(counter);
        }
    }

    pub(super) fn alloc_q_counter(&mut self, _: &Input<'_>) -> Output {
        let number = self.counters.insert(CounterSet { n_users: 0, values: QueryQCounterOut::new() })?;
        out(AllocQCounterOut::new().with_counter_set_id(number as u8))
    }

    pub(super) fn query_q_counter(&mut self, input: &Input<'_>) -> Output {
        let input: QueryQCounterIn = input.get()?;
        let number = input.counter_set_id().into();
        let set = self.counters.get_mut(number).ok_or(Refusal::NO_SUCH_COUNTER)?;
        let values = set.values;
        if input.clear() {
            set.values = QueryQCounterOut::new();
        }
        out(values)
    }

    pub(super) fn dealloc_q_counter(&mut self, input: &Input<'_>) -> Output {
        let number = u32::from(input.get::<DeallocQCounterIn>()?.counter_set_id());
        let n_users = self.counters.get(number).ok_or(Refusal::NO_SUCH_OBJECT)?.n_users;
        if n_users != 0 {
            return Err(self.in_use("counter set", number, n_users));
        }
        self.counters.remove(number);
        done()
    }
}
