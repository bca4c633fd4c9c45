//! Capability groups: what the device can do, and what the driver has set.
#![forbid(unsafe_code)]

use super::{
    Function, compression,
    dispatch::{Input, Output, done},
    general_object, memic, page_fault, rate,
    refusal::Refusal,
    scheduling,
    signature::BSF_BYTES,
    xrq,
};
use crate::config::{LinkType, ModelConfig};
use crate::exec::LOG_MAX_COPY_BYTES;
use mlx5_direct::mlx5::{
    caps::{
        AtomicCaps, CmdHcaCap, CmdHcaCap2, FlowTableNicCap, FlowTablePropLayout,
        PerProtocolNetworkingOffloadCaps, RoceCap,
    },
    cmd::{CapType, QueryHcaCapIn, QueryHcaCapOut, SetHcaCapIn},
    layout::{Desc, Kind, Layout},
};
use std::{collections::BTreeMap, ops::RangeInclusive};
use zerocopy::{FromBytes, Immutable, IntoBytes};

pub(crate) const LOG_MAX_QP: u8 = 17;
pub(crate) const LOG_MAX_QP_SZ: u8 = 15;
pub(crate) const LOG_MAX_CQ: u8 = 16;
pub(crate) const LOG_MAX_CQ_SZ: u8 = 22;
pub(crate) const LOG_MAX_EQ: u8 = 6;
pub(crate) const LOG_MAX_EQ_SZ: u8 = 16;
pub(crate) const LOG_MAX_MKEY: u8 = 18;
pub(crate) const LOG_MAX_MRW_SZ: u8 = 40;
/// Keys that name keys, one behind the other.
pub(crate) const MAX_INDIRECTION: u8 = 4;
/// Contexts of user processes, and their pieces of memory.
pub(crate) const LOG_MAX_UCTX: u8 = 10;
pub(crate) const LOG_MAX_UMEM: u8 = 16;
pub(crate) const LOG_MAX_PD: u8 = 16;
pub(crate) const LOG_MAX_XRCD: u8 = 16;
pub(crate) const LOG_MAX_TRANSPORT_DOMAIN: u8 = 10;
pub(crate) const LOG_MAX_READS: u8 = 4;
pub(crate) const LOG_MAX_MSG: u8 = 30;
pub(crate) const MAX_QP_CNT: u16 = 64;
pub(crate) const MAX_WQE_BYTES_RQ: u16 = 512;
/// Streams of a DC initiator, and those of them in error.
pub(crate) const LOG_MAX_DCI_STREAMS: u8 = 4;
pub(crate) const ROCE_TABLE_SIZE: u16 = 16;
/// Source ports of RoCE v2.
pub(crate) const UDP_SOURCE_PORTS: RangeInclusive<u16> = 0xc000..=0xffff;
pub(crate) const LOG_MAX_SRQ_SZ: u8 = 15;
/// RQs, SQs, TIRs, TISs, RQTs, RMPs and SRQs.
pub(crate) const LOG_MAX_OBJECTS: u8 = 16;
pub(crate) const LOG_MAX_RQT_SIZE: u8 = 11;
pub(crate) const LOG_MAX_WQ_SZ: u8 = 15;
pub(crate) const LOG_MAX_STRIDE: u8 = 12;
pub(crate) const LOG_MAX_FT_SIZE: u8 = 16;
/// log2 of the payload of a large send.
pub(crate) const LOG_MAX_LSO: u8 = 18;
/// Linux 6.8 has a table at level 64, and takes for granted that a card has it.
pub(crate) const MAX_FT_LEVEL: u8 = 128;
pub(crate) const MAX_FLOW_COUNTER: u32 = 1 << 12;
pub(crate) const LOG_MAX_FT_NUM: u8 = 14;
/// Multicast groups, and queue pairs of each.
pub(crate) const LOG_MAX_MCG: u8 = 10;
pub(crate) const MAX_QP_MCG: u32 = 240;
pub(crate) const LOG_BF_REG_SIZE: u8 = 9;
/// Of the internal timer.
const DEVICE_FREQUENCY_KHZ: u32 = 1_000_000;
/// Bytes of a group on the wire.
const GROUP_BYTES: usize = 4096;

