//! The port: MAC, MTU, GUIDs, link.
#![forbid(unsafe_code)]

use super::{
    Function,
    dispatch::{Input, Output, done, out},
    infiniband::LinkState,
    refusal::Refusal,
};
use crate::config::ModelConfig;
use mlx5_direct::mlx5::{
    cmd::{
        ModifyNicVportContextIn, ModifyVportStateIn, QueryHcaVportContextIn, QueryHcaVportContextOut,
        QueryHcaVportGidIn, QueryHcaVportGidOut, QueryHcaVportPkeyIn, QueryHcaVportPkeyOut,
        QueryNicVportContextIn, QueryNicVportContextOut, QueryVportStateIn, QueryVportStateOut,
        VportAdminState, VportState,
    },
    context::{HcaVportContext, InlineMode, MacAddressLayout, NicVportContext, NicVportListType, Pkey},
};
use zerocopy::IntoBytes;

/// The only partition: full member of the default one.
const PKEY: u16 = 0xffff;
/// Asks for the whole table.
const ALL: u16 = 0xffff;
/// The largest frame of a card.
pub(crate) const MAX_FRAME_MTU: u16 = 9978;
const DEFAULT_FRAME_MTU: u16 = 1500;
const LARGEST_RDMA_MTU_BYTES: u16 = 4096;
/// What Ethernet (22 bytes) and RoCE v2 (GRH, UDP, BTH, XRCETH, AtomicETH, ICRC: 96 bytes) put around a payload.
const HEADER_BYTES: u16 = 22 + 96;

/// The largest frame of a port whose largest RDMA MTU this is: one byte less than the next MTU needs, if there is one.
fn max_frame_mtu(rdma_mtu_bytes: u16) -> u16 {
    if rdma_mtu_bytes == LARGEST_RDMA_MTU_BYTES {
        MAX_FRAME_MTU
    } else {
        2 * rdma_mtu_bytes + HEADER_BYTES - 1
    }
}

/// State of the port.
#[derive(Debug)]
pub(crate) struct Vport {
    context: NicVportContext,
    /// The addresses of each allowed list, as they were given.
    lists: [Vec<u8>; 3],
    admin: VportAdminState,
    pub(crate) paos_up: bool,
    pub(crate) frame_mtu: u16,
    pub(crate) max_frame_mtu: u16,
    cable: bool,
}

