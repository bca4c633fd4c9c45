//! Mistakes that a driver of this device could make, made on purpose: the software card has to name each.
//!
//! `mistake!(Name)` stands where the driver would go wrong. Without the feature `seeded-mistakes` it is the constant
//! `false`, and no instruction of it is left. With it, one mistake at a time can be switched on ([`make`]).
#![forbid(unsafe_code)]
// Others see it with the feature only.
#![cfg_attr(not(feature = "seeded-mistakes"), allow(unreachable_pub))]
// Those of the control path are not made where there is none.
#![cfg_attr(not(feature = "std"), allow(dead_code))]

/// Whether a mistake is to be made here.
macro_rules! mistake {
    ($name:ident) => {
        $crate::mistake::is_made($crate::mistake::Mistake::$name)
    };
}
pub(crate) use mistake;

macro_rules! mistakes {
    ($( $name:ident: $text:literal => $caught_by:literal; )*) => {
        /// A mistake.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Mistake {
            $( #[doc = $text] $name, )*
        }

        #[cfg(feature = "seeded-mistakes")]
        impl Mistake {
            /// All of them.
            pub const ALL: &[Self] = &[$( Self::$name ),*];

            /// Its name.
            pub const fn name(self) -> &'static str {
                match self { $( Self::$name => stringify!($name), )* }
            }

            /// What the driver does.
            pub const fn text(self) -> &'static str {
                match self { $( Self::$name => $text, )* }
            }

            /// Name of the model's rule that catches it; empty if a device cannot see it, and the driver's tests do.
            pub const fn caught_by(self) -> &'static str {
                match self { $( Self::$name => $caught_by, )* }
            }
        }
    };
}