/// One group: greatest and current values.
#[derive(Debug, Clone)]
struct Group {
    desc: &'static Desc,
    max: Vec<u8>,
    current: Vec<u8>,
    /// Fields that SET_HCA_CAP changes; none named: all.
    settable: &'static [&'static str],
}

/// Linux sends the atomic group with this field alone, and expects the rest to stay.
const SETTABLE_ATOMIC: &[&str] = &["atomic_req_8b_endianness_mode"];

/// All groups of a function.
#[derive(Debug, Clone)]
pub(crate) struct Capabilities {
    groups: BTreeMap<u16, Group>,
}

/// Compare-and-swap and fetch-and-add, plain and under masks.
const ATOMICS: u16 = 0xf;
/// Words of 4 and 8 bytes.
const ATOMIC_SIZES: u16 = 4 | 8;
/// Sizes of the GID table, in `gid_table_size`.
const GIDS_8: u16 = 0;
const GIDS_64: u16 = 3;
/// Ethernet, in `port_type`; InfiniBand is 0.
const PORT_TYPE_ETHERNET: u8 = 1;

fn general(blue_flame: bool, link: LinkType) -> CmdHcaCap {
    let ethernet = link == LinkType::Ethernet;
    let limits = CmdHcaCap::new()
        .with_log_max_srq_sz(LOG_MAX_SRQ_SZ)
        .with_log_max_qp_sz(LOG_MAX_QP_SZ)
        .with_log_max_qp(LOG_MAX_QP)
        .with_log_max_srq(LOG_MAX_OBJECTS)
        .with_log_max_cq_sz(LOG_MAX_CQ_SZ)
        .with_log_max_cq(LOG_MAX_CQ)
        .with_log_max_eq_sz(LOG_MAX_EQ_SZ)
        .with_log_max_mkey(LOG_MAX_MKEY)
        .with_log_max_eq(LOG_MAX_EQ)
        .with_max_indirection(MAX_INDIRECTION)
        .with_log_max_mrw_sz(LOG_MAX_MRW_SZ)
        .with_log_max_ra_req_qp(LOG_MAX_READS)
        .with_log_max_ra_res_qp(LOG_MAX_READS)
        .with_log_max_msg(LOG_MAX_MSG)
        .with_max_wqe_sz_sq(1024)
        .with_max_wqe_sz_rq(MAX_WQE_BYTES_RQ)
        .with_log_max_pd(LOG_MAX_PD)
        .with_log_max_transport_domain(LOG_MAX_TRANSPORT_DOMAIN)
        .with_log_max_xrcd(LOG_MAX_XRCD)
        .with_max_qp_cnt(MAX_QP_CNT)
        .with_out_of_seq_cnt(true)
        .with_retransmission_q_counters(true)
        .with_enhanced_error_q_counters(true)
        .with_gid_table_size(if ethernet { GIDS_64 } else { GIDS_8 })
        .with_log_max_mcg(LOG_MAX_MCG)
        .with_max_qp_mcg(MAX_QP_MCG)
        .with_log_max_klm_list_size(16)
        .with_max_flow_counter_15_0(MAX_FLOW_COUNTER as u16);
    let queues = limits
        .with_log_max_rq(LOG_MAX_OBJECTS)
        .with_log_max_sq(LOG_MAX_OBJECTS)
        .with_log_max_tir(LOG_MAX_OBJECTS)
        .with_log_max_tis(LOG_MAX_OBJECTS)
        .with_log_max_rmp(LOG_MAX_OBJECTS)
        .with_log_max_rqt(LOG_MAX_OBJECTS)
        .with_log_max_rqt_size(LOG_MAX_RQT_SIZE)
        .with_basic_cyclic_rcv_wqe(true)
        .with_log_max_wq_sz(LOG_MAX_WQ_SZ)
        .with_log_max_stride_sz_rq(LOG_MAX_STRIDE)
        .with_log_min_stride_sz_rq(4)
        .with_log_max_current_uc_list(7)
        .with_log_max_current_mc_list(7)
        .with_log_max_vlan_list(12)
        .with_log_max_l2_table(10)
        .with_max_tc(8);
    queues
        .with_port_type(if ethernet { PORT_TYPE_ETHERNET } else { 0 })
        .with_num_ports(1)
        .with_fixed_buffer_size(true)
        .with_local_ca_ack_delay(16)
        .with_cqe_version(1)
        .with_compact_address_vector(true)
        .with_log_bf_reg_size(LOG_BF_REG_SIZE)
        .with_bf(blue_flame)
        .with_rc(true)
        .with_uc(true)
        .with_ud(true)
        .with_xrc(true)
        .with_dct(true)
        .with_sctr_data_cqe(true)
        .with_dc_req_scat_data_cqe(true)
        .with_log_max_dci_stream_channels(LOG_MAX_DCI_STREAMS)
        .with_log_max_dci_errored_streams(LOG_MAX_DCI_STREAMS)
        .with_qpc_extension(true)
        .with_rts2rts_qp_udp_sport(ethernet)
        .with_cqe_128_always(true)
        .with_cqe_compression(true)
        .with_cqe_compression_128(true)
        .with_mini_cqe_resp_stride_index(true)
        .with_cqe_compression_max_num(compression::MAX_SESSION)
        .with_cqe_compression_timeout(compression::TIMEOUT_US)
        .with_hca_cap_2(true)
        .with_general_obj_types(general_object::TYPES)
        .with_atomic(true)
        .with_roce(ethernet)
        .with_umem_uid_0(true)
        .with_log_max_umem(LOG_MAX_UMEM)
        .with_log_max_uctx(LOG_MAX_UCTX)
        .with_device_memory(true)
        .with_qos(true)
        .with_eth_net_offloads(ethernet)
        .with_eth_virt(ethernet)
        .with_nic_flow_table(true)
        .with_block_lb_mc(true)
        .with_cq_moderation(true)
        .with_cq_resize(true)
        .with_uar_sz(5)
        .with_num_of_uars_per_page(1)
        .with_log_pg_sz(12)
        .with_device_frequency_khz(DEVICE_FREQUENCY_KHZ)
        .with_device_frequency_mhz(DEVICE_FREQUENCY_KHZ / 1000)
        .with_umr_ptr_rlky(true)
        .with_null_mkey(true)
        .with_pg(true)
        .with_imaicl(true)
        .with_umr_extended_translation_offset(true)
        .with_relaxed_ordering_write(true)
        .with_relaxed_ordering_write_umr(true)
        .with_relaxed_ordering_read(true)
        .with_relaxed_ordering_read_umr(true)
        .with_umr_fence(2)
        .with_sho(true)
        .with_sigerr_cqe(true)
        .with_sigerr_domain_and_sig_type(true)
        .with_sig_crc32c(true)
        .with_sig_block_4048(true)
        .with_drain_sigerr(true)
        .with_log_max_bsf_list_size((BSF_BYTES / 16).ilog2() as u8)
        .with_dma_mmo_qp(true)
        .with_log_dma_mmo_max_size(LOG_MAX_COPY_BYTES)
        // libmlx5 connects the queue pair of a list's operations without a GRH, which Linux refuses on RoCE.
        .with_tag_matching(!ethernet)
        .with_rndv_offload_rc(!ethernet)
        .with_log_tag_matching_list_sz(if ethernet { 0 } else { xrq::LOG_MAX_TAGS })
        .with_log_max_xrq(if ethernet { 0 } else { LOG_MAX_OBJECTS })
        .with_driver_version(true)
        .with_pcam_reg(true)
        .with_mcam_reg(true)
        .with_ports_check(ethernet)
        .with_vport_counters(true)
        .with_nic_receive_steering_discard(ethernet)
        .with_transmit_discard_vport_down(true)
        .with_force_teardown(true)
        .with_fast_teardown(true)
}

