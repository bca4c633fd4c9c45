//! A send WQE taken apart: for error reports, `--explain`, and whoever looks at a ring.

mod rule;
#[cfg(test)]
mod tests;
mod umr;

pub use rule::{DecodeError, Rule};

use super::{
    AtomicSeg, AvSeg, CtrlSeg, DataSeg, EthSeg, InlineSeg, KlmEntry, RaddrSeg, RepeatBlockSeg,
    RepeatEntrySeg, SEGMENT_BYTES, SendOpcode, UmrCtrlSeg, XrcSeg,
};
use crate::mlx5::{
    context::Mkc,
    layout::{Desc, Layout},
};
use core::fmt;

/// A send WQE whose segments fit its opcode and length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodedWqe<'a> {
    bytes: &'a [u8],
    peer: Peer,
}

/// What of a request says whom it is for, behind the control segment. It depends on the queue pair, and no WQE says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Peer {
    /// Nothing: the queue pair knows.
    None,
    Av,
    Xrc,
    /// No peer at all: what the device does to the frame.
    Eth,
}

/// One segment of a WQE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Segment<'a> {
    /// Always the first.
    Ctrl(CtrlSeg),
    /// Where a datagram goes.
    Av(AvSeg),
    /// Which shared receive queue of the peer an XRC request is for.
    Xrc(XrcSeg),
    /// What the device does to a raw packet.
    Eth {
        /// The segment, with the first two bytes of the frame's head if there is one.
        segment: EthSeg,
        /// The head's other bytes.
        header: &'a [u8],
    },
    /// Where a remote operation goes.
    Raddr(RaddrSeg),
    /// Operands of an atomic.
    Atomic(AtomicSeg),
    /// A piece of local memory.
    Data(DataSeg),
    /// Data in the WQE.
    Inline {
        /// Says how many.
        header: InlineSeg,
        /// The data.
        data: &'a [u8],
    },
    /// How a UMR changes a memory key.
    UmrCtrl(UmrCtrlSeg),
    /// What it changes the key's context to: of these fields, those that the segment before names.
    Mkc(Mkc),
    /// An entry of the translation list in a UMR. Whether the key's entries are KLMs is in the key, not in the WQE; those of
    /// zeros that fill the list up are not told.
    Klm(KlmEntry),
    /// The head of an interleaved translation list.
    RepeatBlock(RepeatBlockSeg),
    /// One piece of each of its cycles.
    RepeatEntry(RepeatEntrySeg),
    /// All after the control segment of an operation that is not taken apart, or what follows the translation list in a UMR.
    Other(&'a [u8]),
}

/// Takes apart the WQE at the start of `bytes`, which go on at least to its end (a wrapped one is copied out
/// of its ring first: [`SendQueue::copy_wqe`](crate::queue::SendQueue::copy_wqe)).
///
/// ```
/// use mlx5_direct::wqe::{self, CtrlSeg, SendOpcode};
///
/// let nop = CtrlSeg::new().with_opcode(SendOpcode::NOP).with_ds(1);
/// assert_eq!(wqe::decode(&nop.to_bytes()).unwrap().segments().count(), 1);
///
/// let long = nop.with_ds(2).to_bytes();
/// assert!(wqe::decode(&long).unwrap_err().to_string().contains("ds says 32 bytes, but only 16 are there"));
/// ```
///
/// # Errors
/// The first rule that the WQE breaks, and where.
pub fn decode(bytes: &[u8]) -> Result<DecodedWqe<'_>, DecodeError> {
    take_apart(bytes, Peer::None)
}

/// As [`decode`], of a queue pair for datagrams, whose requests have an address vector.
///
/// # Errors
/// The first rule that the WQE breaks, and where.
pub fn decode_datagram(bytes: &[u8]) -> Result<DecodedWqe<'_>, DecodeError> {
    take_apart(bytes, Peer::Av)
}

/// As [`decode`], of an XRC initiator, whose requests name a shared receive queue.
///
/// # Errors
/// The first rule that the WQE breaks, and where.
pub fn decode_xrc(bytes: &[u8]) -> Result<DecodedWqe<'_>, DecodeError> {
    take_apart(bytes, Peer::Xrc)
}

/// As [`decode`], of a raw packet queue, whose requests have an Ethernet segment.
///
/// # Errors
/// The first rule that the WQE breaks, and where.
pub fn decode_raw_packet(bytes: &[u8]) -> Result<DecodedWqe<'_>, DecodeError> {
    take_apart(bytes, Peer::Eth)
}

