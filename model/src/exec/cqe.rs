//! A CQE on its way to its queue, with what it carries.

use mlx5_direct::{
    cqe::{CQE_BYTES, CqeFormat, OP_OWN_OFFSET},
    mlx5::layout::Layout,
};
use zerocopy::IntoBytes;

/// Data that a CQE has room for within itself.
const ROOM_WITHIN_BYTES: usize = 32;

/// A CQE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cqe {
    /// Its 64 bytes; the owner bit is 0, and the host's to set.
    pub bytes: [u8; CQE_BYTES],
    /// Data that go into the first half of its slot, where slots have 128 bytes.
    pub before: Option<[u8; CQE_BYTES]>,
}

impl<T: Layout + IntoBytes + zerocopy::Immutable> From<T> for Cqe {
    fn from(layout: T) -> Self {
        let mut bytes = [0; CQE_BYTES];
        bytes.copy_from_slice(layout.as_bytes());
        Self { bytes, before: None }
    }
}

impl Cqe {
    /// Takes data along, by a queue pair that has `room_bytes` of its CQEs for them: the first 32 bytes, or the 64 before.
    pub(super) fn carrying(mut self, data: &[u8], room_bytes: usize) -> Self {
        let format = match room_bytes {
            _ if data.is_empty() => return self,
            ..=ROOM_WITHIN_BYTES => {
                self.bytes[..data.len()].copy_from_slice(data);
                CqeFormat::INLINE_DATA32_SEG
            }
            _ => {
                self.before.insert([0; CQE_BYTES])[..data.len()].copy_from_slice(data);
                CqeFormat::INLINE_DATA64_SEG
            }
        };
        self.bytes[OP_OWN_OFFSET] |= format.0 << 2;
        self
    }
}
