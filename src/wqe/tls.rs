//! What mlx5e writes for TLS that the device does: parameters of a connection, which UMR and SET_PSV carry under an
//! `opmod` of their own.

use crate::mlx5::layout::layout;

layout! {
    /// Parameters that do not change (PRM `tls_static_params`): behind the key's context of a UMR with `ctrl.opmod` 1
    /// (sending) or 2 (receiving).
    pub struct TlsStaticParams, 64, "tls_static_params" {
        0x00 [31:30] const_2: u8,
        /// 2: TLS 1.2; 3: TLS 1.3.
        0x00 [29:26] tls_version: u8,
        0x00 [25:24] const_1: u8,
        0x00 [3:0] encryption_standard: u8,
        /// Number of the first record.
        0x08 [63:0] initial_record_number: u64,
        /// Where in the stream it was lost.
        0x10 [31:0] resync_tcp_sn: u32,
        /// Salt of the nonces.
        0x14 [31:0] gcm_iv: u32,
        0x18 [63:0] implicit_iv: u64,
        /// The data encryption key, an object of the device.
        0x20 [23:0] dek_index: u32,
    }

    /// Where a connection is (mlx5e `mlx5_wqe_tls_progress_params_seg`): of a SET_PSV with `ctrl.opmod` 1 or 2.
    pub struct TlsProgressSeg, 16, "wqe_tls_progress_params_seg" {
        /// The TIS or TIR.
        0x00 [31:0] tis_tir_num: u32,
        /// TCP sequence number of the next record.
        0x04 [31:0] next_record_tcp_sn: u32,
        0x08 [31:0] hw_resync_tcp_sn: u32,
        /// 0 start, 1 tracking, 2 searching.
        0x0c [31:30] record_tracker_state: u8,
        /// 0 no offload, 1 offload, 2 authentication.
        0x0c [29:28] auth_state: u8,
        0x0c [23:0] hw_offset_record_number: u32,
    }
}
