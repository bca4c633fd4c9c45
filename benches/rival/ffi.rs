//! What libibverbs' inline functions share with their callers: the fast path of `infiniband/verbs.h`. Those of the
//! control path are the crate's own (`backend::verbs::ffi`).
#![forbid(unsafe_code)]

pub use mlx5_direct::backend::verbs::ffi::*;
use std::ffi::{c_int, c_void};

#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IbvSge {
    pub addr: u64,
    pub length: u32,
    pub lkey: u32,
}

/// `struct ibv_send_wr`: its union of `wr` as the words that it begins with.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct IbvSendWr {
    pub wr_id: u64,
    pub next: *mut IbvSendWr,
    pub sg_list: *const IbvSge,
    pub num_sge: c_int,
    pub opcode: u32,
    pub send_flags: u32,
    /// Big-endian for an immediate, the host's for a key to invalidate.
    pub imm_or_rkey: u32,
    pub wr: WrUnion,
    pub remote_srqn: u32,
    /// `bind_mw`, or `tso`: the header's address, and its length and `mss` in the second word.
    pub rest: [u64; 6],
}

/// `wr.rdma`, `wr.atomic` and `wr.ud`: each is some of these words.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct WrUnion {
    /// `remote_addr`, or the address handle.
    pub remote_addr_or_ah: u64,
    /// `rdma.rkey` or `atomic.compare_add`; of a datagram, `remote_qpn` and `remote_qkey`.
    pub rkey_or_compare_add: u64,
    /// `atomic.swap`.
    pub swap: u64,
    /// `atomic.rkey`.
    pub atomic_rkey: u64,
}

impl Default for IbvSendWr {
    fn default() -> Self {
        Self {
            wr_id: 0,
            next: std::ptr::null_mut(),
            sg_list: std::ptr::null(),
            num_sge: 0,
            opcode: 0,
            send_flags: 0,
            imm_or_rkey: 0,
            wr: WrUnion::default(),
            remote_srqn: 0,
            rest: [0; 6],
        }
    }
}

pub const IBV_WR_RDMA_WRITE: u32 = 0;
pub const IBV_WR_RDMA_WRITE_WITH_IMM: u32 = 1;
pub const IBV_WR_SEND: u32 = 2;
pub const IBV_WR_SEND_WITH_IMM: u32 = 3;
pub const IBV_WR_RDMA_READ: u32 = 4;
pub const IBV_WR_ATOMIC_CMP_AND_SWP: u32 = 5;
pub const IBV_WR_ATOMIC_FETCH_AND_ADD: u32 = 6;
pub const IBV_WR_LOCAL_INV: u32 = 7;
pub const IBV_WR_BIND_MW: u32 = 8;
pub const IBV_WR_SEND_WITH_INV: u32 = 9;
pub const IBV_WR_TSO: u32 = 10;

pub const IBV_SEND_FENCE: u32 = 1;
pub const IBV_SEND_SIGNALED: u32 = 1 << 1;
pub const IBV_SEND_SOLICITED: u32 = 1 << 2;
pub const IBV_SEND_INLINE: u32 = 1 << 3;
pub const IBV_SEND_IP_CSUM: u32 = 1 << 4;

pub const IBV_QPT_RAW_PACKET: c_int = 8;

pub const IBV_QP_INIT_ATTR_SEND_OPS_FLAGS: u32 = 1 << 6;
pub const IBV_QP_EX_WITH_LOCAL_INV: u64 = 1 << 7;
pub const IBV_QP_EX_WITH_BIND_MW: u64 = 1 << 8;
/// `IBV_QP_EX_WITH_…` of all of RC.
pub const RC_OPS: u64 = 0xff | IBV_QP_EX_WITH_BIND_MW | 1 << 9;
/// Those whose WQEs are short: without LOCAL_INV and BIND_MW, whose UMRs have libmlx5 make larger rings.
pub const RC_SHORT_OPS: u64 = RC_OPS & !(IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW);
/// The same of UC.
pub const UC_OPS: u64 = 0xf | 1 << 7 | IBV_QP_EX_WITH_BIND_MW | 1 << 9;
/// The same of raw packets: SEND and TSO.
pub const RAW_PACKET_OPS: u64 = 1 << 2 | 1 << 10;
/// Longest header of a large send that queue pairs are asked for.
pub const MAX_TSO_HEADER: u16 = 258;
pub const IBV_QP_INIT_ATTR_MAX_TSO_HEADER: u32 = 1 << 3;
/// The same of UD.
pub const UD_OPS: u64 = 1 << 2 | 1 << 3;

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct IbvRecvWr {
    pub wr_id: u64,
    pub next: *mut IbvRecvWr,
    pub sg_list: *const IbvSge,
    pub num_sge: c_int,
}

