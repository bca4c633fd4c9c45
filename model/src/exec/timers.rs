//! The transport's times (InfiniBand specification 9.7.5.2.8 and 9.7.6.1.3).

/// `Local ACK Timeout` of a code: 4.096 µs · 2^code; `None` for 0, which waits for ever.
pub(super) const fn ack_timeout_ns(code: u8) -> Option<u64> {
    match code & 0x1f {
        0 => None,
        code => Some(4096 << code),
    }
}

/// RNR NAK timer of a code.
pub(super) const fn rnr_timer_ns(code: u8) -> u64 {
    // Hundredths of a millisecond, from the specification's table of 5-bit codes.
    const CENTI_MS: [u32; 32] = [
        65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048,
        3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
    ];
    CENTI_MS[(code & 0x1f) as usize] as u64 * 10_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_the_specification() {
        assert_eq!(ack_timeout_ns(0), None);
        assert_eq!(ack_timeout_ns(14), Some(67_108_864), "the usual 67 ms");
        assert_eq!(rnr_timer_ns(0), 655_360_000);
        assert_eq!((rnr_timer_ns(1), rnr_timer_ns(12), rnr_timer_ns(31)), (10_000, 640_000, 491_520_000));
    }
}
