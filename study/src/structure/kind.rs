//! What bytes are, where nothing says it.

use super::{ReceiveHead, cqe::is_session};
use mlx5_direct::{
    cqe::{CQE_BYTES, CqeOpcode, CqeSyndrome, ErrorCqe, OP_OWN_OFFSET, RequesterCqe},
    mlx5::{
        cmd::{CmdEntry, PCI_CMD_XPORT},
        eqe::{Eqe, EventType},
        layout::Layout,
    },
    wqe::{self, CtrlSeg, Peer, SEGMENT_BYTES},
};

/// What bytes are to be read as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum As {
    /// Whatever they look like.
    #[default]
    Auto,
    /// A send request.
    Wqe,
    /// A receive request: like nothing, so never guessed.
    Receive(ReceiveHead),
    /// A completion.
    Cqe,
    /// An event.
    Eqe,
    /// A slot of the command queue, or a command's input or output.
    Cmd,
}

/// How the queue pair of a request talks: no request says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Datagrams.
    Ud,
    /// Extended reliable connection, the initiator.
    Xrc,
    /// Dynamically connected, the initiator.
    Dc,
    /// Raw Ethernet.
    Raw,
}

impl Transport {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rc => "RC",
            Self::Uc => "UC",
            Self::Ud => "UD",
            Self::Xrc => "XRC",
            Self::Dc => "DC",
            Self::Raw => "raw packet",
        }
    }

    /// By its name, in whatever case: as verbs have it, or the command line.
    pub fn by_name(name: &str) -> Option<Self> {
        Some(match name.to_ascii_lowercase().as_str() {
            "rc" => Self::Rc,
            "uc" => Self::Uc,
            "ud" => Self::Ud,
            "xrc" | "xrc_send" | "xrc_recv" => Self::Xrc,
            "dc" | "dci" | "dct" | "driver" => Self::Dc,
            "raw" | "raw_packet" | "eth" => Self::Raw,
            _ => return None,
        })
    }
}

/// What bytes look like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guess {
    /// What they are most like.
    pub kind: As,
    /// Why, and how sure.
    pub why: String,
}

impl As {
    /// Its name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "whatever it looks like",
            Self::Wqe => "a WQE",
            Self::Receive(_) => "a receive WQE",
            Self::Cqe => "a CQE",
            Self::Eqe => "an EQE",
            Self::Cmd => "a command",
        }
    }
}

/// Points from which on bytes are hardly anything else.
const SURE: i32 = 5;

/// What `bytes` look like: `None` if like nothing.
pub fn guess(bytes: &[u8]) -> Option<Guess> {
    let mut scores =
        [(As::Cqe, cqe(bytes)), (As::Wqe, wqe(bytes)), (As::Eqe, eqe(bytes)), (As::Cmd, command(bytes))];
    scores.sort_by_key(|(_, (score, _))| core::cmp::Reverse(*score));
    let [(kind, (best, why)), (_, (second, _)), ..] = &scores;
    if *best < 2 {
        return None;
    }
    let sure = if best - second >= 3 { "quite sure" } else { "not sure: --as tells" };
    Some(Guess { kind: *kind, why: format!("{why}; {sure}") })
}

/// The CQEs in `bytes`: one of 64 or of 128, the title of a compressed session with its first array, or several of 64 one after
/// the other.
pub(crate) fn cqes(bytes: &[u8]) -> Vec<&[u8]> {
    let blocks = bytes.chunks(CQE_BYTES);
    let is_one = |bytes| is_session(bytes) || cqe(&bytes[..CQE_BYTES]).0 < SURE;
    let is_wide = bytes.len() == 2 * CQE_BYTES && is_one(bytes);
    if is_wide || bytes.len() <= CQE_BYTES { vec![bytes] } else { blocks.collect() }
}

