//! Reading WQEs as a device does: segment by segment, trusting nothing.

use super::{
    atomic::Atomic,
    config::{QpConfig, Service},
    host::Rule,
    local::{LocalWqe, OPMOD_COPY},
    rendezvous::Offload,
};
use mlx5_direct::{
    mlx5::layout::Layout,
    wqe::{
        AvBaseSeg, AvSeg, CompletionMode, CtrlSeg, DataSeg, DcAvSeg, FenceMode, InlineSeg, RaddrSeg,
        SEGMENT_BYTES, SendOpcode, WQEBB_BYTES, XrcSeg,
    },
};

/// Bytes of the longest WQE that 16 WQEBBs hold; `ds` ends at 63 segments.
pub(super) const MAX_WQE_BYTES: usize = 1024;

/// A piece of local memory, or of the WQE's own bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Piece {
    /// Memory under a local key.
    Memory { lkey: u32, addr: u64, len: u64 },
    /// Bytes of [`SendWqe::inline`].
    Inline { start: usize, len: u64 },
}

impl Piece {
    pub(super) const fn len(&self) -> u64 {
        match *self {
            Self::Memory { len, .. } | Self::Inline { len, .. } => len,
        }
    }
}

/// Calls `each` for every part of `pieces` that lies in `len` bytes from `offset` on, with the part's place
/// in that range. Stops at the first error.
pub(super) fn for_each_part<E>(
    pieces: &[Piece],
    offset: u64,
    len: u64,
    mut each: impl FnMut(Piece, core::ops::Range<usize>) -> Result<(), E>,
) -> Result<(), E> {
    let (mut skip, mut done) = (offset, 0);
    for piece in pieces {
        if done == len {
            break;
        }
        if skip >= piece.len() {
            skip -= piece.len();
            continue;
        }
        let take = (piece.len() - skip).min(len - done);
        let part = match *piece {
            Piece::Memory { lkey, addr, .. } => {
                Piece::Memory { lkey, addr: addr.wrapping_add(skip), len: take }
            }
            Piece::Inline { start, .. } => Piece::Inline { start: start + skip as usize, len: take },
        };
        each(part, done as usize..(done + take) as usize)?;
        (skip, done) = (0, done + take);
    }
    Ok(())
}

/// A rule that a WQE breaks, with the numbers.
pub(super) type Broken = (Rule, String);

/// A send WQE.
#[derive(Debug, Clone, Default)]
pub(super) struct SendWqe {
    pub(super) index: u16,
    pub(super) n_wqebbs: u16,
    pub(super) ds: u8,
    pub(super) opcode: u8,
    pub(super) fm: u8,
    pub(super) ce: u8,
    pub(super) solicited: bool,
    pub(super) imm: u32,
    pub(super) raddr: u64,
    pub(super) rkey: u32,
    pub(super) atomic: Option<Atomic>,
    pub(super) av: Option<AvSeg>,
    pub(super) dc_access_key: u64,
    pub(super) stream: u16,
    pub(super) xrc_srqn: u32,
    pub(super) pieces: Vec<Piece>,
    pub(super) inline: Vec<u8>,
    pub(super) len_bytes: u64,
    /// Of a request that sends nothing: what it asks for.
    pub(super) local: Option<LocalWqe>,
    /// The device's own: no queue has it.
    pub(super) offload: Option<Offload>,
}

impl SendWqe {
    pub(super) const fn opcode(&self) -> SendOpcode {
        SendOpcode(self.opcode)
    }

    pub(super) const fn ce(&self) -> CompletionMode {
        CompletionMode(self.ce)
    }

    /// Whether it asks for a response with data.
    pub(super) const fn is_read_or_atomic(&self) -> bool {
        let opcode = self.opcode();
        matches!(opcode, SendOpcode::RDMA_READ) || opcode.is_atomic() || opcode.is_masked_atomic()
    }

    /// What the control segment alone says; enough to complete the WQE in error and to find the next.
    pub(super) fn read_ctrl(&mut self, ctrl: &CtrlSeg, index: u16) {
        self.pieces.clear();
        self.inline.clear();
        self.index = index;
        self.ds = ctrl.ds();
        self.n_wqebbs = usize::from(ctrl.ds()).div_ceil(WQEBB_BYTES / SEGMENT_BYTES).max(1) as u16;
        self.opcode = ctrl.opcode().0;
        self.fm = ctrl.fm().0;
        self.ce = ctrl.ce().0;
        self.solicited = ctrl.se();
        self.imm = ctrl.imm();
        self.len_bytes = 0;
        self.local = None;
        self.offload = None;
        self.av = None;
        self.atomic = None;
        self.stream = ctrl.dci_stream_channel_id();
    }

