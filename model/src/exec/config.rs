//! What a queue pair is told about itself: the part of the QPC that its transport uses, decoded.

use crate::wire::Transport;
use mlx5_direct::mlx5::ids::{Cqn, Pdn, Psn, Qpn, UserIndex};

/// States of a QP (`qpc.state`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum QpState {
    /// Reset.
    #[default]
    Rst = 0,
    /// Initialised: receives may be posted.
    Init = 1,
    /// Ready to receive.
    Rtr = 2,
    /// Ready to send.
    Rts = 3,
    /// Send queue error: UC and UD alone.
    Sqer = 4,
    /// Send queue drained or draining: no new send WQE is started.
    Sqd = 5,
    /// Error: everything is flushed.
    Err = 6,
}

/// What a queue pair executes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Service {
    /// RC.
    #[default]
    Connected,
    /// UC.
    Unacknowledged,
    /// XRC: an initiator, or a target.
    Extended,
    /// UD, QP0 and QP1.
    Datagram,
    /// DC, an initiator or a target.
    Dynamic,
    /// No transport: the queue pair that registers memory for the kernel, by UMRs.
    Registration,
}

impl Service {
    /// The transport of its packets.
    pub const fn transport(self) -> Transport {
        match self {
            Self::Connected => Transport::Rc,
            Self::Unacknowledged => Transport::Uc,
            Self::Extended => Transport::Xrc,
            Self::Dynamic => Transport::Dc,
            Self::Datagram | Self::Registration => Transport::Ud,
        }
    }

    /// Whether its requests are acknowledged.
    pub const fn is_acknowledged(self) -> bool {
        matches!(self, Self::Connected | Self::Extended | Self::Dynamic)
    }
}

/// A shared receive queue, as a QP that receives from it sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedQueue {
    /// SRQ or RMP number.
    pub number: u32,
    /// Protection domain of its WQEs; for XRC of remote access too.
    pub pd: Pdn,
    /// Where receives complete: the QP's receive CQ, or of XRC and an XRQ the queue's own.
    pub cqn: Cqn,
    /// `srqn_or_user_index` of those CQEs.
    pub user_index: UserIndex,
    /// It is an XRQ: messages to it begin with a header, whose tag says where they go.
    pub tag_matching: bool,
}

/// Streams of a DC initiator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DcStreams {
    /// `log_num_dci_stream_channels`: log2 of the channels that execute them.
    pub log_channels: u8,
    /// `log_num_dci_errored_streams`: log2 of the streams in error at which the queue pair is.
    pub log_errored: u8,
}

/// The way to the peer (`ads`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Path {
    /// `src_addr_index`: index into the RoCE address table.
    pub gid_index: u8,
    /// `rmac_47_32`, `rmac_31_0`. RoCE only.
    pub dest_mac: [u8; 6],
    /// `rlid`. InfiniBand only.
    pub dest_lid: u16,
    /// `sl`. InfiniBand only.
    pub sl: u8,
    /// `grh`: packets carry a GRH. RoCE always has its network header.
    pub grh: bool,
    /// `rgid_rip`.
    pub dest_gid: [u8; 16],
    /// `udp_sport`; 0 is replaced by one computed from the two QPNs.
    pub udp_source_port: u16,
    /// `tclass`.
    pub traffic_class: u8,
    /// `hop_limit`; 0 is sent as 64.
    pub hop_limit: u8,
    /// `flow_label`, 20 bits.
    pub flow_label: u32,
    /// `eth_prio`, 3 bits: priority in the VLAN tag.
    pub eth_prio: u8,
    /// `ack_timeout`: 4.096 µs · 2^n, 0 = wait for ever.
    pub ack_timeout: u8,
}

