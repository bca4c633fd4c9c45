//! What flow steering looks at: the fields of a packet, as match criteria, match values and packets have them alike.

use crate::mlx5::layout::layout;

layout! {
    /// Fields of a packet (PRM `fte_match_param`). A packet matches an entry if it equals the entry's value in
    /// the bits of the group's criteria.
    pub struct FteMatchParam, 512, "fte_match_param" {
        0x00 [struct] outer_headers: FteMatchSetLyr24,
        0x40 [struct] misc_parameters: FteMatchSetMisc,
        0x80 [struct] inner_headers: FteMatchSetLyr24,
        /// MPLS labels, metadata registers.
        0xc0 [bytes] misc_parameters_2: [u8; 64],
        /// VXLAN-GPE, ICMP, GTP-U, TCP numbers.
        0x100 [bytes] misc_parameters_3: [u8; 64],
        /// Programmable samples.
        0x140 [bytes] misc_parameters_4: [u8; 64],
        /// MACsec, tunnel headers.
        0x180 [bytes] misc_parameters_5: [u8; 64],
    }

    /// Headers of layers 2 to 4 (PRM `fte_match_set_lyr_2_4`).
    pub struct FteMatchSetLyr24, 64, "fte_match_set_lyr_2_4" {
        /// Upper 32 bits of the source MAC address.
        0x00 [31:0] smac_47_16: u32,
        0x04 [31:16] smac_15_0: u16,
        /// Of what follows all VLAN tags.
        0x04 [15:0] ethertype: u16,
        /// Upper 32 bits of the destination MAC address.
        0x08 [31:0] dmac_47_16: u32,
        0x0c [31:16] dmac_15_0: u16,
        0x0c [15:13] first_prio: u8,
        0x0c [12:12] first_cfi: bool,
        0x0c [11:0] first_vid: u16,
        0x10 [31:24] ip_protocol: u8,
        0x10 [23:18] ip_dscp: u8,
        0x10 [17:16] ip_ecn: u8,
        /// The first tag is a customer's (0x8100).
        0x10 [15:15] cvlan_tag: bool,
        /// The first tag is a service provider's (0x88a8).
        0x10 [14:14] svlan_tag: bool,
        /// A fragment of an IP packet.
        0x10 [13:13] frag: bool,
        /// 4 or 6; 0 if it is no IP packet.
        0x10 [12:9] ip_version: u8,
        0x10 [8:0] tcp_flags: u16,
        0x14 [31:16] tcp_sport: u16,
        0x14 [15:0] tcp_dport: u16,
        0x18 [15:12] ipv4_ihl: u8,
        0x18 [11:11] l3_ok: bool,
        0x18 [10:10] l4_ok: bool,
        0x18 [9:9] ipv4_checksum_ok: bool,
        0x18 [8:8] l4_checksum_ok: bool,
        0x18 [7:0] ttl_hoplimit: u8,
        0x1c [31:16] udp_sport: u16,
        0x1c [15:0] udp_dport: u16,
        /// An IPv4 address is in the last 4 bytes.
        0x20 [bytes] src_ipv4_src_ipv6: [u8; 16],
        0x30 [bytes] dst_ipv4_dst_ipv6: [u8; 16],
    }

    /// Everything else that was once enough (PRM `fte_match_set_misc`).
    pub struct FteMatchSetMisc, 64, "fte_match_set_misc" {
        0x00 [31:31] gre_c_present: bool,
        0x00 [29:29] gre_k_present: bool,
        0x00 [28:28] gre_s_present: bool,
        0x00 [27:24] source_vhca_port: u8,
        /// Send queue of this card that sent it.
        0x00 [23:0] source_sqn: u32,
        0x04 [31:16] source_eswitch_owner_vhca_id: u16,
        0x04 [15:0] source_port: u16,
        0x08 [31:29] outer_second_prio: u8,
        0x08 [28:28] outer_second_cfi: bool,
        0x08 [27:16] outer_second_vid: u16,
        0x08 [15:13] inner_second_prio: u8,
        0x08 [12:12] inner_second_cfi: bool,
        0x08 [11:0] inner_second_vid: u16,
        0x0c [31:31] outer_second_cvlan_tag: bool,
        0x0c [30:30] inner_second_cvlan_tag: bool,
        0x0c [29:29] outer_second_svlan_tag: bool,
        0x0c [28:28] inner_second_svlan_tag: bool,
        0x0c [15:0] gre_protocol: u16,
        0x10 [31:8] gre_key_h: u32,
        0x10 [7:0] gre_key_l: u8,
        0x14 [31:8] vxlan_vni: u32,
        0x14 [7:0] bth_opcode: u8,
        0x18 [31:8] geneve_vni: u32,
        0x18 [7:4] lag_rx_port_affinity: u8,
        0x18 [1:1] geneve_tlv_option_0_exist: bool,
        0x18 [0:0] geneve_oam: bool,
        0x1c [19:0] outer_ipv6_flow_label: u32,
        0x20 [19:0] inner_ipv6_flow_label: u32,
        0x24 [21:16] geneve_opt_len: u8,
        0x24 [15:0] geneve_protocol_type: u16,
        0x28 [23:0] bth_dst_qp: u32,
        0x2c [31:0] inner_esp_spi: u32,
        0x30 [31:0] outer_esp_spi: u32,
    }
}
