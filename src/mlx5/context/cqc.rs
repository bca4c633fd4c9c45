//! The completion queue context.

use crate::mlx5::{
    ids::{Eqn, UarIndex},
    layout::{layout, wire_enum},
};

layout! {
    /// Completion queue context (PRM `cqc`).
    pub struct Cqc, 64, "cqc" {
        0x00 [31:28] status: CqStatus,
        /// Completions notify a thread (accelerator).
        0x00 [27:27] as_notify: bool,
        0x00 [26:26] initiator_src_dct: bool,
        /// The doorbell record is in a umem (DevX).
        0x00 [25:25] dbr_umem_valid: bool,
        /// CQEs go on to another engine.
        0x00 [24:24] ext_element: bool,
        /// Stride; with 128 bytes the CQE is the second half.
        0x00 [23:21] cqe_sz: CqeSize,
        /// Collapsed: every CQE lands in slot 0.
        0x00 [20:20] cc: bool,
        /// A solicited CQE ends moderation.
        0x00 [18:18] scqe_break_moderation_en: bool,
        /// Overruns are ignored.
        0x00 [17:17] oi: bool,
        0x00 [16:15] cq_period_mode: CqPeriodMode,
        /// CQEs may be compressed.
        0x00 [14:14] cqe_comp_en: bool,
        0x00 [13:12] mini_cqe_res_format: MiniCqeFormat,
        /// Armed, fired.
        0x00 [11:8] st: CqState,
        /// Every CQE makes an event.
        0x00 [7:7] always_armed_cq: bool,
        0x00 [6:4] ext_element_type: u8,
        0x00 [1:0] cqe_comp_layout: u8,
        0x04 [31:0] dbr_umem_id: u32,
        /// First CQE's offset in the first page, in 64ths of the page.
        0x08 [11:6] page_offset: u8,
        0x08 [3:2] mini_cqe_res_format_ext: u8,
        /// 0 free-running, 1 default, 2 real time.
        0x08 [1:0] cq_timestamp_format: u8,
        /// log2 of the slots.
        0x0c [28:24] log_cq_size: u8,
        /// The page whose CQ doorbell arms this CQ.
        0x0c [23:0] uar_page: UarIndex,
        /// Moderation: longest wait for an event, µs.
        0x10 [27:16] cq_period: u16,
        /// Moderation: CQEs per event.
        0x10 [15:0] cq_max_count: u16,
        /// EQ that gets the events.
        0x14 [7:0] c_eqn: Eqn,
        /// log2 of the pages of the list, less 12.
        0x18 [28:24] log_page_size: u8,
        /// Consumer index when the last event was sent.
        0x20 [23:0] last_notified_index: u32,
        /// Index of the last solicited CQE.
        0x24 [23:0] last_solicit_index: u32,
        /// Consumer index that the device has read.
        0x28 [23:0] consumer_counter: u32,
        /// Index of the next CQE.
        0x2c [23:0] producer_counter: u32,
        0x30 [31:20] local_partition_id: u16,
        0x30 [19:0] process_id: u32,
        /// IOVA of the 8-byte doorbell record, [`DbrecCq`](crate::mlx5::record::DbrecCq).
        0x38 [63:0] dbr_addr: u64,
    }
}

wire_enum! {
    /// Health of a CQ (`cqc.status`).
    pub struct CqStatus(u8), "cq_status" {
        OK = 0,
        /// CQEs were lost; the CQ is dead.
        CQ_OVERFLOW = 9,
        CQ_WRITE_FAIL = 0xa,
    }

    /// Arming of a CQ (`cqc.st`).
    pub struct CqState(u8), "cq_state" {
        SOLICITED_NOTIFICATION_REQUEST_ARMED = 6,
        NOTIFICATION_REQUEST_ARMED = 9,
        FIRED = 0xa,
        ALWAYS_ARMED = 0xb,
    }

    /// Stride of a CQ (`cqc.cqe_sz`).
    pub struct CqeSize(u8), "cqe_size" {
        STRIDE_64 = 0,
        STRIDE_128 = 1,
        /// 64-byte CQEs in 128-byte slots.
        STRIDE_128_PAD = 2,
    }

    /// What mini CQEs of received messages have besides their length (`cqc.mini_cqe_res_format`).
    pub struct MiniCqeFormat(u8), "mini_cqe_res_format" {
        HASH = 0,
        CSUM = 1,
        FTAG_STRIDX = 2,
        CSUM_STRIDX = 3,
    }

    /// When the moderation timer starts (`cqc.cq_period_mode`).
    pub struct CqPeriodMode(u8), "cq_period_mode" {
        START_FROM_EQE = 0x00,
        START_FROM_CQE = 0x01,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mlx5::{ids::Eqn, layout::painted};

    #[test]
    fn golden_bytes() {
        let cqc = Cqc::from_bytes([0xa5; 64]);
        assert_eq!(cqc.with_cqe_sz(CqeSize::STRIDE_128).to_bytes(), painted(&[(1, &[0x25])]));
        assert_eq!(cqc.with_cc(true).with_oi(true).to_bytes(), painted(&[(1, &[0xb7])]));
        assert_eq!(cqc.with_st(CqState::FIRED).to_bytes(), painted(&[(2, &[0xaa])]));
        // page_offset straddles bytes 10 and 11.
        assert_eq!(cqc.with_page_offset(0b110_010).to_bytes(), painted(&[(10, &[0xac, 0xa5])]));
        assert_eq!(
            cqc.with_log_cq_size(10).with_uar_page(UarIndex::new(3)).to_bytes(),
            painted(&[(12, &[0xaa, 0, 0, 3])])
        );
        assert_eq!(cqc.with_c_eqn(Eqn::new(7)).to_bytes(), painted(&[(0x17, &[7])]));
        assert_eq!(cqc.with_dbr_addr(0x1000).dbr_addr(), 0x1000);
        assert_eq!(cqc.with_dbr_addr(0x1000).to_bytes(), painted(&[(0x38, &[0, 0, 0, 0, 0, 0, 0x10, 0])]));
    }
}
