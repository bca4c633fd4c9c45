//! The event queue context.

use crate::mlx5::{
    ids::UarIndex,
    layout::{layout, wire_enum},
};

layout! {
    /// Event queue context (PRM `eqc`).
    pub struct Eqc, 64, "eqc" {
        0x00 [31:28] status: EqStatus,
        /// Collapsed: every EQE lands in slot 0.
        0x00 [18:18] ec: bool,
        /// Overruns are ignored.
        0x00 [17:17] oi: bool,
        0x00 [11:8] st: EqState,
        /// First EQE's offset in the first page, in 64ths of the page.
        0x08 [11:6] page_offset: u8,
        /// log2 of the slots.
        0x0c [28:24] log_eq_size: u8,
        /// The page whose EQ doorbells drive this EQ.
        0x0c [23:0] uar_page: UarIndex,
        /// MSI-X vector. 12 bits; older headers show 8.
        0x14 [11:0] intr: u16,
        /// log2 of the pages of the list, less 12.
        0x18 [28:24] log_page_size: u8,
        /// Consumer index that the device has been told.
        0x28 [23:0] consumer_counter: u32,
        /// Index of the next EQE.
        0x2c [23:0] producer_counter: u32,
    }
}

wire_enum! {
    /// Health of an EQ (`eqc.status`).
    pub struct EqStatus(u8), "eq_status" {
        OK = 0,
        EQ_WRITE_FAILURE = 0xa,
    }

    /// Arming of an EQ (`eqc.st`).
    pub struct EqState(u8), "eq_state" {
        ARMED = 9,
        FIRED = 0xa,
        ALWAYS_ARMED = 0xb,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mlx5::layout::painted;

    #[test]
    fn golden_bytes() {
        let eqc = Eqc::from_bytes([0xa5; 64]);
        assert_eq!(eqc.with_st(EqState::ARMED).to_bytes(), painted(&[(2, &[0xa9])]));
        assert_eq!(
            eqc.with_log_eq_size(8).with_uar_page(UarIndex::new(0x10)).to_bytes(),
            painted(&[(12, &[0xa8, 0, 0, 0x10])])
        );
        // Twelve bits of vector: the upper four are in byte 0x16.
        assert_eq!(eqc.with_intr(0x123).to_bytes(), painted(&[(0x16, &[0xa1, 0x23])]));
        assert_eq!(eqc.with_intr(0x123).intr(), 0x123);
    }
}
