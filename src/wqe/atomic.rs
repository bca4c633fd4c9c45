//! The atomic segment: operands of compare-and-swap and fetch-and-add.

use crate::mlx5::layout::layout;

layout! {
    /// Operands of a 64-bit atomic (rdma-core `mlx5_wqe_atomic_seg`).
    pub struct AtomicSeg, 16, "wqe_atomic_seg" {
        /// The value to swap in, or to add.
        0x00 [63:0] swap_add: u64,
        /// The value to compare with; fetch-and-add leaves it unused.
        0x08 [63:0] compare: u64,
    }
}
