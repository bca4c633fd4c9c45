//! Completions in a shorter form: a title, then eight of them in the room of one.

use super::{CqeFormat, CqeOpcode};
use crate::{mlx5::layout::layout, wqe::SendOpcode};

layout! {
    /// Title of a compressed session, format `COMPRESSED`: a CQE as any other, whose `byte_cnt` is the session's length.
    pub struct CompressedTitleCqe, 64, "cqe64_compressed_title" {
        /// Completions of the session.
        0x2c [31:0] byte_cnt: u32,
        /// Counter of the first completion's WQE.
        0x3c [31:16] wqe_counter: u16,
        /// What all of them are.
        0x3c [7:4] opcode: CqeOpcode,
        /// `COMPRESSED`.
        0x3c [3:2] format: CqeFormat,
        /// Whether they are solicited events.
        0x3c [1:1] se: bool,
        /// Changes with every lap of the ring: tells a new CQE from an old one.
        0x3c [0:0] owner: bool,
    }

    /// One completion of a session (`mlx5_mini_cqe8`): what differs from the title. Of a queue whose `mini_cqe_res_format` is
    /// `HASH`.
    pub struct MiniCqe, 8, "mini_cqe8" {
        /// The RSS hash.
        0x00 [31:0] rx_hash_result: u32,
        /// Length of the message in bytes.
        0x04 [31:0] byte_cnt: u32,
    }

    /// The same, of a queue with the formats `CSUM` and `CSUM_STRIDX`.
    pub struct MiniCqeChecksum, 8, "mini_cqe8" {
        /// One's complement sum of the IP packet.
        0x00 [31:16] checksum: u16,
        /// `CSUM_STRIDX`: counter of the WQE, or of the stride in it.
        0x00 [15:0] stride_idx: u16,
        /// Length of the message in bytes.
        0x04 [31:0] byte_cnt: u32,
    }

    /// The same, of requests that are done, whatever the format (Linux and UCX; DPDK has the opcode a byte further).
    pub struct MiniCqeRequester, 8, "mini_cqe8_requester_ucx" {
        /// `ctrl.wqe_index` of the WQE.
        0x00 [31:16] wqe_counter: u16,
        /// Opcode of the WQE.
        0x00 [15:8] s_wqe_opcode: SendOpcode,
        /// Bytes that a READ or an atomic brought.
        0x04 [31:0] byte_cnt: u32,
    }

    /// Slot of a queue with CQEs of 128 bytes.
    pub struct Cqe128, 128, "cqe128" {
        /// Up to 64 bytes of data, or a GRH.
        0x00 [bytes] inl_grh: [u8; 64],
        /// The CQE, as in a queue with CQEs of 64 bytes.
        0x40 [bytes] cqe64: [u8; 64],
    }
}
