//! What a device, a port and an event are, in verbs terms.
#![forbid(unsafe_code)]

use crate::{
    Gone,
    mlx5::{
        context::Mtu,
        eqe::{CqErrorSyndrome, EventType},
        ids::{Cqn, Lkey, Qpn},
    },
};

/// Limits and identity of a device. Names are those of `ibv_device_attr` where it has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceAttr {
    /// Firmware version: `major.minor.subminor`.
    pub fw_ver: String,
    /// Board id (PSID), up to 16 characters.
    pub board_id: String,
    /// PCI vendor id.
    pub vendor_id: u32,
    /// PCI device id.
    pub vendor_part_id: u32,
    /// PCI revision.
    pub hw_ver: u32,
    /// GUID of the node.
    pub node_guid: u64,
    /// GUID shared by all functions of a card.
    pub sys_image_guid: u64,
    /// Ports, counted from 1.
    pub phys_port_cnt: u8,
    /// Bit mask of page sizes that memory registrations can use.
    pub page_size_cap: u64,
    /// Bytes of the largest memory registration.
    pub max_mr_size: u64,
    /// Bytes of the largest message.
    pub max_msg_size: u32,
    /// Queue pairs.
    pub max_qp: u32,
    /// WQEBBs of a send queue, and WQEs of a receive queue.
    pub max_qp_wr: u32,
    /// Scatter/gather entries of a send request (SEND and RDMA WRITE).
    pub max_send_sge: u32,
    /// Scatter/gather entries of an RDMA READ.
    pub max_sge_rd: u32,
    /// Scatter/gather entries of a receive request.
    pub max_recv_sge: u32,
    /// Bytes of inline data in a send request.
    pub max_inline_data: u32,
    /// Bytes of the largest send WQE.
    pub max_wqe_sz_sq: u32,
    /// Completion queues.
    pub max_cq: u32,
    /// Entries of a completion queue.
    pub max_cqe: u32,
    /// Memory registrations.
    pub max_mr: u32,
    /// Protection domains.
    pub max_pd: u32,
    /// RDMA READs and atomics that a queue pair can have outstanding as the responder.
    pub max_qp_rd_atom: u8,
    /// RDMA READs and atomics that a queue pair can have outstanding as the requester.
    pub max_qp_init_rd_atom: u8,
    /// Whether 8-byte compare-and-swap and fetch-and-add work.
    pub atomic_cap: bool,
    /// Whether atomics return and take host byte order in memory (`atomic_req_8b_endianness_mode` 1).
    pub atomic_host_endian: bool,
    /// Ack delay of the device: 4.096 µs × 2^n.
    pub local_ca_ack_delay: u8,
    /// Entries of a port's partition table.
    pub max_pkeys: u16,
    /// Bytes of one BlueFlame register (two buffers of half that size), or 0.
    pub bf_reg_size_bytes: u32,
    /// Frequency of [`read_clock`](super::Control::read_clock) in kHz, or 0.
    pub hca_core_clock_khz: u32,
    /// `cqe_version`: 1 if CQEs carry the user index of their queue, 0 if its number.
    pub cqe_version: u8,
    /// Whether RoCE address vectors choose their UDP source port.
    pub roce_udp_sport: bool,
    /// Lowest UDP source port of RoCE v2 packets.
    pub roce_min_udp_sport: u16,
    /// MSI-X vectors that completion channels share.
    pub num_comp_vectors: u32,
}

/// State of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortAttr {
    /// Logical state.
    pub state: PortState,
    /// Physical state.
    pub phys_state: PhysState,
    /// Largest path MTU.
    pub max_mtu: Mtu,
    /// Path MTU that the Ethernet MTU leaves room for.
    pub active_mtu: Mtu,
    /// Bytes of an Ethernet frame's payload.
    pub netdev_mtu_bytes: u16,
    /// Ethernet or InfiniBand.
    pub link_layer: LinkLayer,
    /// Speed in Mbit/s, or 0 if down or unknown.
    pub active_speed_mbps: u32,
    /// Lanes of the link, or 0 if down or unknown.
    pub active_width: u8,
    /// Entries of the GID table.
    pub gid_tbl_len: u16,
    /// Entries of the partition table.
    pub pkey_tbl_len: u16,
    /// Largest message in bytes.
    pub max_msg_sz: u32,
    /// Local identifier; 0 on Ethernet.
    pub lid: u16,
    /// MAC address; zeros on InfiniBand.
    pub mac: [u8; 6],
    /// Whether RoCE is enabled on the port.
    pub roce_enabled: bool,
    /// Bad Q_Keys seen.
    pub qkey_viol_cntr: u16,
}

/// Logical state of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortState {
    /// No traffic passes.
    Down,
    /// The link is up, and not configured (InfiniBand).
    Init,
    /// Configured, and not yet in use (InfiniBand).
    Armed,
    /// Traffic passes.
    Active,
}

/// Physical state of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PhysState {
    /// Disabled by its owner.
    Disabled,
    /// Looking for a link.
    Polling,
    /// The link is up.
    LinkUp,
}

/// Link layer of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkLayer {
    /// InfiniBand.
    InfiniBand,
    /// Ethernet: RDMA is RoCE.
    Ethernet,
}

impl LinkLayer {
    /// The entry of a port's GID table that serves when none is chosen. An open device has its link-local address
    /// in the table of an Ethernet port, at 0 in RoCE v1 and at 1 in RoCE v2: it is 1. On InfiniBand it is 0, the
    /// port's own GUID in its subnet.
    pub const fn usual_gid_index(self) -> u8 {
        match self {
            Self::Ethernet => 1,
            Self::InfiniBand => 0,
        }
    }
}

/// Keys that every function has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpecialContexts {
    /// Fills DUMP WQEs.
    pub dump_fill_mkey: Lkey,
    /// Physical addresses, for privileged queue pairs.
    pub resd_lkey: Lkey,
    /// Reads zeros and swallows writes.
    pub null_mkey: Lkey,
}

/// Something that happened outside of completions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AsyncEvent {
    /// A completion queue overflowed or could not be written. It delivers nothing more.
    CqError {
        /// The queue.
        cqn: Cqn,
        /// Why.
        syndrome: CqErrorSyndrome,
    },
    /// A work queue could not be read, or a receive request could not be used. The QP is in ERR.
    QpFatal {
        /// The queue pair.
        qpn: Qpn,
    },
    /// A request broke the transport's rules. The QP is in ERR.
    QpInvalidRequest {
        /// The queue pair.
        qpn: Qpn,
    },
    /// A request had no right to memory. The QP is in ERR.
    QpAccess {
        /// The queue pair.
        qpn: Qpn,
    },
    /// The first packet came on a QP in RTR.
    CommEst {
        /// The queue pair.
        qpn: Qpn,
    },
    /// The send queue is drained.
    SqDrained {
        /// The queue pair.
        qpn: Qpn,
    },
    /// The last receive request of a QP on a shared receive queue is consumed.
    LastWqe {
        /// The queue pair.
        qpn: Qpn,
    },
    /// A port went up or down.
    PortChange {
        /// The port, from 1.
        port: u8,
        /// Whether traffic can pass.
        up: bool,
    },
    /// The device stopped working, or the host wants it back.
    DeviceFatal(Gone),
    /// An event that this driver does not know, passed over.
    Other {
        /// Its type.
        event_type: EventType,
        /// Its variant.
        sub_type: u8,
    },
}
