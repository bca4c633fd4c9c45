//! Operands of masked atomics (extended atomics): `ctrl.opmod` says how wide they are.

use crate::mlx5::layout::layout;

layout! {
    /// Compare-and-swap of 8 bytes under masks (rdma-core `mlx5_wqe_masked_atomic_seg`); `ctrl.opmod` 9.
    pub struct MaskedCas64Seg, 32, "wqe_masked_atomic_cas64_seg" {
        /// The value to swap in.
        0x00 [63:0] swap: u64,
        /// The value to compare with.
        0x08 [63:0] compare: u64,
        /// Bits that are swapped.
        0x10 [63:0] swap_mask: u64,
        /// Bits that are compared.
        0x18 [63:0] compare_mask: u64,
    }

    /// Compare-and-swap of 4 bytes under masks (UCX `uct_ib_mlx5_atomic_masked_cswap32_seg`); `ctrl.opmod` 8.
    pub struct MaskedCas32Seg, 16, "wqe_masked_atomic_cas32_seg" {
        /// The value to swap in.
        0x00 [31:0] swap: u32,
        /// The value to compare with.
        0x04 [31:0] compare: u32,
        /// Bits that are swapped.
        0x08 [31:0] swap_mask: u32,
        /// Bits that are compared.
        0x0c [31:0] compare_mask: u32,
    }

    /// Fetch-and-add of fields in 8 bytes (UCX `uct_ib_mlx5_atomic_masked_fadd64_seg`); `ctrl.opmod` 9.
    pub struct MaskedFa64Seg, 16, "wqe_masked_atomic_fa64_seg" {
        /// What is added.
        0x00 [63:0] add: u64,
        /// A carry stops at every bit that is set.
        0x08 [63:0] field_boundary: u64,
    }

    /// Fetch-and-add of fields in 4 bytes (UCX `uct_ib_mlx5_atomic_masked_fadd32_seg`); `ctrl.opmod` 8.
    pub struct MaskedFa32Seg, 16, "wqe_masked_atomic_fa32_seg" {
        /// What is added.
        0x00 [31:0] add: u32,
        /// A carry stops at every bit that is set.
        0x04 [31:0] field_boundary: u32,
    }
}
