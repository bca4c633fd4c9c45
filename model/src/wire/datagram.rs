//! RoCE v2 packets as datagrams of the host's own UDP: what a socket at port 4791 sends and takes is the BTH and all
//! after it. The host builds the headers before, and the ICRC covers those too. So it is made right for the headers
//! that the host will build, and a packet that was wrong stays wrong.

use super::{
    icrc::{Carrier, icrc},
    packet::{ETHERTYPE_IPV4, PROTOCOL_UDP, ROCE_UDP_PORT, ones_sum},
};
use std::net::{Ipv4Addr, SocketAddrV4};

const ETHERNET_BYTES: usize = 14;
const HEADER_BYTES: usize = Carrier::Ipv4Udp.len_bytes();
/// BTH and ICRC.
const SHORTEST_BYTES: usize = 12 + 4;
const DONT_FRAGMENT: [u8; 2] = [0x40, 0];

/// Where the packet in `frame` goes, and the datagram, if it is RoCE v2 over IPv4 from `local`.
pub(super) fn from_frame(frame: &[u8], local: Ipv4Addr) -> Option<(Ipv4Addr, Vec<u8>)> {
    let (ethernet, packet) = frame.split_at_checked(ETHERNET_BYTES)?;
    let head = packet.get(..HEADER_BYTES)?;
    let word = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    let len = usize::from(word(24)).checked_sub(8).filter(|len| *len >= SHORTEST_BYTES)?;
    let packet = packet.get(..HEADER_BYTES + len)?;
    let fragment = word(6) & 0x3fff != 0;
    let fits = ethernet[12..] == ETHERTYPE_IPV4.to_be_bytes()
        && head[0] == 0x45
        && head[9] == PROTOCOL_UDP
        && word(22) == ROCE_UDP_PORT
        && !fragment
        && head[12..16] == local.octets();
    if !fits {
        return None;
    }
    let dest = Ipv4Addr::from(*head[16..].first_chunk()?);
    let mut outer = headers(SocketAddrV4::new(local, ROCE_UDP_PORT), dest, len).to_vec();
    outer.extend_from_slice(&packet[HEADER_BYTES..]);
    let (covered, found) = packet.split_last_chunk::<4>()?;
    let error = icrc(covered, Carrier::Ipv4Udp) ^ u32::from_le_bytes(*found);
    let (covered, sealed) = outer.split_last_chunk_mut::<4>()?;
    *sealed = (icrc(covered, Carrier::Ipv4Udp) ^ error).to_le_bytes();
    Some((dest, outer.split_off(HEADER_BYTES)))
}

