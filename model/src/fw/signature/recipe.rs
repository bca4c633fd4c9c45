//! The byte stream format of a key: where signatures stand on either side, and what they are made of.
#![forbid(unsafe_code)]

use super::guard;
use mlx5_direct::{
    cqe::{SigErrDomain, SigErrSyndrome},
    wqe::{BsfBasic, BsfExt, BsfInl},
};

/// Bytes of a BSF with signatures and without encryption.
pub(crate) const BSF_BYTES: usize = 64;
/// `bsf_size` of that.
const WITH_INLINE: u8 = 2;
/// `bfs`: the CRC, and that it begins anew with every block.
const BFS_CRC32: u8 = 0x20;
const BFS_CRC32C: u8 = 0x40;
const BFS_REPEAT: u8 = 2;
/// The bit of `bfs` beside them tells whether the CRC begins with zeros, which the PSV says too.
const BFS_SEED: u8 = 1;
/// `sig_type` of T10-DIF.
const DIF_CRC: u8 = 1;
const DIF_CHECKSUM: u8 = 2;

/// Most bytes of a block.
pub(super) const MAX_BLOCK_BYTES: usize = 4160;
/// Most bytes of a signature.
pub(super) const MAX_SIGNATURE_BYTES: usize = 8;

/// What a signature is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    /// T10-DIF: guard, application tag, reference tag.
    Dif {
        checksum: bool,
        /// Of the application tag, what is checked.
        app_mask: u16,
        /// The reference tag grows by one a block.
        counts: bool,
        /// No check where the application tag is ones, …
        app_escape: bool,
        /// … or where both tags are.
        both_escape: bool,
    },
    Crc32,
    Crc32c,
}

/// One side of a key: blocks, with a signature behind each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Domain {
    format: Format,
    pub(super) block_bytes: u64,
    pub(super) psv: u32,
}

/// What a position in a side's bytes is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Position {
    /// Data: the byte of all data.
    Data(u64),
    /// A byte of the signature of a block.
    Signature { block: u64, at: u64 },
}

/// What a signature is, and what it had to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SignatureError {
    pub(crate) syndrome: SigErrSyndrome,
    pub(crate) domain: SigErrDomain,
    /// As the signature says, and as the data give: guard or CRC, tags.
    pub(crate) expected: u64,
    pub(crate) actual: u64,
    /// Of the signature, in the bytes of the side.
    pub(crate) offset: u64,
}

impl Domain {
    fn read(selector: u8, bfs: u8, psv: u32, inline: BsfInl) -> Result<Option<Self>, &'static str> {
        let block_bytes = match selector {
            0 => return Ok(None),
            1 => 512,
            2 => 520,
            3 => 4096,
            4 => 4160,
            6 => 4048,
            _ => return Err("a block size that is none of 1, 2, 3, 4 and 6"),
        };
        let format = match bfs & !BFS_SEED {
            0 => Self::dif(inline)?,
            bfs if bfs == BFS_CRC32 | BFS_REPEAT => Format::Crc32,
            bfs if bfs == BFS_CRC32C | BFS_REPEAT => Format::Crc32c,
            _ => return Err("a block format that is none of CRC32 and CRC32C, anew for each block"),
        };
        Ok(Some(Self { format, block_bytes, psv }))
    }

    fn dif(inline: BsfInl) -> Result<Format, &'static str> {
        if !inline.valid() || !inline.repeat_block() {
            return Err("T10-DIF without its inline section, or not anew for each block");
        }
        let checksum = match inline.sig_type() {
            DIF_CRC => false,
            DIF_CHECKSUM => true,
            _ => return Err("a guard that is neither a CRC nor a checksum"),
        };
        Ok(Format::Dif {
            checksum,
            app_mask: inline.dif_app_bitmask_check(),
            counts: inline.inc_reftag(),
            app_escape: inline.apptag_escape(),
            both_escape: inline.appref_escape(),
        })
    }

    pub(super) const fn signature_bytes(&self) -> u64 {
        match self.format {
            Format::Dif { .. } => 8,
            Format::Crc32 | Format::Crc32c => 4,
        }
    }

    /// Place of the signature of a block.
    pub(super) const fn signature_at(&self, block: u64) -> u64 {
        block * (self.block_bytes + self.signature_bytes()) + self.block_bytes
    }

    /// The signature that a block has, as it is stored. The state of `psv` is that of the first block.
    pub(super) fn sign(&self, psv: u64, block: u64, data: &[u8]) -> [u8; MAX_SIGNATURE_BYTES] {
        let mut bytes = [0; MAX_SIGNATURE_BYTES];
        match self.format {
            Format::Dif { checksum, counts, .. } => {
                let seed = (psv >> 48) as u16;
                let guard =
                    if checksum { guard::ip_checksum(seed, data) } else { guard::dif_crc(seed, data) };
                let reference = (psv as u32).wrapping_add(if counts { block as u32 } else { 0 });
                bytes[..2].copy_from_slice(&guard.to_be_bytes());
                bytes[2..4].copy_from_slice(&((psv >> 32) as u16).to_be_bytes());
                bytes[4..].copy_from_slice(&reference.to_be_bytes());
            }
            Format::Crc32 => {
                bytes[..4].copy_from_slice(&guard::crc32((psv >> 32) as u32, data).to_le_bytes())
            }
            Format::Crc32c => {
                bytes[..4].copy_from_slice(&guard::crc32c((psv >> 32) as u32, data).to_le_bytes());
            }
        }
        bytes
    }

    /// The number that an error CQE has for a signature.
    fn value(&self, signature: [u8; MAX_SIGNATURE_BYTES]) -> u64 {
        match self.format {
            Format::Dif { .. } => u64::from_be_bytes(signature),
            Format::Crc32 | Format::Crc32c => (u64::from_le_bytes(signature)) << 32,
        }
    }

    /// The first part of a signature that is not what it has to be, where `mask` asks for it: a bit a byte, the first byte's
    /// the highest.
    fn differs(
        &self,
        mask: u8,
        found: [u8; MAX_SIGNATURE_BYTES],
        made: [u8; MAX_SIGNATURE_BYTES],
    ) -> Option<SigErrSyndrome> {
        let mut differences = [0; MAX_SIGNATURE_BYTES];
        for (n, difference) in differences.iter_mut().enumerate() {
            *difference = if mask & 0x80 >> n == 0 { 0 } else { found[n] ^ made[n] };
        }
        let Format::Dif { app_mask, app_escape, both_escape, .. } = self.format else {
            return (differences[..4] != [0; 4]).then_some(SigErrSyndrome::GUARD);
        };
        let (app_ones, reference_ones) = (found[2..4] == [0xff; 2], found[4..] == [0xff; 4]);
        if app_ones && (app_escape || both_escape && reference_ones) {
            return None;
        }
        let app = u16::from_be_bytes([differences[2], differences[3]]) & app_mask;
        if differences[..2] != [0; 2] {
            Some(SigErrSyndrome::GUARD)
        } else if app != 0 {
            Some(SigErrSyndrome::APPTAG)
        } else {
            (differences[4..] != [0; 4]).then_some(SigErrSyndrome::REFTAG)
        }
    }
}

