//! The contexts of a port's virtual function: Ethernet and InfiniBand.

use crate::mlx5::layout::{layout, wire_enum};

layout! {
    /// Ethernet side of a vport (PRM `nic_vport_context`); a list of addresses follows it.
    pub struct NicVportContext, 256, "nic_vport_context" {
        0x00 [31:31] multi_prio_sq: bool,
        0x00 [30:30] vport_to_fdb_metadata: bool,
        0x00 [29:29] fdb_to_vport_metadata: bool,
        /// Headers that a send WQE must carry inline.
        0x00 [26:24] min_wqe_inline_mode: InlineMode,
        /// No loopback of multicast.
        0x00 [2:2] disable_mc_local_lb: bool,
        /// No loopback of unicast.
        0x00 [1:1] disable_uc_local_lb: bool,
        /// RoCE is on.
        0x00 [0:0] roce_en: bool,
        /// Asks for one NIC_VPORT_CHANGE event.
        0x04 [31:31] arm_change_event: bool,
        0x04 [4:4] event_on_mtu: bool,
        0x04 [3:3] event_on_promisc_change: bool,
        0x04 [2:2] event_on_vlan_change: bool,
        0x04 [1:1] event_on_mc_address_change: bool,
        0x04 [0:0] event_on_uc_address_change: bool,
        0x08 [31:31] vhca_id_type: bool,
        0x08 [19:16] affiliation_criteria: u8,
        0x08 [15:0] affiliated_vhca_id: u16,
        /// Bytes of a frame, Ethernet header included.
        0x24 [15:0] mtu: u16,
        0x28 [63:0] system_image_guid: u64,
        0x30 [63:0] port_guid: u64,
        0x38 [63:0] node_guid: u64,
        0x68 [31:16] qkey_violation_counter: u16,
        0xf0 [31:31] promisc_uc: bool,
        0xf0 [30:30] promisc_mc: bool,
        0xf0 [29:29] promisc_all: bool,
        0xf0 [26:24] allowed_list_type: NicVportListType,
        /// Entries of the list that follows.
        0xf0 [11:0] allowed_list_size: u16,
        /// The MAC.
        0xf4 [struct] permanent_address: MacAddressLayout,
    }

    /// A MAC address in a qword (PRM `mac_address_layout`).
    pub struct MacAddressLayout, 8, "mac_address_layout" {
        0x00 [15:0] mac_addr_47_32: u16,
        0x04 [31:0] mac_addr_31_0: u32,
    }

    /// InfiniBand side of a vport (PRM `hca_vport_context`).
    pub struct HcaVportContext, 512, "hca_vport_context" {
        /// Fields that MODIFY_HCA_VPORT_CONTEXT changes.
        0x00 [31:0] field_select: u32,
        0x20 [31:31] sm_virt_aware: bool,
        0x20 [30:30] has_smi: bool,
        0x20 [29:29] has_raw: bool,
        0x20 [28:28] grh_required: bool,
        0x20 [15:12] port_physical_state: u8,
        0x20 [11:8] vport_state_policy: u8,
        /// PortInfo state: 1 down … 4 active.
        0x20 [7:4] port_state: u8,
        0x20 [3:0] vport_state: u8,
        0x28 [63:0] system_image_guid: u64,
        0x30 [63:0] port_guid: u64,
        0x38 [63:0] node_guid: u64,
        /// PortInfo CapabilityMask.
        0x40 [31:0] cap_mask1: u32,
        0x44 [31:0] cap_mask1_field_select: u32,
        0x48 [31:0] cap_mask2: u32,
        0x4c [31:0] cap_mask2_field_select: u32,
        0x60 [31:16] lid: u16,
        0x60 [11:8] init_type_reply: u8,
        0x60 [7:5] lmc: u8,
        0x60 [4:0] subnet_timeout: u8,
        0x64 [31:16] sm_lid: u16,
        0x64 [15:12] sm_sl: u8,
        0x68 [31:16] qkey_violation_counter: u16,
        0x68 [15:0] pkey_violation_counter: u16,
    }

    /// An entry of the partition table (PRM `pkey`).
    pub struct Pkey, 4, "pkey" {
        0x00 [15:0] pkey: u16,
    }
}

wire_enum! {
    /// Headers that must be inline (`min_wqe_inline_mode`).
    pub struct InlineMode(u8), "inline_mode" {
        NONE = 0x00,
        L2 = 0x01,
        IP = 0x02,
        TCP_UDP = 0x03,
    }

    /// Kind of the address list of a NIC vport context.
    pub struct NicVportListType(u8), "nic_vport_list_type" {
        UC = 0x00,
        MC = 0x01,
        VLAN = 0x02,
    }
}

impl MacAddressLayout {
    /// The address.
    #[inline]
    pub fn mac(&self) -> [u8; 6] {
        crate::mlx5::mac_from(self.mac_addr_47_32(), self.mac_addr_31_0())
    }

    /// With the address set.
    #[inline]
    #[must_use]
    pub fn with_mac(self, mac: [u8; 6]) -> Self {
        let (high, low) = crate::mlx5::mac_halves(mac);
        self.with_mac_addr_47_32(high).with_mac_addr_31_0(low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mac_address_is_in_order() {
        let layout = MacAddressLayout::new().with_mac([1, 2, 3, 4, 5, 6]);
        assert_eq!((layout.mac_addr_47_32(), layout.mac_addr_31_0()), (0x0102, 0x0304_0506));
        assert_eq!(layout.mac(), [1, 2, 3, 4, 5, 6]);
    }
}