    /// Reads all segments of a WQE of `ds` · 16 bytes, whose control segment was read.
    pub(super) fn read_segments(&mut self, bytes: &[u8], config: &QpConfig) -> Result<(), Broken> {
        let ctrl = CtrlSeg::from_bytes(segment(bytes, 0));
        let service = config.service;
        self.check_ctrl(&ctrl, config)?;
        let mut at = SEGMENT_BYTES;
        let opcode = ctrl.opcode();
        if opcode == SendOpcode::NOP {
            return Ok(());
        }
        self.local = LocalWqe::read(opcode, bytes)?;
        if self.local.is_some() {
            return Ok(());
        }
        if matches!(service, Service::Datagram | Service::Dynamic) {
            at += self.read_av(bytes, at, config)?;
        }
        if service == Service::Extended {
            let segment = need(bytes, at, "XRC")?;
            // libmlx5 writes the first dword and leaves the others as the ring had them.
            let mut written = [0; SEGMENT_BYTES];
            written[..4].copy_from_slice(&segment[..4]);
            reserved::<XrcSeg>(&written)?;
            self.xrc_srqn = XrcSeg::from_bytes(segment).xrc_srqn();
            at += SEGMENT_BYTES;
        }
        if opcode.has_raddr() {
            let raddr = RaddrSeg::from_bytes(need(bytes, at, "remote address")?);
            reserved::<RaddrSeg>(&bytes[at..at + 16])?;
            (self.raddr, self.rkey) = (raddr.raddr(), raddr.rkey().get());
            at += SEGMENT_BYTES;
        }
        if opcode.is_atomic() || opcode.is_masked_atomic() {
            let (atomic, len_bytes) = Atomic::read(opcode, ctrl.opmod(), bytes, at)?;
            self.atomic = Some(atomic);
            at += len_bytes;
        }
        self.read_data(bytes, at)?;
        if let Some(Atomic { len_bytes, .. }) = self.atomic
            && self.len_bytes != u64::from(len_bytes)
        {
            let text =
                format!("atomic with {} bytes of local memory; it returns {len_bytes}", self.len_bytes);
            return Err((Rule::AtomicLength, text));
        }
        Ok(())
    }

    /// Reads the address vector, of which a DC initiator's differs in its key, and says how long it is. UCX leaves what is reserved in
    /// it as the ring had it.
    fn read_av(&mut self, bytes: &[u8], at: usize, config: &QpConfig) -> Result<usize, Broken> {
        let base: [u8; size_of::<AvBaseSeg>()] = need(bytes, at, "address vector")?;
        let is_compact = !AvBaseSeg::from_bytes(base).ext();
        if is_compact && !config.compact_av {
            return Err((Rule::AddressVector, "it is not of the form of 48 bytes (ext)".into()));
        }
        let mut segment = [0; size_of::<AvSeg>()];
        if is_compact {
            segment[..base.len()].copy_from_slice(&base);
        } else {
            segment = need(bytes, at, "address vector")?;
        }
        if config.service == Service::Dynamic {
            self.dc_access_key = DcAvSeg::from_bytes(segment).dc_key();
        }
        self.av = Some(AvSeg::from_bytes(segment));
        Ok(if is_compact { base.len() } else { segment.len() })
    }

    fn check_ctrl(&self, ctrl: &CtrlSeg, config: &QpConfig) -> Result<(), Broken> {
        let broken = |rule, text| Err((rule, text));
        use SendOpcode as Op;
        let QpConfig { service, qpn, .. } = *config;
        let executed = match service {
            Service::Connected | Service::Extended | Service::Dynamic => matches!(
                ctrl.opcode(),
                Op::NOP
                    | Op::SEND
                    | Op::SEND_IMM
                    | Op::SEND_INVAL
                    | Op::RDMA_WRITE
                    | Op::RDMA_WRITE_IMM
                    | Op::RDMA_READ
                    | Op::ATOMIC_CS
                    | Op::ATOMIC_FA
                    | Op::ATOMIC_MASKED_CS
                    | Op::ATOMIC_MASKED_FA
                    | Op::UMR
                    | Op::SET_PSV
                    | Op::MMO
                    | Op::TAG_MATCHING
            ),
            Service::Unacknowledged => matches!(
                ctrl.opcode(),
                Op::NOP | Op::SEND | Op::SEND_IMM | Op::RDMA_WRITE | Op::RDMA_WRITE_IMM | Op::UMR
            ),
            Service::Datagram => matches!(ctrl.opcode(), Op::NOP | Op::SEND | Op::SEND_IMM),
            Service::Registration => matches!(ctrl.opcode(), Op::NOP | Op::UMR),
        };
        if !executed {
            let text = format!("opcode 0x{:02x} is not one of a QP for {service:?}", self.opcode);
            return broken(Rule::WqeOpcode, text);
        }
        let opmod = if ctrl.opcode() == Op::MMO { OPMOD_COPY } else { 0 };
        if ctrl.opmod() != opmod && !ctrl.opcode().is_masked_atomic() {
            return broken(
                Rule::WqeOpmod,
                format!("opmod {} for opcode 0x{:02x}", ctrl.opmod(), self.opcode),
            );
        }
        if ctrl.wqe_index() != self.index {
            let text = format!("wqe_index {} in WQEBB {}", ctrl.wqe_index(), self.index);
            return broken(Rule::WqeIndex, text);
        }
        if ctrl.qpn() != qpn {
            return broken(Rule::WqeQpn, format!("WQE names QP {} in the ring of {qpn}", ctrl.qpn()));
        }
        // Signature and stream mean nothing where they are not enabled: UCX leaves them as the ring had them.
        reserved::<CtrlSeg>(&ctrl.to_bytes())?;
        if self.fm > FenceMode::SMALL_AND_FENCE.0 {
            return broken(Rule::WqeFlags, format!("fence mode {}", self.fm));
        }
        Ok(())
    }

