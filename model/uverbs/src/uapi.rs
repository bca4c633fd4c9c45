//! Structures and numbers of the kernel's uverbs interface: `rdma/ib_user_verbs.h`, `rdma/mlx5-abi.h`. Requests are
//! without the response address that some begin with.
#![forbid(unsafe_code)]

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `enum ib_uverbs_write_cmds`, and their extended forms.
pub(crate) mod number {
    pub(crate) const GET_CONTEXT: u32 = 0;
    pub(crate) const QUERY_DEVICE: u32 = 1;
    pub(crate) const QUERY_PORT: u32 = 2;
    pub(crate) const ALLOC_PD: u32 = 3;
    pub(crate) const DEALLOC_PD: u32 = 4;
    pub(crate) const CREATE_AH: u32 = 5;
    pub(crate) const DESTROY_AH: u32 = 8;
    pub(crate) const REG_MR: u32 = 9;
    pub(crate) const DEREG_MR: u32 = 13;
    pub(crate) const ALLOC_MW: u32 = 14;
    pub(crate) const DEALLOC_MW: u32 = 16;
    pub(crate) const CREATE_COMP_CHANNEL: u32 = 17;
    pub(crate) const CREATE_CQ: u32 = 18;
    pub(crate) const DESTROY_CQ: u32 = 20;
    pub(crate) const CREATE_QP: u32 = 24;
    pub(crate) const QUERY_QP: u32 = 25;
    pub(crate) const MODIFY_QP: u32 = 26;
    pub(crate) const DESTROY_QP: u32 = 27;
    pub(crate) const ATTACH_MCAST: u32 = 30;
    pub(crate) const DETACH_MCAST: u32 = 31;
    pub(crate) const CREATE_SRQ: u32 = 32;
    pub(crate) const MODIFY_SRQ: u32 = 33;
    pub(crate) const QUERY_SRQ: u32 = 34;
    pub(crate) const DESTROY_SRQ: u32 = 35;
    pub(crate) const OPEN_XRCD: u32 = 37;
    pub(crate) const CLOSE_XRCD: u32 = 38;
    pub(crate) const CREATE_XSRQ: u32 = 39;
    /// `IB_USER_VERBS_CMD_FLAG_EXTENDED`.
    pub(crate) const EXTENDED: u32 = 1 << 31;
}

macro_rules! structures {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $ty:ty,)* })*) => { $(
        $(#[$doc])*
        #[repr(C)]
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
        pub(crate) struct $name { $(pub(crate) $field: $ty,)* }
    )* };
}

