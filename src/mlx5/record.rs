//! Doorbell records: 8 bytes of host memory in which software publishes its counters.

use crate::mlx5::layout::layout;

layout! {
    /// Doorbell record of a QP (`qpc.dbr_addr`).
    pub struct DbrecQp, 8, "dbrec_qp" {
        /// WQEs posted to the RQ, free-running.
        0x00 [15:0] rq_wqe_counter: u16,
        /// WQEBBs posted to the SQ, free-running; written before the doorbell is rung.
        0x04 [15:0] sq_wqebb_counter: u16,
    }

    /// Doorbell record of an RQ, RMP or SRQ object (`wq.dbr_addr`).
    pub struct DbrecRq, 8, "dbrec_rq" {
        /// WQEs posted, free-running.
        0x00 [15:0] wqe_counter: u16,
    }

    /// Doorbell record of an SQ object: only the second word counts.
    pub struct DbrecSq, 8, "dbrec_sq" {
        /// WQEBBs posted, free-running.
        0x04 [15:0] wqebb_counter: u16,
    }

    /// Doorbell record of a CQ (`cqc.dbr_addr`).
    pub struct DbrecCq, 8, "dbrec_cq" {
        /// CQEs consumed, free-running, 24 bits. The device compares it to find overruns.
        0x00 [23:0] consumer_index: u32,
        /// Written before the CQ doorbell is rung.
        0x04 [struct] arm: CqArm,
    }

    /// The word that arms a CQ, in the record and in the doorbell.
    pub struct CqArm, 4, "dbrec_cq.arm" {
        /// Counts the events received; the device ignores an arm with a stale number.
        0x00 [29:28] cmd_sn: u8,
        /// Only a solicited or failed completion makes an event.
        0x00 [24:24] cmd: bool,
        /// CQEs consumed at this time, 24 bits.
        0x00 [23:0] consumer_index: u32,
    }
}

/// Byte of [`DbrecQp`] where the RQ's word is (`MLX5_RCV_DBR`).
pub const RCV_DBR: usize = 0;
/// Byte of [`DbrecQp`] where the SQ's word is (`MLX5_SND_DBR`).
pub const SND_DBR: usize = 4;
/// Byte of [`DbrecCq`] where the consumer index is (`MLX5_CQ_SET_CI`).
pub const CQ_SET_CI: usize = 0;
/// Byte of [`DbrecCq`] where the arm word is (`MLX5_CQ_ARM_DB`).
pub const CQ_ARM_DB: usize = 4;
