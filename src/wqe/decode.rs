//! A send WQE taken apart: for error reports, `--explain`, and whoever looks at a ring.

use super::{AtomicSeg, AvSeg, CtrlSeg, DataSeg, InlineSeg, RaddrSeg, SEGMENT_BYTES, SendOpcode, XrcSeg};
use crate::mlx5::layout::{Desc, Layout};
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
    /// All after the control segment of an operation that is not taken apart.
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
        let peer = if opcode == SendOpcode::NOP { Peer::None } else { self.peer };
        Walk { opcode, peer, bytes: self.bytes, at_bytes: 0, n_data: 0 }
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
        )
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
            let rest = &self.bytes[self.at_bytes..];
            self.at_bytes = self.bytes.len();
            return Ok(Some(Segment::Other(rest)));
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
            _ => 1,
        };
        let of_peer = match self.peer {
            Peer::None => 0,
            Peer::Av => 3,
            // UMRs have none.
            Peer::Xrc => usize::from(self.is_known()),
        };
        let min_ds = of_opcode + of_peer;
        if ds < min_ds {
            let rule = Rule::TooShort { opcode: self.opcode, ds, min_ds };
            return Err(DecodeError { at_bytes: 4, rule });
        }
        Ok(())
    }
}

/// A WQE that breaks a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodeError {
    /// Where, in bytes from the start of the WQE.
    pub at_bytes: usize,
    /// Which rule.
    pub rule: Rule,
}

/// The rules of a send WQE's make-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// The bytes go on to the WQE's end.
    Truncated {
        /// Bytes of the WQE.
        need: usize,
        /// Bytes given.
        have: usize,
    },
    /// `ds` counts the control segment.
    NoDs,
    /// `ds` covers the segments that the opcode has.
    TooShort {
        /// The operation.
        opcode: SendOpcode,
        /// Segments there.
        ds: usize,
        /// Segments needed.
        min_ds: usize,
    },
    /// A NOP is its control segment.
    NopWithSegments,
    /// Inline data end where the WQE does or before.
    InlineLength {
        /// Bytes of inline data.
        len_bytes: usize,
        /// Bytes of the WQE behind the header.
        room_bytes: usize,
    },
    /// Data that arrive go to memory.
    InlineTarget,
    /// An atomic brings 8 bytes.
    AtomicLength {
        /// Bytes of its data segment.
        len_bytes: u32,
    },
    /// An atomic has one data segment.
    AtomicSegments,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WQE byte 0x{:02x}: ", self.at_bytes)?;
        match self.rule {
            Rule::Truncated { need, have } => {
                write!(f, "ds says {need} bytes, but only {have} are there")
            }
            Rule::NoDs => f.write_str("ds is 0, but counts the control segment too: at least 1"),
            Rule::TooShort { opcode, ds, min_ds } => {
                write!(f, "{opcode} has {ds} segments (ds), but needs at least {min_ds}")
            }
            Rule::NopWithSegments => f.write_str("a NOP has a control segment only: ds must be 1"),
            Rule::InlineLength { len_bytes, room_bytes } => {
                write!(f, "{len_bytes} bytes of inline data, but ds leaves room for {room_bytes}")
            }
            Rule::InlineTarget => f.write_str("inline data in an operation that brings data: name memory"),
            Rule::AtomicLength { len_bytes } => {
                write!(f, "an atomic brings 8 bytes, but its data segment names {len_bytes}")
            }
            Rule::AtomicSegments => f.write_str("an atomic has one data segment, of 8 bytes"),
        }
    }
}

