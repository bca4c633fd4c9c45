//! Whole packets, and how they are built. RoCE: Ethernet with or without a VLAN tag, GRH or IP and UDP; InfiniBand:
//! LRH, and a GRH if it may leave the subnet; then, on both, BTH and extension headers, payload, padding and
//! ICRC; and on InfiniBand the VCRC.

use super::{
    extension::{Aeth, AtomicEth, DcEth, Deth, MaskEth, Reth},
    icrc::{Carrier, icrc, vcrc},
    opcode::{Extensions, Opcode},
};
use crate::exec::{Path, host::RoceKind};
use core::{fmt, ops::Range};
use mlx5_direct::mlx5::ids::{Psn, Qpn};

/// Bytes of a GRH, and of what stands in its place in front of a received datagram.
pub const GRH_BYTES: usize = 40;
/// UDP port of RoCE v2.
pub const ROCE_UDP_PORT: u16 = 4791;
/// Partition key of RoCE, which has one partition only.
pub const DEFAULT_PKEY: u16 = 0xffff;
/// Hop limit where the address vector has none.
pub const DEFAULT_HOP_LIMIT: u8 = 64;
/// Ethernet, VLAN, IPv6, UDP, BTH, the longest extension headers before payload (of a DC WRITE with immediate data), 4096 bytes of it,
/// ICRC.
pub const MAX_FRAME_BYTES: usize = 18 + 48 + 12 + 40 + 4096 + 4;

pub(super) const ETHERTYPE_IPV4: u16 = 0x0800;
pub(super) const ETHERTYPE_IPV6: u16 = 0x86dd;
pub(super) const ETHERTYPE_VLAN: u16 = 0x8100;
pub(super) const ETHERTYPE_ROCE: u16 = 0x8915;
pub(super) const NEXT_HEADER_BTH: u8 = 0x1b;
pub(super) const PROTOCOL_UDP: u8 = 17;
pub(super) const ICRC_BYTES: usize = 4;
pub(crate) const VCRC_BYTES: usize = 2;
pub(super) const LRH_BYTES: usize = 8;
/// `LRH.LNH`: a BTH follows, or a GRH.
pub(super) const NEXT_IS_BTH: u8 = 2;
pub(super) const NEXT_IS_GRH: u8 = 3;

/// Ethernet addresses and VLAN tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ethernet {
    /// Destination MAC.
    pub dest: [u8; 6],
    /// Source MAC.
    pub source: [u8; 6],
    /// 802.1Q tag: priority `[15:13]`, DEI `[12]`, VLAN id `[11:0]`.
    pub vlan_tci: Option<u16>,
}

/// Local routing header of InfiniBand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lrh {
    /// Virtual lane, 4 bits; 15 is that of subnet management.
    pub vl: u8,
    /// Service level, 4 bits.
    pub sl: u8,
    /// LID of the destination.
    pub dest_lid: u16,
    /// LID of the source.
    pub source_lid: u16,
}

/// What a packet begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkHeader {
    /// RoCE.
    Ethernet(Ethernet),
    /// InfiniBand.
    InfiniBand(Lrh),
}

/// Network layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    /// Format. [`RoceKind::V1`] is a GRH, on InfiniBand too.
    pub kind: RoceKind,
    /// Source address as a GID.
    pub source_gid: [u8; 16],
    /// Destination address as a GID.
    pub dest_gid: [u8; 16],
    /// Traffic class or type of service.
    pub traffic_class: u8,
    /// Hop limit or time to live.
    pub hop_limit: u8,
    /// Flow label, 20 bits; none in IPv4.
    pub flow_label: u32,
    /// UDP source port; 0 in RoCE v1.
    pub udp_source_port: u16,
}

/// Base transport header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bth {
    /// Operation.
    pub opcode: Opcode,
    /// Solicited event.
    pub solicited: bool,
    /// Partition key.
    pub pkey: u16,
    /// Destination QP.
    pub dest_qpn: Qpn,
    /// Acknowledge request.
    pub ack_req: bool,
    /// Packet sequence number.
    pub psn: Psn,
}

/// All headers of a packet. Extension headers are present as the opcode has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Headers {
    /// Ethernet or InfiniBand.
    pub link: LinkHeader,
    /// Network; an InfiniBand packet that stays in its subnet needs none.
    pub network: Option<Network>,
    /// Base transport header.
    pub bth: Bth,
    /// RDMA addresses.
    pub reth: Option<Reth>,
    /// Atomic operands.
    pub atomic: Option<AtomicEth>,
    /// Masks of an atomic that has any.
    pub masks: Option<MaskEth>,
    /// Acknowledgement.
    pub aeth: Option<Aeth>,
    /// Old value that an atomic returns.
    pub atomic_ack: Option<u64>,
    /// Datagram.
    pub deth: Option<Deth>,
    /// Number of the shared receive queue that an XRC request is for.
    pub xrc_srqn: Option<u32>,
    /// Who asks a DC target.
    pub dc: Option<DcEth>,
    /// Immediate data as the big-endian integer of its bytes.
    pub imm: Option<u32>,
    /// rkey to invalidate.
    pub invalidate: Option<u32>,
}

