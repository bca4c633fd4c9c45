//! Segments by which queues wait for each other: WAIT and SEND_EN.

use crate::mlx5::{
    ids::{Cqn, Qpn},
    layout::{layout, wire_enum},
};

layout! {
    /// Of a WAIT with `ctrl.opmod` 0: until a completion queue has got so far (DPDK `mlx5_wqe_cseg` and `mlx5_wqe_qseg`).
    pub struct WaitCqSeg, 16, "wqe_wait_cq_seg" {
        /// Producer index that the completion queue must have reached.
        0x08 [31:0] max_index: u32,
        /// The completion queue.
        0x0c [23:0] cqn: Cqn,
    }

    /// Of a SEND_EN: another send queue may go on.
    pub struct SendEnSeg, 16, "wqe_send_en_seg" {
        /// Producer counter up to which it may.
        0x08 [31:0] sqnpc: u32,
        /// The queue.
        0x0c [23:0] qpn: Qpn,
    }

    /// Of a WAIT with `ctrl.opmod` 1 or 2: until 8 bytes of memory, or the clock, satisfy a condition (DPDK `mlx5_wqe_wseg`).
    pub struct WaitTimeSeg, 32, "wqe_wait_time_seg" {
        /// The condition is negated.
        0x00 [4:4] invert: bool,
        /// How the value is compared.
        0x00 [3:0] cond: WaitCondition,
        /// Key of the memory; none for the clock.
        0x04 [31:0] lkey: u32,
        /// Address of the 8 bytes, the upper half.
        0x08 [31:0] va_high: u32,
        /// Address of the 8 bytes, the lower half without its three lowest bits.
        0x0c [31:3] va_31_3: u32,
        /// What happens when the wait fails.
        0x0c [2:0] fail_action: u8,
        /// What it is compared with.
        0x10 [63:0] value: u64,
        /// Bits that are compared.
        0x18 [63:0] mask: u64,
    }
}

wire_enum! {
    /// `wait.cond`: what ends a wait.
    pub struct WaitCondition(u8), "wait_cond" {
        ALWAYS_TRUE = 0,
        EQUAL = 1,
        BIGGER = 2,
        SMALLER = 3,
        /// Bigger, modulo the counter's width: for clocks that run over.
        CYCLIC_BIGGER = 4,
        CYCLIC_SMALLER = 5,
    }
}

impl WaitTimeSeg {
    /// Address of the 8 bytes.
    pub fn addr(&self) -> u64 {
        u64::from(self.va_high()) << 32 | u64::from(self.va_31_3()) << 3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_of_8_bytes_alignment() {
        let wait = WaitTimeSeg::new().with_va_high(0x1234_5678).with_va_31_3(0x9abc_def0 >> 3);
        assert_eq!(wait.with_fail_action(7).addr(), 0x1234_5678_9abc_def0);
    }
}