fn take_apart(bytes: &[u8], peer: Peer) -> Result<DecodedWqe<'_>, DecodeError> {
    let Some(first) = bytes.first_chunk::<SEGMENT_BYTES>() else {
        return Err(DecodeError {
            at_bytes: 0,
            rule: Rule::Truncated { need: SEGMENT_BYTES, have: bytes.len() },
        });
    };
    let ctrl = CtrlSeg::from_bytes(*first);
    if ctrl.ds() == 0 {
        return Err(DecodeError { at_bytes: 4, rule: Rule::NoDs });
    }
    let need = usize::from(ctrl.ds()) * SEGMENT_BYTES;
    let Some(bytes) = bytes.get(..need) else {
        return Err(DecodeError { at_bytes: 4, rule: Rule::Truncated { need, have: bytes.len() } });
    };
    let wqe = DecodedWqe { bytes, peer };
    let mut walk = wqe.walk();
    while walk.step()?.is_some() {}
    walk.end()?;
    Ok(wqe)
}

impl<'a> DecodedWqe<'a> {
    /// The control segment.
    pub fn ctrl(&self) -> CtrlSeg {
        let mut first = [0; SEGMENT_BYTES];
        first.copy_from_slice(&self.bytes[..SEGMENT_BYTES]);
        CtrlSeg::from_bytes(first)
    }

    /// The WQE: `ds` times 16 bytes.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    fn walk(&self) -> Walk<'a> {
        let opcode = self.ctrl().opcode();
        let has_peer = !matches!(opcode, SendOpcode::NOP | SendOpcode::UMR);
        let peer = if has_peer { self.peer } else { Peer::None };
        Walk { opcode, peer, bytes: self.bytes, at_bytes: 0, n_data: 0, list: umr::List::default() }
    }

    /// The segments, in order.
    pub fn segments(&self) -> impl Iterator<Item = Segment<'a>> + use<'a> {
        let mut walk = self.walk();
        core::iter::from_fn(move || walk.step().ok().flatten())
    }
}

impl fmt::Display for DecodedWqe<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ctrl = self.ctrl();
        writeln!(
            f,
            "WQE 0x{:04x} of QP {}: {}, {} bytes",
            ctrl.wqe_index(),
            ctrl.qpn(),
            ctrl.opcode(),
            self.bytes.len()
        )?;
        for segment in self.segments() {
            match segment {
                Segment::Ctrl(s) => explain(f, CtrlSeg::DESC, &s.to_bytes())?,
                Segment::Av(s) => explain(f, AvSeg::DESC, &s.to_bytes())?,
                Segment::Xrc(s) => explain(f, XrcSeg::DESC, &s.to_bytes())?,
                Segment::Eth { segment, header } => {
                    explain(f, EthSeg::DESC, &segment.to_bytes())?;
                    hex(f, "header", header)?;
                }
                Segment::UmrCtrl(s) => explain(f, UmrCtrlSeg::DESC, &s.to_bytes())?,
                Segment::Mkc(s) => explain(f, Mkc::DESC, &s.to_bytes())?,
                Segment::Klm(s) => explain(f, KlmEntry::DESC, &s.to_bytes())?,
                Segment::RepeatBlock(s) => explain(f, RepeatBlockSeg::DESC, &s.to_bytes())?,
                Segment::RepeatEntry(s) => explain(f, RepeatEntrySeg::DESC, &s.to_bytes())?,
                Segment::Raddr(s) => explain(f, RaddrSeg::DESC, &s.to_bytes())?,
                Segment::Atomic(s) => explain(f, AtomicSeg::DESC, &s.to_bytes())?,
                Segment::Data(s) => explain(f, DataSeg::DESC, &s.to_bytes())?,
                Segment::Inline { header, data } => {
                    explain(f, InlineSeg::DESC, &header.to_bytes())?;
                    hex(f, "data", data)?;
                }
                Segment::Other(bytes) => {
                    writeln!(f, "segments of {}:", ctrl.opcode())?;
                    hex(f, "bytes", bytes)?;
                }
            }
        }
        Ok(())
    }
}

fn explain(f: &mut fmt::Formatter<'_>, desc: &'static Desc, bytes: &[u8]) -> fmt::Result {
    write!(f, "{}:\n{}", desc.name, desc.explain(bytes))
}

fn hex(f: &mut fmt::Formatter<'_>, what: &str, bytes: &[u8]) -> fmt::Result {
    for (i, line) in bytes.chunks(16).enumerate() {
        write!(f, "  {:<28} ", if i == 0 { what } else { "" })?;
        for byte in line {
            write!(f, "{byte:02x}")?;
        }
        writeln!(f)?;
    }
    Ok(())
}

/// Walks the segments that an opcode has.
struct Walk<'a> {
    opcode: SendOpcode,
    peer: Peer,
    bytes: &'a [u8],
    at_bytes: usize,
    /// Data and inline segments so far.
    n_data: usize,
    /// Of a UMR, what is left of its translation list.
    list: umr::List,
}

