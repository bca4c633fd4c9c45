//! Page faults of paging on demand.

use crate::mlx5::layout::{layout, wire_enum};

layout! {
    /// PAGE_FAULT of memory that a WQE names (`sub_type` 0).
    pub struct EqePageFaultWqe, 28, "eqe_page_fault" {
        /// Of the WQE's message: moved before.
        0x00 [31:0] bytes_committed: u32,
        0x04 [15:0] wqe_index: u16,
        0x08 [15:0] wqe_packet_length: u16,
        /// Who waits.
        0x0c [31:0] wqe_token: u32,
        0x18 [26:24] wqe_pftype_wq_type: PageFaultType,
        0x18 [23:0] wqe_pftype_wq_wq_num: u32,
    }

    /// PAGE_FAULT of memory that a peer names (`sub_type` 1).
    pub struct EqePageFaultRdma, 28, "eqe_page_fault" {
        /// Of the message: moved before.
        0x00 [31:0] bytes_committed: u32,
        0x04 [31:0] rdma_r_key: u32,
        0x08 [15:0] rdma_packet_length: u16,
        /// Length of the message.
        0x0c [31:0] rdma_op_len: u32,
        /// Where its memory begins.
        0x10 [63:0] rdma_va: u64,
        0x18 [26:24] rdma_pftype_token_type: PageFaultType,
        /// Who waits.
        0x18 [23:0] rdma_pftype_token_token: u32,
    }
}

wire_enum! {
    /// Who named the memory of a page fault (`eqe.sub_type`).
    pub struct PageFaultSubType(u8), "event_page_fault_subtype" {
        /// A WQE.
        WQE = 0x00,
        /// A peer.
        RDMA = 0x01,
    }

    /// Who met a page fault. Memory that a peer named has bit 2, and bit 1 if it is written.
    pub struct PageFaultType(u8), "page_fault_type" {
        /// A WQE of a shared receive queue.
        RMP = 0x00,
        REQ_SEND_OR_WRITE = 0x01,
        /// A WQE of a receive queue.
        RESP = 0x02,
        REQ_READ_OR_ATOMIC = 0x03,
    }
}

impl PageFaultType {
    const REQUESTOR: u8 = 1;
    const WRITE: u8 = 2;
    const RDMA: u8 = 4;

    /// Of memory that a peer named.
    pub const fn remote(is_written: bool) -> Self {
        Self(Self::RDMA | if is_written { Self::WRITE } else { 0 })
    }

    /// Whether a peer writes the memory that it named, rather than reads it.
    pub const fn is_written(self) -> bool {
        self.0 & Self::WRITE != 0
    }

    /// Whether a send queue waits, rather than what answers a peer.
    pub const fn is_requester(self) -> bool {
        self.0 & Self::REQUESTOR != 0
    }
}