fn general_2() -> CmdHcaCap2 {
    CmdHcaCap2::new()
        .with_log_max_num_reserved_qpn(
            general_object::LOG_MAX_RESERVATIONS + general_object::LOG_RESERVED_QPNS,
        )
        .with_log_reserved_qpn_granularity(general_object::LOG_RESERVED_QPNS)
        .with_log_reserved_qpn_max_alloc(general_object::LOG_RESERVED_QPNS)
}

fn roce() -> RoceCap {
    RoceCap::new()
        .with_l3_type(7)
        .with_roce_version(5)
        .with_r_roce_dest_udp_port(4791)
        .with_r_roce_max_src_udp_port(*UDP_SOURCE_PORTS.end())
        .with_r_roce_min_src_udp_port(*UDP_SOURCE_PORTS.start())
        .with_roce_address_table_size(ROCE_TABLE_SIZE)
}

fn atomic() -> AtomicCaps {
    AtomicCaps::new()
        .with_atomic_req_8b_endianness_mode(1)
        .with_supported_atomic_req_8b_endianness_mode_1(true)
        .with_atomic_operations(ATOMICS)
        .with_atomic_size_qp(ATOMIC_SIZES)
        .with_atomic_size_dc(ATOMIC_SIZES)
}

fn ethernet() -> PerProtocolNetworkingOffloadCaps {
    PerProtocolNetworkingOffloadCaps::new()
        .with_csum_cap(true)
        .with_vlan_cap(true)
        .with_max_lso_cap(LOG_MAX_LSO)
        .with_wqe_inline_mode(1)
        .with_rss_ind_tbl_cap(11)
        .with_self_lb_en_modifiable(true)
}

