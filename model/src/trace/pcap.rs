//! The classic pcap format with nanosecond time stamps: Ethernet frames, or InfiniBand packets.
#![forbid(unsafe_code)]

use crate::config::LinkType;
use std::{
    io::{self, Write},
    time::Duration,
};

const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
const LINKTYPE_ETHERNET: u32 = 1;
/// From the LRH on.
const LINKTYPE_INFINIBAND: u32 = 247;
const SNAP_LEN_BYTES: u32 = 0x4_0000;

/// Writes packets to a pcap stream.
#[derive(Debug)]
pub struct PcapWriter<W: Write> {
    sink: W,
}

impl<W: Write> PcapWriter<W> {
    /// Starts a stream with its file header.
    ///
    /// # Errors
    /// Those of the sink.
    pub fn new(mut sink: W, link: LinkType) -> io::Result<Self> {
        let link = match link {
            LinkType::Ethernet => LINKTYPE_ETHERNET,
            LinkType::InfiniBand => LINKTYPE_INFINIBAND,
        };
        let version = 2 | 4 << 16; // major 2, minor 4, two 16-bit fields
        for word in [MAGIC_NANOSECONDS, version, 0, 0, SNAP_LEN_BYTES, link] {
            sink.write_all(&word.to_le_bytes())?;
        }
        Ok(Self { sink })
    }

    /// Adds one Ethernet frame without its frame check sequence, or one InfiniBand packet from LRH to VCRC.
    ///
    /// # Errors
    /// Those of the sink.
    pub fn packet(&mut self, at: Duration, frame: &[u8]) -> io::Result<()> {
        let len_bytes = frame.len() as u32;
        for word in [at.as_secs() as u32, at.subsec_nanos(), len_bytes.min(SNAP_LEN_BYTES), len_bytes] {
            self.sink.write_all(&word.to_le_bytes())?;
        }
        self.sink.write_all(&frame[..frame.len().min(SNAP_LEN_BYTES as usize)])
    }

    /// Flushes the stream.
    ///
    /// # Errors
    /// Those of the sink.
    pub fn finish(mut self) -> io::Result<()> {
        self.sink.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
