//! The address vector of a datagram: follows the control segment of UD WQEs.

use crate::mlx5::{ids::Qpn, layout::layout};

layout! {
    /// Address vector with everything in it (rdma-core `mlx5_wqe_av`).
    pub struct AvSeg, 48, "av_ext_seg" {
        /// The peer's Q_Key.
        0x00 [31:0] qkey: u32,
        /// This form of 48 bytes; without it, 16.
        0x08 [31:31] ext: bool,
        /// The peer's queue pair.
        0x08 [23:0] dqpn_dctn: Qpn,
        0x0c [31:28] stat_rate: u8,
        /// Service level; RoCE: priority of the VLAN tag.
        0x0c [27:24] sl: u8,
        /// Force loopback.
        0x0c [23:23] fl: bool,
        0x0c [22:16] mlid: u8,
        /// InfiniBand: LID of the peer. RoCE v2: source port of UDP.
        0x0c [15:0] rlid_or_udp_sport: u16,
        /// The peer's MAC.
        0x14 [bytes] rmac: [u8; 6],
        0x18 [15:8] tclass: u8,
        0x18 [7:0] hop_limit: u8,
        /// A GRH is present; RoCE always has one.
        0x1c [30:30] grh: bool,
        /// Own GID index.
        0x1c [27:20] src_addr_index: u8,
        0x1c [19:0] flow_label: u32,
        /// The peer's GID.
        0x20 [bytes] rgid: [u8; 16],
    }
}

layout! {
    /// Address vector of a DC initiator: as of a datagram, but for the key (rdma-core `mlx5_wqe_av`).
    pub struct DcAvSeg, 48, "av_ext_seg" {
        /// Access key of the peer's DCT.
        0x00 [63:0] dc_key: u64,
        /// This form of 48 bytes; without it, 16.
        0x08 [31:31] ext: bool,
        /// The peer's DCT.
        0x08 [23:0] dqpn_dctn: Qpn,
        0x0c [31:28] stat_rate: u8,
        /// Service level; RoCE: priority of the VLAN tag.
        0x0c [27:24] sl: u8,
        /// Force loopback.
        0x0c [23:23] fl: bool,
        0x0c [22:16] mlid: u8,
        /// InfiniBand: LID of the peer. RoCE v2: source port of UDP.
        0x0c [15:0] rlid_or_udp_sport: u16,
        /// The peer's MAC.
        0x14 [bytes] rmac: [u8; 6],
        0x18 [15:8] tclass: u8,
        0x18 [7:0] hop_limit: u8,
        /// A GRH is present; RoCE always has one.
        0x1c [30:30] grh: bool,
        /// Own GID index.
        0x1c [27:20] src_addr_index: u8,
        0x1c [19:0] flow_label: u32,
        /// The peer's GID.
        0x20 [bytes] rgid: [u8; 16],
    }

    /// The compact address vector of a datagram (Linux `mlx5_base_av`): no GRH, for InfiniBand alone, where the device has
    /// `compact_address_vector`.
    pub struct AvBaseSeg, 16, "av_base_seg" {
        /// The peer's Q_Key.
        0x00 [31:0] qkey: u32,
        /// 0 here.
        0x08 [31:31] ext: bool,
        /// The peer's queue pair.
        0x08 [23:0] dqpn_dctn: Qpn,
        0x0c [31:28] stat_rate: u8,
        /// Service level.
        0x0c [27:24] sl: u8,
        /// Force loopback.
        0x0c [23:23] fl: bool,
        0x0c [22:16] mlid: u8,
        /// LID of the peer.
        0x0c [15:0] rlid_or_udp_sport: u16,
    }

    /// The compact address vector of a DC initiator.
    pub struct DcAvBaseSeg, 16, "av_base_seg" {
        /// Access key of the peer's DCT.
        0x00 [63:0] dc_key: u64,
        /// 0 here.
        0x08 [31:31] ext: bool,
        /// The peer's DCT.
        0x08 [23:0] dqpn_dctn: Qpn,
        0x0c [31:28] stat_rate: u8,
        /// Service level.
        0x0c [27:24] sl: u8,
        /// Force loopback.
        0x0c [23:23] fl: bool,
        0x0c [22:16] mlid: u8,
        /// LID of the peer.
        0x0c [15:0] rlid_or_udp_sport: u16,
    }
}
