//! Work queue elements: what a send or receive queue holds.
//!
//! A send WQE is a row of 16-byte segments: [`CtrlSeg`], then by opcode [`RaddrSeg`], [`AtomicSeg`], and
//! [`DataSeg`]s or one [`InlineSeg`] with its data. It takes whole 64-byte basic blocks (WQEBBs). A receive
//! WQE is [`DataSeg`]s alone.
#![forbid(unsafe_code)]

mod atomic;
mod av;
mod bsf;
mod ctrl;
mod data;
mod decode;
mod eth;
mod inline;
mod masked;
mod mmo;
mod psv;
mod raddr;
mod srq_next;
mod tls;
mod tm;
mod umr;
mod wait;
mod xrc;

pub use atomic::AtomicSeg;
pub use av::{AvBaseSeg, AvSeg, DcAvBaseSeg, DcAvSeg};
pub use bsf::{BsfBasic, BsfCrypto, BsfExt, BsfInl};
pub use ctrl::{CompletionMode, CtrlSeg, FenceMode, SendOpcode};
pub use data::DataSeg;
pub use decode::{DecodeError, DecodedWqe, Peer, Placed, Rule, Segment, Segments, decode, decode_as};
pub use eth::{EthPadSeg, EthSeg};
pub use inline::InlineSeg;
pub use masked::{MaskedCas32Seg, MaskedCas64Seg, MaskedFa32Seg, MaskedFa64Seg};
pub use mmo::{AsoCtrlSeg, FlowUpdateSeg, MmoSeg};
pub use psv::{CheckPsvSeg, GetPsvSeg, SetPsvSeg};
pub use raddr::RaddrSeg;
pub use srq_next::{RecvSigSeg, SrqNextSeg};
pub use tls::{TlsProgressSeg, TlsStaticParams};
pub use tm::{Rvh, TmOp, TmSeg, Tmh, TmhOp};
pub use umr::{KlmEntry, MkeyMask, MttEntry, RepeatBlockSeg, RepeatEntrySeg, UmrCtrlSeg};
pub use wait::{SendEnSeg, WaitCondition, WaitCqSeg, WaitTimeSeg};
pub use xrc::XrcSeg;

use crate::mlx5::layout::{Desc, Layout};

/// Size of a WQE basic block, the unit in which a send queue is counted.
pub const WQEBB_BYTES: usize = 64;

/// Size of a segment, the unit of `ctrl.ds`.
pub const SEGMENT_BYTES: usize = 16;

/// Most WQEBBs that one send WQE may take.
pub const MAX_WQEBBS: usize = 16;

/// Every structure declared here.
pub fn layouts() -> &'static [&'static Desc] {
    &[
        CtrlSeg::DESC,
        RaddrSeg::DESC,
        DataSeg::DESC,
        InlineSeg::DESC,
        AtomicSeg::DESC,
        EthSeg::DESC,
        AvSeg::DESC,
        XrcSeg::DESC,
        SrqNextSeg::DESC,
        UmrCtrlSeg::DESC,
        KlmEntry::DESC,
        MttEntry::DESC,
        RepeatBlockSeg::DESC,
        RepeatEntrySeg::DESC,
        DcAvSeg::DESC,
        AvBaseSeg::DESC,
        DcAvBaseSeg::DESC,
        EthPadSeg::DESC,
        MaskedCas64Seg::DESC,
        MaskedCas32Seg::DESC,
        MaskedFa64Seg::DESC,
        MaskedFa32Seg::DESC,
        WaitCqSeg::DESC,
        WaitTimeSeg::DESC,
        SendEnSeg::DESC,
        SetPsvSeg::DESC,
        GetPsvSeg::DESC,
        CheckPsvSeg::DESC,
        BsfBasic::DESC,
        BsfExt::DESC,
        BsfInl::DESC,
        BsfCrypto::DESC,
        TmSeg::DESC,
        Tmh::DESC,
        Rvh::DESC,
        MmoSeg::DESC,
        AsoCtrlSeg::DESC,
        FlowUpdateSeg::DESC,
        TlsStaticParams::DESC,
        TlsProgressSeg::DESC,
        RecvSigSeg::DESC,
    ]
}

/// Every enumeration declared here: table name and named values.
#[allow(clippy::type_complexity)]
pub fn enums() -> &'static [(&'static str, &'static [(&'static str, u64)])] {
    &[
        SendOpcode::TABLE,
        FenceMode::TABLE,
        CompletionMode::TABLE,
        MkeyMask::TABLE,
        WaitCondition::TABLE,
        TmOp::TABLE,
        TmhOp::TABLE,
    ]
}