/// Fields of outer headers that steering takes out of packets: addresses, tags, TTL, fragments, protocols, ports, flags.
const FT_FIELDS: [u8; 16] = [0xff, 0xff, 0xfe, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

fn flow_table() -> FlowTableNicCap {
    let properties = FlowTablePropLayout::new()
        .with_ft_support(true)
        .with_flow_modify_en(true)
        .with_modify_root(true)
        .with_identified_miss_table_mode(true)
        .with_flow_table_modify(true)
        .with_log_max_ft_size(LOG_MAX_FT_SIZE)
        .with_max_ft_level(MAX_FT_LEVEL)
        .with_log_max_ft_num(LOG_MAX_FT_NUM)
        .with_flow_tag(true)
        .with_flow_counter(true)
        .with_log_max_flow_counter(MAX_FLOW_COUNTER.ilog2() as u8)
        .with_log_max_destination(10)
        .with_log_max_flow(18)
        .with_ft_field_support(FT_FIELDS)
        .with_ft_field_bitmask_support(FT_FIELDS);
    FlowTableNicCap::new().with_flow_table_properties_nic_receive(properties)
}

impl Capabilities {
    pub(crate) fn new(config: &ModelConfig) -> Self {
        let mut groups = BTreeMap::new();
        let mut add = |group: CapType, desc: &'static Desc, bytes: &[u8]| {
            let settable = if group == CapType::ATOMIC { SETTABLE_ATOMIC } else { &[] };
            let group_now = Group { desc, max: bytes.to_vec(), current: bytes.to_vec(), settable };
            groups.insert(group.0, group_now);
        };
        fn bytes<T: IntoBytes + Immutable + Layout>(caps: &T) -> (&'static Desc, &[u8]) {
            (T::DESC, caps.as_bytes())
        }
        for (group, (desc, bytes)) in [
            (CapType::GENERAL, bytes(&general(config.blue_flame, config.link))),
            (CapType::GENERAL_2, bytes(&general_2())),
            (CapType::ODP, bytes(&page_fault::capabilities())),
            (CapType::DEV_MEM, bytes(&memic::capabilities())),
            (CapType::QOS, bytes(&scheduling::capabilities(rate::capabilities()))),
            (CapType::ROCE, bytes(&roce())),
            (CapType::ATOMIC, bytes(&atomic())),
            (CapType::ETHERNET_OFFLOADS, bytes(&ethernet())),
            (CapType::FLOW_TABLE, bytes(&flow_table())),
        ] {
            if config.link == LinkType::InfiniBand
                && matches!(group, CapType::ROCE | CapType::ETHERNET_OFFLOADS)
            {
                continue;
            }
            add(group, desc, bytes);
        }
        Self { groups }
    }

    /// Current general capabilities.
    pub(crate) fn general(&self) -> CmdHcaCap {
        let bytes = self.groups.get(&CapType::GENERAL.0).map_or(&[][..], |group| &group.current);
        CmdHcaCap::read_from_prefix(bytes).map_or_else(|_| CmdHcaCap::new(), |(caps, _)| caps)
    }
}

