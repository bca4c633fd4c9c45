//! Raw packets: as they are drawn, for us, and for libmlx5.

use crate::{random::Random, request::Data, rival::ffi::*};
use mlx5_direct::queue::Checksums;
use std::{fmt, num::NonZeroU16, ops::Range};

/// What a raw packet is beside its data.
#[derive(Debug, Clone)]
pub(crate) struct Frame {
    has_checksums: bool,
    /// Bytes of the frame that its request carries, because the device wants them.
    n_head: usize,
    /// A large send: its header, and the payload of a segment.
    pub(crate) large: Option<(Vec<u8>, NonZeroU16)>,
    memory: Memory,
}

/// Frames are parts of it: libmlx5 reads their heads.
#[derive(Clone, Copy)]
struct Memory(&'static [u8]);

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at {:p}", self.0.len(), self.0)
    }
}

/// Bytes of a large send's WQE before its header.
const HEADER_AT: usize = 30;

impl Frame {
    /// Any frame. A header that would go over the ring's end, `room_bytes` away, is not drawn: libmlx5 44 and later then put
    /// the segments behind it too late. One that ends there neither: by `ibv_wr` they write a single piece behind the
    /// ring.
    pub(crate) fn draw(
        random: &mut Random,
        memory: &'static [u8],
        n_head: usize,
        room_bytes: Option<usize>,
    ) -> Self {
        let len = match random.below(3) {
            0 => 14 + random.below(usize::from(MAX_TSO_HEADER) - 13),
            _ => 14 + random.below(60),
        };
        let fits = room_bytes.is_some_and(|room| (HEADER_AT + len).next_multiple_of(16) < room);
        let large = (fits && random.one_in(2)).then(|| {
            let mss = NonZeroU16::new(1 + random.below(9000) as u16).expect("not 0");
            (random.bytes(len), mss)
        });
        Self { has_checksums: random.one_in(2), n_head, large, memory: Memory(memory) }
    }

    pub(crate) fn is_large(&self) -> bool {
        self.large.is_some()
    }

    pub(crate) fn checksums(&self) -> Checksums {
        if self.has_checksums { Checksums::ALL } else { Checksums::NONE }
    }

    pub(crate) fn checksum_flag(&self) -> u32 {
        if self.has_checksums { IBV_SEND_IP_CSUM } else { 0 }
    }

    /// Lengths of up to `max` pieces, in which there is a head. libmlx5 wants one piece at least, and sends a frame of one
    /// piece that is all head twice.
    fn draw_lengths(&self, random: &mut Random, max: usize, max_bytes: usize) -> Vec<usize> {
        let n = if random.one_in(3) { 1 } else { 1 + random.below(max) };
        loop {
            let lengths: Vec<_> = (0..n)
                .map(|_| match random.below(3) {
                    0 => random.below(20),
                    _ => random.below(max_bytes / n + 1),
                })
                .collect();
            let all: usize = lengths.iter().sum();
            if all > self.n_head && all <= max_bytes {
                return lengths;
            }
        }
    }

    pub(crate) fn draw_sges(&self, random: &mut Random) -> Vec<IbvSge> {
        let lengths = self.draw_lengths(random, crate::request::MAX_SGE, 9000);
        let sge = |len| {
            let at = random.below(self.memory.0.len() - 9000);
            let addr = self.memory.0[at..].as_ptr().addr() as u64;
            IbvSge { addr, length: len as u32, lkey: random.next() as u32 }
        };
        lengths.into_iter().map(sge).collect()
    }

    pub(crate) fn draw_inline(&self, random: &mut Random) -> Vec<Vec<u8>> {
        let lengths = self.draw_lengths(random, 4, crate::request::MAX_INLINE_BYTES);
        lengths.into_iter().map(|len| random.bytes(len)).collect()
    }

    /// Takes the head out of the data.
    pub(crate) fn take_head(&self, data: &mut Data) -> Vec<u8> {
        let mut head = vec![];
        match data {
            Data::Inline(pieces) => {
                for piece in pieces {
                    head.extend(piece.drain(..piece.len().min(self.n_head - head.len())));
                }
            }
            Data::Sges(sges) => {
                for sge in sges {
                    let n = (sge.length as usize).min(self.n_head - head.len());
                    let at = sge.addr as usize - self.memory.0.as_ptr().addr();
                    head.extend(&self.memory.0[at..at + n]);
                    (sge.addr, sge.length) = (sge.addr + n as u64, sge.length - n as u32);
                }
            }
            Data::Bind(_) | Data::Indirect(_) => unreachable!("a frame"),
        }
        head
    }

    /// `tso` of `struct ibv_send_wr`.
    pub(crate) fn rest(&self) -> [u64; 6] {
        let Some((header, mss)) = &self.large else { return [0; 6] };
        let sizes = header.len() as u64 | u64::from(mss.get()) << 16;
        [header.as_ptr().addr() as u64, sizes, 0, 0, 0, 0]
    }

    /// Where libmlx5 writes zeros and we leave the WQE's bytes as they were: it zeroes an Ethernet segment with room for a
    /// head, and puts the data into that room if there is none.
    pub(crate) fn cleared(&self, data: &Data) -> Range<usize> {
        match data {
            Data::Inline(pieces) if self.n_head == 0 => {
                36 + pieces.iter().map(Vec::len).sum::<usize>()..HEADER_AT + 18
            }
            _ => 0..0,
        }
    }

    /// As of a request.
    pub(crate) fn left_alone(&self) -> Option<(Range<usize>, &'static str)> {
        let (header, _) = self.large.as_ref()?;
        // It zeroes what has room for the 18 bytes that it takes of other frames.
        let end = (HEADER_AT + header.len()).max(HEADER_AT + 18);
        Some((end..end.next_multiple_of(16), "padding behind the header of a large send"))
    }
}
