//! The segments that an opcode has, one after the other.

use super::{DecodeError, Peer, Placed, Rule, Segment, umr};
use crate::wqe::*;

/// Walks a WQE: its segments as far as they fit, then the rule that it breaks if there is one.
///
/// [`decode`] gives nothing of a broken WQE; this gives what there is, for people who look at a dump.
#[derive(Debug, Clone)]
pub struct Segments<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) at_bytes: usize,
    pub(super) ctrl: CtrlSeg,
    plan: Plan,
    /// Heads told so far.
    n_heads: usize,
    /// An atomic's data segment was told.
    has_result: bool,
    /// Of a UMR, what is left of its translation list.
    pub(super) umr: umr::State,
    /// What is said after the last segment.
    truncated: Option<Rule>,
    is_done: bool,
}

/// A segment that an operation has at most once, before its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Head {
    Av,
    DcAv,
    Xrc,
    EthPad,
    Eth,
    Raddr,
    Atomic,
    MaskedCas64,
    MaskedCas32,
    MaskedFa64,
    MaskedFa32,
    SetPsv,
    TlsProgress,
    GetPsv,
    CheckPsv,
    WaitCq,
    WaitTime,
    SendEn,
    Tm,
    Mmo,
    AsoCtrl,
    FlowUpdate,
}

/// What follows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tail {
    /// Nothing.
    Nothing,
    /// Pieces of memory, or inline data.
    Data,
    /// Pieces of memory only: data arrive.
    Target,
    /// One piece of memory of so many bytes: an atomic's.
    Result {
        len_bytes: u32,
    },
    Umr,
    /// What is not taken apart.
    Other,
}

/// What an operation consists of.
#[derive(Debug, Clone, Copy)]
struct Plan {
    heads: [Option<Head>; 5],
    tail: Tail,
}

impl Plan {
    fn of(ctrl: CtrlSeg, peer: Peer) -> Self {
        // Masked atomics: log2 of the dwords.
        let masked = |wide, narrow| match ctrl.opmod() {
            9 => (Some(wide), Tail::Result { len_bytes: 8 }),
            8 => (Some(narrow), Tail::Result { len_bytes: 4 }),
            _ => (None, Tail::Other),
        };
        let (is_remote, head, tail) = match ctrl.opcode() {
            SendOpcode::NOP => return Self::own(None, Tail::Nothing),
            SendOpcode::SEND | SendOpcode::SEND_IMM | SendOpcode::SEND_INVAL => (false, None, Tail::Data),
            SendOpcode::LSO if matches!(peer, Peer::Eth | Peer::Ipoib) => (false, None, Tail::Data),
            SendOpcode::RDMA_WRITE | SendOpcode::RDMA_WRITE_IMM => (true, None, Tail::Data),
            SendOpcode::RDMA_READ => (true, None, Tail::Target),
            SendOpcode::ATOMIC_CS | SendOpcode::ATOMIC_FA => {
                (true, Some(Head::Atomic), Tail::Result { len_bytes: 8 })
            }
            SendOpcode::ATOMIC_MASKED_CS => {
                let (head, tail) = masked(Head::MaskedCas64, Head::MaskedCas32);
                (true, head, tail)
            }
            SendOpcode::ATOMIC_MASKED_FA => {
                let (head, tail) = masked(Head::MaskedFa64, Head::MaskedFa32);
                (true, head, tail)
            }
            SendOpcode::UMR => return Self::own(None, Tail::Umr),
            SendOpcode::SET_PSV if ctrl.opmod() == 0 => return Self::own(Some(Head::SetPsv), Tail::Nothing),
            SendOpcode::SET_PSV => return Self::own(Some(Head::TlsProgress), Tail::Other),
            SendOpcode::GET_PSV => return Self::own(Some(Head::GetPsv), Tail::Other),
            SendOpcode::CHECK_PSV => return Self::own(Some(Head::CheckPsv), Tail::Other),
            SendOpcode::WAIT if ctrl.opmod() == 0 => return Self::own(Some(Head::WaitCq), Tail::Other),
            SendOpcode::WAIT => return Self::own(Some(Head::WaitTime), Tail::Other),
            SendOpcode::SEND_EN => return Self::own(Some(Head::SendEn), Tail::Other),
            SendOpcode::DUMP => return Self::own(None, Tail::Data),
            SendOpcode::TAG_MATCHING => return Self::own(Some(Head::Tm), Tail::Target),
            SendOpcode::ENHANCED_MPSW => return Self::own(Some(Head::Eth), Tail::Data),
            SendOpcode::MMO => return Self::own(Some(Head::Mmo), Tail::Target),
            SendOpcode::ACCESS_ASO => return Self::own(Some(Head::AsoCtrl), Tail::Other),
            SendOpcode::FLOW_TBL_ACCESS => return Self::own(Some(Head::FlowUpdate), Tail::Other),
            _ => return Self::own(None, Tail::Other),
        };
        let peer: [Option<Head>; 3] = match peer {
            Peer::None => [None; 3],
            Peer::Av => [Some(Head::Av), None, None],
            Peer::DcAv => [Some(Head::DcAv), None, None],
            Peer::Xrc => [Some(Head::Xrc), None, None],
            Peer::Eth => [Some(Head::Eth), None, None],
            Peer::Ipoib => [Some(Head::Av), Some(Head::EthPad), Some(Head::Eth)],
        };
        let raddr = is_remote.then_some(Head::Raddr);
        Self { heads: [peer[0], peer[1], peer[2], raddr, head], tail }
    }

