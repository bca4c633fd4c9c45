//! The CQE of a signature that does not fit its data.

use super::{CqeFormat, CqeOpcode};
use crate::mlx5::{
    ids::Qpn,
    layout::{layout, wire_enum},
};

layout! {
    /// Signature error, opcode `SIG_ERR` (rdma-core `mlx5_sigerr_cqe`). It comes before the CQE of the request or receive
    /// in which the data passed through the key, which is completed as if nothing were wrong.
    pub struct SigErrCqe, 64, "cqe64_sig_err" {
        /// What the signature says: T10-DIF's guard above its application tag, or a CRC.
        0x10 [31:0] expected_trans_sig: u32,
        /// What the data give.
        0x14 [31:0] actual_trans_sig: u32,
        /// T10-DIF's reference tag, or the lower half of a CRC of 64 bits.
        0x18 [31:0] expected_ref_tag: u32,
        0x1c [31:0] actual_ref_tag: u32,
        /// What is wrong.
        0x20 [31:16] syndrome: SigErrSyndrome,
        /// 0: a block's signature.
        0x20 [15:8] sig_type: u8,
        /// Which side.
        0x20 [7:0] domain: SigErrDomain,
        /// The key.
        0x24 [31:0] mkey: u32,
        /// Where in the bytes of the domain, signatures counted.
        0x28 [63:0] err_offset: u64,
        0x38 [23:0] qpn: Qpn,
        /// Inverted XOR of the CQE where signatures of CQEs are on.
        0x3c [15:8] signature: u8,
        /// `SIG_ERR`.
        0x3c [7:4] opcode: CqeOpcode,
        0x3c [3:2] format: CqeFormat,
        0x3c [1:1] se: bool,
        /// Changes with every lap of the ring: tells a new CQE from an old one.
        0x3c [0:0] owner: bool,
    }
}

wire_enum! {
    /// The part of a signature that is wrong (`MLX5_SIGERR_CQE_SYNDROME_*`).
    pub struct SigErrSyndrome(u16), "sig_err_syndrome" {
        REFTAG = 0x0800,
        APPTAG = 0x1000,
        GUARD = 0x2000,
    }

    /// The side whose signature is wrong (`MLX5_SIGERR_CQE_DOMAIN_*`).
    pub struct SigErrDomain(u8), "sig_err_domain" {
        WIRE = 0,
        MEMORY = 1,
    }
}
