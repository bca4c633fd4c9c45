//! Contexts of the objects between flow steering and queues.

use crate::mlx5::{ids::Pdn, layout::layout};

layout! {
    /// Transport interface, receive (PRM `tirc`): to one RQ, or by hash to a table of them.
    pub struct Tirc, 240, "tirc" {
        /// 0 direct to `inline_rqn`, 1 through `indirect_table`.
        0x04 [31:28] disp_type: u8,
        0x04 [27:27] tls_en: bool,
        0x10 [27:12] lro_timeout_period_usecs: u16,
        0x10 [11:8] packet_merge_mask: u8,
        0x10 [7:0] lro_max_msg_sz: u8,
        0x1c [23:0] inline_rqn: u32,
        0x20 [31:31] rx_hash_symmetric: bool,
        0x20 [29:29] tunneled_offload_en: bool,
        0x20 [23:0] indirect_table: u32,
        /// 0 none, 1 XOR, 2 Toeplitz.
        0x24 [31:28] rx_hash_fn: u8,
        /// Frames of this transport domain are not received: 1 unicast, 2 multicast.
        0x24 [25:24] self_lb_block: u8,
        0x24 [23:0] transport_domain: u32,
        0x28 [bytes] rx_hash_toeplitz_key: [u8; 40],
        0x50 [struct] rx_hash_field_selector_outer: RxHashFieldSelect,
        0x54 [struct] rx_hash_field_selector_inner: RxHashFieldSelect,
    }

    /// Transport interface, send (PRM `tisc`).
    pub struct Tisc, 160, "tisc" {
        0x00 [31:31] strict_lag_tx_port_affinity: bool,
        0x00 [30:30] tls_en: bool,
        0x00 [27:24] lag_tx_port_affinity: u8,
        0x00 [19:16] prio: u8,
        0x24 [23:0] transport_domain: u32,
        /// IPoIB: the UD QP below.
        0x28 [23:0] underlay_qpn: u32,
        0x2c [23:0] pd: Pdn,
    }

    /// Table of RQs (PRM `rqtc`); their numbers follow, 4 bytes each.
    pub struct Rqtc, 240, "rqtc" {
        0x14 [26:24] list_q_type: u8,
        0x14 [15:0] rqt_max_size: u16,
        0x18 [31:31] rq_vhca_id_format: bool,
        0x18 [15:0] rqt_actual_size: u16,
    }

    /// What a receive hash covers.
    pub struct RxHashFieldSelect, 4, "rx_hash_field_select" {
        /// 0 IPv4, 1 IPv6.
        0x00 [31:31] l3_prot_type: bool,
        /// 0 TCP, 1 UDP.
        0x00 [30:30] l4_prot_type: bool,
        0x00 [29:0] selected_fields: u32,
    }
}
