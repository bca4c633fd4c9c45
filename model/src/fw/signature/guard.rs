//! What signatures are computed with.
#![forbid(unsafe_code)]

use crc::{CRC_16_T10_DIF, CRC_32_ISCSI, CRC_32_ISO_HDLC, Crc};

const DIF: Crc<u16> = Crc::<u16>::new(&CRC_16_T10_DIF);
/// Of FC-PH, and of Ethernet.
const FC: Crc<u32> = Crc::<u32>::new(&CRC_32_ISO_HDLC);
const CASTAGNOLI: Crc<u32> = Crc::<u32>::new(&CRC_32_ISCSI);

/// The CRC of T10-DIF.
pub(super) fn dif_crc(seed: u16, data: &[u8]) -> u16 {
    let mut digest = DIF.digest_with_initial(seed);
    digest.update(data);
    digest.finalize()
}

/// The checksum of IP headers, over big-endian words.
pub(super) fn ip_checksum(seed: u16, data: &[u8]) -> u16 {
    let words = data.chunks(2).map(|pair| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |&low| low.into()));
    let sum = words.fold(u32::from(seed), |sum, word| sum + word);
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

pub(super) fn crc32(seed: u32, data: &[u8]) -> u32 {
    from_seed(&FC, seed, data)
}

pub(super) fn crc32c(seed: u32, data: &[u8]) -> u32 {
    from_seed(&CASTAGNOLI, seed, data)
}

/// Seeds are what the register holds at first, as bits go through it: the lowest first. All zeros and all ones, which the
/// device takes, are the same in either order.
fn from_seed(crc: &Crc<u32>, seed: u32, data: &[u8]) -> u32 {
    let mut digest = crc.digest_with_initial(seed.reverse_bits());
    digest.update(data);
    digest.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Published check values, over the digits 1 to 9.
    #[test]
    fn check_values() {
        const DIGITS: &[u8] = b"123456789";
        assert_eq!(dif_crc(0, DIGITS), 0xd0db);
        assert_eq!(crc32(u32::MAX, DIGITS), 0xcbf4_3926);
        assert_eq!(crc32c(u32::MAX, DIGITS), 0xe306_9283);
        // RFC 3720, B.4: 32 bytes of zeros, of ones, and counted up.
        assert_eq!(crc32c(u32::MAX, &[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(u32::MAX, &[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(u32::MAX, &core::array::from_fn::<u8, 32, _>(|n| n as u8)), 0x46dd_794e);
        // A register of zeros stays so, and is inverted at the end.
        assert_eq!(
            (dif_crc(0, &[0; 512]), crc32(0, &[0; 512]), crc32c(0, &[0; 512])),
            (0, u32::MAX, u32::MAX)
        );
    }

    /// RFC 1071, section 3: the sum of the example is 0xddf2. Seeds of 0 and of ones are the same number to it.
    #[test]
    fn checksum_of_the_rfc() {
        const EXAMPLE: &[u8] = &[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!((ip_checksum(0, EXAMPLE), ip_checksum(0xffff, EXAMPLE)), (!0xddf2, !0xddf2));
    }
}
