//! Checksums of the Internet protocols: those that a sender leaves to the device, and those that it checks.

use super::{Headers, Ip, L4, Transport};

/// `cs_flags`: the IP header's checksum.
const L3: u8 = 0x40;
/// `cs_flags`: TCP's or UDP's.
const L4_CHECKSUM: u8 = 0x80;

/// One's complement sum of 16-bit words; an odd byte at the end counts as the upper half of a word.
fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<2>();
    let whole: u64 = words.iter().map(|word| u64::from(u16::from_be_bytes(*word))).sum();
    whole + rest.first().map_or(0, |byte| u64::from(*byte) << 8)
}

fn fold(mut sum: u64) -> u16 {
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Sum of a transport's packet and what it takes of the IP header.
fn transport_sum(frame: &[u8], ip: &Ip, l4: &L4) -> u64 {
    let payload = &frame[l4.at..ip.end(frame.len())];
    let (source, dest) = ip.addresses(frame);
    sum(source) + sum(dest) + u64::from(ip.protocol) + payload.len() as u64 + sum(payload)
}

/// Fills in what `cs_flags` asks for, where the frame has it.
pub(crate) fn fill(frame: &mut [u8], cs_flags: u8) {
    let headers = Headers::of(frame);
    let Some(ip) = headers.ip else { return };
    if cs_flags & L3 != 0 && !ip.v6 {
        let at = ip.at + 10;
        frame[at..at + 2].fill(0);
        let checksum = !fold(sum(&frame[ip.at..ip.at + ip.header_bytes]));
        frame[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
    }
    if let (Some(l4), true) = (headers.l4, cs_flags & L4_CHECKSUM != 0) {
        let at = l4.checksum_at();
        frame[at..at + 2].fill(0);
        let checksum = match !fold(transport_sum(frame, &ip, &l4)) {
            0 if l4.transport == Transport::Udp => 0xffff, // 0 says that there is none
            checksum => checksum,
        };
        frame[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
    }
}

/// What the device says of a received frame's checksums.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Verdict {
    /// IP's header is whole and right.
    pub(crate) l3_ok: bool,
    /// So is TCP's or UDP's checksum, or UDP has none.
    pub(crate) l4_ok: bool,
    /// Sum of the IP packet.
    pub(crate) complete: u16,
}

/// Checks a received frame.
pub(crate) fn check(frame: &[u8], headers: &Headers) -> Verdict {
    let Some(ip) = headers.ip.filter(|ip| ip.is_whole(frame.len())) else { return Verdict::default() };
    let l3_ok = ip.v6 || fold(sum(&frame[ip.at..ip.at + ip.header_bytes])) == 0xffff;
    let l4_ok = headers.l4.is_some_and(|l4| {
        let at = l4.checksum_at();
        let none = l4.transport == Transport::Udp && !ip.v6 && frame[at..at + 2] == [0, 0];
        none || fold(transport_sum(frame, &ip, &l4)) == 0xffff
    });
    Verdict { l3_ok, l4_ok, complete: fold(sum(&frame[ip.at..ip.end(frame.len())])) }
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    fn both() -> [Vec<u8>; 3] {
        [
            sample::ipv4(17, [10, 0, 0, 1], [10, 0, 0, 2], &sample::udp([1, 2], &[1, 2, 3])),
            sample::ipv4(6, [10, 0, 0, 1], [10, 0, 0, 2], &sample::tcp([1, 2], 7, 0x18, &[5; 33])),
            sample::ipv6(6, [1; 16], [2; 16], &sample::tcp([1, 2], 7, 0x18, &[5; 33])),
        ]
    }

    #[test]
    fn what_is_filled_in_is_right() {
        for mut frame in both() {
            let l4 = Headers::of(&frame).l4.unwrap();
            frame[l4.checksum_at()] = 0xaa;
            assert!(!check(&frame, &Headers::of(&frame)).l4_ok);
            fill(&mut frame, L3 | L4_CHECKSUM);
            // Padding of a short frame is no part of the packet.
            frame.extend([0xff; 5]);
            let verdict = check(&frame, &Headers::of(&frame));
            assert!(verdict.l3_ok && verdict.l4_ok, "{frame:x?}");
            let last = frame.len() - 6;
            frame[last] ^= 1;
            assert!(!check(&frame, &Headers::of(&frame)).l4_ok);
        }
    }

    /// The example of RFC 1071, section 3.
    #[test]
    fn the_sum_is_the_internets() {
        assert_eq!(fold(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7])), 0xddf2);
    }

    #[test]
    fn nothing_is_filled_in_that_is_not_asked_for() {
        for frame in both() {
            let mut same = frame.clone();
            fill(&mut same, 0);
            assert_eq!(same, frame);
        }
    }

    /// A receiver adds the pseudo header to the sum that it was given.
    #[test]
    fn the_complete_sum_is_of_header_and_payload() {
        let mut frame = both()[1].clone();
        fill(&mut frame, L3 | L4_CHECKSUM);
        let ip = Headers::of(&frame).ip.unwrap();
        let complete = check(&frame, &Headers::of(&frame)).complete;
        // The header's own sum is all ones, which is 0 in one's complement.
        let (source, dest) = ip.addresses(&frame);
        let length = (ip.total_bytes - ip.header_bytes) as u64;
        let pseudo = sum(source) + sum(dest) + 6 + length;
        assert_eq!(fold(u64::from(complete) + pseudo), 0xffff);
    }
}
