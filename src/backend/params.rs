//! What objects are made of: parameters in, parts out.
#![forbid(unsafe_code)]

use super::{
    ChannelId, DeviceAttr, Register, UarPage,
    dma::{HostMemory, PAGE_BYTES},
};
use crate::{
    Error, Result,
    mlx5::{
        context::{Mtu, QpState, ServiceType},
        ids::{Cqn, Lkey, Pdn, Psn, Qpn, Rkey, UserIndex},
    },
};
use std::{fmt, ops::BitOr, ptr::NonNull, sync::Arc};

/// What a memory registration, or a queue pair, lets a peer do. Values are those of `ibv_access_flags`,
/// where it has them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Access(pub u32);

impl Access {
    /// Read by one's own requests. Always granted.
    pub const LOCAL_READ: Self = Self(0);
    /// Written by one's own requests: receives, RDMA READ results, atomic results.
    pub const LOCAL_WRITE: Self = Self(1);
    /// Written by a peer's RDMA WRITE.
    pub const REMOTE_WRITE: Self = Self(1 << 1);
    /// Read by a peer's RDMA READ.
    pub const REMOTE_READ: Self = Self(1 << 2);
    /// Changed by a peer's atomics.
    pub const REMOTE_ATOMIC: Self = Self(1 << 3);
    /// Memory windows may be bound to it (`IBV_ACCESS_MW_BIND`). A rule of verbs, which the device does not check.
    pub const MW_BIND: Self = Self(1 << 4);
    /// The device may reorder its writes and reads within the region.
    pub const RELAXED_ORDERING: Self = Self(1 << 20);

    /// Invalidated by a peer's SEND with invalidate (`mkc.en_rinval`). No flag of verbs, which grants it to
    /// memory windows and fast registrations.
    pub const REMOTE_INVALIDATE: Self = Self(1 << 30);

    const NAMES: [(Self, &'static str); 7] = [
        (Self::LOCAL_WRITE, "LOCAL_WRITE"),
        (Self::REMOTE_WRITE, "REMOTE_WRITE"),
        (Self::REMOTE_READ, "REMOTE_READ"),
        (Self::REMOTE_ATOMIC, "REMOTE_ATOMIC"),
        (Self::MW_BIND, "MW_BIND"),
        (Self::RELAXED_ORDERING, "RELAXED_ORDERING"),
        (Self::REMOTE_INVALIDATE, "REMOTE_INVALIDATE"),
    ];

    /// Whether all of `other` is in `self`.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The rules of verbs: only known flags; remote write and atomic need local write.
    pub fn check_mr(self) -> Result<()> {
        let known = Self::NAMES.iter().fold(0, |mask, (flag, _)| mask | flag.0);
        if self.0 & !known != 0 {
            return Err(Error::invalid(format!(
                "access flags 0x{:x} are not known; known are 0x{known:x}",
                self.0 & !known
            )));
        }
        let remote = Self::REMOTE_WRITE | Self::REMOTE_ATOMIC;
        if self.0 & remote.0 != 0 && !self.contains(Self::LOCAL_WRITE) {
            return Err(Error::invalid(format!("access {self:?} needs LOCAL_WRITE too")));
        }
        Ok(())
    }
}

impl BitOr for Access {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Self::NAMES.iter().filter(|(flag, _)| self.contains(*flag));
        let names: Vec<_> = names.map(|(_, name)| *name).collect();
        if names.is_empty() { f.write_str("LOCAL_READ") } else { f.write_str(&names.join("|")) }
    }
}

/// A part of queue memory that the device shares. The memory lives as long as any clone.
#[derive(Debug, Clone)]
pub struct QueueMemory {
    memory: Arc<HostMemory>,
    offset_bytes: usize,
    len_bytes: usize,
}

impl QueueMemory {
    /// `len_bytes` at `offset_bytes` of `memory`, cut to its end.
    pub fn new(memory: Arc<HostMemory>, offset_bytes: usize, len_bytes: usize) -> Self {
        let offset_bytes = offset_bytes.min(memory.len_bytes());
        let len_bytes = len_bytes.min(memory.len_bytes() - offset_bytes);
        Self { memory, offset_bytes, len_bytes }
    }

    /// First byte. Valid for `len_bytes` for as long as `self` or a clone lives.
    pub fn base(&self) -> NonNull<u8> {
        self.memory.base().map_addr(|base| base.saturating_add(self.offset_bytes))
    }

    /// Size in bytes.
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }
}

/// A memory registration to make.
#[derive(Debug, Clone)]
pub struct MrParams {
    /// Protection domain.
    pub pd: Pdn,
    /// The memory. It stays mapped for the device until the registration is ended.
    pub memory: Arc<HostMemory>,
    /// What its keys allow.
    pub access: Access,
    /// Address by which requests name the first byte; its own address if `None`. It must have the same
    /// offset in a 4 KiB page.
    pub start_addr: Option<u64>,
}