/// EUI-64 of a MAC: the GUIDs, and the lower half of the link-local GID.
fn eui64([a, b, c, d, e, f]: [u8; 6]) -> u64 {
    u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

impl Vport {
    pub(crate) fn new(index: u8, config: &ModelConfig) -> Self {
        let rdma_mtu_bytes = config.mtu_bytes;
        let mac = |index| config.port_mac(index);
        let max_frame_mtu = max_frame_mtu(rdma_mtu_bytes);
        let frame_mtu = DEFAULT_FRAME_MTU.min(max_frame_mtu);
        let context = NicVportContext::new()
            .with_min_wqe_inline_mode(InlineMode::L2)
            .with_mtu(frame_mtu)
            .with_system_image_guid(eui64(mac(0)))
            .with_port_guid(eui64(mac(index)))
            .with_node_guid(eui64(mac(index)))
            .with_permanent_address(MacAddressLayout::new().with_mac(mac(index)));
        Self {
            context,
            lists: Default::default(),
            admin: VportAdminState::ADMIN_STATE_UP,
            paos_up: true,
            frame_mtu,
            max_frame_mtu,
            cable: true,
        }
    }

    /// Frames to the own address come back.
    pub(crate) fn loops_unicast(&self) -> bool {
        !self.context.disable_uc_local_lb()
    }

    /// Frames to groups come back too.
    pub(crate) fn loops_multicast(&self) -> bool {
        !self.context.disable_mc_local_lb()
    }

    pub(crate) fn mac(&self) -> [u8; 6] {
        self.context.permanent_address().mac()
    }

    pub(crate) fn port_guid(&self) -> u64 {
        self.context.port_guid()
    }

    /// GUIDs of the card and of the function.
    pub(crate) fn guids(&self) -> (u64, u64) {
        (self.context.system_image_guid(), self.context.node_guid())
    }

    pub(crate) fn roce_enabled(&self) -> bool {
        self.context.roce_en()
    }

    pub(crate) fn link_up(&self) -> bool {
        self.cable && self.paos_up && self.admin != VportAdminState::ADMIN_STATE_DOWN
    }

    /// Plugs or pulls the cable; true if the link changed.
    pub(crate) fn set_link(&mut self, up: bool) -> bool {
        let before = self.link_up();
        self.cable = up;
        before != self.link_up()
    }

    /// Sets the port's administrative state; true if the link changed.
    pub(crate) fn set_paos(&mut self, up: bool) -> bool {
        let before = self.link_up();
        self.paos_up = up;
        before != self.link_up()
    }
}

/// Only the function's own vport exists.
pub(super) fn own_vport(other_vport: bool, vport_number: u16) -> Result<(), Refusal> {
    if other_vport || vport_number != 0 { Err(Refusal::FUNCTION_ID) } else { Ok(()) }
}

/// The whole of a table, or one entry.
fn select<T: Clone>(table: &[T], index: u16) -> Result<Vec<T>, Refusal> {
    match index {
        ALL => Ok(table.to_vec()),
        _ => table.get(usize::from(index)).map(|entry| vec![entry.clone()]).ok_or(Refusal::ROCE_INDEX),
    }
}

impl Function {
    /// One more; the counter stays at its greatest value.
    pub(super) fn count_qkey_violation(&mut self) {
        let context = &mut self.vport.context;
        context.set_qkey_violation_counter(context.qkey_violation_counter().saturating_add(1));
    }

    pub(super) fn query_nic_vport_context(&mut self, input: &Input<'_>) -> Output {
        let input: QueryNicVportContextIn = input.get()?;
        own_vport(input.other_vport(), input.vport_number())?;
        let kind = input.allowed_list_type();
        let list = self.vport.lists.get(usize::from(kind.0)).ok_or(Refusal::BAD_OP_MOD)?;
        let context =
            self.vport.context.with_allowed_list_type(kind).with_allowed_list_size((list.len() / 8) as u16);
        let head = QueryNicVportContextOut::new().with_nic_vport_context(context);
        let mut output = head.as_bytes().to_vec();
        output.extend_from_slice(list);
        Ok(output)
    }

    pub(super) fn modify_nic_vport_context(&mut self, input: &Input<'_>) -> Output {
        let (input, list) = input.get_with_list::<ModifyNicVportContextIn>()?;
        own_vport(input.other_vport(), input.vport_number())?;
        let (select, new) = (input.field_select(), input.nic_vport_context());
        let context = &mut self.vport.context;
        if select.addresses_list() {
            let n_bytes = usize::from(new.allowed_list_size()) * 8;
            let limit = match new.allowed_list_type() {
                NicVportListType::UC | NicVportListType::MC => 1 << 7,
                NicVportListType::VLAN => 1 << 12,
                _ => return Err(Refusal::BAD_OP_MOD),
            };
            if n_bytes > limit * 8 {
                return Err(Refusal::TABLE_FULL);
            }
            let list = list.get(..n_bytes).ok_or(Refusal::LIST_SHORT)?;
            self.vport.lists[usize::from(new.allowed_list_type().0)] = list.to_vec();
        }
        if select.roce_en() {
            context.set_roce_en(new.roce_en());
        }
        if select.mtu() {
            context.set_mtu(new.mtu());
        }
        if select.promisc() {
            context.set_promisc_uc(new.promisc_uc());
            context.set_promisc_mc(new.promisc_mc());
            context.set_promisc_all(new.promisc_all());
        }
        if select.permanent_address() {
            context.set_permanent_address(new.permanent_address());
        }
        if select.min_inline() {
            context.set_min_wqe_inline_mode(new.min_wqe_inline_mode());
        }
        if select.node_guid() {
            context.set_node_guid(new.node_guid());
        }
        if select.port_guid() {
            context.set_port_guid(new.port_guid());
        }
        if select.change_event() {
            context.set_arm_change_event(new.arm_change_event());
        }
        if select.disable_uc_local_lb() {
            context.set_disable_uc_local_lb(new.disable_uc_local_lb());
        }
        if select.disable_mc_local_lb() {
            context.set_disable_mc_local_lb(new.disable_mc_local_lb());
        }
        done()
    }

    pub(super) fn query_vport_state(&mut self, input: &Input<'_>) -> Output {
        let input: QueryVportStateIn = input.get()?;
        own_vport(input.other_vport(), input.vport_number())?;
        let state = if self.link_up() { VportState::STATE_UP } else { VportState::STATE_DOWN };
        out(QueryVportStateOut::new().with_state(state).with_admin_state(self.vport.admin))
    }

    pub(super) fn modify_vport_state(&mut self, input: &Input<'_>) -> Output {
        let input: ModifyVportStateIn = input.get()?;
        own_vport(input.other_vport(), input.vport_number())?;
        let before = self.link_up();
        self.vport.admin = input.admin_state();
        if before != self.link_up() {
            self.port_event();
        }
        done()
    }

    pub(super) fn query_hca_vport_context(&mut self, input: &Input<'_>) -> Output {
        let input: QueryHcaVportContextIn = input.get()?;
        own_vport(input.other_vport(), input.vport_number())?;
        let up = self.link_up();
        if let Some(port) = &self.ib_port {
            let (system_image_guid, node_guid) = self.vport.guids();
            let context = HcaVportContext::new()
                .with_has_smi(true)
                .with_port_physical_state(if up { 5 } else { 2 })
                .with_port_state(port.state() as u8)
                .with_vport_state(if port.state() == LinkState::Active { 4 } else { 1 })
                .with_system_image_guid(system_image_guid)
                .with_port_guid(self.vport.port_guid())
                .with_node_guid(node_guid)
                .with_cap_mask1(port.capability_mask())
                .with_qkey_violation_counter(self.vport.context.qkey_violation_counter())
                .with_lid(port.lid())
                .with_lmc(port.lmc())
                .with_subnet_timeout(port.subnet_timeout())
                .with_sm_lid(port.sm_lid())
                .with_sm_sl(port.sm_sl());
            return out(QueryHcaVportContextOut::new().with_hca_vport_context(context));
        }
        let context = HcaVportContext::new()
            .with_grh_required(true)
            .with_port_physical_state(if up { 5 } else { 3 })
            .with_vport_state(if up { 4 } else { 1 })
            .with_port_guid(self.vport.context.port_guid())
            .with_node_guid(self.vport.context.node_guid());
        out(QueryHcaVportContextOut::new().with_hca_vport_context(context))
    }

    pub(super) fn query_hca_vport_gid(&mut self, input: &Input<'_>) -> Output {
        let input: QueryHcaVportGidIn = input.get()?;
        own_vport(input.other_vport(), input.vport_number())?;
        let table = match &self.ib_port {
            Some(port) => port.gids(),
            None => self.roce_addresses.iter().map(|entry| entry.source_l3_address()).collect(),
        };
        let gids = select(&table, input.gid_index())?;
        let head = QueryHcaVportGidOut::new().with_gids_num(gids.len() as u16);
        let mut output = head.as_bytes().to_vec();
        output.extend(gids.as_flattened());
        Ok(output)
    }

    pub(super) fn query_hca_vport_pkey(&mut self, input: &Input<'_>) -> Output {
        let input: QueryHcaVportPkeyIn = input.get()?;
        own_vport(input.other_vport(), input.vport_number())?;
        let table = match &self.ib_port {
            Some(port) => port.pkeys.map(|pkey| Pkey::new().with_pkey(pkey)).to_vec(),
            None => vec![Pkey::new().with_pkey(PKEY)],
        };
        let pkeys = select(&table, input.pkey_index())?;
        let mut output = QueryHcaVportPkeyOut::new().as_bytes().to_vec();
        output.extend(pkeys.as_bytes());
        Ok(output)
    }
}
