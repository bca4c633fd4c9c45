//! The invariant CRC: CRC-32 over a packet with all that routers may change set to ones
//! (InfiniBand specification 7.8.1, annex A16 for RoCE, A17 for RoCE v2).

use crc32fast::Hasher;

/// What carries the BTH: decides which fields are variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carrier {
    /// GRH of RoCE v1: 40 bytes, then the BTH.
    Grh,
    /// IPv4 without options and UDP: 28 bytes.
    Ipv4Udp,
    /// IPv6 and UDP: 48 bytes.
    Ipv6Udp,
}

impl Carrier {
    /// Bytes before the BTH, counted from the network header.
    pub const fn len_bytes(self) -> usize {
        match self {
            Self::Grh => 40,
            Self::Ipv4Udp => 28,
            Self::Ipv6Udp => 48,
        }
    }
}

const BTH_BYTES: usize = 12;

/// The ICRC of `packet`, which starts at the network header and ends before the ICRC. It is sent least
/// significant byte first, like an Ethernet FCS. Packets too short to have a BTH get some value.
pub fn icrc(packet: &[u8], carrier: Carrier) -> u32 {
    const LRH: usize = 8;
    let head = packet.len().min(carrier.len_bytes() + BTH_BYTES);
    // A routed packet has no LRH; eight bytes of ones stand for it.
    let mut masked = [0xff; LRH + 48 + BTH_BYTES];
    let pseudo = &mut masked[..LRH + head];
    pseudo[LRH..].copy_from_slice(&packet[..head]);
    let bth = carrier.len_bytes();
    let variant: &[usize] = match carrier {
        Carrier::Grh => &[1, 2, 3, 7],
        Carrier::Ipv4Udp => &[1, 8, 10, 11, 26, 27],
        Carrier::Ipv6Udp => &[1, 2, 3, 7, 46, 47],
    };
    for &at in variant.iter().chain(&[bth + 4]) {
        if let Some(byte) = pseudo.get_mut(LRH + at) {
            *byte = 0xff;
        }
    }
    // Version stays, traffic class goes, in the byte that has half of each.
    if carrier != Carrier::Ipv4Udp
        && let Some(byte) = pseudo.get_mut(LRH)
    {
        *byte |= 0x0f;
    }
    let mut hasher = Hasher::new();
    hasher.update(pseudo);
    hasher.update(&packet[head..]);
    hasher.finalize()
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
    fn routers_may_change_what_is_masked_and_nothing_else() {
        for carrier in [Carrier::Grh, Carrier::Ipv4Udp, Carrier::Ipv6Udp] {
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
            assert_eq!(free, if carrier == Carrier::Grh { 5 } else { 7 }, "{carrier:?}");
        }
        assert_ne!(icrc(&[], Carrier::Grh), icrc(&[0], Carrier::Grh));
    }
}
