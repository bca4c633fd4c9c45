//! The XRC segment: follows the control segment of an XRC initiator's WQEs.

use crate::mlx5::layout::layout;

layout! {
    /// XRC segment (rdma-core `mlx5_wqe_xrc_seg`). All but its first dword is reserved.
    pub struct XrcSeg, 16, "wqe_xrc_seg" {
        /// The peer's shared receive queue.
        0x00 [23:0] xrc_srqn: u32,
    }
}
