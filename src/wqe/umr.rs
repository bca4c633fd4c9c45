//! Segments of a UMR: a WQE that changes a memory key.
//!
//! After the control segment, whose `imm` names the key, come [`UmrCtrlSeg`] and a memory key context
//! ([`Mkc`](crate::mlx5::context::Mkc)) of which the fields in `mkey_mask` count; then the translation entries,
//! or a [`DataSeg`](super::DataSeg) that says where they are.

use crate::mlx5::{
    ids::Lkey,
    layout::{layout, wire_enum},
};

layout! {
    /// UMR control segment (rdma-core `mlx5_wqe_umr_ctrl_seg`).
    pub struct UmrCtrlSeg, 48, "wqe_umr_ctrl_seg" {
        /// The translation entries are in the WQE.
        0x00 [31:31] inline: bool,
        /// [`FAIL_IF_NOT_FREE`](Self::FAIL_IF_NOT_FREE), [`FAIL_IF_FREE`](Self::FAIL_IF_FREE), or 0.
        0x00 [30:29] check_free: u8,
        /// The list replaces part of the key's translation, from `xlt_offset` on.
        0x00 [28:28] translation_offset_en: bool,
        /// Fail if the key belongs to another QP.
        0x00 [27:27] check_qpn: bool,
        /// Length of the list in octowords (16 bytes: two MTTs or one KLM); a multiple of 4.
        0x04 [31:16] klm_octowords: u16,
        /// With `translation_offset_en` the lower 16 bits of the offset, in octowords; else length of the BSF.
        0x04 [15:0] translation_offset_or_bsf_octowords: u16,
        /// Fields of the context that are taken over.
        0x08 [63:0] mkey_mask: MkeyMask,
        /// Upper bits of the offset.
        0x10 [31:0] xlt_offset_47_16: u32,
    }

    /// Translation entry of a key in mode KLM or KSM: a piece of another key.
    pub struct KlmEntry, 16, "klm_entry" {
        /// Bytes; unused in a KSM, whose pieces are `1 << mkc.log_page_size` long.
        0x00 [31:0] byte_count: u32,
        /// The other key; [`REPEAT`](Self::REPEAT) makes this a [`RepeatBlockSeg`].
        0x04 [31:0] mkey: Lkey,
        /// Address under that key.
        0x08 [63:0] address: u64,
    }

    /// Translation entry of a key in mode MTT: a page.
    pub struct MttEntry, 8, "mtt_entry" {
        /// Page address, without the two permissions below it.
        0x00 [63:2] ptag: u64,
        /// The page may be written.
        0x04 [1:1] wr_en: bool,
        /// The page may be read.
        0x04 [0:0] rd_en: bool,
    }

    /// Head of a list that is walked again and again: an interleaved layout.
    pub struct RepeatBlockSeg, 16, "umr_repeat_block_ctrl_seg" {
        /// Sum of the entries' `byte_count`.
        0x00 [31:0] byte_count_per_cycle: u32,
        /// [`KlmEntry::REPEAT`].
        0x04 [31:0] op: u32,
        0x08 [31:0] repeat_count: u32,
        /// [`RepeatEntrySeg`]s that follow.
        0x0c [15:0] num_entries: u16,
    }

    /// One piece of each cycle.
    pub struct RepeatEntrySeg, 16, "umr_repeat_entry_seg" {
        /// Bytes from one cycle's piece to the next one's.
        0x00 [31:16] stride: u16,
        0x00 [15:0] byte_count: u16,
        0x04 [31:0] mkey: Lkey,
        0x08 [63:0] va: u64,
    }
}

wire_enum! {
    /// Fields of the key that a UMR changes, a bit each (`mkey_mask`).
    pub struct MkeyMask(u64), "umr_mkey_mask" {
        /// `len` and `length64`.
        LEN = 0x1,
        PAGE_SIZE = 0x2,
        START_ADDR = 0x40,
        PD = 0x80,
        EN_RINVAL = 0x100,
        EN_SIGERR = 0x200,
        BSF_EN = 0x1000,
        /// `mkey_7_0`.
        KEY = 0x2000,
        QPN = 0x4000,
        LR = 0x2_0000,
        LW = 0x4_0000,
        RR = 0x8_0000,
        RW = 0x10_0000,
        A = 0x20_0000,
        SMALL_FENCE = 0x80_0000,
        RELAXED_ORDERING_WRITE = 0x200_0000,
        FREE = 0x2000_0000,
        RELAXED_ORDERING_READ = 0x8000_0000_0000,
    }
}

impl UmrCtrlSeg {
    /// `check_free`: the key must be free.
    pub const FAIL_IF_NOT_FREE: u8 = 1;
    /// `check_free`: the key must be valid.
    pub const FAIL_IF_FREE: u8 = 2;

    /// Where in the key's translation the list goes, in octowords.
    pub fn xlt_offset(&self) -> u64 {
        match self.translation_offset_en() {
            true => {
                u64::from(self.xlt_offset_47_16()) << 16
                    | u64::from(self.translation_offset_or_bsf_octowords())
            }
            false => 0,
        }
    }
}

impl KlmEntry {
    /// [`mkey`](Self::mkey) of the head of a repeated block.
    pub const REPEAT: Lkey = Lkey::new(0x400);
}

impl MkeyMask {
    /// Every field that has a bit.
    pub const ALL: Self = Self({
        let (mut all, mut n) = (0, 0);
        while n < Self::TABLE.1.len() {
            all |= Self::TABLE.1[n].1;
            n += 1;
        }
        all
    });

    /// Whether all of `fields` are in it.
    pub const fn has(self, fields: Self) -> bool {
        self.0 & fields.0 == fields.0
    }

    /// With `fields` besides.
    #[must_use]
    pub const fn and(self, fields: Self) -> Self {
        Self(self.0 | fields.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mlx5::layout::painted;

    #[test]
    fn golden_bytes() {
        let ctrl = UmrCtrlSeg::from_bytes([0xa5; 48]);
        let flags = ctrl.with_inline(false).with_check_free(UmrCtrlSeg::FAIL_IF_FREE).with_check_qpn(true);
        assert_eq!(flags.to_bytes(), painted(&[(0, &[0x4d])]));
        assert_eq!(ctrl.with_klm_octowords(4).to_bytes(), painted(&[(4, &[0, 4])]));
        // What libmlx5 writes to bind a memory window of type 2.
        let mask = MkeyMask(0x203c_6041);
        for field in [MkeyMask::FREE, MkeyMask::QPN, MkeyMask::KEY, MkeyMask::A, MkeyMask::LEN] {
            assert!(mask.has(field));
        }
        assert!(!mask.has(MkeyMask::LR) && !mask.has(MkeyMask::LEN.and(MkeyMask::PD)));
        assert_eq!(
            ctrl.with_mkey_mask(mask).to_bytes(),
            painted(&[(8, &[0, 0, 0, 0, 0x20, 0x3c, 0x60, 0x41])])
        );
        assert_eq!(MkeyMask::KEY.and(MkeyMask::QPN).and(MkeyMask::KEY), MkeyMask(0x6000));
        assert_eq!(MkeyMask::ALL.0, 0x8000_22be_73c3);
    }

    #[test]
    fn the_offset_has_48_bits() {
        let ctrl = UmrCtrlSeg::new()
            .with_translation_offset_or_bsf_octowords(0x5678)
            .with_xlt_offset_47_16(0x1234_9abc);
        assert_eq!(ctrl.xlt_offset(), 0);
        assert_eq!(ctrl.with_translation_offset_en(true).xlt_offset(), 0x1234_9abc_5678);
    }
}
