//! Ports: state, speed, MTU, GID and partition tables.
#![forbid(unsafe_code)]

use super::{PrmControl, address::is_station, cmd_queue::Lane};
use crate::{
    Error, Result,
    backend::{GidEntry, GidType, LinkLayer, PhysState, PortAttr, PortState, link_local_gid},
    mlx5::{
        cmd::{
            AccessRegOpMod, AccessRegisterIn, Command, ModifyNicVportContextIn, ModifyNicVportFieldSelect,
            PaosReg, PaosStatus, PmtuReg, PtysReg, QueryHcaVportContextIn, QueryHcaVportGidIn,
            QueryHcaVportPkeyIn, QueryNicVportContextIn, QueryRoceAddressIn, QueryVportStateIn, RegisterId,
            SetRoceAddressIn, VportAdminState, VportState,
        },
        context::{HcaVportContext, Mtu, NicVportContext, RoceAddrLayout},
        layout::Layout,
    },
};

/// The function's own port, as port registers count it.
const LOCAL_PORT: u8 = 1;
/// `ptys_reg.proto_mask`: Ethernet.
const PTYS_ETHERNET: u8 = 4;
/// `ptys_reg.proto_mask`: InfiniBand.
const PTYS_INFINIBAND: u8 = 1;
/// Ethernet header with VLAN tag, and FCS: what the port's MTU has and a payload's has not.
const L2_BYTES: u16 = 22;
/// What RoCE v2 can put around a packet's payload: GRH, UDP, BTH, XRCETH, AtomicETH, ICRC.
const ROCE_BYTES: u16 = 40 + 8 + 12 + 4 + 28 + 4;
/// Largest VLAN id.
const MAX_VLAN: u16 = 4094;

/// Speed in Mbit/s and lanes by bit of `ptys_reg.eth_proto_oper`.
const SPEEDS: [(u32, u8); 32] = {
    let mut speeds = [(0, 0); 32];
    let known = [
        (0, 1_000, 1),
        (1, 1_000, 1),
        (2, 10_000, 4),
        (3, 10_000, 4),
        (4, 10_000, 1),
        (5, 20_000, 2),
        (6, 40_000, 4),
        (7, 40_000, 4),
        (8, 56_000, 4),
        (12, 10_000, 1),
        (13, 10_000, 1),
        (14, 10_000, 1),
        (15, 40_000, 4),
        (16, 40_000, 4),
        (18, 50_000, 2),
        (20, 100_000, 4),
        (21, 100_000, 4),
        (22, 100_000, 4),
        (23, 100_000, 4),
        (24, 100, 1),
        (25, 1_000, 1),
        (26, 10_000, 1),
        (27, 25_000, 1),
        (28, 25_000, 1),
        (29, 25_000, 1),
        (30, 50_000, 2),
        (31, 50_000, 2),
    ];
    let mut i = 0;
    while i < known.len() {
        speeds[known[i].0] = (known[i].1, known[i].2);
        i += 1;
    }
    speeds
};

/// The same by bit of `ptys_reg.ext_eth_proto_oper`.
const EXT_SPEEDS: [(u32, u8); 17] = [
    (100, 1),
    (1_000, 1),
    (0, 0),
    (5_000, 1),
    (10_000, 1),
    (40_000, 4),
    (25_000, 1),
    (50_000, 2),
    (50_000, 1),
    (100_000, 4),
    (100_000, 2),
    (100_000, 1),
    (200_000, 4),
    (200_000, 2),
    (0, 0),
    (400_000, 8),
    (400_000, 4),
];

/// Speed of a lane in Mbit/s by bit of `ptys_reg.ib_proto_oper`, SDR to NDR.
const IB_LANE_SPEEDS: [u32; 8] = [2_500, 5_000, 10_000, 10_312, 14_062, 25_000, 50_000, 100_000];
/// Lanes by bit of `ptys_reg.ib_link_width_oper`.
const IB_WIDTHS: [u8; 5] = [1, 4, 8, 12, 2];

/// Speed and lanes of an InfiniBand port.
fn ib_speed(ptys: &PtysReg) -> (u32, u8) {
    let lane = |bit: &(usize, u32)| ptys.ib_proto_oper() >> bit.0 & 1 != 0;
    let lane_mbps = IB_LANE_SPEEDS.into_iter().enumerate().filter(lane).map(|(_, mbps)| mbps).max();
    let width = |bit: &(usize, u8)| ptys.ib_link_width_oper() >> bit.0 & 1 != 0;
    let n_lanes = IB_WIDTHS.into_iter().enumerate().filter(width).map(|(_, n)| n).max().unwrap_or(0);
    (lane_mbps.unwrap_or(0) * u32::from(n_lanes), n_lanes)
}

