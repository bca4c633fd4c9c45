//! A work queue: where the ring of an SQ, RQ or RMP lies.

use crate::mlx5::{
    ids::{Pdn, UarIndex},
    layout::{layout, wire_enum},
};

layout! {
    /// Work queue (PRM `wq`); its page list follows the context that holds it.
    pub struct Wq, 192, "wq" {
        0x00 [31:28] wq_type: WqType,
        0x00 [27:27] wq_signature: bool,
        0x00 [26:25] end_padding_mode: u8,
        0x00 [24:24] cd_slave: bool,
        0x04 [31:31] hds_skip_first_sge: bool,
        0x04 [30:28] log2_hds_buf_size: u8,
        /// First WQE's offset in the first page, in 64ths of the page.
        0x04 [20:16] page_offset: u8,
        /// Limit: an event when fewer WQEs are left.
        0x04 [15:0] lwm: u16,
        0x08 [23:0] pd: Pdn,
        /// The page whose registers ring this queue.
        0x0c [23:0] uar_page: UarIndex,
        /// IOVA of the 8-byte doorbell record.
        0x10 [63:0] dbr_addr: u64,
        /// Only read: what the device has executed to.
        0x18 [31:0] hw_counter: u32,
        /// Only read: what the device has read from the doorbell record.
        0x1c [31:0] sw_counter: u32,
        /// log2 of the stride in bytes.
        0x20 [19:16] log_wq_stride: u8,
        /// log2 of the pages of the list, less 12.
        0x20 [12:8] log_wq_pg_sz: u8,
        /// log2 of the strides.
        0x20 [4:0] log_wq_sz: u8,
        0x24 [31:31] dbr_umem_valid: bool,
        0x24 [30:30] wq_umem_valid: bool,
        0x24 [28:24] log_hairpin_num_packets: u8,
        0x24 [20:16] log_hairpin_data_sz: u8,
        /// log2 of the strides of a WQE, less 9, signed.
        0x24 [11:8] log_wqe_num_of_strides: u8,
        /// Two bytes before the frame, to align its layer 3.
        0x24 [7:7] two_byte_shift_en: bool,
        /// log2 of the bytes of a stride, less 6.
        0x24 [2:0] log_wqe_stride_size: u8,
        0x28 [31:0] dbr_umem_id: u32,
        0x2c [31:0] wq_umem_id: u32,
        0x30 [63:0] wq_umem_offset: u64,
        0x38 [31:0] headers_mkey: u32,
        0x3c [31:31] shampo_enable: bool,
        0x3c [26:24] log_reservation_size: u8,
        0x3c [18:16] log_max_num_of_packets_per_reservation: u8,
        0x3c [9:8] log_headers_entry_size: u8,
        0x3c [3:0] log_headers_buffer_entry_num: u8,
    }
}

wire_enum! {
    /// Shape of a work queue (`wq.wq_type`).
    pub struct WqType(u8), "wq" {
        TYPE_LINKED_LIST = 0,
        TYPE_CYCLIC = 1,
        TYPE_LINKED_LIST_STRIDING_RQ = 2,
        TYPE_CYCLIC_STRIDING_RQ = 3,
    }
}