/// A received packet whose ICRC is right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet<'a> {
    /// All headers.
    pub headers: Headers,
    /// Payload without padding.
    pub payload: &'a [u8],
}

/// Why a frame is not a packet of a transport here. A receiver drops it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketError {
    /// Cut off, or a length field that does not agree with the frame.
    Length,
    /// Some other protocol: ethertype, IP protocol or UDP port.
    NotRoce,
    /// Broken IP header: version, options, checksum or fragment.
    Ip,
    /// `LRH.LVer` is not 0, or `LRH.LNH` says that neither a BTH nor a GRH follows.
    Lrh,
    /// `BTH.TVer` is not 0.
    TransportVersion,
    /// No opcode of RC, UC, XRC, UD or DC.
    Opcode(Opcode),
    /// ICRC computed and found.
    Icrc {
        /// Of the packet's bytes.
        computed: u32,
        /// At the packet's end.
        found: u32,
    },
    /// VCRC computed and found.
    Vcrc {
        /// Of the packet's bytes.
        computed: u16,
        /// At the packet's end.
        found: u16,
    },
}

impl fmt::Display for PacketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length => f.write_str("frame is shorter than its headers say"),
            Self::NotRoce => f.write_str("not a RoCE frame"),
            Self::Ip => f.write_str("broken IP header"),
            Self::Lrh => f.write_str("LRH of an unknown version, or of no InfiniBand transport packet"),
            Self::TransportVersion => f.write_str("BTH transport version is not 0"),
            Self::Opcode(opcode) => write!(f, "opcode {opcode:?} is none of RC, UC, XRC, UD or DC"),
            Self::Icrc { computed, found } => {
                write!(f, "ICRC is 0x{found:08x}, computed 0x{computed:08x}")
            }
            Self::Vcrc { computed, found } => {
                write!(f, "VCRC is 0x{found:04x}, computed 0x{computed:04x}")
            }
        }
    }
}

impl Headers {
    /// Writes all headers for `payload_len` bytes into `frame`, replacing what it holds, and returns where
    /// the payload goes. Fill it in, then [`seal`](Self::seal).
    pub fn begin(&self, payload_len: usize, frame: &mut Vec<u8>) -> Range<usize> {
        frame.clear();
        let extensions = self.bth.opcode.extensions().unwrap_or(Extensions::NONE);
        let pad = payload_len.wrapping_neg() & 3;
        let transport_len = 12 + extensions.len_bytes() + payload_len + pad + ICRC_BYTES;
        self.write_link(transport_len, frame);
        self.write_network(transport_len as u16, frame);
        let bth = &self.bth;
        let flags = u8::from(bth.solicited) << 7 | 0x40 | (pad as u8) << 4;
        frame.extend_from_slice(&[bth.opcode.0, flags]);
        frame.extend_from_slice(&bth.pkey.to_be_bytes());
        frame.extend_from_slice(&bth.dest_qpn.get().to_be_bytes());
        frame.extend_from_slice(&(u32::from(bth.ack_req) << 31 | bth.psn.get()).to_be_bytes());
        self.write_extensions(extensions, frame);
        let start = frame.len();
        let trailer = match self.link {
            LinkHeader::Ethernet(_) => ICRC_BYTES,
            LinkHeader::InfiniBand(_) => ICRC_BYTES + VCRC_BYTES,
        };
        frame.resize(start + payload_len + pad + trailer, 0);
        start..start + payload_len
    }

    /// The network header as it stands in front of a received datagram: a GRH or IPv6 header, or an IPv4 header
    /// in the last 20 bytes. None for a packet without one.
    pub fn grh(&self, payload_len: usize) -> Option<[u8; GRH_BYTES]> {
        let network = self.network?;
        let extensions = self.bth.opcode.extensions().unwrap_or(Extensions::NONE);
        let transport_len = 12 + extensions.len_bytes() + payload_len.next_multiple_of(4) + ICRC_BYTES;
        let mut header = Vec::new();
        self.write_network(transport_len as u16, &mut header);
        let mut grh = [0; GRH_BYTES];
        match network.kind {
            RoceKind::V2Ipv4 => grh[20..].copy_from_slice(&header[..20]),
            RoceKind::V1 | RoceKind::V2Ipv6 => grh.copy_from_slice(&header[..GRH_BYTES]),
        }
        Some(grh)
    }