/// Points for a CQE.
fn cqe(bytes: &[u8]) -> (i32, String) {
    let none = (0, String::new());
    let cqe = match bytes.len() {
        CQE_BYTES => bytes,
        n if n > CQE_BYTES && n.is_multiple_of(CQE_BYTES) => &bytes[n - CQE_BYTES..],
        _ => return none,
    };
    let Some(cqe) = cqe.first_chunk::<CQE_BYTES>() else { return none };
    let opcode = CqeOpcode(cqe[OP_OWN_OFFSET] >> 4);
    let Some(name) = opcode.name() else { return none };
    let error = ErrorCqe::from_bytes(*cqe);
    let mut score = 0;
    if matches!(opcode, CqeOpcode::REQ_ERR | CqeOpcode::RESP_ERR) {
        score += 2;
        score += if error.syndrome().name().is_some() { 4 } else { -2 };
        score += i32::from(opcode == CqeOpcode::RESP_ERR || error.send_wqe_opcode().name().is_some());
        score += i32::from(error.syndrome() != CqeSyndrome(0));
        return (
            score,
            format!("its last byte says opcode {name}, and syndrome 0x{:02x} is known", error.syndrome().0),
        );
    }
    let ok = RequesterCqe::from_bytes(*cqe);
    score += i32::from(opcode == CqeOpcode::REQ && error.send_wqe_opcode().name().is_some());
    score += i32::from(ok.qpn().get() != 0);
    score += i32::from(matches!(opcode.0, 1..=4)) * 2;
    // A clock of 56 bits stands where a WQE has data, and before it a length of no more than 2 GiB.
    let has_clock = ok.timestamp() != 0 && ok.timestamp() >> 56 == 0;
    score += if has_clock { 2 } else { -2 };
    score -= i32::from(ok.byte_cnt() > 1 << 31) * 3;
    score -= i32::from(cqe[0x28..0x2c] != [0; 4]) * 2;
    if opcode == CqeOpcode::INVALID {
        score = 1;
    }
    let clock = if has_clock { "a clock stands" } else { "no clock stands" };
    (score, format!("its last byte says opcode {name}, and {clock} before the QP number"))
}

/// Points for a send WQE.
fn wqe(bytes: &[u8]) -> (i32, String) {
    let Some(first) = bytes.first_chunk::<SEGMENT_BYTES>() else { return (0, String::new()) };
    let ctrl = CtrlSeg::from_bytes(*first);
    let Some(name) = ctrl.opcode().name() else { return (0, String::new()) };
    let ds_bytes = usize::from(ctrl.ds()) * SEGMENT_BYTES;
    if ctrl.ds() == 0 || ds_bytes > bytes.len() || CtrlSeg::DESC.reserved_bit_set(first).is_some() {
        return (0, String::new());
    }
    let mut score = 2;
    score += i32::from(ctrl.qpn().get() != 0);
    score += i32::from(ctrl.fm().name().is_some());
    score += i32::from(bytes.len() - ds_bytes < 64);
    let peers = [Peer::None, Peer::Av, Peer::DcAv, Peer::Xrc, Peer::Eth, Peer::Ipoib];
    let fits = peers.into_iter().any(|peer| wqe::decode_as(bytes, peer).is_ok());
    score += i32::from(fits) * 2;
    (score, format!("its control segment says {name} with ds {}, which fits its length", ctrl.ds()))
}

/// Whether `bytes` are a send WQE of just the length that it says, which words of a log hardly ever are.
pub(crate) fn is_whole_wqe(bytes: &[u8]) -> bool {
    let ctrl = bytes.first_chunk().map(|first| CtrlSeg::from_bytes(*first));
    let is_whole = ctrl
        .is_some_and(|ctrl| usize::from(ctrl.ds()) * SEGMENT_BYTES == bytes.len() && ctrl.qpn().get() != 0);
    is_whole && wqe(bytes).0 >= SURE
}

/// Points for an event.
fn eqe(bytes: &[u8]) -> (i32, String) {
    let Some(first) = bytes.first_chunk::<64>().filter(|_| bytes.len() == 64) else {
        return (0, String::new());
    };
    let eqe = Eqe::from_bytes(*first);
    let Some(name) = eqe.type_().name() else { return (0, String::new()) };
    if Eqe::DESC.reserved_bit_set(first).is_some()
        || eqe.type_() == EventType::COMP && first[0x38..0x3c] == [0; 4]
    {
        return (0, String::new());
    }
    let is_empty = eqe.event_data().iter().all(|byte| *byte == 0);
    (
        if is_empty { 1 } else { 5 },
        format!("its second byte says event {name}, and all reserved bits are zero"),
    )
}

/// Points for a slot of the command queue.
fn command(bytes: &[u8]) -> (i32, String) {
    let Some(first) = bytes.first_chunk::<64>().filter(|_| bytes.len() == 64) else {
        return (0, String::new());
    };
    let entry = CmdEntry::from_bytes(*first);
    let fits = entry.type_() == PCI_CMD_XPORT
        && CmdEntry::DESC.reserved_bit_set(first).is_none()
        && entry.input_length() >= 8
        && entry.output_length() >= 8;
    (i32::from(fits) * 8, "it is of type 7, and has lengths for input and output".into())
}
