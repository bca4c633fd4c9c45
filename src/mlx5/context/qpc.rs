//! The QP context: everything that the device knows of a queue pair.

use super::ads::Ads;
use crate::mlx5::{
    ids::{Cqn, Pdn, Psn, Qpn, UarIndex, UserIndex},
    layout::{layout, wire_enum},
};

layout! {
    /// Queue pair context (PRM `qpc`), the body of CREATE_QP, of the transitions and of QUERY_QP.
    pub struct Qpc, 232, "qpc" {
        /// Only read: transitions are commands of their own.
        0x00 [31:28] state: QpState,
        0x00 [27:24] lag_tx_port_affinity: u8,
        /// Transport.
        0x00 [23:16] st: ServiceType,
        0x00 [13:13] isolate_vl_tc: bool,
        /// Path migration.
        0x00 [12:11] pm_state: PmState,
        0x00 [9:8] req_e2e_credit_mode: u8,
        /// Rendezvous offload of tag matching.
        0x00 [7:4] offload_type: u8,
        /// 1 pads received packets to a cache line.
        0x00 [3:2] end_padding_mode: u8,
        /// WQEs carry signatures.
        0x04 [31:31] wq_signature: bool,
        /// Own multicast is not looped back.
        0x04 [30:30] block_lb_mc: bool,
        0x04 [29:29] atomic_like_write_en: bool,
        /// Scheduled before others.
        0x04 [28:28] latency_sensitive: bool,
        /// Signature errors drain the queue.
        0x04 [26:26] drain_sigerr: bool,
        0x04 [23:0] pd: Pdn,
        0x08 [31:29] mtu: Mtu,
        /// log2 of the longest message in bytes; 30 for 1 GiB.
        0x08 [28:24] log_msg_max: u8,
        /// log2 of the RQ's WQEs.
        0x08 [22:19] log_rq_size: u8,
        /// log2 of the RQ's stride, less 4 (16-byte units).
        0x08 [18:16] log_rq_stride: u8,
        /// The QP has no send queue.
        0x08 [15:15] no_sq: bool,
        /// log2 of the SQ's WQEBBs (64 bytes).
        0x08 [14:11] log_sq_size: u8,
        /// Time stamps of CQEs: 0 free-running, 1 default, 2 real time.
        0x08 [7:6] ts_format: u8,
        /// Asks that payload reaches memory in order.
        0x08 [5:5] data_in_order: bool,
        /// The QP may use the reserved lkey.
        0x08 [4:4] rlky: bool,
        0x08 [3:0] ulp_stateless_offload_mode: u8,
        /// Q counter that counts this QP.
        0x0c [31:24] counter_set_id: u8,
        0x0c [23:0] uar_page: UarIndex,
        /// Comes back in CQEs under `cqe_version` 1.
        0x10 [23:0] user_index: UserIndex,
        /// log2 of the pages of the list, less 12.
        0x14 [28:24] log_page_size: u8,
        0x14 [23:0] remote_qpn: Qpn,
        0x18 [struct] primary_address_path: Ads,
        /// Alternate path, for path migration.
        0x44 [struct] secondary_address_path: Ads,
        /// log2 of the packets between two ack requests.
        0x70 [31:28] log_ack_req_freq: u8,
        /// log2 of the RDMA reads and atomics in flight as a requester.
        0x70 [23:21] log_sra_max: u8,
        /// Retransmissions before the QP fails; 7 is the most.
        0x70 [18:16] retry_count: u8,
        /// Retries after RNR NAK; 7 is without end.
        0x70 [15:13] rnr_retry: u8,
        /// Fast registration through the reserved lkey.
        0x70 [11:11] fre: bool,
        0x70 [10:8] cur_rnr_retry: u8,
        0x70 [7:5] cur_retry_count: u8,
        /// PSN of the next request.
        0x78 [23:0] next_send_psn: Psn,
        0x7c [28:24] log_num_dci_stream_channels: u8,
        0x7c [23:0] cqn_snd: Cqn,
        0x80 [28:24] log_num_dci_errored_streams: u8,
        /// UD: source QPN in the DETH of packets sent.
        0x80 [23:0] deth_sqpn: Qpn,
        0x88 [23:0] last_acked_psn: Psn,
        /// Send sequence number.
        0x8c [23:0] ssn: u32,
        /// log2 of the RDMA reads and atomics accepted as a responder.
        0x90 [23:21] log_rra_max: u8,
        0x90 [19:16] atomic_mode: AtomicMode,
        /// Remote reads are allowed.
        0x90 [15:15] rre: bool,
        /// Remote writes are allowed.
        0x90 [14:14] rwe: bool,
        /// Remote atomics are allowed.
        0x90 [13:13] rae: bool,
        /// First WQE's offset in the first page, in 64ths of the page.
        0x90 [11:6] page_offset: u8,
        0x90 [2:2] cd_slave_receive: bool,
        0x90 [1:1] cd_slave_send: bool,
        0x90 [0:0] cd_master: bool,
        /// Code of the RNR timer that the responder asks for.
        0x94 [28:24] min_rnr_nak: u8,
        /// PSN expected from the peer.
        0x94 [23:0] next_rcv_psn: Psn,
        0x98 [23:0] xrcd: u32,
        0x9c [23:0] cqn_rcv: Cqn,
        /// IOVA of the 8-byte doorbell record, [`DbrecQp`](crate::mlx5::record::DbrecQp).
        0xa0 [63:0] dbr_addr: u64,
        /// UD only.
        0xa8 [31:0] q_key: u32,
        0xac [26:24] rq_type: RqType,
        /// Shared receive queue, when [`rq_type`](Self::rq_type) says so.
        0xac [23:0] srqn_rmpn_xrqn: u32,
        /// MSN of the responder.
        0xb0 [23:0] rmsn: u32,
        /// SQ counter that the device has executed to.
        0xb4 [31:16] hw_sq_wqebb_counter: u16,
        /// SQ counter that the device has read from the doorbell record.
        0xb4 [15:0] sw_sq_wqebb_counter: u16,
        /// Like the SQ's, of the RQ.
        0xb8 [31:0] hw_rq_counter: u32,
        /// Like the SQ's, of the RQ.
        0xbc [31:0] sw_rq_counter: u32,
        0xc4 [16:16] cgs: bool,
        /// Small read responses land in the CQE.
        0xc4 [15:8] cs_req: ScatterToCqe,
        /// Small received messages land in the CQE.
        0xc4 [7:0] cs_res: ScatterToCqe,
        0xc8 [63:0] dc_access_key: u64,
        /// The doorbell record is in a umem (DevX).
        0xd0 [28:28] dbr_umem_valid: bool,
        0xe4 [31:0] dbr_umem_id: u32,
    }
}

