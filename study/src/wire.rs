//! RoCE packets taken apart, header by header, as the InfiniBand Architecture Specification draws them.

mod headers;

pub use headers::opcode_name;

use crate::record::Structure;
use headers::{
    AETH, ATOMIC_ACK_ETH, ATOMIC_ETH, BTH, DETH, ETHERNET, GRH, ICRC, IETH, IMM_DT, IPV4, IPV6, RETH, UDP,
    VLAN, XRC_ETH,
};
use mlx5_direct::mlx5::layout::Desc;
use std::{fmt, ops::Range};

/// UDP port of RoCE v2.
const ROCE_PORT: u16 = 4791;
/// Bytes of the invariant CRC, which ends every packet.
const ICRC_BYTES: usize = 4;

/// A packet's headers, and where its payload is.
#[derive(Debug, Clone)]
pub struct Packet {
    /// The headers in order, and last the ICRC.
    pub headers: Vec<Structure>,
    /// The payload's place in the frame.
    pub payload: Range<usize>,
    /// Zeros behind the payload, up to a multiple of four.
    pub pad_bytes: usize,
}

/// Why a frame is no RoCE packet, or none that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotRoce {
    /// It ends before its headers or its length field say.
    Short {
        /// Bytes that should be there.
        need_bytes: usize,
        /// Bytes that are.
        have_bytes: usize,
    },
    /// Neither RoCE v1 nor UDP to port 4791.
    OtherProtocol,
    /// An opcode of the transport that the specification does not have, or that is not known here.
    Opcode(u8),
}

impl fmt::Display for NotRoce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short { need_bytes, have_bytes } => {
                write!(f, "its headers ask for {need_bytes} bytes, and {have_bytes} are there")
            }
            Self::OtherProtocol => {
                write!(f, "neither RoCE v1 (ethertype 0x8915) nor UDP to port {ROCE_PORT}")
            }
            Self::Opcode(opcode) => write!(f, "BTH opcode 0x{opcode:02x} is not known"),
        }
    }
}

impl std::error::Error for NotRoce {}

impl Packet {
    /// Takes an Ethernet frame apart, without its frame check sequence. Checks are not computed.
    ///
    /// # Errors
    /// Why it is not a packet of RoCE.
    pub fn parse(frame: &[u8]) -> Result<Self, NotRoce> {
        let mut walk = Walk { frame, at: 0, headers: Vec::new() };
        walk.take("Ethernet header", &ETHERNET)?;
        let mut ethertype = be16(frame, 12);
        if ethertype == 0x8100 {
            walk.take("VLAN tag", &VLAN)?;
            ethertype = be16(frame, 16);
        }
        let start = walk.at;
        let (next, len_bytes) = match ethertype {
            0x0800 => {
                walk.take("IPv4 header", &IPV4)?;
                (frame[start + 9], usize::from(be16(frame, start + 2)))
            }
            0x86dd => {
                walk.take("IPv6 header", &IPV6)?;
                (frame[start + 6], usize::from(be16(frame, start + 4)) + 40)
            }
            0x8915 => {
                walk.take("GRH", &GRH)?;
                (frame[start + 6], usize::from(be16(frame, start + 4)) + 40)
            }
            _ => return Err(NotRoce::OtherProtocol),
        };
        let end = start + len_bytes;
        match (ethertype, next) {
            (0x8915, 0x1b) => {}
            (0x0800 | 0x86dd, 17) => {
                let udp = walk.at;
                walk.take("UDP header", &UDP)?;
                if be16(frame, udp + 2) != ROCE_PORT {
                    return Err(NotRoce::OtherProtocol);
                }
            }
            _ => return Err(NotRoce::OtherProtocol),
        }
        walk.transport(end)
    }
}

/// A frame, and how far it is taken apart.
struct Walk<'a> {
    frame: &'a [u8],
    at: usize,
    headers: Vec<Structure>,
}