fn fastest(bits: u32, table: &[(u32, u8)]) -> (u32, u8) {
    let set = table.iter().enumerate().filter(|(bit, _)| bits >> bit & 1 != 0);
    set.map(|(_, speed)| *speed).max().unwrap_or((0, 0))
}

/// The largest path MTU whose packets fit.
fn path_mtu(payload_bytes: u16) -> Mtu {
    largest_mtu(payload_bytes.saturating_sub(ROCE_BYTES))
}

/// The largest path MTU up to `limit_bytes`.
fn largest_mtu(limit_bytes: u16) -> Mtu {
    let room = u32::from(limit_bytes);
    let mtus = [Mtu::MTU_4096, Mtu::MTU_2048, Mtu::MTU_1024, Mtu::MTU_512];
    mtus.into_iter().find(|mtu| mtu.bytes().is_some_and(|bytes| bytes <= room)).unwrap_or(Mtu::MTU_256)
}

impl PrmControl {
    pub(super) fn check_port(&self, port: u8) -> Result<()> {
        let n = self.attr.phys_port_cnt;
        if (1..=n).contains(&port) {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "port {port} does not exist: ports are counted from 1, and there are {n}"
        )))
    }

    pub(super) fn link_layer(&self) -> LinkLayer {
        self.caps.link_layer()
    }

    fn access_reg<R: Layout>(&self, id: RegisterId, op: AccessRegOpMod, register: R) -> Result<R> {
        let input = AccessRegisterIn::request().with_register_id(id).with_op_mod(op);
        let (_, out) = self.core.cmd.exec(Lane::Regular, &input, register.as_bytes(), size_of::<R>())?;
        R::read_from_bytes(&out).map_err(|_| Error::Protocol(format!("register {id} has an odd size")))
    }

    fn nic_vport(&self) -> Result<NicVportContext> {
        Ok(self.core.cmd.call(&QueryNicVportContextIn::request())?.nic_vport_context())
    }

    /// Enables the link with the largest MTU, and gives the port its link-local GIDs.
    pub(super) fn set_up_ports(&self) -> Result<()> {
        if self.link_layer() == LinkLayer::InfiniBand {
            return self.set_port_admin(LOCAL_PORT, true);
        }
        let pmtu = self.access_reg(
            RegisterId::PMTU,
            AccessRegOpMod::READ,
            PmtuReg::new().with_local_port(LOCAL_PORT),
        )?;
        let wanted = PmtuReg::new().with_local_port(LOCAL_PORT).with_admin_mtu(pmtu.max_mtu());
        self.access_reg(RegisterId::PMTU, AccessRegOpMod::WRITE, wanted)?;
        let mtu = NicVportContext::new().with_mtu(pmtu.max_mtu());
        let input = ModifyNicVportContextIn::request().with_nic_vport_context(mtu);
        self.core.cmd.call(&input.with_field_select(ModifyNicVportFieldSelect::new().with_mtu(true)))?;
        self.set_port_admin(LOCAL_PORT, true)?;
        let mac = self.nic_vport()?.permanent_address().mac();
        if !is_station(mac) {
            return Err(Error::Protocol(format!(
                "the device's permanent address {mac:02x?} is not the MAC address of one station"
            )));
        }
        let entries = usize::from(self.caps.roce.roce_address_table_size());
        for (index, gid_type) in [GidType::RoceV1, GidType::RoceV2].into_iter().enumerate().take(entries) {
            let entry = GidEntry { gid: link_local_gid(mac), gid_type, mac, vlan: None };
            self.set_gid_entry(LOCAL_PORT, index as u16, Some(&entry))?;
        }
        Ok(())
    }

    pub(super) fn set_port_admin(&self, port: u8, up: bool) -> Result<()> {
        self.check_port(port)?;
        let register = PaosReg::new()
            .with_local_port(LOCAL_PORT)
            .with_admin_status(if up { PaosStatus::UP } else { PaosStatus::DOWN })
            .with_ase(true);
        self.access_reg(RegisterId::PAOS, AccessRegOpMod::WRITE, register).map(|_| ())
    }

    pub(super) fn port_attr(&self, port: u8) -> Result<PortAttr> {
        self.check_port(port)?;
        let vport = self.core.cmd.call(&QueryVportStateIn::request())?;
        let up = vport.state() == VportState::STATE_UP;
        let phys_state = match vport.admin_state() {
            VportAdminState::ADMIN_STATE_DOWN => PhysState::Disabled,
            _ if up => PhysState::LinkUp,
            _ => PhysState::Polling,
        };
        let pmtu = PmtuReg::new().with_local_port(LOCAL_PORT);
        let pmtu = self.access_reg(RegisterId::PMTU, AccessRegOpMod::READ, pmtu)?;
        let payload = |mtu: u16| mtu.saturating_sub(L2_BYTES);
        let attr = PortAttr {
            state: if up { PortState::Active } else { PortState::Down },
            phys_state,
            max_mtu: path_mtu(payload(pmtu.max_mtu())),
            active_mtu: path_mtu(payload(pmtu.oper_mtu())),
            netdev_mtu_bytes: payload(pmtu.oper_mtu()),
            link_layer: self.link_layer(),
            active_speed_mbps: 0,
            active_width: 0,
            gid_tbl_len: self.caps.roce.roce_address_table_size(),
            pkey_tbl_len: self.attr.max_pkeys,
            max_msg_sz: self.attr.max_msg_size,
            lid: 0,
            mac: [0; 6],
            roce_enabled: false,
            qkey_viol_cntr: 0,
        };
        match self.link_layer() {
            LinkLayer::Ethernet => self.ethernet_attr(attr, up),
            LinkLayer::InfiniBand => self.infiniband_attr(attr, pmtu),
        }
    }

    fn ethernet_attr(&self, attr: PortAttr, up: bool) -> Result<PortAttr> {
        let ptys = PtysReg::new().with_local_port(LOCAL_PORT).with_proto_mask(PTYS_ETHERNET);
        let ptys = match self.access_reg(RegisterId::PTYS, AccessRegOpMod::READ, ptys) {
            // A port without a module may refuse: its speed is unknown.
            Err(Error::Command { .. }) => PtysReg::new(),
            ptys => ptys?,
        };
        let speed =
            fastest(ptys.ext_eth_proto_oper(), &EXT_SPEEDS).max(fastest(ptys.eth_proto_oper(), &SPEEDS));
        let (active_speed_mbps, active_width) = if up { speed } else { (0, 0) };
        let vport = self.nic_vport()?;
        Ok(PortAttr {
            active_speed_mbps,
            active_width,
            mac: vport.permanent_address().mac(),
            roce_enabled: vport.roce_en(),
            qkey_viol_cntr: vport.qkey_violation_counter(),
            ..attr
        })
    }

    fn infiniband_attr(&self, attr: PortAttr, pmtu: PmtuReg) -> Result<PortAttr> {
        let input = QueryHcaVportContextIn::request();
        let context: HcaVportContext = self.core.cmd.call(&input)?.hca_vport_context();
        let ptys = PtysReg::new().with_local_port(LOCAL_PORT).with_proto_mask(PTYS_INFINIBAND);
        let ptys = match self.access_reg(RegisterId::PTYS, AccessRegOpMod::READ, ptys) {
            // A port without a module may refuse: its speed is unknown.
            Err(Error::Command { .. }) => PtysReg::new(),
            ptys => ptys?,
        };
        let (active_speed_mbps, active_width) = ib_speed(&ptys);
        Ok(PortAttr {
            // Here the register has the path MTU itself.
            max_mtu: largest_mtu(pmtu.max_mtu()),
            active_mtu: largest_mtu(pmtu.oper_mtu()),
            netdev_mtu_bytes: 0,
            active_speed_mbps,
            active_width,
            gid_tbl_len: 8 << self.caps.general.gid_table_size().min(4),
            state: match context.port_state() {
                2 => PortState::Init,
                3 => PortState::Armed,
                4 => PortState::Active,
                _ => PortState::Down,
            },
            phys_state: match context.port_physical_state() {
                3 => PhysState::Disabled,
                5 => PhysState::LinkUp,
                _ => PhysState::Polling,
            },
            lid: context.lid(),
            qkey_viol_cntr: context.qkey_violation_counter(),
            ..attr
        })
    }

    fn check_gid_index(&self, port: u8, index: u16) -> Result<()> {
        self.check_port(port)?;
        let n = self.caps.roce.roce_address_table_size();
        if index < n {
            return Ok(());
        }
        Err(Error::invalid(format!("GID index {index} of port {port}: the table has {n} entries, from 0")))
    }

    pub(super) fn gid_entry(&self, port: u8, index: u16) -> Result<GidEntry> {
        if self.link_layer() == LinkLayer::InfiniBand {
            self.check_port(port)?;
            let input = QueryHcaVportGidIn::request().with_gid_index(index);
            let (_, tail) = self.core.cmd.exec(Lane::Regular, &input, &[], 16)?;
            let gid = *tail.first_chunk().unwrap_or(&[0; 16]);
            // Only the lower half is empty: the prefix is the subnet's.
            if gid[8..] == [0; 8] {
                return Err(Error::invalid(format!(
                    "GID index {index} of port {port} is empty; choose another"
                )));
            }
            return Ok(GidEntry { gid, gid_type: GidType::Ib, mac: [0; 6], vlan: None });
        }
        self.check_gid_index(port, index)?;
        let input = QueryRoceAddressIn::request()
            .with_roce_address_index(index)
            .with_vhca_port_num(self.caps.vhca_port_num(port));
        let entry = self.core.cmd.call(&input)?.roce_address();
        GidEntry::from_layout(&entry).ok_or_else(|| {
            Error::invalid(format!("GID index {index} of port {port} is empty; fill it, or choose another"))
        })
    }

    pub(super) fn set_gid_entry(&self, port: u8, index: u16, entry: Option<&GidEntry>) -> Result<()> {
        if self.link_layer() == LinkLayer::InfiniBand {
            return Err(Error::Unsupported {
                capability: "port_type",
                reason: "the port is InfiniBand: the subnet manager fills its GID table".into(),
            });
        }
        self.check_gid_index(port, index)?;
        if let Some(entry) = entry {
            self.check_gid(entry)?;
        }
        let input = SetRoceAddressIn::request()
            .with_roce_address_index(index)
            .with_vhca_port_num(self.caps.vhca_port_num(port))
            .with_roce_address(entry.map_or(RoceAddrLayout::new(), |entry| entry.to_layout()));
        self.core.cmd.call(&input).map(|_| ())
    }

    fn check_gid(&self, entry: &GidEntry) -> Result<()> {
        let supported = self.caps.roce.roce_version();
        let bit = match entry.gid_type {
            GidType::Ib => {
                return Err(Error::invalid("GID type is IB on an Ethernet port: give RoCE v1 or RoCE v2"));
            }
            GidType::RoceV1 => 1,
            GidType::RoceV2 => 4,
        };
        if supported & bit == 0 {
            return Err(Error::Unsupported {
                capability: "roce_version",
                reason: format!(
                    "{:?} needs bit 0x{bit:x}, and the device has 0x{supported:x}",
                    entry.gid_type
                ),
            });
        }
        if entry.gid == [0; 16] {
            return Err(Error::invalid(
                "the GID is zero, which marks an empty entry; give None to empty one",
            ));
        }
        if let Some(vlan) = entry.vlan.filter(|vlan| *vlan > MAX_VLAN) {
            return Err(Error::invalid(format!("VLAN id {vlan}: give 0 to {MAX_VLAN}")));
        }
        if !is_station(entry.mac) {
            return Err(Error::invalid(format!("{:02x?} is not the MAC address of one station", entry.mac)));
        }
        Ok(())
    }

    pub(super) fn pkey_entry(&self, port: u8, index: u16) -> Result<u16> {
        self.check_port(port)?;
        let n = self.attr.max_pkeys;
        if index >= n {
            return Err(Error::invalid(format!(
                "partition key index {index} of port {port}: the table has {n} entries, from 0"
            )));
        }
        let input = QueryHcaVportPkeyIn::request().with_pkey_index(index);
        let (_, tail) = self.core.cmd.exec(Lane::Regular, &input, &[], 4)?;
        Ok(tail.get(2..4).map_or(0, |bytes| u16::from_be_bytes([bytes[0], bytes[1]])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_mtu_leaves_room_for_headers() {
        assert_eq!(path_mtu(4096 + ROCE_BYTES), Mtu::MTU_4096);
        assert_eq!(path_mtu(4096 + ROCE_BYTES - 1), Mtu::MTU_2048);
        assert_eq!(path_mtu(1500), Mtu::MTU_1024);
        assert_eq!(path_mtu(0), Mtu::MTU_256);
    }

    #[test]
    fn speeds_by_bit() {
        let edr = PtysReg::new().with_ib_proto_oper(1 << 5).with_ib_link_width_oper(1 << 1);
        assert_eq!(ib_speed(&edr), (100_000, 4));
        assert_eq!(ib_speed(&PtysReg::new()), (0, 0));
        assert_eq!(fastest(1 << 23 | 1 << 28, &SPEEDS), (100_000, 4));
        assert_eq!(fastest(1 << 13, &EXT_SPEEDS), (200_000, 2));
        assert_eq!(fastest(0, &SPEEDS), (0, 0));
    }
}
