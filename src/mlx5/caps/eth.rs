//! The Ethernet offload capability group.

use crate::mlx5::layout::layout;

layout! {
    /// Ethernet offloads (PRM `per_protocol_networking_offload_caps`, group 1).
    pub struct PerProtocolNetworkingOffloadCaps, 256, "per_protocol_networking_offload_caps" {
        0x00 [31:31] csum_cap: bool,
        0x00 [30:30] vlan_cap: bool,
        0x00 [29:29] lro_cap: bool,
        0x00 [28:28] lro_psh_flag: bool,
        0x00 [27:27] lro_time_stamp: bool,
        0x00 [26:25] lro_max_msg_sz_mode: u8,
        0x00 [24:24] wqe_vlan_insert: bool,
        0x00 [23:23] self_lb_en_modifiable: bool,
        0x00 [22:22] self_lb_mc: bool,
        0x00 [21:21] self_lb_uc: bool,
        /// log2 of the longest segmentation.
        0x00 [20:16] max_lso_cap: u8,
        0x00 [15:14] multi_pkt_send_wqe: u8,
        /// 0 L2 inline needed, 1 ask the vport context, 2 not needed.
        0x00 [13:12] wqe_inline_mode: u8,
        /// log2 of the indirection table.
        0x00 [11:8] rss_ind_tbl_cap: u8,
        0x00 [7:7] reg_umr_sq: bool,
        0x00 [6:6] scatter_fcs: bool,
        0x00 [5:5] enhanced_multi_pkt_send_wqe: bool,
        0x00 [4:4] tunnel_lso_const_out_ip_id: bool,
        0x00 [3:3] tunnel_lro_gre: bool,
        0x00 [2:2] tunnel_lro_vxlan: bool,
        0x00 [1:1] tunnel_stateless_gre: bool,
        0x00 [0:0] tunnel_stateless_vxlan: bool,
        0x04 [31:31] swp: bool,
        0x04 [30:30] swp_csum: bool,
        0x04 [29:29] swp_lso: bool,
        0x04 [28:28] cqe_checksum_full: bool,
        0x04 [27:27] tunnel_stateless_geneve_tx: bool,
        0x04 [26:26] tunnel_stateless_mpls_over_udp: bool,
        0x04 [25:25] tunnel_stateless_mpls_over_gre: bool,
        0x04 [24:24] tunnel_stateless_vxlan_gpe: bool,
        0x04 [23:23] tunnel_stateless_ipv4_over_vxlan: bool,
        0x04 [22:22] tunnel_stateless_ip_over_ip: bool,
        0x04 [21:21] insert_trailer: bool,
        0x04 [20:20] tunnel_stateless_gtp: bool,
        0x04 [19:19] tunnel_stateless_ip_over_ip_rx: bool,
        0x04 [18:18] tunnel_stateless_ip_over_ip_tx: bool,
        0x04 [17:17] tunnel_stateless_vxlan_gpe_nsh: bool,
        0x04 [15:8] max_vxlan_udp_ports: u8,
        0x04 [1:1] max_geneve_opt_len: bool,
        0x04 [0:0] tunnel_stateless_geneve_rx: bool,
        0x08 [15:0] lro_min_mss_size: u16,
        0x30 [bytes] lro_timer_supported_periods: [u8; 16],
    }
}
