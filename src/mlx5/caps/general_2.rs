//! The second general capability group.

use crate::mlx5::layout::layout;

layout! {
    /// More general capabilities (PRM `cmd_hca_cap_2`, group 0x20).
    pub struct CmdHcaCap2, 256, "cmd_hca_cap_2" {
        0x10 [28:24] max_num_prog_sample_field: u8,
        0x10 [20:16] log_max_num_reserved_qpn: u8,
        0x10 [12:8] log_reserved_qpn_granularity: u8,
        0x10 [4:0] log_reserved_qpn_max_alloc: u8,
        0x14 [31:24] max_reformat_insert_size: u8,
        0x14 [23:16] max_reformat_insert_offset: u8,
        0x14 [15:8] max_reformat_remove_size: u8,
        0x14 [7:0] max_reformat_remove_offset: u8,
        0x18 [28:24] log_min_stride_wqe_sz: u8,
        0x18 [20:16] log_conn_track_granularity: u8,
        0x18 [12:8] log_conn_track_max_alloc: u8,
        0x18 [4:0] log_max_conn_track_offload: u8,
        0x1c [31:0] cross_vhca_object_to_object_supported: u32,
        0x20 [31:0] allowed_object_for_other_vhca_access_high: u32,
        0x24 [31:0] allowed_object_for_other_vhca_access: u32,
        0x2c [28:24] hairpin_sq_wqe_bb_size: u8,
        0x2c [23:23] hairpin_sq_wq_in_host_mem: bool,
        0x2c [22:22] hairpin_data_buffer_locked: bool,
        0x34 [21:21] format_select_dw_8_6_ext: bool,
        0x34 [20:16] log_min_mkey_entity_size: u8,
        0x38 [63:0] general_obj_types_127_64: u64,
        0x44 [30:30] sw_vhca_id_valid: bool,
        0x44 [29:16] sw_vhca_id: u16,
        0x48 [20:16] ts_cqe_metadata_size2wqe_counter: u8,
        0x48 [12:8] flow_counter_bulk_log_max_alloc: u8,
        0x48 [4:0] flow_counter_bulk_log_granularity: u8,
        0x50 [31:24] format_select_dw_gtpu_dw_0: u8,
        0x50 [23:16] format_select_dw_gtpu_dw_1: u8,
        0x50 [15:8] format_select_dw_gtpu_dw_2: u8,
        0x50 [7:0] format_select_dw_gtpu_first_ext_dw_0: u8,
        0x54 [31:0] generate_wqe_type: u32,
        0x84 [7:4] encap_entropy_hash_type: u8,
        0x84 [3:0] flow_table_hash_type: u8,
    }
}
