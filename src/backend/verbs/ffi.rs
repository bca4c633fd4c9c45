//! What libibverbs and libmlx5 share with their callers: structures and numbers, as `infiniband/verbs.h` and
//! `infiniband/mlx5dv.h` have them. Only what is used here; `ffi/tests.rs` asks a C compiler whether it is so.
#![forbid(unsafe_code)]
#![allow(missing_docs)] // names of the headers, which explain them

mod dv;
mod qp;
#[cfg(test)]
mod tests;

pub use dv::*;
pub use qp::*;

use crate::mlx5::be::Be64;
use std::ffi::{c_char, c_int, c_void};

/// `struct ibv_device`: known to the libraries.
#[repr(C)]
#[derive(Debug)]
pub struct IbvDevice {
    _opaque: [u8; 0],
}

/// `struct ibv_context_ops`: the functions of memory windows, and fast paths that are not taken here.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct IbvContextOps {
    _query_device_to_dereg_mr: [usize; 7],
    pub alloc_mw: Option<unsafe extern "C" fn(*mut IbvPd, c_int) -> *mut IbvMw>,
    _bind_mw: usize,
    pub dealloc_mw: Option<unsafe extern "C" fn(*mut IbvMw) -> c_int>,
    _create_cq_to_async_event: [usize; 22],
}

/// `pthread_mutex_t` and `pthread_cond_t` are not looked into: nothing after them is used.
#[repr(C)]
#[derive(Debug)]
pub struct IbvContext {
    pub device: *mut IbvDevice,
    pub ops: IbvContextOps,
    pub cmd_fd: c_int,
    pub async_fd: c_int,
    pub num_comp_vectors: c_int,
    mutex: libc::pthread_mutex_t,
    pub abi_compat: *mut c_void,
}

/// `abi_compat` of a context that is embedded in a [`VerbsContext`].
pub const VERBS_ABI_IS_EXTENDED: usize = usize::MAX;

/// Functions of `struct verbs_context`, from the first that is used here on.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct VerbsOps {
    pub alloc_parent_domain:
        Option<unsafe extern "C" fn(*mut IbvContext, *mut IbvParentDomainInitAttr) -> *mut IbvPd>,
    pub dealloc_td: Option<unsafe extern "C" fn(*mut IbvTd) -> c_int>,
    pub alloc_td: Option<unsafe extern "C" fn(*mut IbvContext, *mut IbvTdInitAttr) -> *mut IbvTd>,
    _modify_cq_to_modify_wq: [usize; 6],
    _create_wq: usize,
    pub query_rt_values: Option<unsafe extern "C" fn(*mut IbvContext, *mut IbvValuesEx) -> c_int>,
    _create_cq_ex: usize,
    _priv: usize,
    pub query_device_ex:
        Option<unsafe extern "C" fn(*mut IbvContext, *const c_void, *mut IbvDeviceAttrEx, usize) -> c_int>,
}

/// The end of `struct verbs_context`, which grows at its head; `sz` tells how far a library's goes.
#[repr(C)]
#[derive(Debug)]
pub struct VerbsContext {
    pub ops: VerbsOps,
    _destroy_flow_to_close_xrcd: [usize; 10],
    _placeholder: u64,
    pub sz: usize,
    pub context: IbvContext,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct IbvDeviceAttr {
    pub fw_ver: [c_char; 64],
    pub node_guid: Be64,
    pub sys_image_guid: Be64,
    pub max_mr_size: u64,
    pub page_size_cap: u64,
    pub vendor_id: u32,
    pub vendor_part_id: u32,
    pub hw_ver: u32,
    pub max_qp: c_int,
    pub max_qp_wr: c_int,
    pub device_cap_flags: u32,
    pub max_sge: c_int,
    pub max_sge_rd: c_int,
    pub max_cq: c_int,
    pub max_cqe: c_int,
    pub max_mr: c_int,
    pub max_pd: c_int,
    pub max_qp_rd_atom: c_int,
    pub max_ee_rd_atom: c_int,
    pub max_res_rd_atom: c_int,
    pub max_qp_init_rd_atom: c_int,
    pub max_ee_init_rd_atom: c_int,
    /// 0: none.
    pub atomic_cap: c_int,
    _max_ee_to_max_srq_sge: [c_int; 14],
    pub max_pkeys: u16,
    pub local_ca_ack_delay: u8,
    pub phys_port_cnt: u8,
}

/// `struct ibv_device_attr_ex` up to what is used. Libraries write as much as they are told that there is.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct IbvDeviceAttrEx {
    pub orig_attr: IbvDeviceAttr,
    pub comp_mask: u32,
    _odp_caps: [u64; 3],
    pub completion_timestamp_mask: u64,
    /// kHz.
    pub hca_core_clock: u64,
}

