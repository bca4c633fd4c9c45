//! Capability groups of the transports: RoCE, atomics, on-demand paging.

use crate::mlx5::layout::layout;

layout! {
    /// RoCE (PRM `roce_cap`, group 4).
    pub struct RoceCap, 256, "roce_cap" {
        0x00 [31:31] roce_apm: bool,
        /// `ads.udp_sport` is honoured.
        0x00 [27:27] sw_r_roce_src_udp_port: bool,
        0x00 [26:26] fl_rc_qp_when_roce_disabled: bool,
        0x00 [25:25] fl_rc_qp_when_roce_enabled: bool,
        0x00 [1:0] qp_ts_format: u8,
        /// Bit mask of network layers.
        0x10 [19:16] l3_type: u8,
        /// Bit mask of versions: 1 for v1, 4 for v2.
        0x10 [7:0] roce_version: u8,
        /// 4791.
        0x14 [15:0] r_roce_dest_udp_port: u16,
        0x18 [31:16] r_roce_max_src_udp_port: u16,
        0x18 [15:0] r_roce_min_src_udp_port: u16,
        /// Entries.
        0x1c [15:0] roce_address_table_size: u16,
    }

    /// Atomics (PRM `atomic_caps`, group 3).
    pub struct AtomicCaps, 256, "atomic_caps" {
        /// 1: 8-byte atomics are in host order.
        0x08 [31:30] atomic_req_8b_endianness_mode: u8,
        0x08 [25:25] supported_atomic_req_8b_endianness_mode_1: bool,
        /// Bit mask: 1 compare-swap, 2 fetch-add, 4 and 8 the extended ones.
        0x10 [15:0] atomic_operations: u16,
        /// Bit mask of sizes in bytes.
        0x14 [15:0] atomic_size_qp: u16,
        /// Bit mask of sizes in bytes.
        0x18 [15:0] atomic_size_dc: u16,
        0x50 [31:16] fetch_add_pci_atomic: u16,
        0x50 [15:0] swap_pci_atomic: u16,
        0x54 [31:16] compare_swap_pci_atomic: u16,
    }

    /// On-demand paging (PRM `odp_cap`, group 2).
    pub struct OdpCap, 256, "odp_cap" {
        0x08 [31:31] sig: bool,
        0x10 [struct] rc_odp_caps: OdpPerTransportServiceCap,
        0x14 [struct] uc_odp_caps: OdpPerTransportServiceCap,
        0x18 [struct] ud_odp_caps: OdpPerTransportServiceCap,
        0x1c [struct] xrc_odp_caps: OdpPerTransportServiceCap,
        0x20 [struct] dc_odp_caps: OdpPerTransportServiceCap,
    }

    /// Operations that may fault on one transport.
    pub struct OdpPerTransportServiceCap, 4, "odp_per_transport_service_cap" {
        0x00 [31:31] send: bool,
        0x00 [30:30] receive: bool,
        0x00 [29:29] write: bool,
        0x00 [28:28] read: bool,
        0x00 [27:27] atomic: bool,
        0x00 [26:26] srq_receive: bool,
    }
}
