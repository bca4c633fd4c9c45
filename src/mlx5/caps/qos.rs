//! Shares and rates of what is sent.

use crate::mlx5::layout::layout;

layout! {
    /// Capabilities of packet pacing and of scheduling trees.
    pub struct QosCap, 256, "qos_cap" {
        /// SET_PP_RATE_LIMIT makes rates that send queues name.
        0x00 [31:31] packet_pacing: bool,
        0x00 [30:30] esw_scheduling: bool,
        0x00 [29:29] esw_bw_share: bool,
        0x00 [28:28] esw_rate_limit: bool,
        /// A rate may bound the burst.
        0x00 [26:26] packet_pacing_burst_bound: bool,
        /// A rate may say how long packets are.
        0x00 [25:25] packet_pacing_typical_size: bool,
        0x00 [24:24] flow_meter_old: bool,
        0x00 [23:23] nic_sq_scheduling: bool,
        0x00 [22:22] nic_bw_share: bool,
        0x00 [21:21] nic_rate_limit: bool,
        /// Rates belong to a user process, or to all.
        0x00 [20:20] packet_pacing_uid: bool,
        0x00 [19:16] log_esw_max_sched_depth: u8,
        0x00 [15:8] log_max_flow_meter: u8,
        0x00 [7:0] flow_meter_reg_id: u8,
        0x04 [31:31] wqe_rate_pp: bool,
        0x04 [30:30] nic_qp_scheduling: bool,
        0x04 [23:23] flow_meter: bool,
        0x04 [20:16] log_max_qos_nic_queue_group: u8,
        /// Greatest rate in kbit/s.
        0x08 [31:0] packet_pacing_max_rate: u32,
        /// Smallest rate in kbit/s.
        0x0c [31:0] packet_pacing_min_rate: u32,
        /// Rates, with number 0, which is no limit.
        0x10 [15:0] packet_pacing_rate_table_size: u16,
        0x14 [31:16] esw_element_type: u16,
        0x14 [15:0] esw_tsar_type: u16,
        0x18 [15:0] max_qos_para_vport: u16,
        0x1c [31:0] max_tsar_bw_share: u32,
        0x20 [31:16] nic_element_type: u16,
        0x20 [15:0] nic_tsar_type: u16,
        0x24 [28:24] log_meter_aso_granularity: u8,
        0x24 [20:16] log_meter_aso_max_alloc: u8,
        0x24 [12:8] log_max_num_meter_aso: u8,
    }
}
