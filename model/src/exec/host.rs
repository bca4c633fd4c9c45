//! What a queue pair's transport engine asks of the function around it.
//!
//! The engine owns no memory, no tables and no clock: the function does. Every call is short and must not
//! come back into the engine.

use super::{
    config::SharedQueue,
    counter::Counter,
    cqe::Cqe,
    paging::PageFault,
    tag_list::{TagMemory, TagOutcome, TakenTag},
    umr::{UmrFault, UmrRequest},
};
use core::fmt;
use mlx5_direct::{
    mlx5::ids::{Cqn, Pdn, Qpn},
    wqe::{SetPsvSeg, TmSeg},
};

/// Which of a QP's two rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ring {
    /// Send queue: offset 0 is WQEBB 0.
    Send,
    /// Receive queue: offset 0 is receive WQE 0.
    Receive,
}

/// What an access needs to be allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// `mkc.lr`.
    LocalRead,
    /// `mkc.lw`.
    LocalWrite,
    /// `mkc.rr`.
    RemoteRead,
    /// `mkc.rw`.
    RemoteWrite,
    /// `mkc.a`.
    RemoteAtomic,
}

/// In whose name memory is touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Right {
    /// lkey or rkey as the WQE or packet gave it.
    pub key: u32,
    /// Protection domain of the QP.
    pub pd: Pdn,
    /// The QP, for keys bound to one (`mkc.qpn`).
    pub qpn: Qpn,
    /// The permission needed.
    pub need: Need,
    /// The queue whose request it is, or which answers a peer's.
    pub queue: Ring,
}

/// Why a key did not give access. The host that refuses knows the numbers, and reports them itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyFault {
    /// No such mkey index, or a wrong variant byte.
    Unknown,
    /// The mkey is free (invalidated).
    Free,
    /// Other protection domain.
    Pd,
    /// Bound to another QP.
    Qp,
    /// Permission missing.
    Access,
    /// Outside the region.
    Bounds,
    /// The key is good, and the pages it names are not mapped for the device.
    Translation,
    /// The key is good, and a page is not there yet that the driver may bring ([`Host::page_fault`]).
    Absent,
    /// Keys name keys deeper than `max_indirection` allows.
    Indirection,
}

/// A ring's pages are not mapped for the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingFault;

/// What [`Host::take_shared`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SharedWqe {
    /// The WQE with this index, `len_bytes` of it read.
    Taken {
        /// Index in the queue, which its CQE carries.
        index: u16,
        /// The queue's stride.
        len_bytes: usize,
    },
    /// None is posted.
    Empty,
    /// The queue is in error, or is no more. The host reported why.
    Broken,
}

/// How far a completion wakes software.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// An event for a CQ armed for any completion.
    Any,
    /// Also for one armed for solicited completions: solicited messages and all errors.
    Solicited,
}

/// Asynchronous events of a QP (`event_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum QpEvent {
    /// First packet on a QP in RTR.
    CommEst = 0x02,
    /// Send queue drained (SQD).
    SqDrained = 0x03,
    /// A ring could not be read, or a receive WQE could not be used.
    WqCatastrophic = 0x05,
    /// The responder got a request that breaks the transport's rules.
    InvalidRequest = 0x10,
    /// The responder got a request without the right to memory.
    AccessViolation = 0x11,
    /// A QP in ERR has taken its last WQE from its shared receive queue.
    LastWqeReached = 0x13,
}

/// One entry of the GID table, as the sender of packets needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceAddress {
    /// Address on the link.
    pub station: Station,
    /// GID; an IPv4 address is `::ffff:a.b.c.d`.
    pub gid: [u8; 16],
    /// Format on the wire.
    pub kind: RoceKind,
}

/// An address on the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Station {
    /// RoCE: as `SET_ROCE_ADDRESS` put it into the table.
    Ethernet {
        /// Source MAC.
        mac: [u8; 6],
        /// VLAN id, if the entry has one.
        vlan_id: Option<u16>,
    },
    /// InfiniBand: as the subnet manager set it.
    InfiniBand {
        /// Source LID.
        lid: u16,
    },
}