impl Walk<'_> {
    fn take(&mut self, title: &str, desc: &'static Desc) -> Result<(), NotRoce> {
        let end = self.at + desc.size_bytes;
        let bytes = self
            .frame
            .get(self.at..end)
            .ok_or(NotRoce::Short { need_bytes: end, have_bytes: self.frame.len() })?
            .to_vec();
        self.headers.push(Structure { title: title.into(), offset_bytes: self.at, desc, bytes });
        self.at = end;
        Ok(())
    }

    /// From the BTH to the end of the packet.
    fn transport(mut self, end: usize) -> Result<Packet, NotRoce> {
        let bth = self.at;
        self.take("BTH", &BTH)?;
        let (opcode, pad_bytes) = (self.frame[bth], usize::from(self.frame[bth + 1] >> 4 & 3));
        for (title, desc) in extensions(opcode).ok_or(NotRoce::Opcode(opcode))? {
            self.take(title, desc)?;
        }
        let need_bytes = self.at + pad_bytes + ICRC_BYTES;
        if end < need_bytes || self.frame.len() < end {
            return Err(NotRoce::Short {
                need_bytes: end.max(need_bytes),
                have_bytes: self.frame.len().min(end),
            });
        }
        let payload = self.at..end - ICRC_BYTES - pad_bytes;
        self.at = end - ICRC_BYTES;
        self.take("ICRC", &ICRC)?;
        Ok(Packet { headers: self.headers, payload, pad_bytes })
    }
}

/// The headers behind the BTH, by its opcode: three bits of the transport, five of the operation.
fn extensions(opcode: u8) -> Option<Vec<(&'static str, &'static Desc)>> {
    let (transport, operation) = (opcode >> 5, opcode & 0x1f);
    let mut list: Vec<(&'static str, &'static Desc)> = match transport {
        0 | 1 => Vec::new(),
        3 => vec![("DETH", &DETH)],
        // Answers are for the initiator, and name no shared receive queue.
        5 if (0x0d..=0x12).contains(&operation) => Vec::new(),
        5 => vec![("XRCETH", &XRC_ETH)],
        _ => return None,
    };
    let of_operation: &[(&'static str, &'static Desc)] = match operation {
        0x00 | 0x01 | 0x02 | 0x04 | 0x07 | 0x08 | 0x0e => &[],
        0x03 | 0x05 | 0x09 => &[("ImmDt", &IMM_DT)],
        0x06 | 0x0a | 0x0c => &[("RETH", &RETH)],
        0x0b => &[("RETH", &RETH), ("ImmDt", &IMM_DT)],
        0x0d | 0x0f | 0x10 | 0x11 => &[("AETH", &AETH)],
        0x12 => &[("AETH", &AETH), ("AtomicAckETH", &ATOMIC_ACK_ETH)],
        0x13 | 0x14 => &[("AtomicETH", &ATOMIC_ETH)],
        0x16 | 0x17 => &[("IETH", &IETH)],
        _ => return None,
    };
    list.extend(of_operation);
    Some(list)
}

fn be16(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |two| u16::from_be_bytes([two[0], two[1]]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A READ request over IPv6, as the software card sends it.
    const READ: &str = "026d6c783502026d6c78350186dd6000000000281140fe80000000000000006d6cfffe783501\
                        fe80000000000000006d6cfffe783502c10412b7002800000c40ffff000001018000100000000000\
                        bbbb00000004000200000040c6f6acd2";

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
        let byte = |two: &[u8]| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap();
        digits.chunks(2).map(byte).collect()
    }

    #[test]
    fn a_read_request_header_by_header() {
        let packet = Packet::parse(&bytes(READ)).unwrap();
        let titles: Vec<_> = packet.headers.iter().map(|one| one.title.as_str()).collect();
        assert_eq!(titles, ["Ethernet header", "IPv6 header", "UDP header", "BTH", "RETH", "ICRC"]);
        assert!(packet.payload.is_empty());
        let text = packet.headers[3].desc.explain(&packet.headers[3].bytes).to_string();
        assert!(text.contains("RC RDMA READ request (0x0c)") && text.contains("dest_qp"), "{text}");
        let reth = &packet.headers[4];
        assert_eq!(reth.offset_bytes, 74);
        let value =
            |name| reth.desc.read(reth.desc.fields.iter().find(|f| f.name == name).unwrap(), &reth.bytes);
        assert_eq!((value("va"), value("r_key"), value("dma_len")), (0xbbbb_0000, 0x4_0002, 64));
    }

    #[test]
    fn whatever_is_cut_or_changed_is_refused_or_read() {
        let frame = bytes(READ);
        for len in 0..frame.len() {
            assert!(Packet::parse(&frame[..len]).is_err(), "{len}");
        }
        for at in 0..frame.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut frame = frame.clone();
                frame[at] = value;
                if let Ok(packet) = Packet::parse(&frame) {
                    assert!(packet.payload.start <= packet.payload.end && packet.payload.end <= frame.len());
                }
            }
        }
        let mut other = frame;
        other[57] = 0xb8; // UDP port 4792
        assert_eq!(Packet::parse(&other).unwrap_err(), NotRoce::OtherProtocol);
    }
}
