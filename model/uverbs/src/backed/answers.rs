//! What a device and its ports are, in the kernel's words.
#![forbid(unsafe_code)]

use super::{card::Host, refused};
use crate::uapi::*;
use mlx5_direct::backend::{Control, LinkLayer, PhysState, PortState};
use std::ffi::c_int;

/// `enum ib_device_cap_flags`, of what the card has: bad keys are counted, the port tells when it is active, RNR NAKs are
/// made, memory windows of type 2B.
const DEVICE_CAP_FLAGS: u32 = 1 << 1 | 1 << 2 | 1 << 10 | 1 << 11 | 1 << 12 | 1 << 24;
/// `IB_ATOMIC_HCA`: without it libmlx5 refuses atomics.
const ATOMIC_HCA: u32 = 1;
/// `IB_PORT_CM_SUP`, `IB_PORT_IP_BASED_GIDS`.
const PORT_CAP_FLAGS: u32 = 1 << 16 | 1 << 26;
/// Largest receive WQE of a shared queue, less its first segment.
const MAX_SRQ_SGE: u32 = 31;

/// What an opened device is.
pub(super) fn context(host: &Host, n_bfregs: u32) -> AllocUcontextResp {
    let (attr, caps) = (host.attr(), &host.caps);
    AllocUcontextResp {
        qp_tab_size: attr.max_qp,
        bf_reg_size: attr.bf_reg_size_bytes,
        tot_bfregs: n_bfregs,
        cache_line_size: 64,
        max_sq_desc_sz: caps.max_wqe_sz_sq(),
        max_rq_desc_sz: caps.max_wqe_sz_rq(),
        max_send_wqebb: 1 << caps.log_max_qp_sz().min(31),
        max_recv_wr: 1 << caps.log_max_qp_sz().min(31),
        max_srq_recv_wr: 1 << caps.log_max_srq_sz().min(31),
        num_ports: 1,
        response_length: size_of::<AllocUcontextResp>() as u32,
        cqe_version: attr.cqe_version,
        cmds_supp_uhw: CMDS_SUPP_UHW,
        eth_min_inline: INLINE_MODE_NONE,
        log_uar_size: 12,
        num_uars_per_page: 1,
        ..Default::default()
    }
}

/// QUERY_DEVICE.
pub(super) fn device(host: &Host) -> QueryDeviceResp {
    let (attr, caps) = (host.attr(), &host.caps);
    let mut version = attr.fw_ver.split('.').map(|part| part.parse::<u64>().unwrap_or(0));
    let mut part = || version.next().unwrap_or(0);
    QueryDeviceResp {
        fw_ver: part() << 32 | part() << 16 | part(),
        node_guid: attr.node_guid.to_be(),
        sys_image_guid: attr.sys_image_guid.to_be(),
        max_mr_size: attr.max_mr_size,
        page_size_cap: attr.page_size_cap,
        // Of Mellanox's OUI, not of PCI.
        vendor_id: 0x02c9,
        vendor_part_id: attr.vendor_part_id,
        hw_ver: attr.hw_ver,
        max_qp: attr.max_qp,
        max_qp_wr: attr.max_qp_wr,
        device_cap_flags: DEVICE_CAP_FLAGS,
        max_sge: attr.max_send_sge.min(attr.max_recv_sge),
        max_sge_rd: attr.max_sge_rd,
        max_cq: attr.max_cq,
        max_cqe: attr.max_cqe - 1,
        max_mr: attr.max_mr,
        max_pd: attr.max_pd,
        max_qp_rd_atom: attr.max_qp_rd_atom.into(),
        max_res_rd_atom: u32::from(attr.max_qp_rd_atom).saturating_mul(attr.max_qp),
        max_qp_init_rd_atom: attr.max_qp_init_rd_atom.into(),
        atomic_cap: if attr.atomic_cap { ATOMIC_HCA } else { 0 },
        max_mcast_grp: 1 << caps.log_max_mcg().min(31),
        max_mcast_qp_attach: caps.max_qp_mcg(),
        max_mw: attr.max_mr,
        max_ah: i32::MAX as u32,
        max_srq: 1 << caps.log_max_srq().min(31),
        max_srq_wr: (1 << caps.log_max_srq_sz().min(31)) - 1,
        max_srq_sge: MAX_SRQ_SGE,
        max_pkeys: attr.max_pkeys,
        local_ca_ack_delay: attr.local_ca_ack_delay,
        phys_port_cnt: attr.phys_port_cnt,
        ..Default::default()
    }
}

/// QUERY_PORT.
pub(super) fn port(host: &Host, port: u8) -> Result<QueryPortResp, c_int> {
    let attr = host.control.query_port(port).map_err(refused)?;
    let (active_speed, active_width) = speed(attr.active_speed_mbps, attr.active_width);
    let ethernet = attr.link_layer == LinkLayer::Ethernet;
    Ok(QueryPortResp {
        port_cap_flags: PORT_CAP_FLAGS,
        max_msg_sz: attr.max_msg_sz,
        qkey_viol_cntr: attr.qkey_viol_cntr.into(),
        gid_tbl_len: attr.gid_tbl_len.into(),
        pkey_tbl_len: attr.pkey_tbl_len,
        lid: attr.lid,
        sm_lid: attr.lid,
        state: match attr.state {
            PortState::Down => 1,
            PortState::Init => 2,
            PortState::Armed => 3,
            PortState::Active => 4,
        },
        max_mtu: attr.max_mtu.0,
        active_mtu: attr.active_mtu.0,
        max_vl_num: u8::from(!ethernet),
        active_width,
        active_speed,
        phys_state: match attr.phys_state {
            PhysState::Disabled => 3,
            PhysState::Polling => 2,
            PhysState::LinkUp => 5,
        },
        link_layer: if ethernet { 2 } else { 1 },
        ..Default::default()
    })
}

/// `enum ib_port_speed` and `enum ib_port_width` of a speed and its lanes.
fn speed(mbps: u32, lanes: u8) -> (u8, u8) {
    let width = match lanes {
        0 | 1 => 1,
        2 => 16,
        4 => 2,
        8 => 4,
        _ => 8,
    };
    let speed = match mbps / u32::from(lanes.max(1)) {
        0..5_000 => 1,
        5_000..10_000 => 2,
        10_000..14_000 => 4,
        14_000..25_000 => 16,
        25_000..50_000 => 32,
        50_000..100_000 => 64,
        _ => 128,
    };
    (speed, width)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_in_the_kernels_codes() {
        assert_eq!(speed(100_000, 4), (32, 2), "EDR, four lanes");
        assert_eq!(speed(200_000, 4), (64, 2), "HDR");
        assert_eq!(speed(40_000, 4), (4, 2), "QDR");
        assert_eq!(speed(0, 0), (1, 1));
    }
}