/// `struct ibv_port_attr`. A library of before `port_cap_flags2` writes less.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct IbvPortAttr {
    pub state: c_int,
    pub max_mtu: c_int,
    pub active_mtu: c_int,
    pub gid_tbl_len: c_int,
    pub port_cap_flags: u32,
    pub max_msg_sz: u32,
    pub bad_pkey_cntr: u32,
    pub qkey_viol_cntr: u32,
    pub pkey_tbl_len: u16,
    pub lid: u16,
    pub sm_lid: u16,
    pub lmc: u8,
    pub max_vl_num: u8,
    pub sm_sl: u8,
    pub subnet_timeout: u8,
    pub init_type_reply: u8,
    pub active_width: u8,
    pub active_speed: u8,
    pub phys_state: u8,
    pub link_layer: u8,
    pub flags: u8,
    pub port_cap_flags2: u16,
}

pub const IBV_LINK_LAYER_ETHERNET: u8 = 2;

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct IbvGidEntry {
    pub gid: [u64; 2],
    pub gid_index: u32,
    pub port_num: u32,
    /// 0 InfiniBand, 1 RoCE v1, 2 RoCE v2.
    pub gid_type: u32,
    pub ndev_ifindex: u32,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct IbvValuesEx {
    pub comp_mask: u32,
    pub raw_clock: libc::timespec,
}

pub const IBV_VALUES_MASK_RAW_CLOCK: u32 = 1;

#[repr(C)]
#[derive(Debug)]
pub struct IbvPd {
    pub context: *mut IbvContext,
    pub handle: u32,
}

#[repr(C)]
#[derive(Debug)]
pub struct IbvAh {
    pub context: *mut IbvContext,
    pub pd: *mut IbvPd,
    pub handle: u32,
}

#[repr(C)]
#[derive(Debug)]
pub struct IbvTd {
    pub context: *mut IbvContext,
}

#[repr(C)]
#[derive(Debug)]
pub struct IbvTdInitAttr {
    pub comp_mask: u32,
}

#[repr(C)]
#[derive(Debug)]
pub struct IbvParentDomainInitAttr {
    pub pd: *mut IbvPd,
    pub td: *mut IbvTd,
    pub comp_mask: u32,
    pub alloc: usize,
    pub free: usize,
    pub pd_context: *mut c_void,
}

#[repr(C)]
#[derive(Debug)]
pub struct IbvMr {
    pub context: *mut IbvContext,
    pub pd: *mut IbvPd,
    pub addr: *mut c_void,
    pub length: usize,
    pub handle: u32,
    pub lkey: u32,
    pub rkey: u32,
}

#[repr(C)]
#[derive(Debug)]
pub struct IbvMw {
    pub context: *mut IbvContext,
    pub pd: *mut IbvPd,
    pub rkey: u32,
    pub handle: u32,
    pub kind: c_int,
}

pub const IBV_MW_TYPE_2: c_int = 2;

#[repr(C)]
#[derive(Debug)]
pub struct IbvCompChannel {
    pub context: *mut IbvContext,
    pub fd: c_int,
    pub refcnt: c_int,
}

/// The head of `struct ibv_cq`, and of `struct ibv_cq_ex`.
#[repr(C)]
#[derive(Debug)]
pub struct IbvCq {
    pub context: *mut IbvContext,
    pub channel: *mut IbvCompChannel,
    pub cq_context: *mut c_void,
    pub handle: u32,
    pub cqe: c_int,
}

#[repr(C)]
#[derive(Debug)]
pub struct IbvCqInitAttrEx {
    pub cqe: u32,
    pub cq_context: *mut c_void,
    pub channel: *mut IbvCompChannel,
    pub comp_vector: u32,
    pub wc_flags: u64,
    pub comp_mask: u32,
    pub flags: u32,
    pub parent_domain: *mut IbvPd,
}

pub const IBV_CQ_INIT_ATTR_MASK_FLAGS: u32 = 1;
pub const IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN: u32 = 1 << 1;

/// `element` is a pointer, or a port in its first four bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct IbvAsyncEvent {
    pub element: *mut c_void,
    pub event_type: c_int,
}

pub const IBV_EVENT_CQ_ERR: c_int = 0;
pub const IBV_EVENT_QP_FATAL: c_int = 1;
pub const IBV_EVENT_QP_REQ_ERR: c_int = 2;
pub const IBV_EVENT_QP_ACCESS_ERR: c_int = 3;
pub const IBV_EVENT_COMM_EST: c_int = 4;
pub const IBV_EVENT_SQ_DRAINED: c_int = 5;
pub const IBV_EVENT_PATH_MIG: c_int = 6;
pub const IBV_EVENT_PATH_MIG_ERR: c_int = 7;
pub const IBV_EVENT_DEVICE_FATAL: c_int = 8;
pub const IBV_EVENT_PORT_ACTIVE: c_int = 9;
pub const IBV_EVENT_PORT_ERR: c_int = 10;
pub const IBV_EVENT_LID_CHANGE: c_int = 11;
pub const IBV_EVENT_PKEY_CHANGE: c_int = 12;
pub const IBV_EVENT_QP_LAST_WQE_REACHED: c_int = 16;
pub const IBV_EVENT_CLIENT_REREGISTER: c_int = 17;
pub const IBV_EVENT_GID_CHANGE: c_int = 18;
