//! The remote address segment: follows the control segment of RDMA and atomic WQEs.

use crate::mlx5::{ids::Rkey, layout::layout};

layout! {
    /// Remote address segment (rdma-core `mlx5_wqe_raddr_seg`). Its last dword is reserved.
    pub struct RaddrSeg, 16, "wqe_raddr_seg" {
        /// Address in the peer's memory region.
        0x00 [63:0] raddr: u64,
        /// The peer's key for that region.
        0x08 [31:0] rkey: Rkey,
    }
}