wire_enum! {
    /// State of a QP, as QUERY_QP reports it.
    pub struct QpState(u8), "qp_state" {
        RST = 0x00,
        INIT = 0x01,
        RTR = 0x02,
        RTS = 0x03,
        SQER = 0x04,
        SQD = 0x05,
        ERR = 0x06,
        SQ_DRAINING = 0x07,
        SUSPENDED = 0x09,
    }

    /// Transport of a QP (`qpc.st`).
    pub struct ServiceType(u8), "qp_service_type" {
        RC = 0x00,
        UC = 0x01,
        UD = 0x02,
        XRC = 0x03,
        MLX = 0x04,
        DCI = 0x05,
        DCT = 0x06,
        QP0 = 0x07,
        QP1 = 0x08,
        RAW_ETHERTYPE = 0x09,
        RAW_IPV6 = 0x0a,
        SNIFFER = 0x0b,
        REG_UMR = 0x0c,
        PTP_1588 = 0x0d,
        SYNC_UMR = 0x0e,
    }

    /// Path migration state (`qpc.pm_state`).
    pub struct PmState(u8), "qp_pm_state" {
        ARMED = 0,
        REARM = 1,
        /// What a QP without an alternate path has.
        MIGRATED = 3,
    }

    /// Path MTU (`qpc.mtu`), the IBTA code.
    pub struct Mtu(u8), "qp_mtu" {
        MTU_256 = 1,
        MTU_512 = 2,
        MTU_1024 = 3,
        MTU_2048 = 4,
        MTU_4096 = 5,
        /// Raw Ethernet QPs: the port's MTU rules.
        RAW_ETHERNET_QP = 7,
    }

    /// Where a QP receives (`qpc.rq_type`).
    pub struct RqType(u8), "qp_rq_type" {
        NON_ZERO_RQ = 0x00,
        SRQ_RQ = 0x01,
        CRQ_RQ = 0x02,
        ZERO_LEN_RQ = 0x03,
    }

    /// Widest atomic that the QP answers (`qpc.atomic_mode`).
    pub struct AtomicMode(u8), "qpc_atomic_mode" {
        /// As the InfiniBand specification: 8 bytes.
        IB_SPEC = 1,
        ONLY_8B = 2,
        UP_TO_8B = 3,
        UP_TO_16B = 4,
        UP_TO_32B = 5,
        UP_TO_64B = 6,
        UP_TO_128B = 7,
        UP_TO_256B = 8,
    }

    /// Payload in the CQE (`qpc.cs_req`, `qpc.cs_res`); requester and responder have codes of their own.
    pub struct ScatterToCqe(u8), "qpc_cs_scatter_to_cqe" {
        REQ_DISABLE = 0,
        RES_UP_TO_32B = 1,
        RES_UP_TO_64B = 2,
        REQ_UP_TO_32B = 0x11,
        REQ_UP_TO_64B = 0x22,
    }
}

