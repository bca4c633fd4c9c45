//! Direct verbs: `infiniband/mlx5dv.h`.

use super::{IbvAh, IbvCq, IbvPd, IbvQp};
use crate::mlx5::be::Be32;
use std::{ffi::c_void, ptr};

#[repr(C)]
#[derive(Debug)]
pub struct Mlx5dvQpInitAttr {
    pub comp_mask: u64,
    pub create_flags: u32,
    pub dc_init_attr: Mlx5dvDcInitAttr,
    pub send_ops_flags: u64,
}

#[repr(C)]
#[derive(Debug, Default)]
pub struct Mlx5dvDcInitAttr {
    pub dc_type: u32,
    pub dct_access_key: u64,
}

pub const MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS: u64 = 1;
/// No payload in CQEs, which the completion queue here does not take.
pub const MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE: u32 = 1 << 3;

#[repr(C)]
#[derive(Debug)]
pub struct Mlx5dvCqInitAttr {
    pub comp_mask: u64,
    pub cqe_comp_res_format: u8,
    pub flags: u32,
    pub cqe_size: u16,
}

pub const MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE: u64 = 1 << 2;

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Mlx5dvWq {
    pub buf: *mut c_void,
    pub wqe_cnt: u32,
    pub stride: u32,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Mlx5dvBf {
    pub reg: *mut c_void,
    /// Bytes of half a register, or 0 without BlueFlame.
    pub size: u32,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Mlx5dvQp {
    pub dbrec: *mut Be32,
    pub sq: Mlx5dvWq,
    pub rq: Mlx5dvWq,
    pub bf: Mlx5dvBf,
    /// In: what of the rest is wanted. Out: what of it there is.
    pub comp_mask: u64,
    pub uar_mmap_offset: libc::off_t,
    pub tirn: u32,
    pub tisn: u32,
    pub rqn: u32,
    pub sqn: u32,
    pub tir_icm_addr: u64,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Mlx5dvCq {
    pub buf: *mut c_void,
    pub dbrec: *mut Be32,
    pub cqe_cnt: u32,
    pub cqe_size: u32,
    pub cq_uar: *mut c_void,
    pub cqn: u32,
    pub comp_mask: u64,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Mlx5dvPd {
    pub pdn: u32,
    pub comp_mask: u64,
}

/// `av` is a `struct mlx5_wqe_av`, as it stands in a WQE.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Mlx5dvAh {
    pub av: *mut [u8; 48],
    pub comp_mask: u64,
}

/// An object, and room for what the library tells of it.
#[repr(C)]
#[derive(Debug)]
pub struct Mlx5dvInOut<I, O> {
    pub input: *mut I,
    pub output: *mut O,
}

impl<I, O> Default for Mlx5dvInOut<I, O> {
    fn default() -> Self {
        Self { input: ptr::null_mut(), output: ptr::null_mut() }
    }
}

/// `struct mlx5dv_obj`: objects of which something is asked.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Mlx5dvObj {
    pub qp: Mlx5dvInOut<IbvQp, Mlx5dvQp>,
    pub cq: Mlx5dvInOut<IbvCq, Mlx5dvCq>,
    _srq_rwq_dm: [Mlx5dvInOut<c_void, c_void>; 3],
    pub ah: Mlx5dvInOut<IbvAh, Mlx5dvAh>,
    pub pd: Mlx5dvInOut<IbvPd, Mlx5dvPd>,
    _later: [usize; 4],
}

pub const MLX5DV_OBJ_QP: u64 = 1;
pub const MLX5DV_OBJ_CQ: u64 = 1 << 1;
pub const MLX5DV_OBJ_AH: u64 = 1 << 5;
pub const MLX5DV_OBJ_PD: u64 = 1 << 6;
