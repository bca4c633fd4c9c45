//! How far a queue pair has come.

use super::requester::Requester;
use mlx5_direct::mlx5::ids::Psn;

/// What QUERY_QP reports of a running QP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QpProgress {
    /// `next_send_psn`.
    pub next_send_psn: Psn,
    /// `last_acked_psn`: all before it were acknowledged.
    pub last_acked_psn: Psn,
    /// `next_rcv_psn`.
    pub next_rcv_psn: Psn,
    /// `rmsn`: messages received.
    pub rmsn: u32,
    /// `hw_sq_wqebb_counter`: first WQEBB not started.
    pub hw_sq_wqebb_counter: u16,
    /// `sw_sq_wqebb_counter`: counter of the last doorbell.
    pub sw_sq_wqebb_counter: u16,
    /// `hw_rq_counter`: receive WQEs taken.
    pub hw_rq_counter: u16,
    /// `cur_retry_count`.
    pub cur_retry_count: u8,
    /// `cur_rnr_retry`.
    pub cur_rnr_retry: u8,
}

impl QpProgress {
    /// Of the send queue of a transport that acknowledges nothing: what is sent is done.
    pub(super) fn unacknowledged(requester: &Requester) -> Self {
        Self {
            next_send_psn: requester.next_psn,
            last_acked_psn: requester.next_psn,
            next_rcv_psn: Psn::new(0),
            rmsn: 0,
            hw_sq_wqebb_counter: requester.fetch,
            sw_sq_wqebb_counter: requester.producer,
            hw_rq_counter: 0,
            cur_retry_count: 0,
            cur_rnr_retry: 0,
        }
    }
}