/// Attributes of a QP. The host fills in those that the QPC has in the state at hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QpConfig {
    /// `st`.
    pub service: Service,
    /// Own number.
    pub qpn: Qpn,
    /// Datagrams: `q_key`.
    pub qkey: u32,
    /// Datagrams: the number that they carry as their source's, `deth_sqpn` or the own one.
    pub source_qpn: Qpn,
    /// InfiniBand: virtual lane of its packets; 15 for QP0, else 0.
    pub vl: u8,
    /// `pd`.
    pub pd: Pdn,
    /// `user_index`, given back in CQEs.
    pub user_index: UserIndex,
    /// `cqn_snd`.
    pub cqn_send: Cqn,
    /// `cqn_rcv`.
    pub cqn_receive: Cqn,
    /// `cs_req`: what comes back and is not longer than this goes into the CQE instead of memory; 0, 32 or 64.
    pub cs_req_bytes: usize,
    /// `cs_res`: the same of messages received.
    pub cs_res_bytes: usize,
    /// Send ring size in WQEBBs, a power of two; 0 = none (`no_sq`).
    pub n_send_wqebbs: u32,
    /// Receive ring size in WQEs, a power of two; 0 = none.
    pub n_receive_wqes: u32,
    /// Receive WQE size: 16 · 2^`log_rq_stride`.
    pub receive_stride_bytes: u32,
    /// The shared receive queue, if it has one instead. An XRC target finds that of each request.
    pub shared: Option<SharedQueue>,
    /// XRC: `xrcd`.
    pub xrcd: u32,
    /// DC initiator: its streams, if it has any.
    pub dc_streams: Option<DcStreams>,
    /// DC initiator: number of this life, from the way to RTR to the next reset.
    pub dc_session: u32,
    /// `remote_qpn`.
    pub remote_qpn: Qpn,
    /// `mtu` in bytes: 256 to 4096.
    pub mtu_bytes: u32,
    /// `log_msg_max`.
    pub log_msg_max: u8,
    /// `primary_address_path`.
    pub path: Path,
    /// `retry_count`, 0 to 7.
    pub retry_count: u8,
    /// `rnr_retry`: 0 to 6, 7 = without end.
    pub rnr_retry: u8,
    /// `min_rnr_nak`: timer code sent in RNR NAKs.
    pub min_rnr_nak: u8,
    /// `next_send_psn`: PSN of the first request after RTS.
    pub next_send_psn: Psn,
    /// `next_rcv_psn`: PSN of the first request expected after RTR.
    pub next_rcv_psn: Psn,
    /// READs and atomics that the requester may have outstanding: 2^`log_sra_max`; 0 = none allowed.
    pub max_outstanding_reads: u32,
    /// READs and atomics that the responder serves: 2^`log_rra_max`; 0 = none allowed.
    pub max_served_reads: u32,
    /// `log_ack_req_freq`: AckReq at least every 2^n packets.
    pub log_ack_req_freq: u8,
    /// `rre`.
    pub remote_read: bool,
    /// `rwe`.
    pub remote_write: bool,
    /// `rae`.
    pub remote_atomic: bool,
    /// `drain_sigerr`: the send queue is drained when data do not fit their signature.
    pub drain_sigerr: bool,
    /// `qpc_ext.mmo`: it may copy memory.
    pub mmo: bool,
    /// The port is InfiniBand's: an address vector without a GRH may be of 16 bytes.
    pub compact_av: bool,
    /// `offload_type` and its XRQ's `offload`: the device reads the data of a rendezvous by this queue pair.
    pub rendezvous: bool,
}

impl Default for QpConfig {
    fn default() -> Self {
        Self {
            service: Service::default(),
            qpn: Qpn::new(0),
            qkey: 0,
            source_qpn: Qpn::new(0),
            vl: 0,
            pd: Pdn::new(0),
            user_index: UserIndex::new(0),
            cqn_send: Cqn::new(0),
            cqn_receive: Cqn::new(0),
            cs_req_bytes: 0,
            cs_res_bytes: 0,
            n_send_wqebbs: 0,
            n_receive_wqes: 0,
            receive_stride_bytes: 16,
            shared: None,
            xrcd: 0,
            dc_streams: None,
            dc_session: 0,
            remote_qpn: Qpn::new(0),
            mtu_bytes: 1024,
            log_msg_max: 30,
            path: Path::default(),
            retry_count: 7,
            rnr_retry: 7,
            min_rnr_nak: 12,
            next_send_psn: Psn::new(0),
            next_rcv_psn: Psn::new(0),
            max_outstanding_reads: 16,
            max_served_reads: 16,
            log_ack_req_freq: 0,
            remote_read: false,
            remote_write: false,
            remote_atomic: false,
            drain_sigerr: false,
            mmo: false,
            compact_av: false,
            rendezvous: false,
        }
    }
}