impl MrParams {
    /// Address by which requests name the first byte.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if a device cannot translate it: a translation is of whole pages, and of 64-bit addresses.
    pub(super) fn checked_start_addr(&self) -> Result<u64> {
        let (address, len_bytes) = (self.memory.base().addr().get() as u64, self.memory.len_bytes() as u64);
        let start_addr = self.start_addr.unwrap_or(address);
        let page_offset = |address: u64| address % PAGE_BYTES as u64;
        if page_offset(start_addr) != page_offset(address) {
            return Err(Error::invalid(format!(
                "start address 0x{start_addr:x} of a memory region at 0x{address:x}: the offsets in a 4 KiB \
                 page must be equal, and are 0x{:x} and 0x{:x}",
                page_offset(start_addr),
                page_offset(address)
            )));
        }
        if start_addr.checked_add(len_bytes.saturating_sub(1)).is_none() {
            return Err(Error::invalid(format!(
                "{len_bytes} bytes from start address 0x{start_addr:x} pass the end of 64-bit addresses"
            )));
        }
        Ok(start_addr)
    }
}

/// The keys of a memory registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keys {
    /// Names the memory in one's own requests.
    pub lkey: Lkey,
    /// Names the memory in a peer's requests.
    pub rkey: Rkey,
}

/// A completion queue to make.
#[derive(Debug, Clone)]
pub struct CqParams {
    /// CQEs wanted; rounded up to a power of two.
    pub n_cqes: u32,
    /// 64 or 128.
    pub cqe_bytes: usize,
    /// Channel that it wakes, or none: then it can only be polled.
    pub channel: Option<ChannelId>,
    /// Whether the device may overrun it (`cqc.oi`): completions are lost in silence.
    pub ignore_overrun: bool,
}

impl CqParams {
    /// Refuses what no device takes, and more entries than `max_cqe`.
    pub(crate) fn check(&self, max_cqe: u32) -> Result<()> {
        if self.n_cqes == 0 || self.n_cqes > max_cqe {
            return Err(Error::invalid(format!(
                "completion queue of {} entries: give 1 to {max_cqe} (max_cqe)",
                self.n_cqes
            )));
        }
        if self.cqe_bytes != 64 && self.cqe_bytes != 128 {
            return Err(Error::invalid(format!("CQEs of {} bytes: give 64 or 128", self.cqe_bytes)));
        }
        Ok(())
    }
}

/// Refuses a value beyond a limit of the device.
pub(crate) fn at_most(what: &str, value: u32, max: u32) -> Result<()> {
    if value <= max { Ok(()) } else { Err(Error::invalid(format!("{what} is {value}: at most {max}"))) }
}

/// A completion queue that was made.
#[derive(Debug)]
pub struct CqParts {
    /// Its number.
    pub cqn: Cqn,
    /// log₂ of its CQEs.
    pub log_cq_size: u8,
    /// Bytes of one CQE slot.
    pub cqe_bytes: usize,
    /// The ring: `2^log_cq_size × cqe_bytes`.
    pub ring: QueueMemory,
    /// The doorbell record: `consumer_index`, `arm`.
    pub record: QueueMemory,
    /// The page through which it is armed. Others may arm theirs through it too: each arm is one store.
    pub arming: Arc<UarPage>,
}

/// A queue pair to make.
#[derive(Debug, Clone)]
pub struct QpParams {
    /// Transport: RC, UC, UD or XRC; or raw packets (`RAW_ETHERTYPE`).
    pub service: ServiceType,
    /// Protection domain.
    pub pd: Pdn,
    /// Where send requests complete.
    pub send_cq: Cqn,
    /// Where receive requests complete.
    pub recv_cq: Cqn,
    /// Number that its CQEs shall carry, where the control path can choose it.
    pub user_index: UserIndex,
    /// Send requests wanted, each of the largest size that the two limits below allow.
    pub max_send_wr: u32,
    /// Receive requests wanted.
    pub max_recv_wr: u32,
    /// Scatter/gather entries of a send request.
    pub max_send_sge: u32,
    /// Scatter/gather entries of a receive request.
    pub max_recv_sge: u32,
    /// Bytes of inline data in a send request.
    pub max_inline_data: u32,
}

impl QpParams {
    /// Refuses what is beyond a limit of the device.
    pub(crate) fn check(&self, device: &DeviceAttr) -> Result<()> {
        at_most("max_send_sge", self.max_send_sge, device.max_send_sge)?;
        at_most("max_recv_sge", self.max_recv_sge, device.max_recv_sge)?;
        at_most("max_inline_data", self.max_inline_data, device.max_inline_data)?;
        at_most("max_send_wr", self.max_send_wr, device.max_qp_wr)?;
        at_most("max_recv_wr", self.max_recv_wr, device.max_qp_wr)
    }
}