structures! {
    /// `struct ib_uverbs_cmd_hdr`: words of 4 bytes.
    Header { command: u32, in_words: u16, out_words: u16, }
    /// `struct ib_uverbs_ex_cmd_hdr`: words of 8 bytes here and in the header before it.
    ExtendedHeader { response: u64, provider_in_words: u16, provider_out_words: u16, reserved: u32, }

    /// `struct mlx5_ib_alloc_ucontext_req`, with which newer ones begin.
    AllocUcontextReq { total_num_bfregs: u32, num_low_latency_bfregs: u32, }
    GetContextResp { async_fd: u32, num_comp_vectors: u32, }
    /// `struct mlx5_ib_alloc_ucontext_resp`.
    AllocUcontextResp {
        qp_tab_size: u32, bf_reg_size: u32, tot_bfregs: u32, cache_line_size: u32, max_sq_desc_sz: u16,
        max_rq_desc_sz: u16, max_send_wqebb: u32, max_recv_wr: u32, max_srq_recv_wr: u32, num_ports: u16,
        flow_action_flags: u16, comp_mask: u32, response_length: u32, cqe_version: u8, cmds_supp_uhw: u8,
        eth_min_inline: u8, clock_info_versions: u8, hca_core_clock_offset: u64, log_uar_size: u32,
        num_uars_per_page: u32, num_dyn_bfregs: u32, dump_fill_mkey: u32,
    }
    QueryDeviceResp {
        fw_ver: u64, node_guid: u64, sys_image_guid: u64, max_mr_size: u64, page_size_cap: u64, vendor_id: u32,
        vendor_part_id: u32, hw_ver: u32, max_qp: u32, max_qp_wr: u32, device_cap_flags: u32, max_sge: u32,
        max_sge_rd: u32, max_cq: u32, max_cqe: u32, max_mr: u32, max_pd: u32, max_qp_rd_atom: u32,
        max_ee_rd_atom: u32, max_res_rd_atom: u32, max_qp_init_rd_atom: u32, max_ee_init_rd_atom: u32,
        atomic_cap: u32, max_ee: u32, max_rdd: u32, max_mw: u32, max_raw_ipv6_qp: u32, max_raw_ethy_qp: u32,
        max_mcast_grp: u32, max_mcast_qp_attach: u32, max_total_mcast_qp_attach: u32, max_ah: u32, max_fmr: u32,
        max_map_per_fmr: u32, max_srq: u32, max_srq_wr: u32, max_srq_sge: u32, max_pkeys: u16,
        local_ca_ack_delay: u8, phys_port_cnt: u8, reserved: u32,
    }
    /// `struct ib_uverbs_ex_query_device_resp` as far as it is answered: the rest stays zero.
    ExQueryDeviceResp { base: QueryDeviceResp, comp_mask: u32, response_length: u32, }
    /// `struct mlx5_ib_query_device_resp` as far as it is answered, with its `tso_caps`.
    Mlx5QueryDeviceResp { comp_mask: u32, response_length: u32, max_tso: u32, tso_qpts: u32, }
    QueryPortResp {
        port_cap_flags: u32, max_msg_sz: u32, bad_pkey_cntr: u32, qkey_viol_cntr: u32, gid_tbl_len: u32,
        pkey_tbl_len: u16, lid: u16, sm_lid: u16, state: u8, max_mtu: u8, active_mtu: u8, lmc: u8,
        max_vl_num: u8, sm_sl: u8, subnet_timeout: u8, init_type_reply: u8, active_width: u8,
        active_speed: u8, phys_state: u8, link_layer: u8, flags: u8, reserved: u8,
    }
    /// Responses that are a handle and one number: protection domains, memory windows, channels' descriptors.
    HandleResp { handle: u32, }
    RegMr { start: u64, length: u64, hca_va: u64, pd_handle: u32, access_flags: u32, }
    RegMrResp { mr_handle: u32, lkey: u32, rkey: u32, }
    AllocMw { pd_handle: u32, mw_type: u8, reserved: [u8; 3], }
    AllocMwResp { mw_handle: u32, rkey: u32, }
    CreateCq { user_handle: u64, cqe: u32, comp_vector: u32, comp_channel: u32, reserved: u32, }
    /// What the extended form ends with.
    ExCreateCqEnd { comp_mask: u32, flags: u32, reserved: u32, }
    /// `struct mlx5_ib_create_cq` as far as it is looked at.
    Mlx5CreateCq {
        buf_addr: u64, db_addr: u64, cqe_size: u32, cqe_comp_en: u8, cqe_comp_res_format: u8, flags: u16,
    }
    CreateCqResp { cq_handle: u32, cqe: u32, }
    /// `struct ib_uverbs_create_qp`, with which the extended form begins too.
    CreateQp {
        user_handle: u64, pd_handle: u32, send_cq_handle: u32, recv_cq_handle: u32, srq_handle: u32,
        max_send_wr: u32, max_recv_wr: u32, max_send_sge: u32, max_recv_sge: u32, max_inline_data: u32,
        sq_sig_all: u8, qp_type: u8, is_srq: u8, reserved: u8,
    }
    /// `struct mlx5_ib_create_qp` as far as it is looked at.
    Mlx5CreateQp {
        buf_addr: u64, db_addr: u64, sq_wqe_count: u32, rq_wqe_count: u32, rq_wqe_shift: u32, flags: u32,
        uidx: u32, bfreg_index: u32,
    }
    CreateQpResp {
        qp_handle: u32, qpn: u32, max_send_wr: u32, max_recv_wr: u32, max_send_sge: u32, max_recv_sge: u32,
        max_inline_data: u32, reserved: u32,
    }
    /// What the extended form ends with.
    ExCreateQpEnd { comp_mask: u32, create_flags: u32, rwq_ind_tbl_handle: u32, source_qpn: u32, }
    /// What the extended create responses end with.
    ExtendedResp { comp_mask: u32, response_length: u32, }
    /// `struct ib_uverbs_qp_dest`: the way to a peer.
    QpDest {
        dgid: [u8; 16], flow_label: u32, dlid: u16, reserved: u16, sgid_index: u8, hop_limit: u8, traffic_class: u8,
        sl: u8, src_path_bits: u8, static_rate: u8, is_global: u8, port_num: u8,
    }
    /// `struct ib_uverbs_modify_qp`.
    ModifyQp {
        dest: QpDest, alt_dest: QpDest, qp_handle: u32, attr_mask: u32, qkey: u32, rq_psn: u32, sq_psn: u32,
        dest_qp_num: u32, qp_access_flags: u32, pkey_index: u16, alt_pkey_index: u16, qp_state: u8,
        cur_qp_state: u8, path_mtu: u8, path_mig_state: u8, en_sqd_async_notify: u8, max_rd_atomic: u8,
        max_dest_rd_atomic: u8, min_rnr_timer: u8, port_num: u8, timeout: u8, retry_cnt: u8, rnr_retry: u8,
        alt_port_num: u8, alt_timeout: u8, reserved: u16,
    }
    QueryQpResp {
        dest: QpDest, alt_dest: QpDest, max_send_wr: u32, max_recv_wr: u32, max_send_sge: u32,
        max_recv_sge: u32, max_inline_data: u32, qkey: u32, rq_psn: u32, sq_psn: u32, dest_qp_num: u32,
        qp_access_flags: u32, pkey_index: u16, alt_pkey_index: u16, qp_state: u8, cur_qp_state: u8, path_mtu: u8,
        path_mig_state: u8, sq_draining: u8, max_rd_atomic: u8, max_dest_rd_atomic: u8, min_rnr_timer: u8,
        port_num: u8, timeout: u8, retry_cnt: u8, rnr_retry: u8, alt_port_num: u8, alt_timeout: u8,
        sq_sig_all: u8, reserved: [u8; 5],
    }
    /// `struct ib_uverbs_create_ah`, with its `struct ib_uverbs_ah_attr`.
    CreateAh {
        user_handle: u64, pd_handle: u32, reserved: u32, dgid: [u8; 16], flow_label: u32, sgid_index: u8, hop_limit: u8,
        traffic_class: u8, reserved_grh: u8, dlid: u16, sl: u8, src_path_bits: u8, static_rate: u8, is_global: u8,
        port_num: u8, reserved_attr: u8,
    }
    /// `struct ib_uverbs_attach_mcast` and that to detach.
    Mcast { gid: [u8; 16], qp_handle: u32, mlid: u16, reserved: u16, }
    DestroyCqResp { comp_events_reported: u32, async_events_reported: u32, }
    CreateSrq { user_handle: u64, pd_handle: u32, max_wr: u32, max_sge: u32, srq_limit: u32, }
    CreateXsrq {
        user_handle: u64, srq_type: u32, pd_handle: u32, max_wr: u32, max_sge: u32, srq_limit: u32,
        max_num_tags: u32, xrcd_handle: u32, cq_handle: u32,
    }
    /// `struct mlx5_ib_create_srq`.
    Mlx5CreateSrq { buf_addr: u64, db_addr: u64, flags: u32, reserved: u32, uidx: u32, reserved_end: u32, }
    ModifySrq { srq_handle: u32, attr_mask: u32, max_wr: u32, srq_limit: u32, }
    QuerySrqResp { max_wr: u32, max_sge: u32, srq_limit: u32, reserved: u32, }
    CreateSrqResp { srq_handle: u32, max_wr: u32, max_sge: u32, srqn: u32, }
    /// Number of the device's object: the driver's part of several responses.
    NumberResp { number: u32, reserved: u32, }
    /// `struct mlx5_ib_create_qp_resp`.
    Mlx5CreateQpResp {
        bfreg_index: u32, ece_options: u32, comp_mask: u32, tirn: u32, tisn: u32, rqn: u32, sqn: u32,
        reserved: u32, tir_icm_addr: u64,
    }
    /// What a completion channel's descriptor gives: `struct ib_uverbs_comp_event_desc`.
    CompEventDesc { cq_handle: u64, }
    /// What a device's descriptor of events gives: `struct ib_uverbs_async_event_desc`.
    AsyncEventDesc { element: u64, event_type: u32, reserved: u32, }
    /// `struct mlx5_ib_create_ah_resp`.
    Mlx5CreateAhResp { response_length: u32, dmac: [u8; 6], reserved: [u8; 6], }
}