    /// Of an operation without a peer.
    fn own(head: Option<Head>, tail: Tail) -> Self {
        Self { heads: [head, None, None, None, None], tail }
    }

    fn heads(&self) -> impl Iterator<Item = Head> {
        self.heads.into_iter().flatten()
    }

    /// Segments that there are at least.
    fn min_ds(&self) -> usize {
        let tail = match self.tail {
            Tail::Result { .. } => 1,
            // UMR control and the key's context.
            Tail::Umr => 7,
            _ => 0,
        };
        1 + tail + self.heads().map(|head| head.len_bytes() / SEGMENT_BYTES).sum::<usize>()
    }
}

impl Head {
    /// Length, the longest of an address vector: drivers write the compact one only where the device has it.
    const fn len_bytes(self) -> usize {
        match self {
            Self::Av | Self::DcAv | Self::GetPsv | Self::CheckPsv | Self::AsoCtrl | Self::FlowUpdate => 48,
            Self::MaskedCas64 | Self::WaitTime | Self::Tm => 32,
            _ => SEGMENT_BYTES,
        }
    }
}

impl<'a> Segments<'a> {
    /// Walks the WQE at the start of `bytes`, as far as they go.
    pub fn new(bytes: &'a [u8], peer: Peer) -> Self {
        let first = bytes.first_chunk::<SEGMENT_BYTES>();
        let ctrl = first.copied().map(CtrlSeg::from_bytes).unwrap_or_default();
        let need = usize::from(ctrl.ds()) * SEGMENT_BYTES;
        let truncated = match first {
            None => Some(Rule::Truncated { need: SEGMENT_BYTES, have: bytes.len() }),
            Some(_) if need == 0 => Some(Rule::NoDs),
            Some(_) if need > bytes.len() => Some(Rule::Truncated { need, have: bytes.len() }),
            Some(_) => None,
        };
        // Whole segments of it.
        let there = need.max(SEGMENT_BYTES).min(bytes.len()) & !(SEGMENT_BYTES - 1);
        let plan = Plan::of(ctrl, peer);
        let umr = umr::State::default();
        Self {
            bytes: &bytes[..there],
            at_bytes: 0,
            ctrl,
            plan,
            n_heads: 0,
            has_result: false,
            umr,
            truncated,
            is_done: false,
        }
    }

    /// What the WQE is too short for, by the bytes that are there or by what `ds` says.
    pub(super) fn shortage(&self) -> Option<DecodeError> {
        if let Some(rule) = self.truncated {
            let at_bytes = if matches!(rule, Rule::Truncated { need: SEGMENT_BYTES, .. }) { 0 } else { 4 };
            return Some(DecodeError { at_bytes, rule });
        }
        None
    }

    fn too_short(&self) -> Option<DecodeError> {
        let (ds, min_ds) = (self.bytes.len() / SEGMENT_BYTES, self.plan.min_ds());
        // A compact address vector is two segments shorter.
        let is_compact = self.bytes.get(24).is_some_and(|byte| byte & 0x80 == 0)
            && matches!(self.plan.heads[0], Some(Head::Av | Head::DcAv));
        let min_ds = if is_compact { min_ds - 2 } else { min_ds };
        let rule = Rule::TooShort { opcode: self.ctrl.opcode(), ds, min_ds };
        (ds < min_ds).then_some(DecodeError { at_bytes: 4, rule })
    }

