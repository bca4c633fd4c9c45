//! Completion queue entries: 64 bytes by which the device says that a WQE is done.
//!
//! Their last byte says whether they are new (`owner`), what they are (`opcode`) and what they carry
//! (`format`). A 128-byte CQE is 64 bytes of room for data, then the CQE.
#![forbid(unsafe_code)]

mod compressed;
mod error;
mod ethernet;
mod requester;
mod responder;
mod sig_err;
mod tm;

pub use compressed::{CompressedTitleCqe, Cqe128, MiniCqe, MiniCqeChecksum, MiniCqeRequester};
pub use error::{CqeSyndrome, ErrorCqe};
pub use ethernet::{CqeL3HdrType, CqeL4HdrType, EthernetCqe};
pub use requester::RequesterCqe;
pub use responder::{ResponderCqe, RoceL3};
pub use sig_err::{SigErrCqe, SigErrDomain, SigErrSyndrome};
pub use tm::{CqeApp, TmAppOp, TmCqe, TmListCqe, TmOutcome};

use crate::mlx5::layout::{Desc, Layout, wire_enum};

/// Size of a CQE in bytes.
pub const CQE_BYTES: usize = 64;

/// Place of the byte with `opcode`, `format`, `se` and `owner`.
pub const OP_OWN_OFFSET: usize = 63;

/// That byte in a CQE that the device has not written: opcode `INVALID`, owner 1.
pub const OP_OWN_INIT: u8 = 0xf1;

wire_enum! {
    /// What a CQE is (`MLX5_CQE_*`).
    pub struct CqeOpcode(u8), "cqe_opcode" {
        /// A send WQE is done.
        REQ = 0x0,
        /// An RDMA WRITE with immediate data took a receive WQE.
        RESP_WR_IMM = 0x1,
        /// A SEND took a receive WQE.
        RESP_SEND = 0x2,
        /// A SEND with immediate data took a receive WQE.
        RESP_SEND_IMM = 0x3,
        /// A SEND took a receive WQE and invalidated a key.
        RESP_SEND_INV = 0x4,
        /// Last CQE of a buffer that was replaced.
        RESIZE_CQ = 0x5,
        /// Tag matching, without a packet.
        NO_PACKET = 0x6,
        /// Signature error.
        SIG_ERR = 0xc,
        /// A send WQE failed.
        REQ_ERR = 0xd,
        /// A receive WQE failed.
        RESP_ERR = 0xe,
        /// Not a CQE.
        INVALID = 0xf,
    }

    /// What a CQE carries besides (`mlx5_cqe64` format).
    pub struct CqeFormat(u8), "cqe_format" {
        /// Nothing.
        NO_INLINE_DATA = 0,
        /// Up to 32 bytes of data in the CQE.
        INLINE_DATA32_SEG = 1,
        /// Up to 64 bytes of data before the CQE.
        INLINE_DATA64_SEG = 2,
        /// Title of a compressed session.
        COMPRESSED = 3,
    }
}

/// Every structure declared here.
pub fn layouts() -> &'static [&'static Desc] {
    &[
        RequesterCqe::DESC,
        ResponderCqe::DESC,
        EthernetCqe::DESC,
        ErrorCqe::DESC,
        SigErrCqe::DESC,
        TmCqe::DESC,
        TmListCqe::DESC,
        TmOutcome::DESC,
        CompressedTitleCqe::DESC,
        MiniCqe::DESC,
        MiniCqeChecksum::DESC,
        MiniCqeRequester::DESC,
        Cqe128::DESC,
    ]
}

/// Every enumeration declared here: table name and named values.
#[allow(clippy::type_complexity)]
pub fn enums() -> &'static [(&'static str, &'static [(&'static str, u64)])] {
    &[
        CqeOpcode::TABLE,
        CqeFormat::TABLE,
        CqeSyndrome::TABLE,
        SigErrSyndrome::TABLE,
        SigErrDomain::TABLE,
        CqeL3HdrType::TABLE,
        CqeL4HdrType::TABLE,
        RoceL3::TABLE,
        CqeApp::TABLE,
        TmAppOp::TABLE,
    ]
}