/// `enum ib_qp_attr_mask`.
pub(crate) mod attr_mask {
    pub(crate) const STATE: u32 = 1;
    pub(crate) const ACCESS_FLAGS: u32 = 1 << 3;
    pub(crate) const PKEY_INDEX: u32 = 1 << 4;
    pub(crate) const PORT: u32 = 1 << 5;
    pub(crate) const QKEY: u32 = 1 << 6;
    pub(crate) const AV: u32 = 1 << 7;
    pub(crate) const PATH_MTU: u32 = 1 << 8;
    pub(crate) const TIMEOUT: u32 = 1 << 9;
    pub(crate) const RETRY_CNT: u32 = 1 << 10;
    pub(crate) const RNR_RETRY: u32 = 1 << 11;
    pub(crate) const RQ_PSN: u32 = 1 << 12;
    pub(crate) const MAX_QP_RD_ATOMIC: u32 = 1 << 13;
    pub(crate) const ALT_PATH: u32 = 1 << 14;
    pub(crate) const MIN_RNR_TIMER: u32 = 1 << 15;
    pub(crate) const SQ_PSN: u32 = 1 << 16;
    pub(crate) const MAX_DEST_RD_ATOMIC: u32 = 1 << 17;
    pub(crate) const DEST_QPN: u32 = 1 << 20;
    pub(crate) const RATE_LIMIT: u32 = 1 << 25;
}

