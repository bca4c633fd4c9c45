//! Parsing whole packets.

use super::{
    extension::{Aeth, AtomicEth, DcEth, Deth, MaskEth, Reth},
    icrc::{icrc, vcrc},
    opcode::{Extensions, Opcode},
    packet::{
        Bth, ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_ROCE, ETHERTYPE_VLAN, Ethernet, Headers, ICRC_BYTES,
        LRH_BYTES, LinkHeader, Lrh, NEXT_HEADER_BTH, NEXT_IS_BTH, NEXT_IS_GRH, Network, PROTOCOL_UDP, Packet,
        PacketError, ROCE_UDP_PORT, VCRC_BYTES, carrier, ones_sum,
    },
};
use crate::exec::host::RoceKind;
use mlx5_direct::mlx5::ids::{Psn, Qpn};

const IPV4_MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

impl<'a> Packet<'a> {
    /// Parses a whole Ethernet frame and checks its ICRC. Ethernet padding after the packet is allowed.
    ///
    /// # Errors
    /// Why the frame is not a good RC packet.
    pub fn parse(frame: &'a [u8]) -> Result<Self, PacketError> {
        let mut rest = Reader(frame);
        let mut ethernet = Ethernet { dest: rest.array()?, source: rest.array()?, vlan_tci: None };
        let mut ethertype = u16::from_be_bytes(rest.array()?);
        if ethertype == ETHERTYPE_VLAN {
            ethernet.vlan_tci = Some(u16::from_be_bytes(rest.array()?));
            ethertype = u16::from_be_bytes(rest.array()?);
        }
        let packet = rest.0;
        let (network, transport_len) = match ethertype {
            ETHERTYPE_IPV4 => parse_ipv4(packet)?,
            ETHERTYPE_IPV6 | ETHERTYPE_ROCE => parse_ipv6(packet, ethertype == ETHERTYPE_ROCE)?,
            _ => return Err(PacketError::NotRoce),
        };
        let transport = check_icrc(packet, Some(network), transport_len)?;
        parse_transport(LinkHeader::Ethernet(ethernet), Some(network), transport)
    }

    /// Parses a whole InfiniBand packet from LRH to VCRC and checks both its checks.
    ///
    /// # Errors
    /// Why it is not a good packet.
    pub fn parse_infiniband(packet: &'a [u8]) -> Result<Self, PacketError> {
        let mut rest = Reader(packet);
        let [vl, sl] = rest.array()?;
        let dest_lid = u16::from_be_bytes(rest.array()?);
        let n_words = u16::from_be_bytes(rest.array()?) & 0x7ff;
        let source_lid = u16::from_be_bytes(rest.array()?);
        let lrh = Lrh { vl: vl >> 4, sl: sl >> 4, dest_lid, source_lid };
        let next = sl & 3;
        if vl & 0xf != 0 || !matches!(next, NEXT_IS_BTH | NEXT_IS_GRH) {
            return Err(PacketError::Lrh);
        }
        let len_bytes = usize::from(n_words) * 4;
        if packet.len() != len_bytes + VCRC_BYTES || len_bytes < LRH_BYTES {
            return Err(PacketError::Length);
        }
        let (covered, sent) = packet.split_at(len_bytes);
        let (computed, found) = (vcrc(covered), u16::from_le_bytes(Reader(sent).array()?));
        if computed != found {
            return Err(PacketError::Vcrc { computed, found });
        }
        let link = LinkHeader::InfiniBand(lrh);
        if next == NEXT_IS_BTH {
            return parse_transport(link, None, check_icrc(covered, None, len_bytes - LRH_BYTES)?);
        }
        let global = &covered[LRH_BYTES..];
        let (network, transport_len) = parse_ipv6(global, true)?;
        parse_transport(link, Some(network), check_icrc(global, Some(network), transport_len)?)
    }
}

/// The transport's part of `packet`, BTH to payload, if the ICRC at its end is right.
fn check_icrc(packet: &[u8], network: Option<Network>, transport_len: usize) -> Result<&[u8], PacketError> {
    let carrier = carrier(network);
    let end = carrier.len_bytes() + transport_len;
    if transport_len < 12 + ICRC_BYTES || packet.len() < end {
        return Err(PacketError::Length);
    }
    let (covered, sent) = packet[..end].split_at(end - ICRC_BYTES);
    let computed = icrc(covered, carrier);
    let found = u32::from_le_bytes(Reader(sent).array()?);
    if computed != found {
        return Err(PacketError::Icrc { computed, found });
    }
    Ok(&covered[carrier.len_bytes()..])
}

fn parse_ipv4(packet: &[u8]) -> Result<(Network, usize), PacketError> {
    let head = packet.get(..28).ok_or(PacketError::Length)?;
    if head[9] != PROTOCOL_UDP || head[22..24] != ROCE_UDP_PORT.to_be_bytes() {
        return Err(PacketError::NotRoce);
    }
    // More fragments, or an offset: RoCE packets are never fragments.
    let fragment = u16::from_be_bytes([head[6], head[7]]) & 0x3fff != 0;
    if head[0] != 0x45 || fragment || ones_sum(&head[..20]) != 0xffff {
        return Err(PacketError::Ip);
    }
    let gid = |at: usize| {
        let mut gid = [0; 16];
        gid[..12].copy_from_slice(&IPV4_MAPPED);
        gid[12..].copy_from_slice(&head[at..at + 4]);
        gid
    };
    let ip_len = usize::from(u16::from_be_bytes([head[2], head[3]]));
    let udp_len = usize::from(u16::from_be_bytes([head[24], head[25]]));
    if ip_len != udp_len + 20 {
        return Err(PacketError::Length);
    }
    let network = Network {
        kind: RoceKind::V2Ipv4,
        source_gid: gid(12),
        dest_gid: gid(16),
        traffic_class: head[1],
        hop_limit: head[8],
        flow_label: 0,
        udp_source_port: u16::from_be_bytes([head[20], head[21]]),
    };
    Ok((network, udp_len.checked_sub(8).ok_or(PacketError::Length)?))
}

