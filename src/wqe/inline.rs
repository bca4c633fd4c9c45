//! The inline segment: data that travels in the WQE itself.

use crate::mlx5::layout::layout;

layout! {
    /// Header of inline data (rdma-core `mlx5_wqe_inl_data_seg`). The data follow at +4; header and data
    /// together are padded to 16 bytes. At the ring's end they go on at its start, in mid-segment.
    pub struct InlineSeg, 4, "wqe_inline_seg" {
        /// 1 here; 0 makes it a data segment.
        0x00 [31:31] inline: bool,
        /// Bytes of data.
        0x00 [9:0] byte_count: u16,
    }
}

impl InlineSeg {
    /// Size of the header in bytes.
    pub const HEADER_BYTES: usize = 4;

    /// 16-byte units that `len_bytes` of inline data take with their header.
    pub const fn n_octowords(len_bytes: usize) -> usize {
        (Self::HEADER_BYTES + len_bytes).div_ceil(16)
    }
}