/// A queue pair that was made. Its limits are at least what was asked for.
#[derive(Debug)]
pub struct QpParts {
    /// Its number.
    pub qpn: Qpn,
    /// Its transport.
    pub service: ServiceType,
    /// The send queue: `2^log_sq_size` WQEBBs of 64 bytes. Empty if none was asked for.
    pub sq: QueueMemory,
    /// log₂ of its WQEBBs.
    pub log_sq_size: u8,
    /// The receive queue: `2^log_rq_size` WQEs of `2^log_rq_stride_bytes`. Empty if none was asked for.
    pub rq: QueueMemory,
    /// log₂ of its WQEs.
    pub log_rq_size: u8,
    /// log₂ of the bytes of a receive WQE.
    pub log_rq_stride_bytes: u8,
    /// The doorbell record: receive counter, send counter.
    pub record: QueueMemory,
    /// Where its send queue rings.
    pub register: Register,
    /// The number that its CQEs carry; `None` if they tell it by its `qpn` alone.
    pub user_index: Option<UserIndex>,
    /// Send requests that fit, each of the largest size.
    pub max_send_wr: u32,
    /// Receive requests that fit.
    pub max_recv_wr: u32,
    /// Scatter/gather entries of a send request.
    pub max_send_sge: u32,
    /// Scatter/gather entries of a receive request.
    pub max_recv_sge: u32,
    /// Bytes of inline data in a send request.
    pub max_inline_data: u32,
    /// Bytes of a raw packet's head that its request must carry; 0 of any other transport.
    pub min_header_bytes: u8,
}

/// How packets reach the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressVector {
    /// Own port, from 1.
    pub port: u8,
    /// Own entry in the GID table.
    pub sgid_index: u8,
    /// The peer's GID.
    pub dgid: [u8; 16],
    /// The peer's MAC, or that of the next hop. RoCE only.
    pub dmac: [u8; 6],
    /// The peer's LID. InfiniBand only.
    pub dlid: u16,
    /// Service level, 0 to 15; on RoCE the Ethernet priority, 0 to 7.
    pub sl: u8,
    /// Hops that packets may make.
    pub hop_limit: u8,
    /// Traffic class: DSCP and ECN.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// UDP source port of RoCE v2, or `None` for one derived from the two QP numbers.
    pub udp_sport: Option<u16>,
    /// Packets stay on the port even if the MAC is not its own (`ads.fl`).
    pub force_loopback: bool,
}

/// A transition of a queue pair. Names are those of `ibv_qp_attr`; `None` is not given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QpModify {
    /// State to reach.
    pub to: QpState,
    /// Entry of the partition table.
    pub pkey_index: Option<u16>,
    /// Port, from 1.
    pub port: Option<u8>,
    /// What the peer may do (`qp_access_flags`).
    pub access: Option<Access>,
    /// Q_Key that datagrams must carry.
    pub qkey: Option<u32>,
    /// Way to the peer.
    pub ah: Option<AddressVector>,
    /// Payload of a packet.
    pub path_mtu: Option<Mtu>,
    /// The peer's queue pair.
    pub dest_qp_num: Option<Qpn>,
    /// First PSN expected.
    pub rq_psn: Option<Psn>,
    /// READs and atomics of the peer outstanding at once.
    pub max_dest_rd_atomic: Option<u8>,
    /// Pause that an RNR NAK asks for, code 0 to 31.
    pub min_rnr_timer: Option<u8>,
    /// Local ack timeout: 4.096 µs × 2^n, 0 to 31; 0 waits for ever.
    pub timeout: Option<u8>,
    /// Retries after a timeout or a sequence error, 0 to 7.
    pub retry_cnt: Option<u8>,
    /// Retries after RNR, 0 to 7; 7 retries for ever.
    pub rnr_retry: Option<u8>,
    /// First PSN sent.
    pub sq_psn: Option<Psn>,
    /// Own READs and atomics outstanding at once.
    pub max_rd_atomic: Option<u8>,
}

impl QpModify {
    /// A transition to `state` without attributes.
    pub const fn to(state: QpState) -> Self {
        Self {
            to: state,
            pkey_index: None,
            port: None,
            access: None,
            qkey: None,
            ah: None,
            path_mtu: None,
            dest_qp_num: None,
            rq_psn: None,
            max_dest_rd_atomic: None,
            min_rnr_timer: None,
            timeout: None,
            retry_cnt: None,
            rnr_retry: None,
            sq_psn: None,
            max_rd_atomic: None,
        }
    }
}

/// A queue pair as the device has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QpAttr {
    /// State.
    pub state: QpState,
    /// Entry of the partition table.
    pub pkey_index: u16,
    /// Port, from 1.
    pub port: u8,
    /// What the peer may do.
    pub access: Access,
    /// Q_Key that datagrams must carry.
    pub qkey: u32,
    /// Way to the peer.
    pub ah: AddressVector,
    /// Payload of a packet.
    pub path_mtu: Mtu,
    /// The peer's queue pair.
    pub dest_qp_num: Qpn,
    /// Next PSN expected.
    pub rq_psn: Psn,
    /// Next PSN sent.
    pub sq_psn: Psn,
    /// READs and atomics of the peer outstanding at once.
    pub max_dest_rd_atomic: u8,
    /// Own READs and atomics outstanding at once.
    pub max_rd_atomic: u8,
    /// Pause that an RNR NAK asks for, code.
    pub min_rnr_timer: u8,
    /// Local ack timeout, code.
    pub timeout: u8,
    /// Retries after a timeout.
    pub retry_cnt: u8,
    /// Retries after RNR.
    pub rnr_retry: u8,
}
