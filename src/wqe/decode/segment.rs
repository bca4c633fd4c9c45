//! One segment of a WQE.

use crate::{
    mlx5::{
        context::Mkc,
        layout::{Desc, Layout},
    },
    wqe::*,
};

/// Declares [`Segment`] with a variant for each layout that is 16 bytes or more, alone in its place.
macro_rules! segments {
    ($( $(#[doc = $doc:literal])* $variant:ident($layout:ident), )*) => {
        /// One segment of a WQE.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Segment<'a> {
            $( $(#[doc = $doc])* $variant($layout), )*
            /// What the device does to a raw packet.
            Eth {
                /// The segment, with the first two bytes of the frame's head if there is one.
                segment: EthSeg,
                /// The head's other bytes.
                header: &'a [u8],
            },
            /// Data in the WQE.
            Inline {
                /// Says how many.
                header: InlineSeg,
                /// The data.
                data: &'a [u8],
            },
            /// All after the control segment of an operation that is not taken apart, or what follows what is.
            Other(&'a [u8]),
        }

        impl<'a> Segment<'a> {
            /// Its layout; `None` of [`Other`](Self::Other).
            pub fn desc(&self) -> Option<&'static Desc> {
                Some(match self {
                    $( Self::$variant(_) => $layout::DESC, )*
                    Self::Eth { .. } => EthSeg::DESC,
                    Self::Inline { .. } => InlineSeg::DESC,
                    Self::Other(_) => return None,
                })
            }

            /// Bytes that follow what is declared: data, the head of a frame, or whatever it is.
            pub fn payload(&self) -> &'a [u8] {
                match self {
                    Self::Eth { header, .. } => header,
                    Self::Inline { data, .. } => data,
                    Self::Other(bytes) => bytes,
                    _ => &[],
                }
            }
        }
    };
}

segments! {
    /// Always the first.
    Ctrl(CtrlSeg),
    /// Where a datagram goes.
    Av(AvSeg),
    /// Where a datagram goes, in the compact form.
    AvBase(AvBaseSeg),
    /// Where a request of a DC initiator goes.
    DcAv(DcAvSeg),
    /// Where a request of a DC initiator goes, in the compact form.
    DcAvBase(DcAvBaseSeg),
    /// Which shared receive queue of the peer an XRC request is for.
    Xrc(XrcSeg),
    /// Stands between an address vector and an Ethernet segment.
    EthPad(EthPadSeg),
    /// Where a remote operation goes.
    Raddr(RaddrSeg),
    /// Operands of an atomic.
    Atomic(AtomicSeg),
    /// Operands and masks of a compare-and-swap of 8 bytes.
    MaskedCas64(MaskedCas64Seg),
    /// Operands and masks of a compare-and-swap of 4 bytes.
    MaskedCas32(MaskedCas32Seg),
    /// Operands of a fetch-and-add of fields in 8 bytes.
    MaskedFa64(MaskedFa64Seg),
    /// Operands of a fetch-and-add of fields in 4 bytes.
    MaskedFa32(MaskedFa32Seg),
    /// A piece of local memory.
    Data(DataSeg),
    /// How a UMR changes a memory key.
    UmrCtrl(UmrCtrlSeg),
    /// What it changes the key's context to: of these fields, those that the segment before names.
    Mkc(Mkc),
    /// An entry of the translation list in a UMR. Whether the key's entries are KLMs is in the key, not in the WQE; those of
    /// zeros that fill the list up are not told.
    Klm(KlmEntry),
    /// An entry of a list that looks like pages: every one has permissions, and a page's address.
    Mtt(MttEntry),
    /// The head of an interleaved translation list.
    RepeatBlock(RepeatBlockSeg),
    /// One piece of each of its cycles.
    RepeatEntry(RepeatEntrySeg),
    /// What both sides of a signature have in common.
    BsfBasic(BsfBasic),
    /// Its extension.
    BsfExt(BsfExt),
    /// T10-DIF on the wire.
    BsfWire(BsfInl),
    /// T10-DIF in memory.
    BsfMem(BsfInl),
    /// Encryption.
    BsfCrypto(BsfCrypto),
    /// TLS parameters that a UMR sets.
    TlsStatic(TlsStaticParams),
    /// Where a TLS connection is.
    TlsProgress(TlsProgressSeg),
    /// What a signature begins with.
    SetPsv(SetPsvSeg),
    /// Which protection values are read.
    GetPsv(GetPsvSeg),
    /// Which protection values are checked.
    CheckPsv(CheckPsvSeg),
    /// Waits for a completion queue.
    WaitCq(WaitCqSeg),
    /// Waits for memory or the clock.
    WaitTime(WaitTimeSeg),
    /// Which queue may go on.
    SendEn(SendEnSeg),
    /// Changes a list of tags.
    Tm(TmSeg),
    /// The device's memory of a memory to memory operation.
    Mmo(MmoSeg),
    /// What is done to a steering object.
    AsoCtrl(AsoCtrlSeg),
    /// What is done to a flow table.
    FlowUpdate(FlowUpdateSeg),
}

/// A segment, and where it is in its WQE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed<'a> {
    /// Where it begins, in bytes.
    pub at_bytes: usize,
    /// The segment.
    pub segment: Segment<'a>,
}
