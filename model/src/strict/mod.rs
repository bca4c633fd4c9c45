//! What a driver must not do, by name.
//!
//! A card punishes these by silence, corruption or a dead queue; the model names them. A rule that a
//! stock driver (Linux mlx5, libmlx5) would break is a wrong rule.
#![forbid(unsafe_code)]

use std::{fmt, time::Duration};

macro_rules! rules {
    ($( $name:ident: $text:literal, )*) => {
        /// A rule of the device interface.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Rule {
            $( #[doc = $text] $name, )*
        }

        impl Rule {
            /// Every rule.
            pub const ALL: &[Self] = &[$( Self::$name ),*];

            /// The rule's name.
            pub const fn name(self) -> &'static str {
                match self { $( Self::$name => stringify!($name), )* }
            }

            /// The rule in words.
            pub const fn text(self) -> &'static str {
                match self { $( Self::$name => $text, )* }
            }
        }
    };
}

rules! {
    RecordBeforeDoorbell: "the doorbell record holds the new producer counter before the doorbell is rung",
    DoorbellNamesLastWqe: "the doorbell is the first 8 bytes of the last WQE posted",
    DoorbellQueueExists: "a doorbell names a queue that exists",
    DoorbellRightPage: "a queue is rung through the UAR page that its context names",
    DoorbellRegister: "a store to a UAR page hits a register with the register's width",
    DoorbellAllocatedPage: "only UAR pages that ALLOC_UAR returned are written",
    BlueFlameWholeLines: "BlueFlame copies whole 64-byte lines, in order, from the start of a buffer",
    BlueFlameMatchesRing: "the bytes copied by BlueFlame are those of the WQE in the ring",
    WqeIndexMatchesPosition: "ctrl.wqe_index is the free-running counter of the WQE's first WQEBB",
    WqeQpnMatchesQueue: "ctrl.qpn is the number of the queue that holds the WQE",
    DsCoversSegments: "ctrl.ds covers exactly the segments of the operation",
    OpcodeKnown: "the opcode is one that the queue's transport has",
    ReservedBits: "reserved bits are zero",
    InlineWithinLimit: "inline data fits in the WQE",
    MinInline: "as much of a frame's head is inline as min_wqe_inline_mode asks for",
    LsoSegments: "LSO has an mss and an inline header that ends with TCP's or UDP's; SEND has neither",
    SlotReusedEarly: "a WQEBB is not written again before its WQE is completed",
    ProducerWithinRing: "a producer counter runs at most one ring ahead of the consumer",
    SharedListSound: "the list of a shared receive queue stays in the queue and comes to each WQE only after it was posted again",
    ProducerForward: "a producer counter never runs backwards",
    PostInRightState: "WQEs are posted in a state that takes them",
    AtomicLength: "the local buffer of an atomic has 8 bytes",
    UmrMask: "a UMR's mkey_mask names fields that exist, and mkc.pd only on the queue pair that registers",
    UmrListFits: "a UMR's list has klm_octowords entries, comes in fours and fits the key's translation",
    MessageWithinLimit: "a message is at most 2^log_msg_max bytes, and a datagram what one packet carries",
    ReadsAllowed: "READs and atomics are posted only where log_sra_max allows one",
    AddressVector: "the address vector of a datagram has all of its 48 bytes, and on Ethernet the peer's MAC",
    SourceAddressSet: "a QP's src_addr_index names a RoCE address that was set",
    CqOverrun: "a CQ has room for every completion",
    CqConsumerForward: "a CQ's consumer index never runs backwards or ahead of the producer",
    EqOverrun: "an EQ has room for every event",
    EqConsumerForward: "an EQ's consumer index never runs backwards or ahead of the producer",
    CommandOrder: "commands come in the order of bring-up and teardown",
    CommandEntry: "a rung command entry is owned by hardware and well formed",
    CommandToken: "the token of an entry is that of all its mailboxes",
    ObjectInUse: "an object is destroyed after the objects that use it",
    LeakAtClose: "every object is destroyed before TEARDOWN_HCA",
    PagesAtClose: "firmware pages are reclaimed before DISABLE_HCA",
    DmaMapped: "every address given to the device is mapped for DMA",
    DmaWritable: "memory that the device writes is mapped for writing",
    DmaUnmapInUse: "memory is unmapped after the objects that name it are destroyed",
    RingInitialised: "CQ memory is filled with the hardware-owned pattern before creation, EQ memory before its first doorbell or event",
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The queue that a violation is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    /// Send queue of a QP.
    Sq(u32),
    /// Receive queue of a QP.
    Rq(u32),
    /// Shared receive queue.
    Srq(u32),
    /// Completion queue.
    Cq(u32),
    /// Event queue.
    Eq(u32),
    /// Command queue.
    Cmd,
}

impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sq(n) => write!(f, "SQ of QP 0x{n:x}"),
            Self::Rq(n) => write!(f, "RQ of QP 0x{n:x}"),
            Self::Srq(n) => write!(f, "SRQ 0x{n:x}"),
            Self::Cq(n) => write!(f, "CQ 0x{n:x}"),
            Self::Eq(n) => write!(f, "EQ 0x{n:x}"),
            Self::Cmd => f.write_str("command queue"),
        }
    }
}

/// One broken rule, with all that is needed to find it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Which rule.
    pub rule: Rule,
    /// Which of the card's functions; set by the function.
    pub function: u8,
    /// When; set by the function.
    pub at: Duration,
    /// Which queue.
    pub queue: Option<Queue>,
    /// The counter or slot within the queue.
    pub index: Option<u32>,
    /// What was seen and what was expected, with the numbers.
    pub detail: String,
    /// The bytes concerned, at most one WQE.
    pub bytes: Vec<u8>,
}

impl Violation {
    /// A violation of `rule`; `detail` says what was seen and what was expected.
    pub fn new(rule: Rule, detail: impl Into<String>) -> Self {
        let (function, at) = (0, Duration::ZERO);
        Self { rule, function, at, queue: None, index: None, detail: detail.into(), bytes: Vec::new() }
    }

    /// On `queue`.
    #[must_use]
    pub fn on(mut self, queue: Queue) -> Self {
        self.queue = Some(queue);
        self
    }

    /// At counter or slot `index`.
    #[must_use]
    pub fn at_index(mut self, index: u32) -> Self {
        self.index = Some(index);
        self
    }

    /// With the bytes concerned.
    #[must_use]
    pub fn with_bytes(mut self, bytes: &[u8]) -> Self {
        self.bytes = bytes.to_vec();
        self
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [function {}, {:?}", self.rule, self.function, self.at)?;
        if let Some(queue) = self.queue {
            write!(f, ", {queue}")?;
        }
        if let Some(index) = self.index {
            write!(f, ", index {index}")?;
        }
        write!(f, "]: {}. Rule: {}", self.detail, self.rule.text())?;
        if !self.bytes.is_empty() {
            write!(f, "\n{}", crate::trace::Hexdump(&self.bytes))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_violation_says_all_it_knows() {
        let text = Violation::new(Rule::WqeIndexMatchesPosition, "wqe_index 7, position 8")
            .on(Queue::Sq(0x40))
            .at_index(8)
            .with_bytes(&[0, 0, 7, 10])
            .to_string();
        for part in ["WqeIndexMatchesPosition", "SQ of QP 0x40", "index 8", "wqe_index 7", "00 00 07 0a"] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = Rule::ALL.iter().map(|rule| rule.name()).collect();
        names.dedup();
        assert_eq!(names.len(), Rule::ALL.len());
    }
}
