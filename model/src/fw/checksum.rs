//! Checksums that a sender of Ethernet frames leaves to the device.
#![forbid(unsafe_code)]

/// `cs_flags`: the IP header's checksum.
const L3: u8 = 0x40;
/// `cs_flags`: TCP's or UDP's.
const L4: u8 = 0x80;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const VLAN: u16 = 0x8100;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// One's complement sum of 16-bit words; an odd byte at the end counts as the upper half of a word.
fn sum(bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<2>();
    let whole: u32 = words.iter().map(|word| u32::from(u16::from_be_bytes(*word))).sum();
    whole + rest.first().map_or(0, |byte| u32::from(*byte) << 8)
}

fn fold(mut sum: u32) -> u16 {
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Fills in what `cs_flags` asks for, where the frame has it: IPv4 and IPv6 without extension headers.
pub(crate) fn fill(frame: &mut [u8], cs_flags: u8) {
    let word = |frame: &[u8], at: usize| frame.get(at..at + 2).map(|b| u16::from_be_bytes([b[0], b[1]]));
    let mut ip = 14;
    let mut ethertype = word(frame, 12);
    if ethertype == Some(VLAN) {
        ethertype = word(frame, 16);
        ip = 18;
    }
    let (header_bytes, addresses, protocol_at) = match ethertype {
        Some(IPV4) => (usize::from(frame.get(ip).copied().unwrap_or(0) & 0xf) * 4, 12..20, 9),
        Some(IPV6) => (40, 8..40, 6),
        _ => return,
    };
    if frame.len() < ip + header_bytes || header_bytes < 20 {
        return;
    }
    if cs_flags & L3 != 0 && ethertype == Some(IPV4) {
        frame[ip + 10..ip + 12].fill(0);
        let checksum = fold(sum(&frame[ip..ip + header_bytes]));
        frame[ip + 10..ip + 12].copy_from_slice(&checksum.to_be_bytes());
    }
    let protocol = frame[ip + protocol_at];
    let at = ip + header_bytes + if protocol == TCP { 16 } else { 6 };
    if cs_flags & L4 == 0 || !matches!(protocol, TCP | UDP) || frame.len() < at + 2 {
        return;
    }
    frame[at..at + 2].fill(0);
    let payload = &frame[ip + header_bytes..];
    let pseudo =
        sum(&frame[ip + addresses.start..ip + addresses.end]) + u32::from(protocol) + payload.len() as u32;
    let checksum = match fold(pseudo + sum(payload)) {
        0 if protocol == UDP => 0xffff, // 0 says that there is none
        checksum => checksum,
    };
    frame[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receiver_sums_to_zero() {
        let mut frame = vec![0; 12];
        frame.extend([0x08, 0x00, 0x45, 0, 0, 31, 0, 1, 0, 0, 64, UDP, 0xaa, 0xaa, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend([0x12, 0x34, 0, 7, 0, 11, 0xbb, 0xbb, 1, 2, 3]);
        fill(&mut frame, L3 | L4);
        assert_eq!(fold(sum(&frame[14..34])), 0);
        assert_eq!(fold(sum(&frame[26..34]) + u32::from(UDP) + 11 + sum(&frame[34..])), 0);
    }
}
