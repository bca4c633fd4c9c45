//! The classic pcap format with nanosecond time stamps: Ethernet frames, or InfiniBand packets.
#![forbid(unsafe_code)]

use crate::config::LinkType;
use std::{
    io::{self, Write},
    time::Duration,
};

const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
const LINKTYPE_ETHERNET: u32 = 1;
/// InfiniBand packets as ibdump writes them and Wireshark reads them: in records of Endace's format.
const LINKTYPE_ERF: u32 = 197;
const ERF_HEADER_BYTES: usize = 16;
const ERF_TYPE_INFINIBAND: u8 = 21;
/// Records of varying length.
const ERF_FLAGS: u8 = 4;
const SNAP_LEN_BYTES: u32 = 0x4_0000;

/// Writes packets to a pcap stream.
#[derive(Debug)]
pub struct PcapWriter<W: Write> {
    sink: W,
    link: LinkType,
}

impl<W: Write> PcapWriter<W> {
    /// Starts a stream with its file header.
    ///
    /// # Errors
    /// Those of the sink.
    pub fn new(mut sink: W, link: LinkType) -> io::Result<Self> {
        let link_type = match link {
            LinkType::Ethernet => LINKTYPE_ETHERNET,
            LinkType::InfiniBand => LINKTYPE_ERF,
        };
        let version = 2 | 4 << 16; // major 2, minor 4, two 16-bit fields
        for word in [MAGIC_NANOSECONDS, version, 0, 0, SNAP_LEN_BYTES, link_type] {
            sink.write_all(&word.to_le_bytes())?;
        }
        Ok(Self { sink, link })
    }

    /// Adds one Ethernet frame without its frame check sequence, or one InfiniBand packet from LRH to VCRC.
    ///
    /// # Errors
    /// Those of the sink.
    pub fn packet(&mut self, at: Duration, frame: &[u8]) -> io::Result<()> {
        let erf = (self.link == LinkType::InfiniBand).then(|| erf_header(at, frame.len()));
        let header = erf.as_ref().map_or(&[][..], |erf| erf);
        let len_bytes = (header.len() + frame.len()) as u32;
        for word in [at.as_secs() as u32, at.subsec_nanos(), len_bytes.min(SNAP_LEN_BYTES), len_bytes] {
            self.sink.write_all(&word.to_le_bytes())?;
        }
        self.sink.write_all(header)?;
        self.sink.write_all(&frame[..frame.len().min(SNAP_LEN_BYTES as usize - header.len())])
    }

    /// Flushes the stream.
    ///
    /// # Errors
    /// Those of the sink.
    pub fn finish(mut self) -> io::Result<()> {
        self.sink.flush()
    }
}

/// Time stamp in 2^-32 s, little-endian; type, flags, length of the record, losses, length of the packet.
fn erf_header(at: Duration, packet_len: usize) -> [u8; ERF_HEADER_BYTES] {
    let fraction = (u64::from(at.subsec_nanos()) << 32) / 1_000_000_000;
    let mut header = [0; ERF_HEADER_BYTES];
    header[..8].copy_from_slice(&(at.as_secs() << 32 | fraction).to_le_bytes());
    (header[8], header[9]) = (ERF_TYPE_INFINIBAND, ERF_FLAGS);
    header[10..12].copy_from_slice(&((ERF_HEADER_BYTES + packet_len) as u16).to_be_bytes());
    header[14..].copy_from_slice(&(packet_len as u16).to_be_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_record_of_infiniband() {
        let mut bytes = Vec::new();
        let mut pcap = PcapWriter::new(&mut bytes, LinkType::InfiniBand).unwrap();
        pcap.packet(Duration::new(1, 500_000_000), &[0xaa, 0xbb]).unwrap();
        pcap.finish().unwrap();
        assert_eq!(bytes[20], 197);
        assert_eq!(bytes[32..40], [18, 0, 0, 0, 18, 0, 0, 0]);
        assert_eq!(bytes[40..], [0, 0, 0, 0x80, 1, 0, 0, 0, 21, 4, 0, 18, 0, 0, 0, 2, 0xaa, 0xbb]);
    }

    #[test]
    fn golden_file() {
        let mut bytes = Vec::new();
        let mut pcap = PcapWriter::new(&mut bytes, LinkType::Ethernet).unwrap();
        pcap.packet(Duration::new(1, 2), &[0xaa, 0xbb]).unwrap();
        pcap.finish().unwrap();
        assert_eq!(
            bytes,
            [
                0x4d, 0x3c, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0,
                0, // file
                1, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 0xaa, 0xbb, // packet
            ]
        );
    }
}