fn parse_ipv6(packet: &[u8], v1: bool) -> Result<(Network, usize), PacketError> {
    let mut head = Reader(packet);
    let word = u32::from_be_bytes(head.array()?);
    let mut len = usize::from(u16::from_be_bytes(head.array()?));
    let [next, hop_limit] = head.array()?;
    if next != if v1 { NEXT_HEADER_BTH } else { PROTOCOL_UDP } {
        return Err(PacketError::NotRoce);
    }
    if word >> 28 != 6 {
        return Err(PacketError::Ip);
    }
    let mut network = Network {
        kind: if v1 { RoceKind::V1 } else { RoceKind::V2Ipv6 },
        source_gid: head.array()?,
        dest_gid: head.array()?,
        traffic_class: (word >> 20) as u8,
        hop_limit,
        flow_label: word & 0xf_ffff,
        udp_source_port: 0,
    };
    if !v1 {
        network.udp_source_port = u16::from_be_bytes(head.array()?);
        if u16::from_be_bytes(head.array()?) != ROCE_UDP_PORT {
            return Err(PacketError::NotRoce);
        }
        if usize::from(u16::from_be_bytes(head.array()?)) != len {
            return Err(PacketError::Length);
        }
        len = len.checked_sub(8).ok_or(PacketError::Length)?;
    }
    Ok((network, len))
}

fn parse_transport(
    link: LinkHeader,
    network: Option<Network>,
    transport: &[u8],
) -> Result<Packet<'_>, PacketError> {
    let mut rest = Reader(transport);
    let [opcode, flags] = rest.array()?;
    let opcode = Opcode(opcode);
    if flags & 0x0f != 0 {
        return Err(PacketError::TransportVersion);
    }
    let pkey = u16::from_be_bytes(rest.array()?);
    let dest_qpn = Qpn::new(u32::from_be_bytes(rest.array()?));
    let word = u32::from_be_bytes(rest.array()?);
    let extensions = opcode.extensions().ok_or(PacketError::Opcode(opcode))?;
    let bth = Bth {
        opcode,
        solicited: flags & 0x80 != 0,
        pkey,
        dest_qpn,
        ack_req: word >> 31 != 0,
        psn: Psn::new(word),
    };
    let mut headers = Headers {
        link,
        network,
        bth,
        reth: None,
        atomic: None,
        masks: None,
        aeth: None,
        atomic_ack: None,
        deth: None,
        xrc_srqn: None,
        dc: None,
        imm: None,
        invalidate: None,
    };
    if extensions.has(Extensions::XRC_ETH) {
        headers.xrc_srqn = Some(rest.u32()? & 0xff_ffff);
    }
    if extensions.has(Extensions::DC_ETH) {
        headers.dc = Some(DcEth {
            access_key: rest.u64()?,
            session: rest.u32()?,
            source_qpn: Qpn::new(rest.u32()?),
            oldest: Psn::new(rest.u32()?),
        });
    }
    if extensions.has(Extensions::RETH) {
        headers.reth = Some(Reth { addr: rest.u64()?, rkey: rest.u32()?, len_bytes: rest.u32()? });
    }
    if extensions.has(Extensions::ATOMIC_ETH) {
        headers.atomic = Some(AtomicEth {
            addr: rest.u64()?,
            rkey: rest.u32()?,
            swap_or_add: rest.u64()?,
            compare: rest.u64()?,
        });
    }
    if extensions.has(Extensions::MASK_ETH) {
        let (len_bytes, swap_or_boundary, compare) = (rest.u32()?, rest.u64()?, rest.u64()?);
        headers.masks = Some(MaskEth { len_bytes, swap_or_boundary, compare });
    }
    if extensions.has(Extensions::AETH) {
        let word = rest.u32()?;
        headers.aeth = Some(Aeth { syndrome: (word >> 24) as u8, msn: word & 0xff_ffff });
    }
    if extensions.has(Extensions::ATOMIC_ACK_ETH) {
        headers.atomic_ack = Some(rest.u64()?);
    }
    if extensions.has(Extensions::DETH) {
        headers.deth = Some(Deth { qkey: rest.u32()?, source_qpn: Qpn::new(rest.u32()?) });
    }
    if extensions.has(Extensions::IMM) {
        headers.imm = Some(rest.u32()?);
    }
    if extensions.has(Extensions::IETH) {
        headers.invalidate = Some(rest.u32()?);
    }
    let pad = usize::from(flags >> 4 & 3);
    let len = rest.0.len().checked_sub(pad).ok_or(PacketError::Length)?;
    if !rest.0.len().is_multiple_of(4) || len > 0 && !extensions.has(Extensions::PAYLOAD) {
        return Err(PacketError::Length);
    }
    Ok(Packet { headers, payload: &rest.0[..len] })
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], PacketError> {
        let (head, rest) = self.0.split_first_chunk().ok_or(PacketError::Length)?;
        self.0 = rest;
        Ok(*head)
    }

    fn u32(&mut self) -> Result<u32, PacketError> {
        self.array().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Result<u64, PacketError> {
        self.array().map(u64::from_be_bytes)
    }
}
