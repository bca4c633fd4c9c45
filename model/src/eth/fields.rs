//! Packets as flow steering sees them: the fields of `fte_match_param`, and patterns over them.

use super::{C_VLAN, Headers, Transport, checksum::Verdict, headers::word};
use mlx5_direct::mlx5::context::{FteMatchParam, FteMatchSetLyr24, FteMatchSetMisc};

/// Bytes of a part of `fte_match_param`, one for each bit of `match_criteria_enable`.
const PART_BYTES: usize = 64;

/// A mask and a value, as the words in which the mask has bits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pattern {
    words: Vec<(usize, u64, u64)>,
}

fn words(fields: &FteMatchParam) -> [u64; 64] {
    let bytes = fields.to_bytes();
    std::array::from_fn(|n| u64::from_be_bytes(std::array::from_fn(|byte| bytes[n * 8 + byte])))
}

impl Pattern {
    /// Of the parts that `enable` names.
    pub(crate) fn new(enable: u8, mask: &FteMatchParam, value: &FteMatchParam) -> Self {
        let enabled = |n: &usize| enable >> (n * 8 / PART_BYTES) & 1 != 0;
        let pairs = words(mask).into_iter().zip(words(value)).enumerate();
        let words = pairs.filter(|(n, (mask, _))| *mask != 0 && enabled(n));
        Self { words: words.map(|(n, (mask, value))| (n, mask, value & mask)).collect() }
    }

    /// Whether a packet has the value in the bits of the mask.
    pub(crate) fn matches(&self, packet: &FteMatchParam) -> bool {
        let packet = packet.to_bytes();
        self.words.iter().all(|(n, mask, value)| {
            u64::from_be_bytes(std::array::from_fn(|byte| packet[n * 8 + byte])) & mask == *value
        })
    }

    /// Whether it looks at nothing but `fields`.
    pub(crate) fn is_within(&self, fields: &FteMatchParam) -> bool {
        let fields = words(fields);
        self.words.iter().all(|(n, mask, _)| mask & !fields[*n] == 0)
    }
}

/// The fields that [`fields`] fills in: all ones.
pub(crate) fn extracted() -> FteMatchParam {
    let misc = FteMatchSetMisc::new()
        .with_outer_second_prio(0xff)
        .with_outer_second_cfi(true)
        .with_outer_second_vid(0xffff)
        .with_outer_second_cvlan_tag(true)
        .with_outer_second_svlan_tag(true)
        .with_outer_ipv6_flow_label(u32::MAX);
    FteMatchParam::new()
        .with_outer_headers(FteMatchSetLyr24::from_bytes([0xff; 64]))
        .with_misc_parameters(misc)
}

fn mac(bytes: &[u8]) -> (u32, u16) {
    let mac = bytes.iter().fold(0u64, |mac, byte| mac << 8 | u64::from(*byte));
    ((mac >> 16) as u32, mac as u16)
}

/// An address in 16 bytes; IPv4's in the last of them.
fn address(bytes: &[u8]) -> [u8; 16] {
    let mut address = [0; 16];
    address[16 - bytes.len()..].copy_from_slice(bytes);
    address
}

/// The fields of a frame.
pub(crate) fn fields(frame: &[u8], headers: &Headers, verdict: &Verdict) -> FteMatchParam {
    let (dmac, smac) = (mac(frame.get(..6).unwrap_or_default()), mac(frame.get(6..12).unwrap_or_default()));
    let mut outer = FteMatchSetLyr24::new()
        .with_dmac_47_16(dmac.0)
        .with_dmac_15_0(dmac.1)
        .with_smac_47_16(smac.0)
        .with_smac_15_0(smac.1)
        .with_ethertype(headers.ethertype)
        .with_l3_ok(verdict.l3_ok)
        .with_ipv4_checksum_ok(verdict.l3_ok && headers.ip.is_some_and(|ip| !ip.v6))
        .with_l4_ok(headers.l4.is_some())
        .with_l4_checksum_ok(verdict.l4_ok);
    let mut misc = FteMatchSetMisc::new();
    if let Some((ethertype, tci)) = headers.tags[0] {
        outer.set_cvlan_tag(ethertype == C_VLAN);
        outer.set_svlan_tag(ethertype != C_VLAN);
        outer.set_first_prio((tci >> 13) as u8);
        outer.set_first_cfi(tci >> 12 & 1 != 0);
        outer.set_first_vid(tci);
    }
    if let Some((ethertype, tci)) = headers.tags[1] {
        misc.set_outer_second_cvlan_tag(ethertype == C_VLAN);
        misc.set_outer_second_svlan_tag(ethertype != C_VLAN);
        misc.set_outer_second_prio((tci >> 13) as u8);
        misc.set_outer_second_cfi(tci >> 12 & 1 != 0);
        misc.set_outer_second_vid(tci);
    }
    if let Some(ip) = headers.ip {
        let first = word(frame, ip.at).unwrap_or(0);
        // Eight bits that begin after the version in IPv6, and after the header's length in IPv4.
        let (class, hops) = if ip.v6 { ((first >> 4) as u8, 7) } else { (first as u8, 8) };
        let (source, dest) = ip.addresses(frame);
        outer = outer
            .with_ip_version(if ip.v6 { 6 } else { 4 })
            .with_ip_protocol(ip.protocol)
            .with_ip_dscp(class >> 2)
            .with_ip_ecn(class)
            .with_ttl_hoplimit(frame[ip.at + hops])
            .with_frag(ip.fragment)
            .with_src_ipv4_src_ipv6(address(source))
            .with_dst_ipv4_dst_ipv6(address(dest));
        if ip.v6 {
            misc.set_outer_ipv6_flow_label(
                u32::from(first) << 16 | u32::from(word(frame, ip.at + 2).unwrap_or(0)),
            );
        } else {
            outer.set_ipv4_ihl((ip.header_bytes / 4) as u8);
        }
    }
    if let Some(l4) = headers.l4 {
        let (source, dest) = l4.ports(frame);
        match l4.transport {
            Transport::Tcp => {
                outer.set_tcp_sport(source);
                outer.set_tcp_dport(dest);
                outer.set_tcp_flags(l4.tcp_flags(frame));
            }
            Transport::Udp => {
                outer.set_udp_sport(source);
                outer.set_udp_dport(dest);
            }
        }
    }
    FteMatchParam::new().with_outer_headers(outer).with_misc_parameters(misc)
}