mistakes! {
    RecordMissing: "rings without having written the doorbell record" => "RecordBeforeDoorbell";
    RecordLate: "writes the doorbell record after the doorbell" => "RecordBeforeDoorbell";
    RecordSwapped: "writes the doorbell record in the host's byte order" => "RecordBeforeDoorbell";
    RecordNotZeroed: "leaves the doorbell record as it is on a move to RST" => "RecordZeroAtStart";
    DoorbellOfFirst: "rings with the first WQE of a list" => "DoorbellNamesLastWqe";
    DoorbellMissing: "writes the doorbell record and does not ring" => "DoorbellFollowsRecord";
    DoorbellTwice: "rings twice" => "DoorbellAddsWork";
    DoorbellSwapped: "rings with the bytes in reverse" => "DoorbellQueueExists";
    DoorbellOf4Bytes: "rings with a store of 4 bytes" => "DoorbellRegister";
    UarOfEvents: "names the event queues' UAR page in the queue pair's context" => "DoorbellRightPage";
    BlueFlameOldBytes: "copies other bytes than the ring has" => "BlueFlameMatchesRing";
    BlueFlameCutShort: "copies half a line" => "BlueFlameWholeLines";
    IndexMasked: "counts ctrl.wqe_index modulo the ring" => "WqeIndexMatchesPosition";
    WqeOfAnotherQueue: "writes another queue's number into the WQE" => "WqeQpnMatchesQueue";
    DsInWqebbs: "counts ds in WQEBBs" => "DsCoversSegments";
    OpmodSet: "leaves ctrl.opmod of something else" => "OpcodeKnown";
    FenceUnknown: "asks for fence mode 7" => "FlagsKnown";
    ReservedBit: "sets a reserved bit of the remote address segment" => "ReservedBits";
    CreditsIgnored: "posts whether there is room or not" => "ProducerWithinRing";
    SlotReused: "writes to a WQE that is posted" => "SlotReusedEarly";
    SendsEarly: "posts sends in INIT" => "PostInRightState";
    AtomicOf16: "names 16 bytes for an atomic's answer" => "AtomicLength";
    ReadOfManyPieces: "reads into more than 30 pieces of memory" => "ReadWithinLimit";
    DatagramTooLong: "posts a datagram longer than the port's MTU" => "MessageWithinLimit";
    AvShortForm: "leaves the bit off that marks an address vector of 48 bytes" => "AddressVector";
    UmrMaskUnknown: "sets a bit of mkey_mask that names no field" => "UmrMask";
    UmrListOfOne: "counts the entries of a UMR's list, not the units of four" => "UmrListFits";
    ReceiveRecordAhead: "counts a ring more of receive WQEs than it posted" => "ProducerWithinRing";
    ReceiveReused: "writes to a receive WQE that is posted" => "SlotReusedEarly";
    ReceiveRecordMissing: "does not publish receive WQEs" => "";
    ConsumerAhead: "publishes a consumer index one too high" => "CqConsumerForward";
    ConsumerMasked: "publishes the consumer index modulo the ring" => "CqConsumerForward";
    ConsumerSilent: "does not publish the consumer index" => "CqOverrun";
    LapForgotten: "expects the same owner bit in every lap" => "CqConsumerForward";
    CqNotFilled: "gives the device a CQ of zeros" => "RingInitialised";
    CqTooLarge: "asks for a CQ larger than the capability" => "WithinCapabilities";
    CqUarOfEvents: "names the event queues' UAR page in the CQ's context" => "DoorbellRightPage";
    ArmRecordMissing: "arms without having written the arm word" => "RecordBeforeDoorbell";
    ArmCountedTwice: "counts each completion event twice" => "CqArmSequence";
    ArmNotCounted: "does not count completion events" => "";
    EqNotFilled: "gives the device an EQ of zeros" => "RingInitialised";
    EqIndexAhead: "publishes an EQ's consumer index one too high" => "EqConsumerForward";
    EqNeverTold: "never publishes an EQ's consumer index" => "EqOverrun";
    EqVectorUnknown: "names an MSI-X vector that the function does not have" => "WithinCapabilities";
    TokenOfAnother: "gives mailboxes another token than their command" => "CommandToken";
    BlockNumberFromOne: "counts mailboxes from 1" => "CommandEntry";
    NextPointerMissing: "does not link mailboxes" => "CommandEntry";
    MailboxUnmapped: "gives the device a mailbox that is not mapped" => "DmaMapped";
    EntrySignature: "signs a command entry wrongly" => "CommandEntry";
    EntryType: "leaves an entry's type 0" => "CommandEntry";
    EntryNotOwned: "rings for an entry that software owns" => "CommandEntry";
    CommandRungTwice: "rings twice for one command" => "CommandEntry";
    InputCutShort: "says that an input is shorter than it is" => "CommandLength";
    CommandReservedBit: "sets a reserved bit of a command" => "CommandReserved";
    EnableSkipped: "does not begin with ENABLE_HCA" => "CommandOrder";
    PagesSkipped: "goes to INIT_HCA without having given pages" => "CommandOrder";
    PageTwice: "gives firmware one page twice" => "PageGivenOnce";
    PageUnaligned: "gives firmware addresses that are no pages" => "PageList";
    PagesKept: "disables the function while firmware has pages" => "PagesAtClose";
    PasUnaligned: "names queue pages by addresses that are none" => "PageList";
    RecordUnaligned: "puts a doorbell record 4 bytes off" => "RecordAligned";
    KeyLongerThanList: "makes a key longer than its page list" => "KeyTranslation";
    InitSkipped: "moves a queue pair from RST without RST2INIT" => "QpTransition";
    OptParamUnknown: "sets a bit of opt_param_mask that the transition does not take" => "QpOptParam";
    SourceAddressEmpty: "names an empty entry of the RoCE address table" => "SourceAddressSet";
    CqFirst: "destroys a CQ before the queue pair that uses it" => "ObjectInUse";
    QpTwice: "destroys a queue pair twice" => "ObjectExists";
    MemoryFirst: "unmaps memory before its key is destroyed" => "DmaUnmapInUse";
    KeyLeaked: "does not destroy a memory key" => "LeakAtClose";
    UarLeaked: "does not give a UAR page back" => "LeakAtClose";
}

/// Whether this mistake is to be made.
#[cfg(not(feature = "seeded-mistakes"))]
#[inline(always)]
pub(crate) const fn is_made(_: Mistake) -> bool {
    false
}

#[cfg(feature = "seeded-mistakes")]
pub use seeded::{Made, make};

#[cfg(feature = "seeded-mistakes")]
pub(crate) use seeded::is_made;

#[cfg(feature = "seeded-mistakes")]
mod seeded {
    use super::Mistake;
    use core::sync::atomic::{AtomicU16, Ordering};

    /// No mistake.
    const NONE: u16 = u16::MAX;
    static MADE: AtomicU16 = AtomicU16::new(NONE);

    #[inline(always)]
    pub(crate) fn is_made(mistake: Mistake) -> bool {
        MADE.load(Ordering::Relaxed) == mistake as u16
    }

    /// A mistake that is switched on.
    #[derive(Debug)]
    pub struct Made(());

    /// Has the whole driver of this process make a mistake, and no other, until the result is dropped.
    #[must_use = "it is made as long as this lives"]
    pub fn make(mistake: Mistake) -> Made {
        MADE.store(mistake as u16, Ordering::Relaxed);
        Made(())
    }

    impl Drop for Made {
        fn drop(&mut self) {
            MADE.store(NONE, Ordering::Relaxed);
        }
    }
}