impl Mtu {
    /// Payload bytes of a full packet; `None` for a code that names no size.
    pub fn bytes(self) -> Option<u32> {
        (1..=5).contains(&self.0).then(|| 128 << self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mlx5::layout::painted;

    #[test]
    fn golden_bytes() {
        let qpc = Qpc::from_bytes([0xa5; 232]);
        assert_eq!(qpc.with_state(QpState::RTS).to_bytes(), painted(&[(0, &[0x35])]));
        assert_eq!(qpc.with_st(ServiceType::UD).to_bytes(), painted(&[(1, &[2])]));
        assert_eq!(qpc.with_pm_state(PmState::MIGRATED).to_bytes(), painted(&[(2, &[0xbd])]));
        assert_eq!(qpc.with_pd(Pdn::new(0x12_3456)).to_bytes(), painted(&[(5, &[0x12, 0x34, 0x56])]));
        // mtu 011, log_msg_max 11110.
        assert_eq!(qpc.with_mtu(Mtu::MTU_1024).with_log_msg_max(30).to_bytes(), painted(&[(8, &[0x7e])]));
        // Reserved 1, log_rq_size 0110, log_rq_stride 010; no_sq 0, log_sq_size 0111, reserved 101.
        let sizes = qpc.with_log_rq_size(6).with_log_rq_stride(2).with_no_sq(false).with_log_sq_size(7);
        assert_eq!(sizes.to_bytes(), painted(&[(9, &[0xb2, 0x3d])]));
        assert_eq!(
            qpc.with_remote_qpn(Qpn::new(0xab_cdef)).to_bytes(),
            painted(&[(21, &[0xab, 0xcd, 0xef])])
        );
        assert_eq!(qpc.with_next_send_psn(Psn::new(1)).to_bytes(), painted(&[(0x79, &[0, 0, 1])]));
        assert_eq!(qpc.with_rre(false).with_rae(false).to_bytes(), painted(&[(0x92, &[0x05])]));
        assert_eq!(qpc.with_min_rnr_nak(12).to_bytes(), painted(&[(0x94, &[0xac])]));
        assert_eq!(
            qpc.with_dbr_addr(0x0102_0304_0506_0708).to_bytes(),
            painted(&[(0xa0, &[1, 2, 3, 4, 5, 6, 7, 8])])
        );
        assert_eq!(qpc.with_rq_type(RqType::ZERO_LEN_RQ).to_bytes(), painted(&[(0xac, &[0xa3])]));
        let path = Ads::new().with_hop_limit(64);
        assert_eq!(qpc.with_primary_address_path(path).to_bytes()[0x18..0x44], path.to_bytes());
    }

    #[test]
    fn getters_read_the_same_bits() {
        let mut bytes = [0; 232];
        bytes[..4].copy_from_slice(&[0x30, 0x00, 0x18, 0x00]);
        bytes[8..12].copy_from_slice(&[0xbe, 0x32, 0x08, 0x00]);
        let qpc = Qpc::from_bytes(bytes);
        assert_eq!(
            (qpc.state(), qpc.st(), qpc.pm_state()),
            (QpState::RTS, ServiceType::RC, PmState::MIGRATED)
        );
        assert_eq!((qpc.mtu(), qpc.mtu().bytes(), qpc.log_msg_max()), (Mtu::MTU_4096, Some(4096), 30));
        assert_eq!((qpc.log_rq_size(), qpc.log_rq_stride(), qpc.log_sq_size()), (6, 2, 1));
        assert_eq!(Mtu::RAW_ETHERNET_QP.bytes(), None);
    }
}