    /// Whether the packet came from where `path` leads.
    pub(crate) fn is_from(&self, path: &Path) -> bool {
        match (self.network, self.link) {
            (Some(network), _) => network.source_gid == path.dest_gid,
            (None, LinkHeader::InfiniBand(lrh)) => lrh.source_lid == path.dest_lid,
            (None, LinkHeader::Ethernet(_)) => false,
        }
    }

    /// Computes the checks of a frame begun with these headers.
    pub fn seal(&self, frame: &mut [u8]) {
        let (start, trailer) = match (self.link, self.network) {
            (LinkHeader::Ethernet(ethernet), _) => (14 + if ethernet.vlan_tci.is_some() { 4 } else { 0 }, 0),
            (LinkHeader::InfiniBand(_), None) => (0, VCRC_BYTES),
            (LinkHeader::InfiniBand(_), Some(_)) => (LRH_BYTES, VCRC_BYTES),
        };
        let (end, vcrc_at) = (frame.len() - trailer - ICRC_BYTES, frame.len() - trailer);
        let crc = icrc(&frame[start..end], carrier(self.network));
        frame[end..vcrc_at].copy_from_slice(&crc.to_le_bytes());
        if trailer != 0 {
            let crc = vcrc(&frame[..vcrc_at]);
            frame[vcrc_at..].copy_from_slice(&crc.to_le_bytes());
        }
    }

    /// A whole frame with `payload`.
    pub fn frame(&self, payload: &[u8]) -> Vec<u8> {
        let mut frame = Vec::new();
        let range = self.begin(payload.len(), &mut frame);
        frame[range].copy_from_slice(payload);
        self.seal(&mut frame);
        frame
    }

    fn write_link(&self, transport_len: usize, frame: &mut Vec<u8>) {
        match &self.link {
            LinkHeader::Ethernet(ethernet) => {
                frame.extend_from_slice(&ethernet.dest);
                frame.extend_from_slice(&ethernet.source);
                if let Some(tci) = ethernet.vlan_tci {
                    frame.extend_from_slice(&ETHERTYPE_VLAN.to_be_bytes());
                    frame.extend_from_slice(&tci.to_be_bytes());
                }
                let ethertype = match self.network.map(|network| network.kind) {
                    Some(RoceKind::V2Ipv4) => ETHERTYPE_IPV4,
                    Some(RoceKind::V2Ipv6) => ETHERTYPE_IPV6,
                    Some(RoceKind::V1) | None => ETHERTYPE_ROCE,
                };
                frame.extend_from_slice(&ethertype.to_be_bytes());
            }
            LinkHeader::InfiniBand(lrh) => {
                let (next, grh_len) = match self.network {
                    Some(_) => (NEXT_IS_GRH, GRH_BYTES),
                    None => (NEXT_IS_BTH, 0),
                };
                let n_words = ((LRH_BYTES + grh_len + transport_len) / 4) as u16;
                frame.extend_from_slice(&[lrh.vl << 4, lrh.sl << 4 | next]);
                frame.extend_from_slice(&lrh.dest_lid.to_be_bytes());
                frame.extend_from_slice(&n_words.to_be_bytes());
                frame.extend_from_slice(&lrh.source_lid.to_be_bytes());
            }
        }
    }

    fn write_network(&self, transport_len: u16, frame: &mut Vec<u8>) {
        let Some(net) = &self.network else { return };
        match net.kind {
            RoceKind::V2Ipv4 => {
                let start = frame.len();
                frame.extend_from_slice(&[0x45, net.traffic_class]);
                frame.extend_from_slice(&(transport_len + 28).to_be_bytes());
                // Identification 0, do not fragment.
                frame.extend_from_slice(&[0, 0, 0x40, 0, net.hop_limit, PROTOCOL_UDP, 0, 0]);
                frame.extend_from_slice(&net.source_gid[12..]);
                frame.extend_from_slice(&net.dest_gid[12..]);
                let sum = !ones_sum(&frame[start..]);
                frame[start + 10..start + 12].copy_from_slice(&sum.to_be_bytes());
            }
            RoceKind::V1 | RoceKind::V2Ipv6 => {
                let v1 = net.kind == RoceKind::V1;
                let word = 6 << 28 | u32::from(net.traffic_class) << 20 | net.flow_label & 0xf_ffff;
                frame.extend_from_slice(&word.to_be_bytes());
                let len = transport_len + if v1 { 0 } else { 8 };
                frame.extend_from_slice(&len.to_be_bytes());
                let next = if v1 { NEXT_HEADER_BTH } else { PROTOCOL_UDP };
                frame.extend_from_slice(&[next, net.hop_limit]);
                frame.extend_from_slice(&net.source_gid);
                frame.extend_from_slice(&net.dest_gid);
            }
        }
        if net.kind != RoceKind::V1 {
            frame.extend_from_slice(&net.udp_source_port.to_be_bytes());
            frame.extend_from_slice(&ROCE_UDP_PORT.to_be_bytes());
            frame.extend_from_slice(&(transport_len + 8).to_be_bytes());
            // Like ConnectX, no UDP checksum: the ICRC is the stronger one.
            frame.extend_from_slice(&[0, 0]);
        }
    }

