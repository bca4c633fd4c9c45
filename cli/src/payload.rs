//! What messages carry: bytes that follow from the seed, so that every one of them can be checked.

use crate::failure::Failure;
use mlx5_direct::Mr;

/// The bytes of every message of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Payload {
    seed: u64,
}

/// Scrambles a number (the finalizer of SplitMix64).
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl Payload {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// Number `n` of queue pair `lane`, for atomics.
    pub(crate) fn word(self, lane: usize, n: u64) -> u64 {
        mix(self.seed ^ mix(((lane as u64) << 32) ^ mix(n)))
    }

    /// The message `n` of queue pair `lane`, in direction `way`.
    ///
    /// Its last byte differs from that of message `n - 1`, and is not 0: a target can wait for it.
    pub(crate) fn fill(self, way: u64, lane: usize, n: u64, bytes: &mut [u8]) {
        let start = mix(self.word(lane, n) ^ way);
        for (at, chunk) in bytes.chunks_mut(8).enumerate() {
            let word = mix(start.wrapping_add((at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)));
            chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
        }
        if let Some(last) = bytes.last_mut() {
            *last = Self::last_byte(n);
        }
    }

    /// The last byte of message `n`.
    pub(crate) fn last_byte(n: u64) -> u8 {
        // 1 to 255.
        (n % 255) as u8 + 1
    }
}

/// Compares memory at `offset` with what was sent there.
pub(crate) fn verify(mr: &Mr, offset: usize, sent: &[u8], what: &str) -> Result<(), Failure> {
    let mut found = vec![0; sent.len()];
    mr.try_read(offset, &mut found)?;
    match found.iter().zip(sent).position(|(found, sent)| found != sent) {
        None => Ok(()),
        Some(at) => Err(Failure::Run(format!(
            "payload of {what} is wrong: byte {at} of {} is 0x{:02x}, and 0x{:02x} was sent",
            sent.len(),
            found[at],
            sent[at]
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_differ_by_seed_way_lane_and_number() {
        let message = |seed, way, lane, n| {
            let mut bytes = [0; 21];
            Payload::new(seed).fill(way, lane, n, &mut bytes);
            bytes
        };
        let first = message(1, 0, 0, 0);
        assert_eq!(first, message(1, 0, 0, 0));
        for other in [message(2, 0, 0, 0), message(1, 1, 0, 0), message(1, 0, 1, 0), message(1, 0, 0, 1)] {
            assert_ne!(first, other);
        }
    }

    #[test]
    fn the_last_byte_always_changes_and_is_never_zero() {
        for n in 0..1000 {
            assert_ne!(Payload::last_byte(n), 0);
            assert_ne!(Payload::last_byte(n), Payload::last_byte(n + 1));
        }
    }
}
