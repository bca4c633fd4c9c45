//! What receive WQEs may begin with: the next segment of a shared receive queue, or a signature.

use crate::mlx5::layout::layout;

layout! {
    /// Next segment (rdma-core `mlx5_wqe_srq_next_seg`). Data segments follow it.
    pub struct SrqNextSeg, 16, "srq_next_seg" {
        /// Index of the WQE that comes after this one in the list.
        0x00 [15:0] next_wqe_index: u16,
        /// Of the WQE, if the queue has signatures.
        0x04 [31:24] signature: u8,
    }

    /// Signature segment: the head of a receive WQE where signatures are on (rdma-core `mlx5_rwqe_sig`).
    pub struct RecvSigSeg, 16, "rq_wqe_sig_seg" {
        /// Has the XOR of the WQE, the queue pair's number and the WQE's index be 0xff.
        0x04 [31:24] signature: u8,
    }
}