    fn write_extensions(&self, extensions: Extensions, frame: &mut Vec<u8>) {
        if extensions.has(Extensions::XRC_ETH) {
            frame.extend_from_slice(&(self.xrc_srqn.unwrap_or(0) & 0xff_ffff).to_be_bytes());
        }
        if extensions.has(Extensions::DC_ETH) {
            let (source_qpn, oldest) = (Qpn::new(0), Psn::new(0));
            let dc = self.dc.unwrap_or(DcEth { access_key: 0, session: 0, source_qpn, oldest });
            frame.extend_from_slice(&dc.access_key.to_be_bytes());
            frame.extend_from_slice(&dc.session.to_be_bytes());
            frame.extend_from_slice(&dc.source_qpn.get().to_be_bytes());
            frame.extend_from_slice(&dc.oldest.get().to_be_bytes());
        }
        if extensions.has(Extensions::RETH) {
            let reth = self.reth.unwrap_or(Reth { addr: 0, rkey: 0, len_bytes: 0 });
            frame.extend_from_slice(&reth.addr.to_be_bytes());
            frame.extend_from_slice(&reth.rkey.to_be_bytes());
            frame.extend_from_slice(&reth.len_bytes.to_be_bytes());
        }
        if extensions.has(Extensions::ATOMIC_ETH) {
            let eth = self.atomic.unwrap_or(AtomicEth { addr: 0, rkey: 0, swap_or_add: 0, compare: 0 });
            frame.extend_from_slice(&eth.addr.to_be_bytes());
            frame.extend_from_slice(&eth.rkey.to_be_bytes());
            frame.extend_from_slice(&eth.swap_or_add.to_be_bytes());
            frame.extend_from_slice(&eth.compare.to_be_bytes());
        }
        if extensions.has(Extensions::MASK_ETH) {
            let masks = self.masks.unwrap_or(MaskEth { len_bytes: 0, swap_or_boundary: 0, compare: 0 });
            frame.extend_from_slice(&masks.len_bytes.to_be_bytes());
            frame.extend_from_slice(&masks.swap_or_boundary.to_be_bytes());
            frame.extend_from_slice(&masks.compare.to_be_bytes());
        }
        if extensions.has(Extensions::AETH) {
            let aeth = self.aeth.unwrap_or(Aeth { syndrome: 0, msn: 0 });
            let word = u32::from(aeth.syndrome) << 24 | aeth.msn & 0xff_ffff;
            frame.extend_from_slice(&word.to_be_bytes());
        }
        if extensions.has(Extensions::ATOMIC_ACK_ETH) {
            frame.extend_from_slice(&self.atomic_ack.unwrap_or(0).to_be_bytes());
        }
        if extensions.has(Extensions::DETH) {
            let deth = self.deth.unwrap_or(Deth { qkey: 0, source_qpn: Qpn::new(0) });
            frame.extend_from_slice(&deth.qkey.to_be_bytes());
            frame.extend_from_slice(&deth.source_qpn.get().to_be_bytes());
        }
        if extensions.has(Extensions::IMM) {
            frame.extend_from_slice(&self.imm.unwrap_or(0).to_be_bytes());
        }
        if extensions.has(Extensions::IETH) {
            frame.extend_from_slice(&self.invalidate.unwrap_or(0).to_be_bytes());
        }
    }
}

pub(super) fn carrier(network: Option<Network>) -> Carrier {
    match network.map(|network| network.kind) {
        None => Carrier::Lrh,
        Some(RoceKind::V1) => Carrier::Grh,
        Some(RoceKind::V2Ipv4) => Carrier::Ipv4Udp,
        Some(RoceKind::V2Ipv6) => Carrier::Ipv6Udp,
    }
}

/// One's complement sum of an IP header of even length.
pub(super) fn ones_sum(header: &[u8]) -> u16 {
    let sum: u32 = header.chunks_exact(2).map(|b| u32::from(u16::from_be_bytes([b[0], b[1]]))).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}