impl Group {
    /// Stores what the driver set: limits, fields of more than one bit, may not be above the maximum.
    fn set(&mut self, list: &[u8]) -> Result<(), Refusal> {
        let n = self.current.len();
        if list.len() < n.min(0x100) {
            return Err(Refusal::LIST_SHORT);
        }
        let mut new = self.current.clone();
        let given = list.len().min(n);
        new[..given].copy_from_slice(&list[..given]);
        for field in self.desc.fields.iter().filter(|field| field.name.starts_with("log_max_")) {
            if matches!(field.kind, Kind::Bits { .. })
                && self.desc.read(field, &new) > self.desc.read(field, &self.max)
            {
                return Err(Refusal::CAP_ABOVE_MAX);
            }
        }
        if self.settable.is_empty() {
            self.current = new;
        } else {
            for field in self.desc.fields.iter().filter(|field| self.settable.contains(&field.name)) {
                for bit in field.bit_offset..field.bit_offset + field.bit_width {
                    let mask = 0x80 >> (bit % 8);
                    let byte = &mut self.current[bit / 8];
                    *byte = *byte & !mask | new[bit / 8] & mask;
                }
            }
        }
        Ok(())
    }
}

impl Function {
    pub(super) fn query_hca_cap(&mut self, input: &Input<'_>) -> Output {
        let input: QueryHcaCapIn = input.get()?;
        if input.other_function() || input.function_id() != 0 {
            return Err(Refusal::FUNCTION_ID);
        }
        let (group, current) = CapType::from_op_mod(input.op_mod());
        let group = self.caps.groups.get(&group.0).ok_or(Refusal::CAP_GROUP)?;
        let mut output = QueryHcaCapOut::new().as_bytes().to_vec();
        output.extend_from_slice(if current { &group.current } else { &group.max });
        output.resize(QueryHcaCapOut::DESC.size_bytes + GROUP_BYTES, 0);
        Ok(output)
    }

    pub(super) fn set_hca_cap(&mut self, input: &Input<'_>) -> Output {
        let (head, list) = input.get_with_list::<SetHcaCapIn>()?;
        if head.other_function() || head.function_id() != 0 {
            return Err(Refusal::FUNCTION_ID);
        }
        let (group, current) = CapType::from_op_mod(head.op_mod());
        if current {
            return Err(Refusal::BAD_OP_MOD);
        }
        self.caps.groups.get_mut(&group.0).ok_or(Refusal::CAP_GROUP)?.set(list)?;
        self.commands.checksums = self.caps.general().cmdif_checksum() == 3;
        done()
    }
}