/// What `domain` has at `offset`. A side without signatures is data throughout.
pub(super) fn position(domain: Option<&Domain>, offset: u64) -> Position {
    let Some(domain) = domain else { return Position::Data(offset) };
    let stride = domain.block_bytes + domain.signature_bytes();
    let (block, inside) = (offset / stride, offset % stride);
    match inside.checked_sub(domain.block_bytes) {
        None => Position::Data(block * domain.block_bytes + inside),
        Some(at) => Position::Signature { block, at },
    }
}

/// Where `domain` has a byte of the data, and how many bytes from there on are in one piece.
pub(super) fn data_at(domain: Option<&Domain>, data: u64) -> (u64, u64) {
    let Some(domain) = domain else { return (data, u64::MAX - data) };
    let (block, inside) = (data / domain.block_bytes, data % domain.block_bytes);
    (block * (domain.block_bytes + domain.signature_bytes()) + inside, domain.block_bytes - inside)
}

/// Both sides of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Recipe {
    pub(super) memory: Option<Domain>,
    pub(super) wire: Option<Domain>,
    /// Bytes of a signature that are checked where data come from.
    check_mask: u8,
    /// Bytes of a signature that are the same on both sides, if these have the same blocks.
    copy_mask: u8,
}

impl Recipe {
    /// Reads a BSF.
    pub(super) fn read(bsf: &[u8; BSF_BYTES]) -> Result<Self, &'static str> {
        let (sections, _) = bsf.as_chunks::<16>();
        let basic = BsfBasic::from_bytes(sections[0]);
        let (wire, memory) = (BsfInl::from_bytes(sections[2]), BsfInl::from_bytes(sections[3]));
        if basic.bsf_size() != WITH_INLINE {
            return Err("a bsf_size that is not that of 64 bytes of signatures");
        }
        if BsfExt::from_bytes(sections[1]) != BsfExt::new() {
            return Err("an extension, of which nothing is known");
        }
        let (selector, wire_or_copy) = (basic.mem_bs_selector(), basic.wire_bs_selector_or_copy_mask());
        let wire_selector = if basic.sbs() { selector } else { wire_or_copy };
        Ok(Self {
            memory: Domain::read(selector, basic.m_bfs(), basic.m_psv(), memory)?,
            wire: Domain::read(wire_selector, basic.w_bfs(), basic.w_psv(), wire)?,
            check_mask: basic.check_byte_mask(),
            copy_mask: if basic.sbs() { wire_or_copy } else { 0 },
        })
    }

    /// Whether blocks on the wire are those in memory, with signatures of the same length.
    pub(super) fn has_same_blocks(&self) -> bool {
        self.memory.zip(self.wire).is_some_and(|(memory, wire)| {
            memory.block_bytes == wire.block_bytes && memory.signature_bytes() == wire.signature_bytes()
        })
    }

    /// The signature that goes out for one that came in: some bytes are copied, the others made.
    pub(super) fn pass(
        &self,
        came: [u8; MAX_SIGNATURE_BYTES],
        made: [u8; MAX_SIGNATURE_BYTES],
    ) -> [u8; MAX_SIGNATURE_BYTES] {
        core::array::from_fn(|n| if self.copy_mask & 0x80 >> n == 0 { made[n] } else { came[n] })
    }

    /// What is wrong with the signature of a block of a side.
    pub(super) fn check(
        &self,
        side: SigErrDomain,
        block: u64,
        found: [u8; MAX_SIGNATURE_BYTES],
        made: [u8; MAX_SIGNATURE_BYTES],
    ) -> Option<SignatureError> {
        let domain = if side == SigErrDomain::WIRE { self.wire } else { self.memory }?;
        let syndrome = domain.differs(self.check_mask, found, made)?;
        let (expected, actual) = (domain.value(found), domain.value(made));
        Some(SignatureError { syndrome, domain: side, expected, actual, offset: domain.signature_at(block) })
    }
}
