//! Send and receive requests taken apart.

mod guess;
mod json;
mod receive;
mod says;

pub use receive::{Receive, ReceiveHead, receive};

use super::Transport;
use crate::record::Structure;
use mlx5_direct::wqe::{
    CtrlSeg, DecodeError, Peer, Placed, SEGMENT_BYTES, Segment, Segments, SendOpcode, WQEBB_BYTES,
};
use serde_json::{Map, Value, json};

/// A send request taken apart.
#[derive(Debug, Clone)]
pub struct Wqe {
    /// As `--json` has it.
    pub json: Map<String, Value>,
    /// Its segments, each with its place.
    pub structures: Vec<Structure>,
    /// In one sentence.
    pub says: String,
    /// What in it misleads, and what is broken.
    pub corrections: Vec<String>,
    /// How its queue pair talks: as was said, or as it looks.
    pub transport: Transport,
    /// Whether that was guessed.
    pub is_guessed: bool,
}

/// Takes apart the send WQE at the start of `bytes`, as much of it as is there. Without a transport the one is taken that
/// the bytes are most like. `None` if there is not even a control segment.
pub fn wqe(bytes: &[u8], transport: Option<Transport>) -> Option<Wqe> {
    let first = bytes.first_chunk::<SEGMENT_BYTES>()?;
    let ctrl = CtrlSeg::from_bytes(*first);
    let (transport, peer, doubt) = match transport {
        Some(transport) => (transport, peer_of(transport, ctrl.opcode()), None),
        None => guess::guess(bytes, ctrl),
    };
    let (segments, broken) = taken_apart(bytes, peer);
    let mut corrections = Vec::new();
    corrections.extend(doubt.map(str::to_owned));
    corrections.extend(guess::no_wqe(bytes, ctrl));
    corrections.extend(broken.map(|error| format!("{error}: not all of it is here, or it is malformed")));
    let left = left_over(bytes, &segments);
    corrections.extend(left);
    let mut json = json::of(&segments, bytes);
    json.insert("transport".into(), json!(transport.name()));
    json.insert("transport_guessed".into(), json!(doubt.is_some()));
    let structures = structures(&segments, bytes);
    let says = says::sentence(transport, doubt.is_some(), &segments);
    Some(Wqe { json, structures, says, corrections, transport, is_guessed: doubt.is_some() })
}

/// The form that a request of a transport has.
fn peer_of(transport: Transport, opcode: SendOpcode) -> Peer {
    match transport {
        Transport::Rc | Transport::Uc => Peer::None,
        // With segmentation of TCP, it is IPoIB.
        Transport::Ud if opcode == SendOpcode::LSO => Peer::Ipoib,
        Transport::Ud => Peer::Av,
        Transport::Dc => Peer::DcAv,
        Transport::Xrc => Peer::Xrc,
        Transport::Raw => Peer::Eth,
    }
}

/// The segments that are there, and what is wrong after them.
fn taken_apart(bytes: &[u8], peer: Peer) -> (Vec<Placed<'_>>, Option<DecodeError>) {
    let (mut segments, mut broken) = (Vec::new(), None);
    for placed in Segments::new(bytes, peer) {
        match placed {
            Ok(placed) => segments.push(placed),
            Err(error) => broken = Some(error),
        }
    }
    (segments, broken)
}

/// What a dump of whole WQEBBs has behind the WQE: old requests, which look like segments.
fn left_over(bytes: &[u8], segments: &[Placed<'_>]) -> Option<String> {
    let Some(Segment::Ctrl(ctrl)) = segments.first().map(|first| first.segment) else { return None };
    let end = usize::from(ctrl.ds()) * SEGMENT_BYTES;
    let behind = bytes.get(end..)?;
    let is_of_last = behind.len() < WQEBB_BYTES && end != 0 && behind.iter().any(|byte| *byte != 0);
    is_of_last.then(|| {
        format!(
            "ds says {end} bytes: the {} behind them are not of this WQE, but left of older ones",
            behind.len()
        )
    })
}

fn structures(segments: &[Placed<'_>], bytes: &[u8]) -> Vec<Structure> {
    let mut counts = Map::new();
    let mut list = Vec::new();
    for Placed { at_bytes, segment } in segments {
        let Some(desc) = segment.desc() else { continue };
        let name = title(segment);
        let n = counts.get(name).and_then(Value::as_u64).unwrap_or(0) + 1;
        counts.insert(name.into(), json!(n));
        let is_of_many = segments.iter().filter(|other| title(&other.segment) == name).count() > 1;
        let title = if is_of_many { format!("{name} {n}") } else { name.into() };
        let here = &bytes[*at_bytes..at_bytes + desc.size_bytes];
        list.push(Structure { title, offset_bytes: *at_bytes, desc, bytes: here.to_vec() });
    }
    list
}

/// What a segment is called.
fn title(segment: &Segment<'_>) -> &'static str {
    match segment {
        Segment::Ctrl(_) => "control segment",
        Segment::Av(_) | Segment::DcAv(_) => "address vector segment",
        Segment::AvBase(_) | Segment::DcAvBase(_) => "compact address vector",
        Segment::Xrc(_) => "XRC segment",
        Segment::EthPad(_) => "pad before the Ethernet segment",
        Segment::Eth { .. } => "Ethernet segment",
        Segment::Raddr(_) => "remote address segment",
        Segment::Atomic(_) => "atomic segment",
        Segment::MaskedCas64(_) | Segment::MaskedCas32(_) => "masked compare-and-swap segment",
        Segment::MaskedFa64(_) | Segment::MaskedFa32(_) => "masked fetch-and-add segment",
        Segment::Data(_) => "data segment",
        Segment::Inline { .. } => "inline segment",
        Segment::UmrCtrl(_) => "UMR control segment",
        Segment::Mkc(_) => "memory key context",
        Segment::Klm(_) => "KLM entry",
        Segment::Mtt(_) => "MTT entry",
        Segment::RepeatBlock(_) => "repeat block",
        Segment::RepeatEntry(_) => "repeat entry",
        Segment::BsfBasic(_) => "BSF",
        Segment::BsfExt(_) => "BSF extension",
        Segment::BsfWire(_) => "BSF of the wire",
        Segment::BsfMem(_) => "BSF of the memory",
        Segment::BsfCrypto(_) => "BSF of encryption",
        Segment::TlsStatic(_) => "TLS static parameters",
        Segment::TlsProgress(_) => "TLS progress parameters",
        Segment::SetPsv(_) => "SET_PSV segment",
        Segment::GetPsv(_) => "GET_PSV segment",
        Segment::CheckPsv(_) => "CHECK_PSV segment",
        Segment::WaitCq(_) | Segment::WaitTime(_) => "WAIT segment",
        Segment::SendEn(_) => "SEND_EN segment",
        Segment::Tm(_) => "tag matching segment",
        Segment::Mmo(_) => "MMO segment",
        Segment::AsoCtrl(_) => "ASO control segment",
        Segment::FlowUpdate(_) => "flow update segment",
        _ => "segment",
    }
}