/// `enum ib_event_type`.
pub(crate) mod event {
    pub(crate) const CQ_ERR: u32 = 0;
    pub(crate) const QP_FATAL: u32 = 1;
    pub(crate) const QP_REQ_ERR: u32 = 2;
    pub(crate) const QP_ACCESS_ERR: u32 = 3;
    pub(crate) const COMM_EST: u32 = 4;
    pub(crate) const SQ_DRAINED: u32 = 5;
    pub(crate) const DEVICE_FATAL: u32 = 8;
    pub(crate) const PORT_ACTIVE: u32 = 9;
    pub(crate) const PORT_ERR: u32 = 10;
    pub(crate) const QP_LAST_WQE_REACHED: u32 = 16;
}

/// `enum ib_qp_type`.
pub(crate) mod qp_type {
    pub(crate) const RC: u8 = 2;
    pub(crate) const UC: u8 = 3;
    pub(crate) const UD: u8 = 4;
    pub(crate) const RAW_PACKET: u8 = 8;
}

/// `MLX5_QP_FLAG_*`.
pub(crate) mod qp_flag {
    pub(crate) const SIGNATURE: u32 = 1;
    pub(crate) const SCATTER_CQE: u32 = 1 << 1;
    pub(crate) const ALLOW_SCATTER_CQE: u32 = 1 << 8;
}

/// `IB_MW_TYPE_2`.
pub(crate) const MW_TYPE_2: u8 = 2;
/// `IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN`.
pub(crate) const CQ_IGNORE_OVERRUN: u32 = 1 << 1;
/// `MLX5_IB_CREATE_CQ_FLAGS_CQE_128B_PAD`.
pub(crate) const CQ_128B_PAD: u16 = 1;
/// `IB_SRQ_LIMIT`.
pub(crate) const SRQ_LIMIT: u32 = 1 << 1;
/// `MLX5_USER_CMDS_SUPP_UHW_*`: the kernel finds MAC addresses for address handles.
pub(crate) const CMDS_SUPP_UHW: u8 = 3;
/// Of these, that its answer about the device has a part of mlx5's.
pub(crate) const CMDS_SUPP_UHW_QUERY_DEVICE: u8 = 1;
/// `MLX5_CQE_VERSION_V1`: CQEs carry the number that the library gave a queue pair.
pub(crate) const CQE_VERSION_1: u8 = 1;
/// `MLX5_USER_INLINE_MODE_NONE`: Ethernet frames need no inline header.
pub(crate) const INLINE_MODE_NONE: u8 = 1;
/// `MLX5_USER_INLINE_MODE_L2`: the first 18 bytes are in the request.
pub(crate) const INLINE_MODE_L2: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes of the headers' structures, less the response address of requests.
    #[test]
    fn sizes_are_those_of_the_headers() {
        for (size, expected) in [
            (size_of::<ExtendedHeader>(), 16),
            (size_of::<AllocUcontextResp>(), 72),
            (size_of::<QueryDeviceResp>(), 176),
            (size_of::<QueryPortResp>(), 40),
            (size_of::<CreateCq>(), 24),
            (size_of::<CreateQp>(), 48),
            (size_of::<CreateQpResp>(), 32),
            (size_of::<QpDest>(), 32),
            (size_of::<CreateAh>(), 48),
            (size_of::<ModifyQp>(), 112),
            (size_of::<QueryQpResp>(), 128),
            (size_of::<CreateXsrq>(), 40),
            (size_of::<Mlx5CreateQpResp>(), 40),
            (size_of::<Mlx5CreateAhResp>(), 16),
        ] {
            assert_eq!(size, expected);
        }
    }
}
