//! Where a frame's headers are.

use super::{C_VLAN, MACS_BYTES, TAG_BYTES};

const S_VLAN: u16 = 0x88a8;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
/// IPv6 extension headers.
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;

/// Headers of a frame, as places in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Headers {
    /// Ethertype and contents of the first two VLAN tags.
    pub(crate) tags: [Option<(u16, u16)>; 2],
    /// Of what follows the tags.
    pub(crate) ethertype: u16,
    /// Its IP header, if that is one.
    pub(crate) ip: Option<Ip>,
    /// Its TCP or UDP header, unless it is in another fragment.
    pub(crate) l4: Option<L4>,
}

/// An IP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ip {
    pub(crate) v6: bool,
    pub(crate) at: usize,
    /// IPv6: extension headers included.
    pub(crate) header_bytes: usize,
    /// What the header says that the packet has, itself included.
    pub(crate) total_bytes: usize,
    pub(crate) protocol: u8,
    /// Part of a packet.
    pub(crate) fragment: bool,
    /// Options, or extension headers.
    pub(crate) options: bool,
}

/// A TCP or UDP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct L4 {
    pub(crate) transport: Transport,
    pub(crate) at: usize,
    pub(crate) header_bytes: usize,
}

/// Transports whose checksums the device knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    Tcp,
    Udp,
}

impl Transport {
    pub(crate) const fn protocol(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
        }
    }
}

pub(super) fn word(frame: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(frame.get(at..at + 2)?.try_into().ok()?))
}

impl Headers {
    /// Looks at a frame; what is cut off or makes no sense is not there.
    pub(crate) fn of(frame: &[u8]) -> Self {
        let mut headers = Self::default();
        let mut at = MACS_BYTES;
        let Some(mut ethertype) = word(frame, at) else { return headers };
        for tag in &mut headers.tags {
            if !matches!(ethertype, C_VLAN | S_VLAN) {
                break;
            }
            let (Some(tci), Some(next)) = (word(frame, at + 2), word(frame, at + 4)) else { break };
            *tag = Some((ethertype, tci));
            at += TAG_BYTES;
            ethertype = next;
        }
        headers.ethertype = ethertype;
        headers.ip = match ethertype {
            IPV4 => Ip::v4(frame, at + 2),
            IPV6 => Ip::v6(frame, at + 2),
            _ => None,
        };
        headers.l4 = headers.ip.filter(|ip| !ip.fragment).and_then(|ip| L4::of(frame, &ip));
        headers
    }
}

impl Ip {
    fn v4(frame: &[u8], at: usize) -> Option<Self> {
        let header = frame.get(at..at + 20)?;
        let header_bytes = usize::from(header[0] & 0xf) * 4;
        if header[0] >> 4 != 4 || header_bytes < 20 || frame.len() < at + header_bytes {
            return None;
        }
        // More fragments, or an offset.
        let fragment = word(header, 6)? & 0x3fff != 0;
        let total_bytes = word(header, 2)?.into();
        let options = header_bytes > 20;
        Some(Self { v6: false, at, header_bytes, total_bytes, protocol: header[9], fragment, options })
    }

    fn v6(frame: &[u8], at: usize) -> Option<Self> {
        let header = frame.get(at..at + 40)?;
        if header[0] >> 4 != 6 {
            return None;
        }
        let total_bytes = 40 + usize::from(word(header, 4)?);
        let mut ip = Self {
            v6: true,
            at,
            header_bytes: 40,
            total_bytes,
            protocol: header[6],
            fragment: false,
            options: false,
        };
        while matches!(ip.protocol, HOP_BY_HOP | ROUTING | FRAGMENT | DESTINATION) {
            let extension = frame.get(at + ip.header_bytes..at + ip.header_bytes + 8)?;
            ip.options = true;
            ip.fragment |= ip.protocol == FRAGMENT;
            ip.header_bytes += if ip.protocol == FRAGMENT { 8 } else { 8 * (1 + usize::from(extension[1])) };
            ip.protocol = extension[0];
        }
        (ip.at + ip.header_bytes <= frame.len()).then_some(ip)
    }