/// RoCE packet formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RoceKind {
    /// Ethertype 0x8915 and a GRH.
    V1,
    /// UDP 4791 over IPv4.
    V2Ipv4,
    /// UDP 4791 over IPv6.
    V2Ipv6,
}

macro_rules! rules {
    ($($(#[doc = $doc:literal])* $name:ident $text:literal),* $(,)?) => {
        /// Rules that the engine sees broken. Real hardware answers them with silence, corruption or a
        /// local QP operation error.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Rule { $($(#[doc = $doc])* $name),* }

        impl Rule {
            /// All rules.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Name for reports: lower case with underscores.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text),* }
            }
        }
    };
}

rules! {
    /// The doorbell's counter is more than one ring ahead of the first WQE not yet finished.
    SendQueueOverrun "send_queue_overrun",
    /// A doorbell for a QP in RST, INIT or RTR.
    DoorbellState "doorbell_in_wrong_state",
    /// `ctrl.wqe_index` is not the counter of the WQEBB it stands in.
    WqeIndex "wqe_index",
    /// `ctrl.qpn` is not the queue's own.
    WqeQpn "wqe_qpn",
    /// `ctrl.ds` is 0 or less than its segments need.
    DsTooSmall "ds_too_small",
    /// `ctrl.ds` is more than its segments need, or more than a WQE may have.
    DsTooLarge "ds_too_large",
    /// The WQE goes on past the counter that the doorbell gave.
    WqeBeyondDoorbell "wqe_beyond_doorbell",
    /// Opcode unknown, or not for RC.
    WqeOpcode "wqe_opcode",
    /// `ctrl.opmod` is not 0, or not one the opcode has.
    WqeOpmod "wqe_opmod",
    /// A bit that must be 0 is not.
    WqeReserved "wqe_reserved_bits",
    /// Undefined fence mode, or a completion mode that is.
    WqeFlags "wqe_flags",
    /// Inline data where there can be none: READ and atomics.
    WqeInline "wqe_inline",
    /// An atomic whose local data is not as long as its word.
    AtomicLength "atomic_length",
    /// The data segment of a UMR is shorter than `klm_octowords`.
    UmrList "umr_list",
    /// A message longer than `2^log_msg_max`.
    MessageTooLong "message_too_long",
    /// The receive counter is more than a ring ahead.
    ReceiveQueueOverrun "receive_queue_overrun",
    /// A READ's WQE of more than 512 bytes.
    ReadTooLong "read_too_long",
    /// READ or atomic on a QP whose `log_sra_max` or path allows none.
    NoReadResources "no_read_resources",
    /// An address vector of the short form, or one that names no station.
    AddressVector "address_vector",
    /// `src_addr_index` names an empty RoCE address.
    SourceAddressEmpty "source_address_empty",
    /// An operation on a list of tags that is unknown, or names an entry outside it or in use.
    TagList "tag_list",
    /// `sw_cnt` is more than the unexpected messages that came.
    TagCount "tag_count",
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The function around a QP.
pub trait Host {
    /// Time in nanoseconds, never going back.
    fn now(&self) -> u64;

    /// Reads `into.len()` bytes of a ring from `offset_bytes` on. The engine wraps: a read never crosses
    /// the end of the ring.
    ///
    /// # Errors
    /// The pages are not mapped.
    fn read_ring(
        &mut self,
        qpn: Qpn,
        ring: Ring,
        offset_bytes: usize,
        into: &mut [u8],
    ) -> Result<(), RingFault>;

    /// Takes the send WQE at `index`, if it came whole with its doorbell (BlueFlame): the ring is not read then.
    fn take_pushed(&mut self, _: Qpn, _index: u16) -> Option<Vec<u8>> {
        None
    }

    /// Doorbell record word 0 of the QP: count of receive WQEs posted, 16 bits.
    fn receive_counter(&mut self, qpn: Qpn) -> u16;

    /// Whether the message that wants a receive finds none, though one may be posted.
    fn withholds_receive(&mut self) -> bool {
        false
    }

    /// Whether the shared receive queue has a WQE posted.
    fn shared_is_posted(&mut self, number: u32) -> bool;

    /// Takes the next WQE of the shared receive queue into `wqe`, whose first 16 bytes are the next segment.
    fn take_shared(&mut self, number: u32, wqe: &mut [u8]) -> SharedWqe;

    /// The shared receive queue that an XRC request names; none if it is not of the domain.
    fn xrc_queue(&self, number: u32, xrcd: u32) -> Option<SharedQueue>;

    /// Changes the list of tags of the XRQ `number`; `memory` is that of an APPEND.
    ///
    /// # Errors
    /// The rule that the operation breaks, with the numbers.
    fn change_tags(
        &mut self,
        number: u32,
        operation: &TmSeg,
        memory: TagMemory,
    ) -> Result<TagOutcome, (Rule, String)>;

    /// Takes the first tag that fits `tag` out of the list of the XRQ `number`.
    fn take_tag(&mut self, number: u32, tag: u64) -> Option<TakenTag>;

    /// The message that took the tag of entry `index` is done.
    fn release_tag(&mut self, number: u32, index: u16);

    /// A message to the XRQ `number` took no tag.
    fn count_unexpected(&mut self, number: u32);

    /// Whether `right` covers `len` bytes from `addr` on, without touching them. Never asked for `len` 0.
    ///
    /// # Errors
    /// Why not.
    fn check(&mut self, right: &Right, addr: u64, len: u64) -> Result<(), KeyFault>;

    /// Checks and reads. Never asked for nothing.
    ///
    /// # Errors
    /// Why not; `into` is then unspecified.
    fn read(&mut self, right: &Right, addr: u64, into: &mut [u8]) -> Result<(), KeyFault>;

    /// Checks and writes. Never asked for nothing.
    ///
    /// # Errors
    /// Why not; nothing is written then.
    fn write(&mut self, right: &Right, addr: u64, from: &[u8]) -> Result<(), KeyFault>;

    /// Checks, and replaces the word of `len_bytes` (4 or 8) at `addr` (aligned) by `update` of it in one atomic step, as an
    /// integer of the host's byte order. Returns the old value.
    ///
    /// # Errors
    /// Why not; nothing is changed then.
    fn atomic(
        &mut self,
        right: &Right,
        addr: u64,
        len_bytes: u32,
        update: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, KeyFault>;

    /// Invalidates the mkey that `rkey` names, for the peer's SEND_INVAL.
    ///
    /// # Errors
    /// The key is not one this QP may invalidate.
    fn invalidate(&mut self, rkey: u32, pd: Pdn, qpn: Qpn) -> Result<(), KeyFault>;

    /// Sets what a signature begins with. Returns whether the protection domain has the value that `segment` names.
    fn set_psv(&mut self, pd: Pdn, segment: &SetPsvSeg) -> bool;

    /// Whether data of a QP did not fit their signature since this was last asked.
    fn take_signature_failure(&mut self, _: Qpn) -> bool {
        false
    }

    /// Changes a memory key as a UMR WQE says, wholly or not at all.
    ///
    /// # Errors
    /// Why not.
    fn umr(&mut self, request: &UmrRequest<'_>) -> Result<(), UmrFault>;

    /// Tells the driver that pages are missing. Returns false if it has not answered yet for another fault of the side.
    fn page_fault(&mut self, fault: &PageFault) -> bool;

    /// Appends a CQE.
    fn post_cqe(&mut self, cqn: Cqn, cqe: &Cqe, wake: Wake);

    /// Raises an asynchronous event for the QP.
    fn event(&mut self, qpn: Qpn, event: QpEvent);

    /// A datagram with another Q_Key than its QP's came; the port counts these.
    fn qkey_violation(&mut self);

    /// Counts one more in the QP's counter set.
    fn count(&mut self, qpn: Qpn, counter: Counter);

    /// Sends a whole Ethernet frame, without FCS.
    fn transmit(&mut self, frame: &[u8]);

    /// The RoCE address at `gid_index`.
    fn source_address(&self, gid_index: u8) -> Option<SourceAddress>;

    /// Reports a broken rule, by the WQE at `index` if it is one's; `detail` has the numbers.
    fn violation(&mut self, qpn: Qpn, index: Option<u16>, rule: Rule, detail: fmt::Arguments<'_>);
}
