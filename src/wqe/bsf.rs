//! The byte stream format (BSF) of a memory key: what the device checks, makes or encrypts in data that passes through it.
//!
//! It follows the translation list of a UMR: [`BsfBasic`], [`BsfExt`] and an [`BsfInl`] each for the wire's and
//! memory's signature, 64 bytes in all; or [`BsfCrypto`]; or both, in this order.

use crate::mlx5::layout::layout;

layout! {
    /// What is common to both sides of a signature (rdma-core `mlx5_bsf_basic`).
    pub struct BsfBasic, 16, "bsf_basic" {
        /// Length of the whole: 0 this, 1 with the extension, 2 with the inline sections too, 3 with encryption.
        0x00 [31:30] bsf_size: u8,
        /// Memory and wire have the same block structure.
        0x00 [28:28] sbs: bool,
        /// Bytes of the signature that are checked, a bit each.
        0x00 [23:16] check_byte_mask: u8,
        /// With `sbs`: bytes of the signature that are copied. Without: block size on the wire.
        0x00 [15:8] wire_bs_selector_or_copy_mask: u8,
        /// Block size in memory.
        0x00 [7:0] mem_bs_selector: u8,
        /// Bytes of data, without signatures.
        0x04 [31:0] raw_data_size: u32,
        /// Block format on the wire: which signature.
        0x08 [31:24] w_bfs: u8,
        /// PSV of the wire.
        0x08 [23:0] w_psv: u32,
        /// Block format in memory.
        0x0c [31:24] m_bfs: u8,
        /// PSV of the memory.
        0x0c [23:0] m_psv: u32,
    }

    /// The extension; drivers write 0 (rdma-core `mlx5_bsf_ext`).
    pub struct BsfExt, 16, "bsf_ext" {
        0x00 [31:0] t_init_gen_pro_size: u32,
        0x04 [31:0] rsvd_epi_size: u32,
        0x08 [31:0] w_tfs_psv: u32,
        0x0c [31:0] m_tfs_psv: u32,
    }

    /// T10-DIF of one side (rdma-core `mlx5_bsf_inl`).
    pub struct BsfInl, 16, "bsf_inl" {
        /// The section counts.
        0x00 [31:31] valid: bool,
        0x00 [30:30] refresh_dif: bool,
        /// Application tag.
        0x00 [15:0] dif_apptag: u16,
        /// Reference tag.
        0x04 [31:0] dif_reftag: u32,
        /// Guard: 1 a CRC, 2 an IP checksum.
        0x08 [31:24] sig_type: u8,
        /// The guard begins anew with every block.
        0x08 [23:23] repeat_block: bool,
        /// The guard begins with ones.
        0x08 [19:19] seed: bool,
        /// The reference tag grows by one a block.
        0x0c [22:22] inc_reftag: bool,
        /// No check where both tags are ones.
        0x0c [17:17] appref_escape: bool,
        /// No check where the application tag is ones.
        0x0c [16:16] apptag_escape: bool,
        /// Bits of the application tag that are checked.
        0x0c [15:0] dif_app_bitmask_check: u16,
    }

    /// Encryption (rdma-core `mlx5_crypto_bsf`).
    pub struct BsfCrypto, 64, "bsf_crypto" {
        0x00 [31:30] bsf_size: u8,
        /// 1 here.
        0x00 [25:24] bsf_type: u8,
        /// Which of signature and encryption comes first, and what side is encrypted.
        0x00 [23:16] enc_order: u8,
        /// 0: AES-XTS.
        0x00 [7:0] enc_standard: u8,
        /// Bytes of data.
        0x04 [31:0] raw_data_size: u32,
        /// Block size.
        0x08 [31:24] bs_pointer: u8,
        0x10 [bytes] xts_init_tweak: [u8; 16],
        /// The data encryption key, an object of the device.
        0x20 [23:0] dek_pointer: u32,
        0x28 [bytes] keytag: [u8; 8],
    }
}