    fn read_data(&mut self, bytes: &[u8], mut at: usize) -> Result<(), Broken> {
        while at < bytes.len() {
            let data = DataSeg::from_bytes(segment(bytes, at));
            if data.inline() {
                at += self.read_inline(bytes, at)?;
                continue;
            }
            let len = u64::from(data.len_bytes());
            self.pieces.push(Piece::Memory { lkey: data.lkey().get(), addr: data.addr(), len });
            self.len_bytes += len;
            at += SEGMENT_BYTES;
        }
        Ok(())
    }

    fn read_inline(&mut self, bytes: &[u8], at: usize) -> Result<usize, Broken> {
        if self.is_read_or_atomic() {
            let text =
                format!("inline data at +0x{at:x} of opcode 0x{:02x}, which returns data", self.opcode);
            return Err((Rule::WqeInline, text));
        }
        reserved::<InlineSeg>(&bytes[at..at + InlineSeg::HEADER_BYTES])?;
        let mut head = [0; InlineSeg::HEADER_BYTES];
        head.copy_from_slice(&bytes[at..at + InlineSeg::HEADER_BYTES]);
        let len = usize::from(InlineSeg::from_bytes(head).byte_count());
        let start = at + InlineSeg::HEADER_BYTES;
        let Some(data) = bytes.get(start..start + len) else {
            let text =
                format!("{len} inline bytes at +0x{start:x} end after ds = {}", bytes.len() / SEGMENT_BYTES);
            return Err((Rule::DsTooSmall, text));
        };
        self.pieces.push(Piece::Inline { start: self.inline.len(), len: len as u64 });
        self.inline.extend_from_slice(data);
        self.len_bytes += len as u64;
        Ok(InlineSeg::n_octowords(len) * SEGMENT_BYTES)
    }
}

/// Reads the scatter list of a receive WQE into `pieces`; returns its length in bytes.
pub(super) fn read_scatter_list(wqe: &[u8], pieces: &mut Vec<Piece>) -> Result<u64, Broken> {
    pieces.clear();
    let mut total = 0;
    for at in (0..wqe.len()).step_by(SEGMENT_BYTES) {
        let data = DataSeg::from_bytes(segment(wqe, at));
        if data.inline() {
            return Err((Rule::WqeReserved, format!("inline segment at +0x{at:x} of a receive WQE")));
        }
        if data.is_terminator() {
            break;
        }
        let len = u64::from(data.len_bytes());
        pieces.push(Piece::Memory { lkey: data.lkey().get(), addr: data.addr(), len });
        total += len;
    }
    Ok(total)
}

/// The 16 bytes at `at`, which lie in `bytes`: rings are read in whole segments.
pub(super) fn segment(bytes: &[u8], at: usize) -> [u8; SEGMENT_BYTES] {
    let mut segment = [0; SEGMENT_BYTES];
    segment.copy_from_slice(&bytes[at..at + SEGMENT_BYTES]);
    segment
}

pub(super) fn need<const N: usize>(bytes: &[u8], at: usize, what: &str) -> Result<[u8; N], Broken> {
    let found = bytes.get(at..).and_then(|rest| rest.first_chunk::<N>());
    found.copied().ok_or_else(|| {
        let text = format!("no {what} segment at +0x{at:x}: ds = {}", bytes.len() / SEGMENT_BYTES);
        (Rule::DsTooSmall, text)
    })
}

pub(super) fn reserved<T: Layout>(bytes: &[u8]) -> Result<(), Broken> {
    match T::DESC.reserved_bit_set(bytes) {
        Some(bit) => {
            let text =
                format!("{}: bit {} of the dword at +0x{:x}", T::DESC.name, 31 - bit % 32, bit / 32 * 4);
            Err((Rule::WqeReserved, text))
        }
        None => Ok(()),
    }
}