    /// The next `N` bytes, if they are there.
    fn chunk<const N: usize>(&mut self) -> Option<[u8; N]> {
        let chunk = *self.bytes.get(self.at_bytes..)?.first_chunk::<N>()?;
        self.at_bytes += N;
        Some(chunk)
    }

    /// The next segment of 16 bytes, which is there.
    pub(super) fn take(&mut self) -> [u8; SEGMENT_BYTES] {
        self.chunk().unwrap_or_default()
    }

    pub(super) fn broken<T>(&self, rule: Rule) -> Result<T, DecodeError> {
        Err(DecodeError { at_bytes: self.at_bytes, rule })
    }

    /// All that there still is.
    pub(super) fn rest(&mut self) -> Segment<'a> {
        let rest = &self.bytes[self.at_bytes..];
        self.at_bytes = self.bytes.len();
        Segment::Other(rest)
    }

    /// The next segment. What is there is a multiple of 16.
    fn step(&mut self) -> Result<Option<Segment<'a>>, DecodeError> {
        if self.at_bytes >= self.bytes.len() {
            return Ok(None);
        }
        if self.at_bytes == 0 {
            return Ok(Some(Segment::Ctrl(CtrlSeg::from_bytes(self.take()))));
        }
        while let Some(head) = self.plan.heads.get(self.n_heads) {
            self.n_heads += 1;
            if let Some(head) = head {
                return self.head(*head);
            }
        }
        match self.plan.tail {
            Tail::Nothing if self.ctrl.opcode() == SendOpcode::NOP => self.broken(Rule::NopWithSegments),
            Tail::Nothing | Tail::Other => Ok(Some(self.rest())),
            Tail::Umr => self.umr(),
            Tail::Data | Tail::Target | Tail::Result { .. } => self.data().map(Some),
        }
    }

    fn head(&mut self, head: Head) -> Result<Option<Segment<'a>>, DecodeError> {
        let is_compact = self.bytes.get(self.at_bytes + 8).is_some_and(|byte| byte & 0x80 == 0);
        let segment = match head {
            Head::Av if is_compact => self.chunk().map(|b| Segment::AvBase(AvBaseSeg::from_bytes(b))),
            Head::Av => self.chunk().map(|b| Segment::Av(AvSeg::from_bytes(b))),
            Head::DcAv if is_compact => self.chunk().map(|b| Segment::DcAvBase(DcAvBaseSeg::from_bytes(b))),
            Head::DcAv => self.chunk().map(|b| Segment::DcAv(DcAvSeg::from_bytes(b))),
            Head::Xrc => self.chunk().map(|b| Segment::Xrc(XrcSeg::from_bytes(b))),
            Head::EthPad => self.chunk().map(|b| Segment::EthPad(EthPadSeg::from_bytes(b))),
            Head::Eth => return self.eth().map(Some),
            Head::Raddr => self.chunk().map(|b| Segment::Raddr(RaddrSeg::from_bytes(b))),
            Head::Atomic => self.chunk().map(|b| Segment::Atomic(AtomicSeg::from_bytes(b))),
            Head::MaskedCas64 => self.chunk().map(|b| Segment::MaskedCas64(MaskedCas64Seg::from_bytes(b))),
            Head::MaskedCas32 => self.chunk().map(|b| Segment::MaskedCas32(MaskedCas32Seg::from_bytes(b))),
            Head::MaskedFa64 => self.chunk().map(|b| Segment::MaskedFa64(MaskedFa64Seg::from_bytes(b))),
            Head::MaskedFa32 => self.chunk().map(|b| Segment::MaskedFa32(MaskedFa32Seg::from_bytes(b))),
            Head::SetPsv => self.chunk().map(|b| Segment::SetPsv(SetPsvSeg::from_bytes(b))),
            Head::TlsProgress => self.chunk().map(|b| Segment::TlsProgress(TlsProgressSeg::from_bytes(b))),
            Head::GetPsv => self.chunk().map(|b| Segment::GetPsv(GetPsvSeg::from_bytes(b))),
            Head::CheckPsv => self.chunk().map(|b| Segment::CheckPsv(CheckPsvSeg::from_bytes(b))),
            Head::WaitCq => self.chunk().map(|b| Segment::WaitCq(WaitCqSeg::from_bytes(b))),
            Head::WaitTime => self.chunk().map(|b| Segment::WaitTime(WaitTimeSeg::from_bytes(b))),
            Head::SendEn => self.chunk().map(|b| Segment::SendEn(SendEnSeg::from_bytes(b))),
            Head::Tm => self.chunk().map(|b| Segment::Tm(TmSeg::from_bytes(b))),
            Head::Mmo => self.chunk().map(|b| Segment::Mmo(MmoSeg::from_bytes(b))),
            Head::AsoCtrl => self.chunk().map(|b| Segment::AsoCtrl(AsoCtrlSeg::from_bytes(b))),
            Head::FlowUpdate => self.chunk().map(|b| Segment::FlowUpdate(FlowUpdateSeg::from_bytes(b))),
        };
        if segment.is_none() {
            // Too short, as is said at the end.
            self.at_bytes = self.bytes.len();
        }
        Ok(segment)
    }

    fn eth(&mut self) -> Result<Segment<'a>, DecodeError> {
        let start = self.at_bytes + SEGMENT_BYTES;
        let segment = EthSeg::from_bytes(self.take());
        let has_head = segment.inline_hdr_sz() & EthSeg::INSERT_VLAN == 0;
        let len_bytes = if has_head { usize::from(segment.inline_hdr_sz()) } else { 0 };
        let n_behind = len_bytes.saturating_sub(EthSeg::HEADER_START_BYTES);
        let Some(header) = self.bytes.get(start..start + n_behind) else {
            self.at_bytes -= SEGMENT_BYTES;
            let room_bytes = self.bytes.len() - start + EthSeg::HEADER_START_BYTES;
            return self.broken(Rule::HeaderLength { len_bytes, room_bytes });
        };
        // The data begin at a segment. `ds` covers whole ones.
        self.at_bytes += n_behind.next_multiple_of(SEGMENT_BYTES);
        Ok(Segment::Eth { segment, header })
    }

    fn data(&mut self) -> Result<Segment<'a>, DecodeError> {
        if self.bytes[self.at_bytes] & 0x80 == 0 {
            if let Tail::Result { len_bytes: wanted } = self.plan.tail {
                if self.has_result {
                    return self.broken(Rule::AtomicSegments);
                }
                let data = DataSeg::from_bytes(self.take());
                if data.byte_count() != wanted {
                    self.at_bytes -= SEGMENT_BYTES;
                    return self.broken(Rule::AtomicLength { len_bytes: data.byte_count(), wanted });
                }
                self.has_result = true;
                return Ok(Segment::Data(data));
            }
            return Ok(Segment::Data(DataSeg::from_bytes(self.take())));
        }
        if self.plan.tail != Tail::Data {
            return self.broken(Rule::InlineTarget);
        }
        let mut header = [0; InlineSeg::HEADER_BYTES];
        header.copy_from_slice(&self.bytes[self.at_bytes..self.at_bytes + InlineSeg::HEADER_BYTES]);
        let header = InlineSeg::from_bytes(header);
        let len_bytes = usize::from(header.byte_count());
        let start = self.at_bytes + InlineSeg::HEADER_BYTES;
        let Some(data) = self.bytes.get(start..start + len_bytes) else {
            return self.broken(Rule::InlineLength { len_bytes, room_bytes: self.bytes.len() - start });
        };
        self.at_bytes += InlineSeg::n_octowords(len_bytes) * SEGMENT_BYTES;
        Ok(Segment::Inline { header, data })
    }
}

impl<'a> Iterator for Segments<'a> {
    type Item = Result<Placed<'a>, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_done {
            return None;
        }
        self.skip_padding();
        let at_bytes = self.at_bytes;
        match self.step() {
            Ok(Some(segment)) => Some(Ok(Placed { at_bytes, segment })),
            Ok(None) => {
                self.is_done = true;
                self.shortage().or_else(|| self.too_short()).map(Err)
            }
            Err(error) => {
                self.is_done = true;
                Some(Err(self.shortage().unwrap_or(error)))
            }
        }
    }
}