impl<'a> Walk<'a> {
    fn take(&mut self) -> [u8; SEGMENT_BYTES] {
        let mut segment = [0; SEGMENT_BYTES];
        segment.copy_from_slice(&self.bytes[self.at_bytes..self.at_bytes + SEGMENT_BYTES]);
        self.at_bytes += SEGMENT_BYTES;
        segment
    }

    fn broken<T>(&self, rule: Rule) -> Result<T, DecodeError> {
        Err(DecodeError { at_bytes: self.at_bytes, rule })
    }

    /// Whether the operation is taken apart.
    fn is_known(&self) -> bool {
        matches!(
            self.opcode,
            SendOpcode::NOP
                | SendOpcode::SEND
                | SendOpcode::SEND_IMM
                | SendOpcode::SEND_INVAL
                | SendOpcode::RDMA_WRITE
                | SendOpcode::RDMA_WRITE_IMM
                | SendOpcode::RDMA_READ
                | SendOpcode::ATOMIC_CS
                | SendOpcode::ATOMIC_FA
                | SendOpcode::UMR
        ) || self.opcode == SendOpcode::LSO && self.peer == Peer::Eth
    }

    /// The next segment. The length is a multiple of 16.
    fn step(&mut self) -> Result<Option<Segment<'a>>, DecodeError> {
        let index = self.at_bytes / SEGMENT_BYTES;
        if self.at_bytes >= self.bytes.len() {
            return Ok(None);
        }
        if index == 0 {
            return Ok(Some(Segment::Ctrl(CtrlSeg::from_bytes(self.take()))));
        }
        if !self.is_known() {
            return Ok(Some(self.rest()));
        }
        if self.opcode == SendOpcode::UMR {
            return self.umr();
        }
        if index == 1 && self.peer == Peer::Eth {
            return self.eth().map(Some);
        }
        if index == 1 && self.peer == Peer::Av {
            let Some(av) = self.bytes[self.at_bytes..].first_chunk() else {
                self.at_bytes = self.bytes.len();
                return Ok(None);
            };
            self.at_bytes += av.len();
            return Ok(Some(Segment::Av(AvSeg::from_bytes(*av))));
        }
        if index == 1 && self.peer == Peer::Xrc {
            return Ok(Some(Segment::Xrc(XrcSeg::from_bytes(self.take()))));
        }
        let index = index - usize::from(self.peer == Peer::Xrc);
        if index == 1 && self.opcode.has_raddr() {
            return Ok(Some(Segment::Raddr(RaddrSeg::from_bytes(self.take()))));
        }
        if index == 2 && self.opcode.is_atomic() {
            return Ok(Some(Segment::Atomic(AtomicSeg::from_bytes(self.take()))));
        }
        if self.opcode == SendOpcode::NOP {
            return self.broken(Rule::NopWithSegments);
        }
        self.data().map(Some)
    }

    /// All that there still is.
    fn rest(&mut self) -> Segment<'a> {
        let rest = &self.bytes[self.at_bytes..];
        self.at_bytes = self.bytes.len();
        Segment::Other(rest)
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
            if self.opcode.is_atomic() && self.n_data == 1 {
                return self.broken(Rule::AtomicSegments);
            }
            let data = DataSeg::from_bytes(self.take());
            self.n_data += 1;
            if self.opcode.is_atomic() && data.byte_count() != 8 {
                self.at_bytes -= SEGMENT_BYTES;
                return self.broken(Rule::AtomicLength { len_bytes: data.byte_count() });
            }
            return Ok(Segment::Data(data));
        }
        if self.opcode == SendOpcode::RDMA_READ || self.opcode.is_atomic() {
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
        self.n_data += 1;
        Ok(Segment::Inline { header, data })
    }

    /// Nothing that the opcode needs is missing.
    fn end(&self) -> Result<(), DecodeError> {
        let ds = self.bytes.len() / SEGMENT_BYTES;
        let of_opcode = match self.opcode {
            opcode if opcode.is_atomic() => 4,
            SendOpcode::RDMA_WRITE | SendOpcode::RDMA_WRITE_IMM | SendOpcode::RDMA_READ => 2,
            // UMR control and the key's context.
            SendOpcode::UMR => 8,
            _ => 1,
        };
        let of_peer = match self.peer {
            Peer::None => 0,
            Peer::Av => 3,
            Peer::Xrc | Peer::Eth => usize::from(self.is_known()),
        };
        let min_ds = of_opcode + of_peer;
        if ds < min_ds {
            let rule = Rule::TooShort { opcode: self.opcode, ds, min_ds };
            return Err(DecodeError { at_bytes: 4, rule });
        }
        Ok(())
    }
}
