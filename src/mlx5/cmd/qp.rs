//! Queue pairs: making, reading, ending.

use super::{CmdOpcode, CmdStatus, command};
use crate::mlx5::context::qpc::Qpc;
use crate::mlx5::{ids::Qpn, layout::layout};

layout! {
    /// Makes a queue pair in state RST; page addresses follow.
    pub struct CreateQpIn, 272, "create_qp_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        /// Number wished for, or 0.
        /// An extended context follows this structure, before the page addresses (newer devices).
        0x08 [31:31] qpc_ext: bool,
        0x08 [23:0] input_qpn: Qpn,
        0x10 [31:0] opt_param_mask: u32,
        /// Enhanced connection establishment options.
        0x14 [31:0] ece: u32,
        0x18 [struct] qpc: Qpc,
        0x100 [63:0] wq_umem_offset: u64,
        0x108 [31:0] wq_umem_id: u32,
        /// The buffer is a umem (DevX) and no pages follow.
        0x10c [31:31] wq_umem_valid: bool,
    }

    /// Output of CREATE_QP.
    pub struct CreateQpOut, 16, "create_qp_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x08 [23:0] qpn: Qpn,
        0x0c [31:0] ece: u32,
    }

    /// Reads a queue pair back.
    pub struct QueryQpIn, 16, "query_qp_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] qpn: Qpn,
    }

    /// Output of QUERY_QP.
    pub struct QueryQpOut, 272, "query_qp_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x10 [31:0] opt_param_mask: u32,
        0x14 [31:0] ece: u32,
        0x18 [struct] qpc: Qpc,
    }

    /// Ends a queue pair.
    pub struct DestroyQpIn, 16, "destroy_qp_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] qpn: Qpn,
    }

    /// Output of DESTROY_QP.
    pub struct DestroyQpOut, 16, "destroy_qp_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Makes a counter set for QPs.
    pub struct AllocQCounterIn, 16, "alloc_q_counter_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
    }

    /// Output of ALLOC_Q_COUNTER.
    pub struct AllocQCounterOut, 16, "alloc_q_counter_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x08 [7:0] counter_set_id: u8,
    }

    /// Ends a counter set.
    pub struct DeallocQCounterIn, 16, "dealloc_q_counter_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x04 [15:0] op_mod: u16,
        0x08 [7:0] counter_set_id: u8,
    }

    /// Output of DEALLOC_Q_COUNTER.
    pub struct DeallocQCounterOut, 16, "dealloc_q_counter_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Reads a counter set.
    pub struct QueryQCounterIn, 32, "query_q_counter_in" {
        0x00 [31:16] opcode: CmdOpcode,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        /// Zero it after reading.
        0x18 [31:31] clear: bool,
        0x1c [7:0] counter_set_id: u8,
    }

    /// Output of QUERY_Q_COUNTER.
    pub struct QueryQCounterOut, 256, "query_q_counter_out" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x10 [31:0] rx_write_requests: u32,
        0x18 [31:0] rx_read_requests: u32,
        0x20 [31:0] rx_atomic_requests: u32,
        0x28 [31:0] rx_dct_connect: u32,
        0x30 [31:0] out_of_buffer: u32,
        0x38 [31:0] out_of_sequence: u32,
        0x40 [31:0] duplicate_request: u32,
        0x48 [31:0] rnr_nak_retry_err: u32,
        0x50 [31:0] packet_seq_err: u32,
        0x58 [31:0] implied_nak_seq_err: u32,
        0x60 [31:0] local_ack_timeout_err: u32,
        0x78 [31:0] resp_local_length_error: u32,
        0x7c [31:0] req_local_length_error: u32,
        0x80 [31:0] resp_local_qp_error: u32,
        0x84 [31:0] local_operation_error: u32,
        0x88 [31:0] resp_local_protection: u32,
        0x8c [31:0] req_local_protection: u32,
        0x90 [31:0] resp_cqe_error: u32,
        0x94 [31:0] req_cqe_error: u32,
        0x98 [31:0] req_mw_binding: u32,
        0x9c [31:0] req_bad_response: u32,
        0xa0 [31:0] req_remote_invalid_request: u32,
        0xa4 [31:0] resp_remote_invalid_request: u32,
        0xa8 [31:0] req_remote_access_errors: u32,
        0xac [31:0] resp_remote_access_errors: u32,
        0xb0 [31:0] req_remote_operation_errors: u32,
        0xb4 [31:0] req_transport_retries_exceeded: u32,
        0xb8 [31:0] cq_overflow: u32,
        0xbc [31:0] resp_cqe_flush_error: u32,
        0xc0 [31:0] req_cqe_flush_error: u32,
        0xc8 [31:0] roce_adp_retrans: u32,
        0xcc [31:0] roce_adp_retrans_to: u32,
        0xd0 [31:0] roce_slow_restart: u32,
        0xd4 [31:0] roce_slow_restart_cnps: u32,
        0xd8 [31:0] roce_slow_restart_trans: u32,
    }
}

command! { CREATE_QP, CreateQpIn => CreateQpOut }
command! { QUERY_QP, QueryQpIn => QueryQpOut }
command! { DESTROY_QP, DestroyQpIn => DestroyQpOut }
command! { ALLOC_Q_COUNTER, AllocQCounterIn => AllocQCounterOut }
command! { DEALLOC_Q_COUNTER, DeallocQCounterIn => DeallocQCounterOut }
command! { QUERY_Q_COUNTER, QueryQCounterIn => QueryQCounterOut }