impl core::error::Error for DecodeError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mlx5::ids::{Lkey, Qpn, Rkey};
    use std::{string::ToString, vec::Vec};

    fn wqe(opcode: SendOpcode, ds: u8, segments: &[[u8; 16]]) -> Vec<u8> {
        let ctrl = CtrlSeg::new().with_opcode(opcode).with_ds(ds).with_qpn(Qpn::new(0x111));
        let mut bytes = ctrl.to_bytes().to_vec();
        segments.iter().for_each(|s| bytes.extend(s));
        bytes
    }

    fn rule(bytes: &[u8]) -> Rule {
        let error = decode(bytes).unwrap_err();
        assert!(error.to_string().starts_with("WQE byte 0x"));
        error.rule
    }

    #[test]
    fn segments_come_by_opcode() {
        let raddr = RaddrSeg::new().with_raddr(0x1000).with_rkey(Rkey::new(7));
        let data = DataSeg::new().with_byte_count(8).with_lkey(Lkey::new(9)).with_addr(0x2000);
        let atomic = AtomicSeg::new().with_swap_add(1);
        let bytes = wqe(SendOpcode::ATOMIC_FA, 4, &[raddr.to_bytes(), atomic.to_bytes(), data.to_bytes()]);
        let segments: Vec<_> = decode(&bytes).unwrap().segments().skip(1).collect();
        assert_eq!(segments, [Segment::Raddr(raddr), Segment::Atomic(atomic), Segment::Data(data)]);
        let text = decode(&bytes).unwrap().to_string();
        for part in ["ATOMIC_FA", "RaddrSeg:", "AtomicSeg:", "DataSeg:", "lkey", "0x1000"] {
            assert!(text.contains(part), "{part} in\n{text}");
        }

        let header = InlineSeg::new().with_inline(true).with_byte_count(5).to_bytes();
        let mut inline = [0xa5; 16];
        inline[..4].copy_from_slice(&header);
        inline[4..9].copy_from_slice(b"hello");
        let bytes = wqe(SendOpcode::SEND, 2, &[inline]);
        let decoded = decode(&bytes).unwrap();
        let Some(Segment::Inline { data, .. }) = decoded.segments().nth(1) else { panic!("{decoded}") };
        assert_eq!(data, b"hello");
        assert!(decoded.to_string().contains("68656c6c6f"));

        let bytes = wqe(SendOpcode::UMR, 3, &[[1; 16], [2; 16]]);
        assert!(
            matches!(decode(&bytes).unwrap().segments().nth(1), Some(Segment::Other(b)) if b.len() == 32)
        );
    }

    #[test]
    fn a_datagram_has_an_address_vector() {
        let av = AvSeg::new().with_ext(true).with_qkey(0x1111_1111).with_dqpn_dctn(Qpn::new(0x42));
        let data = DataSeg::new().with_byte_count(8).with_lkey(Lkey::new(9));
        let mut bytes = wqe(SendOpcode::SEND, 5, &[]);
        bytes.extend(av.to_bytes());
        bytes.extend(data.to_bytes());
        let decoded = decode_datagram(&bytes).unwrap();
        assert_eq!(decoded.segments().skip(1).collect::<Vec<_>>(), [Segment::Av(av), Segment::Data(data)]);
        assert!(decoded.to_string().contains("dqpn_dctn"), "{decoded}");
        decode_datagram(&wqe(SendOpcode::NOP, 1, &[])).unwrap();
        for ds in [1, 3] {
            let short = wqe(SendOpcode::SEND, ds, &[[0; 16]; 2]);
            let rule = decode_datagram(&short).unwrap_err().rule;
            assert_eq!(rule, Rule::TooShort { opcode: SendOpcode::SEND, ds: ds.into(), min_ds: 4 });
        }
    }

    #[test]
    fn an_xrc_request_names_a_shared_receive_queue() {
        let xrc = XrcSeg::new().with_xrc_srqn(0x42);
        let raddr = RaddrSeg::new().with_raddr(0x1000);
        let atomic = AtomicSeg::new().with_swap_add(1);
        let data = DataSeg::new().with_byte_count(8);
        let [x, r, a, d] = [xrc.to_bytes(), raddr.to_bytes(), atomic.to_bytes(), data.to_bytes()];
        let request = wqe(SendOpcode::ATOMIC_FA, 5, &[x, r, a, d]);
        let segments: Vec<_> = decode_xrc(&request).unwrap().segments().skip(1).collect();
        let [xrc, data] = [Segment::Xrc(xrc), Segment::Data(data)];
        assert_eq!(segments, [xrc, Segment::Raddr(raddr), Segment::Atomic(atomic), data]);
        let request = wqe(SendOpcode::SEND, 3, &[x, d]);
        assert_eq!(decode_xrc(&request).unwrap().segments().skip(1).collect::<Vec<_>>(), [xrc, data]);
        for (opcode, min_ds) in
            [(SendOpcode::SEND, 2), (SendOpcode::RDMA_READ, 3), (SendOpcode::ATOMIC_CS, 5)]
        {
            let ds = min_ds as u8 - 1;
            let short = wqe(opcode, ds, &[d; 4]);
            assert_eq!(
                decode_xrc(&short).unwrap_err().rule,
                Rule::TooShort { opcode, ds: ds.into(), min_ds }
            );
        }
        decode_xrc(&wqe(SendOpcode::NOP, 1, &[])).unwrap();
        assert!(decode_xrc(&wqe(SendOpcode::SEND, 2, &[x])).unwrap().to_string().contains("xrc_srqn"));
    }

    #[test]
    fn every_rule_is_named() {
        let data = DataSeg::new().with_byte_count(8).to_bytes();
        let mut inline = [0; 16];
        inline[..4].copy_from_slice(&InlineSeg::new().with_inline(true).with_byte_count(13).to_bytes());
        assert_eq!(rule(&[0; 15]), Rule::Truncated { need: 16, have: 15 });
        assert_eq!(rule(&wqe(SendOpcode::SEND, 3, &[data])), Rule::Truncated { need: 48, have: 32 });
        assert_eq!(rule(&wqe(SendOpcode::SEND, 0, &[])), Rule::NoDs);
        let opcode = SendOpcode::RDMA_WRITE;
        assert_eq!(rule(&wqe(opcode, 1, &[])), Rule::TooShort { opcode, ds: 1, min_ds: 2 });
        let opcode = SendOpcode::ATOMIC_CS;
        assert_eq!(rule(&wqe(opcode, 3, &[data, data])), Rule::TooShort { opcode, ds: 3, min_ds: 4 });
        assert_eq!(rule(&wqe(SendOpcode::NOP, 2, &[data])), Rule::NopWithSegments);
        let length = Rule::InlineLength { len_bytes: 13, room_bytes: 12 };
        assert_eq!(rule(&wqe(SendOpcode::SEND, 2, &[inline])), length);
        assert_eq!(rule(&wqe(SendOpcode::RDMA_READ, 3, &[data, inline])), Rule::InlineTarget);
        let long = DataSeg::new().with_byte_count(16).to_bytes();
        let atomic = wqe(SendOpcode::ATOMIC_FA, 4, &[data, data, long]);
        assert_eq!(rule(&atomic), Rule::AtomicLength { len_bytes: 16 });
        assert_eq!(rule(&wqe(SendOpcode::ATOMIC_FA, 5, &[data; 4])), Rule::AtomicSegments);
    }
}
