//! The two checks of a packet. The invariant CRC: CRC-32 with all that routers may change set to ones
//! (InfiniBand specification 7.8.1, annex A16 for RoCE, A17 for RoCE v2). The variant CRC, which InfiniBand has
//! besides, since it has no Ethernet frame check: CRC-16 over the packet as it stands (7.8.2).

use crc::{Algorithm, Crc};
use crc32fast::Hasher;

/// What carries the BTH: decides which fields are variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carrier {
    /// LRH of InfiniBand alone: 8 bytes, for a packet that stays in its subnet.
    Lrh,
    /// GRH of RoCE v1, and of an InfiniBand packet that may leave its subnet: 40 bytes, then the BTH. The LRH
    /// before it is not counted: routers replace it.
    Grh,
    /// IPv4 without options and UDP: 28 bytes.
    Ipv4Udp,
    /// IPv6 and UDP: 48 bytes.
    Ipv6Udp,
}

impl Carrier {
    /// Bytes before the BTH, counted from the header that names the carrier.
    pub const fn len_bytes(self) -> usize {
        match self {
            Self::Lrh => 8,
            Self::Grh => 40,
            Self::Ipv4Udp => 28,
            Self::Ipv6Udp => 48,
        }
    }
}

const BTH_BYTES: usize = 12;

/// The ICRC of `packet`, which starts at the carrier's header and ends before the ICRC. It is sent least
/// significant byte first, like an Ethernet FCS. Packets too short to have a BTH get some value.
pub fn icrc(packet: &[u8], carrier: Carrier) -> u32 {
    const LRH: usize = 8;
    let head = packet.len().min(carrier.len_bytes() + BTH_BYTES);
    // A routed packet has no LRH; eight bytes of ones stand for it.
    let start = if carrier == Carrier::Lrh { 0 } else { LRH };
    let mut masked = [0xff; LRH + 48 + BTH_BYTES];
    let pseudo = &mut masked[..start + head];
    pseudo[start..].copy_from_slice(&packet[..head]);
    let bth = carrier.len_bytes();
    let variant: &[usize] = match carrier {
        Carrier::Lrh => &[],
        Carrier::Grh => &[1, 2, 3, 7],
        Carrier::Ipv4Udp => &[1, 8, 10, 11, 26, 27],
        Carrier::Ipv6Udp => &[1, 2, 3, 7, 46, 47],
    };
    for &at in variant.iter().chain(&[bth + 4]) {
        if let Some(byte) = pseudo.get_mut(start + at) {
            *byte = 0xff;
        }
    }
    if let Some(byte) = pseudo.get_mut(start) {
        *byte |= match carrier {
            Carrier::Lrh => 0xf0,                    // virtual lane; the link version stays
            Carrier::Grh | Carrier::Ipv6Udp => 0x0f, // traffic class; the IP version stays
            Carrier::Ipv4Udp => 0,
        };
    }
    let mut hasher = Hasher::new();
    hasher.update(pseudo);
    hasher.update(&packet[head..]);
    hasher.finalize()
}

/// x^16 + x^12 + x^3 + x + 1, by the procedure of the ICRC: all ones first, least significant bit of a byte
/// first, complemented at the end.
const VCRC: Crc<u16> = Crc::<u16>::new(&Algorithm {
    width: 16,
    poly: 0x100b,
    init: 0xffff,
    refin: true,
    refout: true,
    xorout: 0xffff,
    check: 0,
    residue: 0,
});

/// The VCRC of an InfiniBand packet from its LRH to the end of its ICRC. Sent least significant byte first.
pub fn vcrc(packet: &[u8]) -> u16 {
    VCRC.checksum(packet)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        digits
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect()
    }

    #[test]
    fn a_cnp_captured_on_a_connectx_4_lx() {
        // Public capture, used by scapy's RoCE tests; IPv4, ECN bits set, ends in its ICRC.
        let frame = hex("e41d2dab2bc2 7cfe90643b32 0800
             45c2003c 718c4000 40119161 0a001101 0a001201
             000012b7 00280000
             8100ffff 40000118 00000000
             00000000 00000000 00000000 00000000 82fd002a");
        let (packet, sent) = frame[14..].split_at(frame.len() - 18);
        assert_eq!(icrc(packet, Carrier::Ipv4Udp).to_le_bytes(), sent);
    }

    #[test]
    fn a_uc_send_from_public_tests() {
        // The UC SEND ONLY packet of scapy's RoCE tests: the ICRC is over 0xff for both checksums.
        let packet = hex("45010040 04784000 4011b4d5 c0a80007 c0a80007
             c00012b7 002caca2
             2460ffff 000000d3 00cf1710
             4630818b e28935d9 0e9a9550 5401be88 5e500000");
        assert_eq!(icrc(&packet, Carrier::Ipv4Udp).to_le_bytes(), [0x78, 0xf3, 0x53, 0xf3]);
    }

    #[test]
    fn the_local_packet_of_the_specification() {
        // The example that the InfiniBand specification gives with its ICRC, 0x9625b75a.
        let packet = hex("7012375c 000e17d2
             0a202487 0087b1b3 000dec2a
             01710a1c 015d4002 38f27a05 0000000e
             bb884d85 fd5cfba4 728bc069 0ed40000");
        assert_eq!(packet.len(), 52);
        assert_eq!(icrc(&packet, Carrier::Lrh).to_le_bytes(), [0x96, 0x25, 0xb7, 0x5a]);
    }

    #[test]
    fn a_vcrc_finds_every_changed_bit() {
        let packet: Vec<u8> = (0..64).collect();
        let sum = vcrc(&packet);
        // What any CRC must do: over the packet and its own check it gives a constant.
        let residue = |packet: &[u8]| vcrc(&[packet, &vcrc(packet).to_le_bytes()].concat());
        assert_eq!(residue(&packet), residue(&packet[7..]));
        for bit in 0..packet.len() * 8 {
            let mut other = packet.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(vcrc(&other), sum, "bit {bit}");
        }
    }

    #[test]
    fn routers_may_change_what_is_masked_and_nothing_else() {
        for carrier in [Carrier::Lrh, Carrier::Grh, Carrier::Ipv4Udp, Carrier::Ipv6Udp] {
            let packet: Vec<u8> = (0..96).collect();
            let sum = icrc(&packet, carrier);
            let changes: Vec<usize> = (0..packet.len())
                .filter(|&at| {
                    let mut other = packet.clone();
                    other[at] ^= 0x80;
                    icrc(&other, carrier) != sum
                })
                .collect();
            let free = packet.len() - changes.len();
            let expected = match carrier {
                Carrier::Lrh => 2,
                Carrier::Grh => 5,
                Carrier::Ipv4Udp | Carrier::Ipv6Udp => 7,
            };
            assert_eq!(free, expected, "{carrier:?}");
        }
        assert_ne!(icrc(&[], Carrier::Grh), icrc(&[0], Carrier::Grh));
    }
}
