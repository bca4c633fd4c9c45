//! The data segment: one piece of local memory, of a send WQE or of a receive WQE's scatter list.

use crate::mlx5::{ids::Lkey, layout::layout};

layout! {
    /// Data segment (rdma-core `mlx5_wqe_data_seg`).
    pub struct DataSeg, 16, "wqe_data_seg" {
        /// 0 here; 1 makes it an inline segment.
        0x00 [31:31] inline: bool,
        /// Length in bytes; 0 stands for 2³¹.
        0x00 [30:0] byte_count: u32,
        /// Key of the memory region.
        0x04 [31:0] lkey: Lkey,
        /// Address in the region.
        0x08 [63:0] addr: u64,
    }
}

impl DataSeg {
    /// Longest piece that one segment can name, in bytes; written as `byte_count` 0.
    pub const MAX_LEN_BYTES: u32 = 1 << 31;

    /// Ends a scatter list that is shorter than its receive WQE.
    #[inline(always)]
    pub fn terminator() -> Self {
        Self::new().with_lkey(Lkey::INVALID)
    }

    /// Whether this ends a scatter list.
    pub fn is_terminator(&self) -> bool {
        *self == Self::terminator()
    }

    /// The length that `byte_count` stands for, in bytes.
    pub fn len_bytes(&self) -> u32 {
        match self.byte_count() {
            0 => Self::MAX_LEN_BYTES,
            n => n,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminator_names_the_key_of_nothing_and_nothing_else() {
        assert_eq!(DataSeg::terminator().to_bytes(), [0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert!(DataSeg::terminator().is_terminator() && !DataSeg::new().is_terminator());
        assert!(!DataSeg::terminator().with_byte_count(1).is_terminator());
        assert_eq!([0, 1].map(|n| DataSeg::new().with_byte_count(n).len_bytes()), [1 << 31, 1]);
    }
}