#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IbvWc {
    pub wr_id: u64,
    pub status: u32,
    pub opcode: u32,
    pub vendor_err: u32,
    pub byte_len: u32,
    /// As big-endian as it came; a key that was invalidated is the host's integer.
    pub imm_or_rkey: u32,
    pub qp_num: u32,
    pub src_qp: u32,
    pub wc_flags: u32,
    pub pkey_index: u16,
    pub slid: u16,
    pub sl: u8,
    pub dlid_path_bits: u8,
}

pub const IBV_WC_GRH: u32 = 1;
pub const IBV_WC_WITH_IMM: u32 = 1 << 1;
pub const IBV_WC_WITH_INV: u32 = 1 << 3;

pub type PostSend = unsafe extern "C" fn(*mut IbvQp, *mut IbvSendWr, *mut *mut IbvSendWr) -> c_int;
pub type PostRecv = unsafe extern "C" fn(*mut IbvQp, *mut IbvRecvWr, *mut *mut IbvRecvWr) -> c_int;
pub type PollCq = unsafe extern "C" fn(*mut IbvCq, c_int, *mut IbvWc) -> c_int;

/// Places in `struct ibv_context` of the functions that `ibv_poll_cq` and the others call.
pub const OPS_POLL_CQ: usize = 96;
pub const OPS_POST_SEND: usize = 208;
pub const OPS_POST_RECV: usize = 216;

pub type Setter = unsafe extern "C" fn(*mut IbvQpEx);
pub type SetRemote = unsafe extern "C" fn(*mut IbvQpEx, u32, u64);

/// `struct ibv_qp_ex`: a request is made by one call an operation and one call for its data.
#[repr(C)]
#[derive(Debug)]
pub struct IbvQpEx {
    _qp_base: [u8; 160],
    pub comp_mask: u64,
    pub wr_id: u64,
    pub wr_flags: u32,
    pub wr_atomic_cmp_swp: unsafe extern "C" fn(*mut Self, u32, u64, u64, u64),
    pub wr_atomic_fetch_add: unsafe extern "C" fn(*mut Self, u32, u64, u64),
    pub wr_bind_mw: unsafe extern "C" fn(*mut Self, *mut IbvMw, u32, *const IbvMwBindInfo),
    pub wr_local_inv: unsafe extern "C" fn(*mut Self, u32),
    pub wr_rdma_read: SetRemote,
    pub wr_rdma_write: SetRemote,
    pub wr_rdma_write_imm: unsafe extern "C" fn(*mut Self, u32, u64, u32),
    pub wr_send: Setter,
    pub wr_send_imm: unsafe extern "C" fn(*mut Self, u32),
    pub wr_send_inv: unsafe extern "C" fn(*mut Self, u32),
    pub wr_send_tso: unsafe extern "C" fn(*mut Self, *const c_void, u16, u16),
    pub wr_set_ud_addr: unsafe extern "C" fn(*mut Self, *mut c_void, u32, u32),
    pub wr_set_xrc_srqn: unsafe extern "C" fn(*mut Self, u32),
    pub wr_set_inline_data: unsafe extern "C" fn(*mut Self, *const c_void, usize),
    pub wr_set_inline_data_list: unsafe extern "C" fn(*mut Self, usize, *const IbvDataBuf),
    pub wr_set_sge: unsafe extern "C" fn(*mut Self, u32, u64, u32),
    pub wr_set_sge_list: unsafe extern "C" fn(*mut Self, usize, *const IbvSge),
    pub wr_start: Setter,
    pub wr_complete: unsafe extern "C" fn(*mut Self) -> c_int,
    pub wr_abort: Setter,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct IbvMwBindInfo {
    pub mr: *mut IbvMr,
    pub addr: u64,
    pub length: u64,
    pub mw_access_flags: u32,
}

pub const IBV_ACCESS_LOCAL_WRITE: u32 = 1;
pub const IBV_ACCESS_REMOTE_WRITE: u32 = 1 << 1;
pub const IBV_ACCESS_REMOTE_READ: u32 = 1 << 2;
pub const IBV_ACCESS_REMOTE_ATOMIC: u32 = 1 << 3;
pub const IBV_ACCESS_ZERO_BASED: u32 = 1 << 5;

pub const IBV_MW_TYPE_1: c_int = 1;

/// `MLX5DV_QP_EX_WITH_MR_INTERLEAVED` and `_MR_LIST`.
pub const UMR_OPS: u64 = 3;
pub const MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS: u64 = 1 << 2;

#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Mlx5dvMrInterleaved {
    pub addr: u64,
    pub bytes_count: u32,
    pub bytes_skip: u32,
    pub lkey: u32,
}

