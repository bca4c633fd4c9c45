//! The Ethernet segment: follows the control segment of a raw Ethernet queue's WQEs.

use crate::mlx5::layout::layout;

layout! {
    /// Ethernet segment (rdma-core `mlx5_wqe_eth_seg`).
    pub struct EthSeg, 16, "wqe_eth_seg" {
        0x00 [31:24] swp_outer_l4_offset: u8,
        0x00 [23:16] swp_outer_l3_offset: u8,
        0x00 [15:8] swp_inner_l4_offset: u8,
        0x00 [7:0] swp_inner_l3_offset: u8,
        /// Checksums to compute: 0x40 the IP header's, 0x80 TCP's or UDP's; 0x10 and 0x20 those of inner headers.
        0x04 [31:24] cs_flags: u8,
        0x04 [23:16] swp_flags: u8,
        /// Payload bytes of a segment, for large sends.
        0x04 [15:0] mss: u16,
        0x08 [31:0] flow_table_metadata: u32,
        /// Bytes of the frame's head that are in the WQE; or, with bit 15, a VLAN tag to insert.
        0x0c [31:16] inline_hdr_sz: u16,
        /// The first two of them, or the tag; the others follow the segment.
        0x0c [15:0] inline_hdr_start: u16,
    }

    /// Stands before the Ethernet segment where it follows an address vector: IPoIB (rdma-core `mlx5_wqe_eth_pad`).
    pub struct EthPadSeg, 16, "wqe_eth_pad" {
        0x00 [bytes] pad: [u8; 16],
    }
}

impl EthSeg {
    /// Bytes of the frame's head that the segment itself holds (`inline_hdr_start`).
    pub const HEADER_START_BYTES: usize = 2;
    /// `inline_hdr_sz`: `inline_hdr_start` is a VLAN tag (`MLX5_ETH_WQE_INSERT_VLAN`).
    pub const INSERT_VLAN: u16 = 1 << 15;
    /// `cs_flags`: the checksum of the IPv4 header (`MLX5_ETH_WQE_L3_CSUM`).
    pub const L3_CSUM: u8 = 1 << 6;
    /// `cs_flags`: the checksum of TCP or UDP (`MLX5_ETH_WQE_L4_CSUM`).
    pub const L4_CSUM: u8 = 1 << 7;
}