    /// Where the packet ends in a frame of this length: padding may follow it.
    pub(crate) fn end(&self, frame_bytes: usize) -> usize {
        let end = self.at + self.total_bytes;
        if self.is_whole(frame_bytes) { end } else { frame_bytes }
    }

    /// Whether a frame of this length holds as much as the header says.
    pub(crate) fn is_whole(&self, frame_bytes: usize) -> bool {
        self.total_bytes >= self.header_bytes && self.at + self.total_bytes <= frame_bytes
    }

    /// Source and destination address.
    pub(crate) fn addresses<'a>(&self, frame: &'a [u8]) -> (&'a [u8], &'a [u8]) {
        let (at, n) = if self.v6 { (self.at + 8, 16) } else { (self.at + 12, 4) };
        (&frame[at..at + n], &frame[at + n..at + 2 * n])
    }
}

impl L4 {
    fn of(frame: &[u8], ip: &Ip) -> Option<Self> {
        let at = ip.at + ip.header_bytes;
        let transport = [Transport::Tcp, Transport::Udp].into_iter().find(|t| t.protocol() == ip.protocol)?;
        let header_bytes = match transport {
            Transport::Udp => 8,
            Transport::Tcp => (usize::from(frame.get(at + 12)? >> 4) * 4).max(20),
        };
        (at + header_bytes <= frame.len()).then_some(Self { transport, at, header_bytes })
    }

    /// Source and destination port.
    pub(crate) fn ports(&self, frame: &[u8]) -> (u16, u16) {
        (word(frame, self.at).unwrap_or(0), word(frame, self.at + 2).unwrap_or(0))
    }

    /// Flags of TCP.
    pub(crate) fn tcp_flags(&self, frame: &[u8]) -> u16 {
        match self.transport {
            Transport::Tcp => word(frame, self.at + 12).unwrap_or(0) & 0x1ff,
            Transport::Udp => 0,
        }
    }

    /// Place of the checksum.
    pub(crate) fn checksum_at(&self) -> usize {
        self.at + if self.transport == Transport::Tcp { 16 } else { 6 }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{sample, tagged};
    use super::*;

    #[test]
    fn every_cut_of_a_frame_is_looked_at_without_harm() {
        let segment = sample::tcp([1, 2], 3, 0x10, &[9; 30]);
        let mut hop = vec![6, 0, 0, 0, 0, 0, 0, 0];
        hop.extend(&segment);
        for frame in [
            tagged(&sample::ipv4(6, [1; 4], [2; 4], &segment), 5),
            sample::ipv6(HOP_BY_HOP, [1; 16], [2; 16], &hop),
        ] {
            let whole = Headers::of(&frame);
            assert_eq!(whole.l4.unwrap().ports(&frame), (1, 2));
            for n in 0..frame.len() {
                let cut = Headers::of(&frame[..n]);
                assert!(cut.l4.is_none_or(|l4| l4.at + l4.header_bytes <= n));
                assert!(cut.ip.is_none_or(|ip| ip.end(n) <= n));
            }
        }
    }

    #[test]
    fn fragments_have_no_ports() {
        let mut frame = sample::ipv4(17, [1; 4], [2; 4], &sample::udp([1, 2], &[0; 8]));
        assert!(Headers::of(&frame).l4.is_some());
        frame[14 + 6] = 0x20;
        let headers = Headers::of(&frame);
        assert!(headers.ip.unwrap().fragment && headers.l4.is_none());
        let extension = [17, 0, 0, 1, 0, 0, 0, 1];
        let frame = sample::ipv6(FRAGMENT, [1; 16], [2; 16], &extension);
        let ip = Headers::of(&frame).ip.unwrap();
        assert_eq!((ip.fragment, ip.options, ip.protocol, ip.header_bytes), (true, true, 17, 48));
    }
}