/// libmlx5's own `struct mlx5_mkey` behind `struct mlx5dv_mkey`, and room for what later ones add: a kernel that answers
/// `ioctl` would be needed to have one made.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Mlx5Mkey {
    pub lkey: u32,
    pub rkey: u32,
    pub devx_obj: usize,
    pub num_desc: u16,
    pub length: u64,
    pub rest: [usize; 8],
}

/// The functions with which `struct mlx5dv_qp_ex` begins.
#[repr(C)]
#[derive(Debug)]
pub struct Mlx5dvQpEx {
    pub comp_mask: u64,
    _wr_set_dc_addr: usize,
    pub wr_mr_interleaved:
        unsafe extern "C" fn(*mut Self, *mut Mlx5Mkey, u32, u32, u16, *const Mlx5dvMrInterleaved),
    pub wr_mr_list: unsafe extern "C" fn(*mut Self, *mut Mlx5Mkey, u32, u16, *const IbvSge),
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct IbvDataBuf {
    pub addr: *const c_void,
    pub length: usize,
}

/// `struct ibv_cq_ex`: completions are read by one call a field.
#[repr(C)]
#[derive(Debug)]
pub struct IbvCqEx {
    _cq: [u8; 128],
    pub comp_mask: u32,
    pub status: u32,
    pub wr_id: u64,
    pub start_poll: unsafe extern "C" fn(*mut Self, *mut IbvPollCqAttr) -> c_int,
    pub next_poll: unsafe extern "C" fn(*mut Self) -> c_int,
    pub end_poll: unsafe extern "C" fn(*mut Self),
    pub read_opcode: unsafe extern "C" fn(*mut Self) -> u32,
    pub read_vendor_err: unsafe extern "C" fn(*mut Self) -> u32,
    pub read_byte_len: unsafe extern "C" fn(*mut Self) -> u32,
    pub read_imm_data: unsafe extern "C" fn(*mut Self) -> u32,
    pub read_qp_num: unsafe extern "C" fn(*mut Self) -> u32,
    pub read_src_qp: unsafe extern "C" fn(*mut Self) -> u32,
    pub read_wc_flags: unsafe extern "C" fn(*mut Self) -> u32,
    pub read_slid: unsafe extern "C" fn(*mut Self) -> u32,
    pub read_sl: unsafe extern "C" fn(*mut Self) -> u8,
    pub read_dlid_path_bits: unsafe extern "C" fn(*mut Self) -> u8,
}

#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct IbvPollCqAttr {
    pub comp_mask: u32,
}

/// `IBV_WC_EX_WITH_…` of what `ibv_poll_cq` gives.
pub const STANDARD_WC_FLAGS: u64 = 0x7f;
