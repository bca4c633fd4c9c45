//! The next segment: the head of every WQE of a shared receive queue.

use crate::mlx5::layout::layout;

layout! {
    /// Next segment (rdma-core `mlx5_wqe_srq_next_seg`). Data segments follow it.
    pub struct SrqNextSeg, 16, "srq_next_seg" {
        /// Index of the WQE that comes after this one in the list.
        0x00 [15:0] next_wqe_index: u16,
        /// Of the WQE, if the queue has signatures.
        0x04 [31:24] signature: u8,
    }
}
