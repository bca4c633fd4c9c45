//! Extension headers, which stand behind the BTH as the opcode has them.

use mlx5_direct::mlx5::ids::{Psn, Qpn};

/// RDMA extended transport header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reth {
    /// Address at the responder.
    pub addr: u64,
    /// Key at the responder.
    pub rkey: u32,
    /// Length of the whole message.
    pub len_bytes: u32,
}

/// Datagram extended transport header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deth {
    /// Key that the receiver must have.
    pub qkey: u32,
    /// The sender.
    pub source_qpn: Qpn,
}

/// Who asks a DC target for something. A form of the model's own: DC's is not public.
///
/// There is no handshake. A target that does not know the session begins it at `oldest`; one that does has executed all before
/// it, or was not asked: PSNs of an initiator go on when it turns to another target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DcEth {
    /// Key that the target must have.
    pub access_key: u64,
    /// A life of the initiator, from its way to RTS to its next reset: no two have the same.
    pub session: u32,
    /// The initiator.
    pub source_qpn: Qpn,
    /// The oldest PSN not acknowledged.
    pub oldest: Psn,
}

/// Atomic extended transport header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AtomicEth {
    /// Address at the responder.
    pub addr: u64,
    /// Key at the responder.
    pub rkey: u32,
    /// Value to swap in or to add.
    pub swap_or_add: u64,
    /// Value to compare with.
    pub compare: u64,
}

/// Behind the [`AtomicEth`] of an atomic under masks. A form of the model's own: how cards ask for these is not public.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MaskEth {
    /// Length of the word: 4 or 8.
    pub len_bytes: u32,
    /// Bits that are swapped, or those at which a carry stops.
    pub swap_or_boundary: u64,
    /// Bits that are compared.
    pub compare: u64,
}

/// Acknowledge extended transport header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aeth {
    /// `[6:5]` kind: 0 ACK, 1 RNR NAK, 3 NAK; `[4:0]` credits, timer code or NAK code.
    pub syndrome: u8,
    /// Message sequence number, 24 bits.
    pub msn: u32,
}

/// What an [`Aeth`] says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acknowledgement {
    /// All requests up to this PSN were executed.
    Ack,
    /// No receive WQE: try again after the time of this code.
    RnrNak(u8),
    /// Expected an earlier PSN: this one.
    SequenceError,
    /// The request breaks a rule.
    InvalidRequest,
    /// No right to the memory.
    AccessError,
    /// The responder failed.
    OperationalError,
    /// Reserved code.
    Unknown(u8),
}

impl Aeth {
    /// An acknowledgement in answer, with the responder's message sequence number.
    pub const fn new(what: Acknowledgement, msn: u32) -> Self {
        let syndrome = match what {
            // Credits 31: end-to-end flow control is not used.
            Acknowledgement::Ack => 0x1f,
            Acknowledgement::RnrNak(timer) => 0x20 | timer & 0x1f,
            Acknowledgement::SequenceError => 0x60,
            Acknowledgement::InvalidRequest => 0x61,
            Acknowledgement::AccessError => 0x62,
            Acknowledgement::OperationalError => 0x63,
            Acknowledgement::Unknown(syndrome) => syndrome,
        };
        Self { syndrome, msn }
    }

    /// What it says.
    pub const fn what(&self) -> Acknowledgement {
        match self.syndrome {
            0x00..=0x1f => Acknowledgement::Ack,
            0x20..=0x3f => Acknowledgement::RnrNak(self.syndrome & 0x1f),
            0x60 => Acknowledgement::SequenceError,
            0x61 => Acknowledgement::InvalidRequest,
            0x62 => Acknowledgement::AccessError,
            0x63 => Acknowledgement::OperationalError,
            syndrome => Acknowledgement::Unknown(syndrome),
        }
    }
}
