//! Arithmetic of 24-bit packet sequence numbers.

use mlx5_direct::mlx5::ids::Psn;

/// `a − b` as the nearer way round the circle: −2²³ to 2²³ − 1.
pub(super) const fn distance(a: Psn, b: Psn) -> i32 {
    (a.get().wrapping_sub(b.get()) << 8) as i32 >> 8
}

/// The PSN before `psn`.
pub(super) const fn before(psn: Psn) -> Psn {
    Psn::new(psn.get().wrapping_sub(1))
}

/// Packets that a message of `len_bytes` takes: at least one.
pub(super) const fn n_packets(len_bytes: u64, mtu_bytes: u32) -> u32 {
    let n = len_bytes.div_ceil(mtu_bytes as u64);
    if n == 0 { 1 } else { n as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_circle_closes_at_24_bits() {
        let at = Psn::new;
        assert_eq!(distance(at(0), at(0xff_ffff)), 1);
        assert_eq!(distance(at(0xff_ffff), at(0)), -1);
        assert_eq!(distance(at(0x80_0000), at(0)), -0x80_0000);
        assert_eq!(before(at(0)), at(0xff_ffff));
        assert_eq!((n_packets(0, 256), n_packets(256, 256), n_packets(257, 256)), (1, 1, 2));
    }
}
