//! Large sends: one header and much payload become frames of `mss` bytes of payload each.

use super::{Headers, L4, Transport};

const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
/// Congestion window reduced: said once.
const CWR: u8 = 0x80;

/// The frames of a large send. IP's and UDP's lengths, IPv4's identification, TCP's sequence number and flags are those
/// of each frame; checksums are not filled in. `None` without a TCP or UDP header to continue.
pub(crate) fn segments(head: &[u8], payload: &[u8], mss: usize) -> Option<Vec<Vec<u8>>> {
    let l4 = Headers::of(head).l4?;
    if l4.at + l4.header_bytes != head.len() || mss == 0 {
        return None;
    }
    let n = payload.len().div_ceil(mss).max(1);
    let piece = |index: usize| &payload[index * mss..payload.len().min((index + 1) * mss)];
    Some((0..n).map(|index| segment(head, &l4, piece(index), index, n, mss)).collect())
}

fn segment(head: &[u8], l4: &L4, payload: &[u8], index: usize, n: usize, mss: usize) -> Vec<u8> {
    let mut frame = [head, payload].concat();
    let Some(ip) = Headers::of(head).ip else { return frame };
    let mut put = |at: usize, value: u16| frame[at..at + 2].copy_from_slice(&value.to_be_bytes());
    let ip_bytes = (head.len() + payload.len() - ip.at) as u16;
    if ip.v6 {
        put(ip.at + 4, ip_bytes - 40);
    } else {
        put(ip.at + 2, ip_bytes);
        let id = u16::from_be_bytes([head[ip.at + 4], head[ip.at + 5]]);
        put(ip.at + 4, id.wrapping_add(index as u16));
    }
    match l4.transport {
        Transport::Udp => put(l4.at + 4, (l4.header_bytes + payload.len()) as u16),
        Transport::Tcp => {
            let at = l4.at + 4;
            let seq = head[at..at + 4].iter().fold(0, |seq, byte| seq << 8 | u32::from(*byte));
            frame[at..at + 4].copy_from_slice(&seq.wrapping_add((index * mss) as u32).to_be_bytes());
            let flags = &mut frame[l4.at + 13];
            if index != 0 {
                *flags &= !CWR;
            }
            if index + 1 != n {
                *flags &= !(FIN | PSH);
            }
        }
    }
    frame
}

#[cfg(test)]
mod tests {
    use super::super::{checksum, sample, tagged};
    use super::*;

    #[test]
    fn a_segment_continues_the_one_before() {
        let payload: Vec<u8> = (0..2500u32).map(|n| n as u8).collect();
        let head = sample::ipv4(6, [1; 4], [2; 4], &sample::tcp([1, 2], 0xffff_fff0, 0x99, &[]));
        let head = tagged(&head, 9);
        let frames = segments(&head, &payload, 1000).unwrap();
        assert_eq!(frames.iter().map(Vec::len).collect::<Vec<_>>(), [1058, 1058, 558]);
        let mut whole = Vec::new();
        for (n, frame) in frames.into_iter().enumerate() {
            let mut frame = frame;
            checksum::fill(&mut frame, 0xc0);
            let headers = Headers::of(&frame);
            let (ip, l4) = (headers.ip.unwrap(), headers.l4.unwrap());
            assert_eq!(ip.at + ip.total_bytes, frame.len());
            assert_eq!(frame[ip.at + 4..ip.at + 6], [0, 7 + n as u8], "identification");
            let seq = u32::from_be_bytes(frame[l4.at + 4..l4.at + 8].try_into().unwrap());
            assert_eq!(seq, 0xffff_fff0u32.wrapping_add(n as u32 * 1000));
            assert_eq!(l4.tcp_flags(&frame), [0x90, 0x10, 0x19][n], "CWR at first, PSH and FIN at last");
            let verdict = checksum::check(&frame, &headers);
            assert!(verdict.l3_ok && verdict.l4_ok);
            whole.extend_from_slice(&frame[l4.at + 20..]);
        }
        assert_eq!(whole, payload);
    }

    #[test]
    fn datagrams_of_ipv6_have_their_own_lengths() {
        let head = sample::ipv6(17, [1; 16], [2; 16], &sample::udp([1, 2], &[]));
        let frames = segments(&head, &[7; 150], 100).unwrap();
        let lengths = |frame: &[u8]| (Headers::of(frame).ip.unwrap().total_bytes, frame[58..60].to_vec());
        assert_eq!(lengths(&frames[0]), (148, vec![0, 108]));
        assert_eq!(lengths(&frames[1]), (98, vec![0, 58]));
    }

    #[test]
    fn what_cannot_be_cut_is_not() {
        let tcp = sample::ipv4(6, [1; 4], [2; 4], &sample::tcp([1, 2], 0, 0, &[]));
        assert_eq!(segments(&tcp, &[], 100).unwrap().len(), 1, "no payload is one frame");
        assert_eq!(segments(&tcp, &[1], 0), None);
        assert_eq!(segments(&tcp[..40], &[1], 100), None, "half a header");
        assert_eq!(segments(&[tcp.as_slice(), &[0]].concat(), &[1], 100), None, "payload in the header");
        let icmp = sample::ipv4(1, [1; 4], [2; 4], &[8, 0, 0, 0]);
        assert_eq!(segments(&icmp, &[1], 100), None);
    }
}