#[cfg(test)]
mod tests {
    use super::super::{checksum, sample, tagged};
    use super::*;

    fn of(frame: &[u8]) -> FteMatchParam {
        let headers = Headers::of(frame);
        fields(frame, &headers, &checksum::check(frame, &headers))
    }

    #[test]
    fn a_tagged_segment() {
        let mut frame = sample::ipv4(6, [10, 0, 0, 1], [10, 0, 0, 2], &sample::tcp([1000, 80], 0, 0x12, &[]));
        frame[15] = 0xb9; // DSCP 46, ECN 1
        checksum::fill(&mut frame, 0xc0);
        let outer = of(&tagged(&frame, 0x6064)).outer_headers();
        assert_eq!((outer.dmac_47_16(), outer.dmac_15_0(), outer.smac_15_0()), (0x0200_0000, 2, 1));
        assert_eq!((outer.cvlan_tag(), outer.svlan_tag(), outer.first_vid()), (true, false, 100));
        assert_eq!((outer.first_prio(), outer.first_cfi(), outer.ethertype()), (3, false, 0x800));
        assert_eq!((outer.ip_version(), outer.ip_protocol(), outer.ipv4_ihl()), (4, 6, 5));
        assert_eq!((outer.ip_dscp(), outer.ip_ecn(), outer.ttl_hoplimit()), (46, 1, 64));
        assert_eq!((outer.tcp_sport(), outer.tcp_dport(), outer.tcp_flags()), (1000, 80, 0x12));
        assert_eq!((outer.udp_sport(), outer.udp_dport(), outer.frag()), (0, 0, false));
        assert!(outer.l3_ok() && outer.l4_ok() && outer.ipv4_checksum_ok() && outer.l4_checksum_ok());
        assert_eq!(outer.dst_ipv4_dst_ipv6()[11..], [0, 10, 0, 0, 2]);
    }

    #[test]
    fn a_twice_tagged_datagram_of_ipv6() {
        let mut frame = sample::ipv6(17, [1; 16], [2; 16], &sample::udp([7, 9], &[]));
        frame[14..18].copy_from_slice(&[0x6b, 0x91, 0x23, 0x45]);
        let mut frame = tagged(&tagged(&frame, 5), 6);
        frame[12..14].copy_from_slice(&[0x88, 0xa8]);
        let (outer, misc) = (of(&frame).outer_headers(), of(&frame).misc_parameters());
        assert_eq!((outer.svlan_tag(), outer.first_vid()), (true, 6));
        assert_eq!((misc.outer_second_cvlan_tag(), misc.outer_second_vid()), (true, 5));
        assert_eq!((outer.ip_version(), outer.ip_dscp(), outer.ip_ecn()), (6, 0xb9 >> 2, 1));
        assert_eq!((misc.outer_ipv6_flow_label(), outer.udp_dport()), (0x1_2345, 9));
        assert_eq!(outer.src_ipv4_src_ipv6(), [1; 16]);
    }

    #[test]
    fn a_pattern_looks_at_the_bits_of_its_mask_in_the_parts_enabled() {
        let ports = |port| {
            FteMatchParam::new()
                .with_outer_headers(FteMatchSetLyr24::new().with_udp_dport(port).with_ip_protocol(17))
        };
        let packet = of(&sample::ipv4(17, [1; 4], [2; 4], &sample::udp([7, 0x1209], &[])));
        assert!(Pattern::new(1, &ports(0xffff), &ports(0x1209)).matches(&packet));
        assert!(!Pattern::new(1, &ports(0xffff), &ports(0x1309)).matches(&packet));
        assert!(Pattern::new(1, &ports(0x00ff), &ports(0x1309)).matches(&packet));
        assert!(
            Pattern::new(2, &ports(0xffff), &ports(0x1309)).matches(&packet),
            "outer headers do not count"
        );
        assert!(Pattern::new(1, &FteMatchParam::new(), &ports(1)).matches(&packet), "all match nothing");
    }

    #[test]
    fn only_what_is_filled_in_can_be_matched() {
        let inner = FteMatchParam::new().with_inner_headers(FteMatchSetLyr24::new().with_ip_version(0xf));
        assert!(!Pattern::new(4, &inner, &inner).is_within(&extracted()));
        assert!(Pattern::new(1, &inner, &inner).is_within(&extracted()), "not enabled, so not looked at");
    }
}
