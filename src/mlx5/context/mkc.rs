//! The memory key context: what an lkey or rkey opens.

use crate::mlx5::{
    ids::{Pdn, Qpn},
    layout::{layout, wire_enum},
};

layout! {
    /// Memory key context (PRM `mkc`).
    pub struct Mkc, 64, "mkc" {
        /// No use of the key passes; a UMR or a registration work request makes it valid.
        0x00 [30:30] free: bool,
        /// Upper bits of [`access_mode`](Self::access_mode).
        0x00 [28:26] access_mode_4_2: u8,
        /// Writes of the device may pass each other.
        0x00 [18:18] relaxed_ordering_write: bool,
        0x00 [16:16] small_fence_on_rdma_read_response: bool,
        /// UMR may change the key.
        0x00 [15:15] umr_en: bool,
        /// Remote atomics.
        0x00 [14:14] a: bool,
        /// Remote write.
        0x00 [13:13] rw: bool,
        /// Remote read.
        0x00 [12:12] rr: bool,
        /// Local write.
        0x00 [11:11] lw: bool,
        /// Local read.
        0x00 [10:10] lr: bool,
        /// Lower bits of [`access_mode`](Self::access_mode).
        0x00 [9:8] access_mode_1_0: u8,
        0x00 [5:4] ma_translation_mode: u8,
        /// The only QP that may use the key; 0xffffff for any.
        0x04 [31:8] qpn: Qpn,
        /// Low byte of the key: the variant, chosen by software.
        0x04 [7:0] mkey_7_0: u8,
        /// The key covers all of memory and [`len`](Self::len) is ignored.
        0x0c [31:31] length64: bool,
        /// Signature handover is set up.
        0x0c [30:30] bsf_en: bool,
        0x0c [29:29] sync_umr: bool,
        /// Parity of signature errors seen.
        0x0c [26:26] expected_sigerr_count: bool,
        /// A peer's SEND with invalidate may free the key.
        0x0c [24:24] en_rinval: bool,
        /// Protection domain.
        0x0c [23:0] pd: Pdn,
        /// First IOVA that a work request names with this key.
        0x10 [63:0] start_addr: u64,
        /// Bytes.
        0x18 [63:0] len: u64,
        0x20 [31:0] bsf_octword_size: u32,
        /// Translation entries in 16-byte units: two MTTs or one KLM each.
        0x34 [31:0] translations_octword_size: u32,
        0x38 [9:8] order_read_after_write: u8,
        /// Reads may be answered out of order.
        0x38 [6:6] relaxed_ordering_read: bool,
        /// log2 of the pages, without bias.
        0x38 [4:0] log_page_size: u8,
        /// Encryption of the memory.
        0x3c [28:27] crypto_en: u8,
    }
}

wire_enum! {
    /// How a key finds its memory (`mkc.access_mode`).
    pub struct MkcAccessMode(u8), "mkc_access_mode" {
        /// IOVAs as they are; no translation.
        PA = 0,
        /// Pages of one size.
        MTT = 1,
        /// Pieces of other keys, of any length.
        KLMS = 2,
        /// Pieces of other keys, of one length.
        KSM = 3,
        SW_ICM = 4,
        MEMIC = 5,
    }
}

impl Mkc {
    /// [`qpn`](Self::qpn) of a key that any QP may use.
    pub const ANY_QP: Qpn = Qpn::new(0xff_ffff);

    /// Whether the key covers nothing.
    #[inline]
    pub fn is_empty(&self) -> bool {
        !self.length64() && self.len() == 0
    }

    /// How the key finds its memory.
    #[inline]
    pub fn access_mode(&self) -> MkcAccessMode {
        MkcAccessMode(self.access_mode_4_2() << 2 | self.access_mode_1_0())
    }

    /// With the access mode set.
    #[inline]
    #[must_use]
    pub fn with_access_mode(self, mode: MkcAccessMode) -> Self {
        self.with_access_mode_4_2(mode.0 >> 2).with_access_mode_1_0(mode.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mlx5::layout::painted;

    #[test]
    fn golden_bytes() {
        let mkc = Mkc::from_bytes([0xa5; 64]);
        // Bits 26 to 28 of the first dword hold 001, bits 8 and 9 hold 01: mode 5.
        let memic = mkc.with_access_mode(MkcAccessMode::MEMIC);
        assert_eq!(memic.to_bytes(), painted(&[(0, &[0xa5]), (2, &[0xa5])]));
        assert_eq!(mkc.with_access_mode(MkcAccessMode::MTT).to_bytes(), painted(&[(0, &[0xa1])]));
        assert_eq!(
            mkc.with_access_mode(MkcAccessMode::KSM).to_bytes(),
            painted(&[(0, &[0xa1]), (2, &[0xa7])])
        );
        assert_eq!(memic.access_mode(), MkcAccessMode::MEMIC);
        let rights = mkc.with_a(true).with_rw(true).with_rr(true).with_lw(true).with_lr(true);
        assert_eq!(rights.to_bytes(), painted(&[(2, &[0xfd])]));
        assert_eq!(
            mkc.with_qpn(Mkc::ANY_QP).with_mkey_7_0(0x42).to_bytes(),
            painted(&[(4, &[0xff, 0xff, 0xff, 0x42])])
        );
        assert_eq!(
            mkc.with_length64(false).with_pd(Pdn::new(2)).to_bytes(),
            painted(&[(12, &[0x25, 0, 0, 2])])
        );
        assert_eq!(mkc.with_log_page_size(12).to_bytes(), painted(&[(0x3b, &[0xac])]));
    }

    #[test]
    fn a_key_of_length_0_is_empty_unless_it_is_of_all_memory() {
        let mkc = Mkc::new();
        assert!(mkc.is_empty());
        assert!(!mkc.with_len(1).is_empty());
        assert!(!mkc.with_length64(true).is_empty());
        assert!(!mkc.with_length64(true).with_len(1).is_empty());
    }
}
