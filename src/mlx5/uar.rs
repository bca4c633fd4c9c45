//! A UAR page: 4 KiB of BAR0 through which doorbells are rung.

use crate::mlx5::{
    ids::{Cqn, Eqn},
    layout::layout,
    record::CqArm,
};

/// Bytes of a UAR page.
pub const PAGE_BYTES: usize = 4096;
/// Where [`CqDoorbell`] is written, as one qword.
pub const CQ_DOORBELL: usize = 0x20;
/// Where [`EqDoorbell`] is written to move the consumer index and arm.
pub const EQ_DOORBELL_ARM: usize = 0x40;
/// Where [`EqDoorbell`] is written to move the consumer index only.
pub const EQ_DOORBELL_NOARM: usize = 0x48;
/// First BlueFlame register; register k is at `BF_OFFSET + (k << log_bf_reg_size)`.
///
/// A register is two buffers that are written in turn. The doorbell is the first qword of the buffer.
pub const BF_OFFSET: usize = 0x800;
/// BlueFlame registers of a page.
pub const BFREGS_PER_UAR: usize = 4;
/// Of these, the first two; the others are for "fast path" use, one owner each.
pub const NON_FP_BFREGS_PER_UAR: usize = 2;

layout! {
    /// CQ doorbell: arms the queue.
    pub struct CqDoorbell, 8, "uar_page.cq_doorbell" {
        /// Same word as in the doorbell record, which is written first.
        0x00 [struct] arm: CqArm,
        0x04 [23:0] cqn: Cqn,
    }

    /// EQ doorbell: tells the consumer index; [`EQ_DOORBELL_ARM`] arms too.
    pub struct EqDoorbell, 4, "uar_page.eq_doorbell_arm" {
        0x00 [31:24] eqn: Eqn,
        /// Free-running, 24 bits.
        0x00 [23:0] consumer_index: u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doorbells_are_the_words_of_the_notes() {
        let arm = CqArm::new().with_cmd_sn(3).with_cmd(true).with_consumer_index(0xab_cdef);
        let doorbell = CqDoorbell::new().with_arm(arm).with_cqn(Cqn::new(0x12_3456));
        assert_eq!(u64::from_be_bytes(doorbell.to_bytes()), 0x31ab_cdef_0012_3456);
        let eq = EqDoorbell::new().with_eqn(Eqn::new(0x7f)).with_consumer_index(0x100_0001);
        assert_eq!(u32::from_be_bytes(eq.to_bytes()), 0x7f00_0001);
    }
}
