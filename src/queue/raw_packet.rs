//! Requests of a raw packet queue: whole Ethernet frames, and what the device does to them on their way.

use super::{Flags, Gather, PostError, PostList, RawPacket, Request, Segmented, segment::store};
use crate::wqe::{EthSeg, SEGMENT_BYTES, SendOpcode};
use core::{num::NonZeroU16, ops::BitOr};

/// Checksums that the device computes and puts into a frame (`cs_flags`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Checksums(u8);

impl Checksums {
    /// None: the frame goes as it is.
    pub const NONE: Self = Self(0);
    /// That of the IPv4 header.
    pub const IP: Self = Self(EthSeg::L3_CSUM);
    /// That of TCP or UDP. Where it stands, the frame holds the sum of the pseudo header.
    pub const L4: Self = Self(EthSeg::L4_CSUM);
    /// Both (`IBV_SEND_IP_CSUM`).
    pub const ALL: Self = Self(EthSeg::L3_CSUM | EthSeg::L4_CSUM);
}

impl BitOr for Checksums {
    type Output = Self;
    #[inline(always)]
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Segments that a header may take behind the Ethernet segment.
pub(super) const MAX_HEADER_SEGMENTS: u32 = 16;
/// Longest header, its first bytes in the Ethernet segment included.
const MAX_HEADER_BYTES: usize = EthSeg::HEADER_START_BYTES + MAX_HEADER_SEGMENTS as usize * SEGMENT_BYTES;
/// Ethernet's own header (`MLX5_ETH_L2_MIN_HEADER_SIZE`): a head has that in it, or there is none.
const ETHERNET_BYTES: usize = 14;

impl<'q> PostList<'q, RawPacket> {
    /// SEND: a frame, from its destination's MAC address on and without FCS. It is all data: the request
    /// [carries](Self::send_with_header) nothing of its head.
    ///
    /// # Errors
    /// As of [all operations](PostList::nop), and [`HeaderLength`](PostError::HeaderLength) where the device wants heads
    /// in requests ([`min_header_bytes`](super::SendLimits::min_header_bytes)).
    #[inline(always)]
    pub fn send(
        &mut self,
        wr_id: u64,
        checksums: Checksums,
        flags: Flags,
    ) -> Result<Request<'_, 'q, Gather, RawPacket>, PostError> {
        self.send_with_header(wr_id, &[], checksums, flags)
    }

    /// SEND: a frame that begins with `header`, which the request carries; what follows is its data.
    ///
    /// # Errors
    /// As of [all operations](PostList::nop), and [`HeaderLength`](PostError::HeaderLength).
    #[inline(always)]
    pub fn send_with_header(
        &mut self,
        wr_id: u64,
        header: &[u8],
        checksums: Checksums,
        flags: Flags,
    ) -> Result<Request<'_, 'q, Gather, RawPacket>, PostError> {
        let eth = EthSeg::new().with_cs_flags(checksums.0);
        if header.is_empty() && self.queue.min_header_bytes == 0 {
            return Ok(self.request(SendOpcode::SEND, wr_id, flags, 0, None)?.header(eth.to_bytes()));
        }
        let min_bytes = ETHERNET_BYTES.max(self.queue.min_header_bytes as usize);
        self.request(SendOpcode::SEND, wr_id, flags, 0, None)?.head(eth, header, min_bytes)
    }

    /// SEND: a frame without a VLAN tag, into which the device inserts one (802.1Q, where it can:
    /// `wqe_vlan_insert`): priority, CFI and number as the tag has them. The tag stands where heads would.
    ///
    /// # Errors
    /// As of [all operations](PostList::nop).
    #[inline(always)]
    pub fn send_tagged(
        &mut self,
        wr_id: u64,
        tag: u16,
        checksums: Checksums,
        flags: Flags,
    ) -> Result<Request<'_, 'q, Gather, RawPacket>, PostError> {
        let eth = EthSeg::new()
            .with_cs_flags(checksums.0)
            .with_inline_hdr_sz(EthSeg::INSERT_VLAN)
            .with_inline_hdr_start(tag);
        Ok(self.request(SendOpcode::SEND, wr_id, flags, 0, None)?.header(eth.to_bytes()))
    }

    /// Large send (LSO, TSO): the device cuts the data into frames of `mss` bytes of payload each, the last one of what is
    /// left, and puts `header` before each of them, with lengths, TCP's sequence numbers and the identification of IP
    /// counted on. `header` ends with TCP's or UDP's.
    ///
    /// # Errors
    /// As of [all operations](PostList::nop), and [`HeaderLength`](PostError::HeaderLength).
    #[inline(always)]
    pub fn lso(
        &mut self,
        wr_id: u64,
        header: &[u8],
        mss: NonZeroU16,
        checksums: Checksums,
        flags: Flags,
    ) -> Result<Request<'_, 'q, Segmented, RawPacket>, PostError> {
        let eth = EthSeg::new().with_cs_flags(checksums.0).with_mss(mss.get());
        self.request(SendOpcode::LSO, wr_id, flags, 0, None)?.head(eth, header, ETHERNET_BYTES)
    }
}

impl<K> Request<'_, '_, K, RawPacket> {
    /// Adds the Ethernet segment, and as much of the frame's head as the request carries.
    #[inline(always)]
    fn head(mut self, eth: EthSeg, header: &[u8], min_bytes: usize) -> Result<Self, PostError> {
        let (Some((start, rest)), true) =
            (header.split_first_chunk(), (min_bytes..=MAX_HEADER_BYTES).contains(&header.len()))
        else {
            return Err(PostError::HeaderLength);
        };
        let n_segments = rest.len().div_ceil(SEGMENT_BYTES) as u32;
        if (self.n_header + n_segments).div_ceil(4) > self.n_free {
            return Err(PostError::QueueFull);
        }
        let eth =
            eth.with_inline_hdr_sz(header.len() as u16).with_inline_hdr_start(u16::from_be_bytes(*start));
        self = self.header(eth.to_bytes());
        for part in rest.chunks(SEGMENT_BYTES) {
            let mut segment = [0; SEGMENT_BYTES];
            segment.iter_mut().zip(part).for_each(|(to, from)| *to = *from);
            // The ring ends where a WQEBB does.
            if self.ds.is_multiple_of(4) && self.at == self.list.queue.ring_end {
                self.at = self.list.queue.ring;
            }
            // SAFETY: segment `ds` lies in one of the free WQEBBs, which were counted; at the ring's end they go on at
            // its start.
            unsafe {
                store(self.at, segment);
                self.at = self.at.add(SEGMENT_BYTES);
            }
            self.ds += 1;
        }
        self.n_header = self.ds;
        Ok(self)
    }
}
