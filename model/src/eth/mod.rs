//! What the device knows of Ethernet frames: headers, checksums, hashes, segments. Bytes in, bytes out: the queues and
//! tables around it are in `fw`.
#![forbid(unsafe_code)]

pub(crate) mod checksum;
mod fields;
mod hash;
mod headers;
mod segment;

pub(crate) use fields::{Pattern, extracted, fields};
pub(crate) use hash::{Hash, HashFunction, hash};
pub(crate) use headers::{Headers, Ip, L4, Transport};
pub(crate) use segment::segments;

/// Bytes of the two MAC addresses, after which a VLAN tag goes.
pub(crate) const MACS_BYTES: usize = 12;
/// Bytes of a VLAN tag.
pub(crate) const TAG_BYTES: usize = 4;
/// Bytes of the frame check sequence, which frames in memory do not have.
pub(crate) const FCS_BYTES: usize = 4;
/// Bytes of the shortest frame, without the frame check sequence.
pub(crate) const MIN_FRAME_BYTES: usize = 60;
/// Ethertype of a customer's VLAN tag.
pub(crate) const C_VLAN: u16 = 0x8100;

/// Ethertype of RoCE v1.
const ROCE: u16 = 0x8915;
/// UDP port of RoCE v2.
const ROCE_PORT: u16 = 4791;

/// For queue pairs, if the port does RoCE: the device takes such frames before flow steering sees them.
pub(crate) fn is_roce(frame: &[u8]) -> bool {
    let headers = Headers::of(frame);
    let datagram = headers.l4.filter(|l4| l4.transport == Transport::Udp);
    headers.ethertype == ROCE || datagram.is_some_and(|l4| l4.ports(frame).1 == ROCE_PORT)
}

/// To a group, broadcast included.
pub(crate) fn is_multicast(frame: &[u8]) -> bool {
    frame.first().is_some_and(|first| first & 1 != 0)
}

/// Priority in a customer's VLAN tag; without one, 0.
pub(crate) fn priority(frame: &[u8]) -> u8 {
    match frame.get(MACS_BYTES..MACS_BYTES + TAG_BYTES) {
        Some([high, low, tci, _]) if u16::from_be_bytes([*high, *low]) == C_VLAN => tci >> 5,
        _ => 0,
    }
}

/// The frame with a VLAN tag put behind its addresses.
pub(crate) fn tagged(frame: &[u8], tci: u16) -> Vec<u8> {
    let (macs, rest) = frame.split_at(MACS_BYTES.min(frame.len()));
    [macs, &C_VLAN.to_be_bytes(), &tci.to_be_bytes(), rest].concat()
}

/// The frame without its first VLAN tag.
pub(crate) fn untagged(frame: &[u8]) -> Vec<u8> {
    let (macs, rest) = frame.split_at(MACS_BYTES.min(frame.len()));
    [macs, rest.get(TAG_BYTES..).unwrap_or(&[])].concat()
}

#[cfg(test)]
pub(crate) mod sample {
    //! Frames for tests, made by hand.

    /// An IPv4 frame; its header's checksum is 0.
    pub(crate) fn ipv4(protocol: u8, source: [u8; 4], dest: [u8; 4], payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00];
        let total = (20 + payload.len()) as u16;
        frame.extend([0x45, 0, (total >> 8) as u8, total as u8, 0, 7, 0, 0, 64, protocol, 0, 0]);
        frame.extend(source.into_iter().chain(dest));
        frame.extend(payload);
        frame
    }

    /// An IPv6 frame.
    pub(crate) fn ipv6(protocol: u8, source: [u8; 16], dest: [u8; 16], payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x86, 0xdd];
        frame.extend([0x60, 0, 0, 0, (payload.len() >> 8) as u8, payload.len() as u8, protocol, 64]);
        frame.extend(source.into_iter().chain(dest));
        frame.extend(payload);
        frame
    }

    /// A TCP segment without options.
    pub(crate) fn tcp(ports: [u16; 2], seq: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
        let mut segment: Vec<u8> = ports.iter().flat_map(|port| port.to_be_bytes()).collect();
        segment.extend(seq.to_be_bytes());
        segment.extend([0, 0, 0, 1, 0x50, flags, 0x10, 0, 0, 0, 0, 0]);
        segment.extend(payload);
        segment
    }

    /// A UDP datagram.
    pub(crate) fn udp(ports: [u16; 2], payload: &[u8]) -> Vec<u8> {
        let mut datagram: Vec<u8> = ports.iter().flat_map(|port| port.to_be_bytes()).collect();
        datagram.extend(((8 + payload.len()) as u16).to_be_bytes());
        datagram.extend([0, 0]);
        datagram.extend(payload);
        datagram
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_goes_in_and_out() {
        let frame = sample::ipv4(1, [10, 0, 0, 1], [10, 0, 0, 2], &[1, 2, 3]);
        let with = tagged(&frame, 0x2064);
        assert_eq!(with[12..16], [0x81, 0x00, 0x20, 0x64]);
        assert_eq!(Headers::of(&with).tags, [Some((C_VLAN, 0x2064)), None]);
        assert_eq!(untagged(&with), frame);
        assert!(untagged(&[1, 2]).len() == 2 && tagged(&[1, 2], 0).len() == 6, "no panic");
    }
}