/// The frame that brought a datagram `from` a peer `to` this address: its headers as the peer must have sent them.
pub(super) fn to_frame(
    datagram: &[u8],
    from: SocketAddrV4,
    to: Ipv4Addr,
    dest_mac: [u8; 6],
) -> Option<Vec<u8>> {
    if datagram.len() < SHORTEST_BYTES {
        return None;
    }
    let mut packet = headers(from, to, datagram.len()).to_vec();
    packet.extend_from_slice(datagram);
    restore_identification(&mut packet);
    let sum = !ones_sum(&packet[..20]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    let [a, b, c, d] = from.ip().octets();
    // Nobody sees the MAC of the router, or of the peer.
    let source_mac = [0x02, 0x6d, a, b, c, d];
    Some([&dest_mac[..], &source_mac, &ETHERTYPE_IPV4.to_be_bytes(), &packet].concat())
}

/// IPv4 and UDP headers as Linux makes them for an unconnected socket that must not fragment: identification 0.
fn headers(from: SocketAddrV4, to: Ipv4Addr, len: usize) -> [u8; HEADER_BYTES] {
    let mut head = [0; HEADER_BYTES];
    let udp_len = len as u16 + 8;
    head[0] = 0x45;
    head[2..4].copy_from_slice(&(udp_len + 20).to_be_bytes());
    head[6..8].copy_from_slice(&DONT_FRAGMENT);
    head[8..10].copy_from_slice(&[64, PROTOCOL_UDP]);
    head[12..16].copy_from_slice(&from.ip().octets());
    head[16..20].copy_from_slice(&to.octets());
    head[20..22].copy_from_slice(&from.port().to_be_bytes());
    head[22..24].copy_from_slice(&ROCE_UDP_PORT.to_be_bytes());
    head[24..26].copy_from_slice(&udp_len.to_be_bytes());
    head
}

/// Senders that number their packets (ConnectX, rdma_rxe) have the number under the ICRC, and a socket does not tell
/// it. The CRC is linear: what the number adds to it is the number itself, moved on by the bytes behind it. Moved back,
/// 16 bits are the number and 16 must be 0, so that half of the check remains.
fn restore_identification(packet: &mut [u8]) {
    const AT: usize = 4;
    let Some((covered, found)) = packet.split_last_chunk_mut::<4>() else { return };
    let rest = icrc(covered, Carrier::Ipv4Udp) ^ u32::from_le_bytes(*found);
    // No number explains a value that is longer: the packet is broken, and its receiver will say so.
    if let Ok(number) = u16::try_from(zeros_taken_back(rest, covered.len() - AT)) {
        covered[AT..AT + 2].copy_from_slice(&number.to_le_bytes());
    }
}

/// What a CRC-32 register was before it took `n` bytes of zeros. Each multiplies it by x^8, modulo the polynomial, whose
/// x has the order 2^32 - 1: so this multiplies by x^(2^32 - 1 - 8 n).
fn zeros_taken_back(register: u32, n: usize) -> u32 {
    const ORDER: u64 = u32::MAX as u64;
    let mut exponent = ORDER - 8 * n as u64 % ORDER;
    let (mut result, mut power) = (register, X);
    while exponent != 0 {
        if exponent & 1 == 1 {
            result = product(result, power);
        }
        power = product(power, power);
        exponent >>= 1;
    }
    result
}

/// Polynomials over GF(2) as a CRC register has them: the highest bit is the coefficient of x^0.
const ONE: u32 = 1 << 31;
const X: u32 = ONE >> 1;

/// A product modulo the polynomial of CRC-32.
fn product(a: u32, mut b: u32) -> u32 {
    const POLYNOMIAL: u32 = 0xedb8_8320;
    let mut sum = 0;
    for at in 0..32 {
        if a & (ONE >> at) != 0 {
            sum ^= b;
        }
        b = if b & 1 == 1 { (b >> 1) ^ POLYNOMIAL } else { b >> 1 };
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        exec::RoceKind,
        wire::{Packet, PacketError},
    };

    const LOCAL: Ipv4Addr = Ipv4Addr::new(10, 0, 17, 1);
    const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 18, 1);
    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

    /// An acknowledgement with this identification and UDP source port.
    fn frame(identification: u16, port: u16) -> Vec<u8> {
        let bth = [0x11, 0x40, 0xff, 0xff, 0, 0, 0, 0x12, 0, 0, 0, 5, 0x1f, 0, 0, 1];
        let mut packet = headers(SocketAddrV4::new(LOCAL, port), PEER, bth.len() + 4).to_vec();
        packet[4..6].copy_from_slice(&identification.to_be_bytes());
        let sum = !ones_sum(&packet[..20]);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        packet.extend_from_slice(&bth);
        let crc = icrc(&packet, Carrier::Ipv4Udp);
        packet.extend_from_slice(&crc.to_le_bytes());
        [&MAC[..], &[2, 0, 0, 0, 0, 2], &[8, 0], &packet].concat()
    }

    #[test]
    fn there_and_back_with_other_ports() {
        let (dest, datagram) = from_frame(&frame(0, 0xc123), LOCAL).unwrap();
        assert_eq!((dest, datagram.len()), (PEER, 20));
        let back = to_frame(&datagram, SocketAddrV4::new(LOCAL, ROCE_UDP_PORT), PEER, MAC).unwrap();
        let network = Packet::parse(&back).unwrap().headers.network.unwrap();
        assert_eq!((network.kind, network.udp_source_port), (RoceKind::V2Ipv4, ROCE_UDP_PORT));
    }

    #[test]
    fn a_numbered_packet_is_restored() {
        for identification in [1, 0x718c, 0x8000, 0xffff] {
            let sent = frame(identification, 0xc000);
            let back = to_frame(&sent[42..], SocketAddrV4::new(LOCAL, 0xc000), PEER, MAC).unwrap();
            assert!(Packet::parse(&back).is_ok());
            assert_eq!(back[18..20], identification.to_be_bytes());
        }
    }

    #[test]
    fn zeros_are_taken_back() {
        for (register, n) in [(1, 0), (0x1234_5678, 1), (u32::MAX, 3), (0x8000_0000, 60), (7, 4096)] {
            let mut after: u32 = register;
            for _ in 0..8 * n {
                after = product(after, X);
            }
            assert_eq!(zeros_taken_back(after, n), register, "{n} bytes");
        }
        let mut hasher = crc32fast::Hasher::new_with_initial(!0x1234_5678);
        hasher.update(&[0; 5]);
        assert_eq!(zeros_taken_back(!hasher.finalize(), 5), 0x1234_5678, "the register's own way");
    }

    #[test]
    fn a_cnp_of_a_connectx_4_lx_is_restored() {
        // The public capture in `icrc`'s tests: identification 0x718c, UDP source port 0.
        let datagram = [
            0x81, 0x00, 0xff, 0xff, 0x40, 0x00, 0x01, 0x18, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
            0, 0, 0, 0, 0x82, 0xfd, 0x00, 0x2a,
        ];
        let back = to_frame(&datagram, SocketAddrV4::new(LOCAL, 0), PEER, MAC).unwrap();
        assert_eq!(back[18..20], [0x71, 0x8c]);
    }

    #[test]
    fn what_was_wrong_stays_wrong() {
        let mut wrong = frame(0, 0xc123);
        wrong[50] ^= 4;
        let (_, datagram) = from_frame(&wrong, LOCAL).unwrap();
        let back = to_frame(&datagram, SocketAddrV4::new(LOCAL, ROCE_UDP_PORT), PEER, MAC).unwrap();
        assert!(matches!(Packet::parse(&back), Err(PacketError::Icrc { .. })));
    }

    #[test]
    fn other_frames_have_no_datagram() {
        let good = frame(0, 0xc123);
        assert_eq!(from_frame(&good, PEER), None, "another's address");
        for len in 0..good.len() {
            assert_eq!(from_frame(&good[..len], LOCAL), None, "{len}");
        }
        for (at, value) in [(12, 0x86), (14, 0x46), (20, 0x20), (23, 6), (36, 1)] {
            let mut other = good.clone();
            other[at] = value;
            assert_eq!(from_frame(&other, LOCAL), None, "byte {at}");
        }
        assert_eq!(to_frame(&[0; 15], SocketAddrV4::new(LOCAL, 1), PEER, MAC), None);
    }
}
