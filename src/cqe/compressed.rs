//! Completions in a shorter form: a title, then eight of them in the room of one.

use super::{CqeFormat, CqeOpcode};
use crate::mlx5::layout::layout;

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

    /// One completion of a session (`mlx5_mini_cqe8`): what differs from the title.
    pub struct MiniCqe, 8, "mini_cqe8" {
        /// By the session's format: the RSS hash, or the checksum and the stride's index.
        0x00 [31:0] rx_hash_result: u32,
        /// Length of the message in bytes.
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
