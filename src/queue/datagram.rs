//! Datagrams: to whom they go, and what comes before them.

use crate::{
    cqe::RoceL3,
    mistake::mistake,
    mlx5::ids::Qpn,
    wqe::{AvSeg, SEGMENT_BYTES},
};

/// Where a datagram goes: the way to a port, the queue pair there, and the Q_Key that it wants to see.
///
/// To the device it is bytes of the request, which has nothing to look up; here it is those bytes, made once
/// ([`UdQp::address_handle`](crate::UdQp::address_handle)) and copied into every request that goes there. It may be
/// dropped as soon as a request is finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressHandle {
    av: AvSeg,
}

impl AddressHandle {
    /// Of an address vector that is filled in.
    pub fn new(av: AvSeg) -> Self {
        Self { av }
    }

    /// For another queue pair behind the same port.
    ///
    /// With the uppermost bit of `qkey` set, the device sends the Q_Key of the sending queue pair instead.
    #[must_use]
    pub fn with_peer(self, qpn: Qpn, qkey: u32) -> Self {
        Self { av: self.av.with_dqpn_dctn(qpn).with_qkey(qkey) }
    }

    /// The address vector.
    pub fn av(&self) -> AvSeg {
        self.av
    }

    /// As it stands in a request.
    #[inline(always)]
    pub(super) fn segments(&self) -> [[u8; SEGMENT_BYTES]; 3] {
        let bytes = self.av.with_ext(self.av.ext() && !mistake!(AvShortForm)).to_bytes();
        let (segments, _) = bytes.as_chunks::<SEGMENT_BYTES>();
        [segments[0], segments[1], segments[2]]
    }
}

/// Who sent a datagram, as its completion tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source {
    /// The sender's queue pair.
    pub qpn: Qpn,
    /// InfiniBand: the sender's LID.
    pub slid: u16,
    /// InfiniBand: service level. RoCE: kind of the network header ([`roce_l3`](Self::roce_l3)).
    pub sl: u8,
    /// InfiniBand: low bits of the own LID that it was sent to.
    pub path_bits: u8,
    /// Whether the first 40 bytes of the buffer hold the network header. They are left alone otherwise, and message
    /// starts after them all the same.
    pub grh: bool,
}

impl Source {
    /// RoCE: the kind of the network header.
    pub fn roce_l3(&self) -> RoceL3 {
        RoceL3(self.sl & 7)
    }
}

/// The network header that comes before a datagram: InfiniBand's global route header, or the IP header of RoCE v2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grh {
    /// The sender's GID. An IPv4 address is `::ffff:a.b.c.d`.
    pub sgid: [u8; 16],
    /// The GID that it was sent to.
    pub dgid: [u8; 16],
    /// Traffic class.
    pub traffic_class: u8,
    /// Flow label; 0 with IPv4.
    pub flow_label: u32,
    /// Hops that it might still have made.
    pub hop_limit: u8,
}

impl Grh {
    /// Bytes that come before every datagram, with a network header in them or not.
    pub const BYTES: usize = 40;

    /// Reads the first 40 bytes of a buffer. On InfiniBand, `l3` is always [`RoceL3::GRH`].
    pub fn parse(bytes: &[u8; Self::BYTES], l3: RoceL3) -> Self {
        let b = |at: usize| bytes[at];
        if l3 == RoceL3::IPV4 {
            // The IPv4 header is the last 20 bytes.
            let mapped = |at: usize| {
                [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, b(at), b(at + 1), b(at + 2), b(at + 3)]
            };
            let (sgid, dgid) = (mapped(32), mapped(36));
            return Self { sgid, dgid, traffic_class: b(21), flow_label: 0, hop_limit: b(28) };
        }
        let [v, t, f, l] = [b(0), b(1), b(2), b(3)];
        Self {
            sgid: core::array::from_fn(|i| b(8 + i)),
            dgid: core::array::from_fn(|i| b(24 + i)),
            traffic_class: v << 4 | t >> 4,
            flow_label: u32::from_be_bytes([0, t & 0xf, f, l]),
            hop_limit: b(7),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_headers_of_all_kinds() {
        let mut bytes = [0; 40];
        bytes[..8].copy_from_slice(&[0x62, 0x81, 0x23, 0x45, 0, 0, 17, 9]);
        bytes[8..24].fill(0xaa);
        bytes[24..].fill(0xbb);
        for l3 in [RoceL3::GRH, RoceL3::IPV6] {
            let grh = Grh::parse(&bytes, l3);
            assert_eq!((grh.sgid, grh.dgid), ([0xaa; 16], [0xbb; 16]));
            assert_eq!((grh.traffic_class, grh.flow_label, grh.hop_limit), (0x28, 0x1_2345, 9));
        }
        // What comes before an IPv4 header means nothing.
        bytes[20..]
            .copy_from_slice(&[0x45, 0x28, 0, 60, 0, 0, 0x40, 0, 7, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        let grh = Grh::parse(&bytes, RoceL3::IPV4);
        assert_eq!(
            (&grh.sgid[10..], &grh.dgid[10..]),
            (&[255, 255, 10, 0, 0, 1][..], &[255, 255, 10, 0, 0, 2][..])
        );
        assert_eq!((grh.traffic_class, grh.flow_label, grh.hop_limit), (0x28, 0, 7));
    }
}
