//! The CQE of a frame that a raw Ethernet queue received.

use super::{CqeFormat, CqeOpcode};
use crate::mlx5::{
    ids::UserIndex,
    layout::{layout, wire_enum},
};

layout! {
    /// Receive completion of a raw Ethernet queue, opcode `RESP_SEND` (Linux `mlx5_cqe64`).
    pub struct EthernetCqe, 64, "cqe64_eth_rx" {
        /// TLS: whether the payload was decrypted.
        0x00 [28:27] tls_offload: u8,
        /// There are inner headers, and the checksum bits are about them.
        0x00 [24:24] outer_l3_tunneled: bool,
        /// Striding queues: the WQE, of which `wqe_counter` is the stride.
        0x00 [15:0] wqe_id: u16,
        /// Large receive: a segment had PSH.
        0x04 [30:30] lro_tcppsh: bool,
        0x04 [23:16] lro_min_ttl: u8,
        0x04 [15:0] lro_tcp_win: u16,
        0x08 [31:0] lro_ack_seq_num: u32,
        /// Hash by which the TIR chose the queue.
        0x0c [31:0] rss_hash_result: u32,
        /// Ports in the hash: 0 none, 1 TCP, 2 UDP.
        0x10 [31:30] rss_hash_l4: u8,
        /// Addresses in the hash: 0 none, 1 IPv4, 2 IPv6.
        0x10 [27:26] rss_hash_ip: u8,
        /// One's complement sum of the IP packet, header and payload, without padding behind it.
        0x14 [31:16] check_sum: u16,
        /// TCP's or UDP's checksum is right.
        0x1c [26:26] l4_ok: bool,
        /// IP's header checksum is right.
        0x1c [25:25] l3_ok: bool,
        0x1c [24:24] l2_ok: bool,
        /// A fragment of an IP packet.
        0x1c [23:23] ip_frag: bool,
        0x1c [22:20] l4_hdr_type: CqeL4HdrType,
        0x1c [19:18] l3_hdr_type: CqeL3HdrType,
        /// The IP header has options or extensions.
        0x1c [17:17] ip_ext_opts: bool,
        /// The first VLAN tag is here and not in the frame.
        0x1c [16:16] vlan_stripped: bool,
        0x1c [15:13] vlan_prio: u8,
        0x1c [12:12] vlan_cfi: bool,
        0x1c [11:0] vlan_vid: u16,
        /// Large receive: segments in it.
        0x20 [31:24] lro_num_seg: u8,
        /// Number that software gave the queue (`cqe_version` 1).
        0x20 [23:0] srqn_or_user_index: UserIndex,
        /// Metadata register B of flow steering.
        0x24 [31:0] flow_table_metadata: u32,
        /// Length of the frame as it was stored.
        0x2c [31:0] byte_cnt: u32,
        /// Device clock when the frame arrived.
        0x30 [63:0] timestamp: u64,
        /// The flow entry's mark.
        0x38 [23:0] flow_tag: u32,
        /// Counter of the receive WQE.
        0x3c [31:16] wqe_counter: u16,
        /// Inverted XOR of the CQE where signatures are on.
        0x3c [15:8] signature: u8,
        /// What the CQE is.
        0x3c [7:4] opcode: CqeOpcode,
        /// What else it carries.
        0x3c [3:2] format: CqeFormat,
        /// Whether the sender asked for an event.
        0x3c [1:1] se: bool,
        /// Changes with every lap of the ring: tells a new CQE from an old one.
        0x3c [0:0] owner: bool,
    }
}

wire_enum! {
    /// Layer 3 of a received frame.
    pub struct CqeL3HdrType(u8), "cqe_l3_hdr_type" {
        NONE = 0,
        IPV6 = 1,
        IPV4 = 2,
    }

    /// Layer 4 of a received frame.
    pub struct CqeL4HdrType(u8), "cqe_l4_hdr_type" {
        NONE = 0,
        /// TCP without ACK.
        TCP_NO_ACK = 1,
        UDP = 2,
        /// TCP, no more than an ACK.
        TCP_ACK_NO_DATA = 3,
        TCP_ACK_AND_DATA = 4,
    }
}
