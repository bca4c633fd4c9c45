//! Receive requests taken apart.

use super::{json::fields, says::grouped};
use crate::record::Structure;
use mlx5_direct::{
    mlx5::layout::Layout,
    wqe::{DataSeg, RecvSigSeg, SEGMENT_BYTES, SrqNextSeg},
};
use serde_json::{Map, Value, json};

/// What a receive WQE begins with: it depends on the queue, and no WQE says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReceiveHead {
    /// Its pieces of memory: a queue pair's own queue.
    #[default]
    None,
    /// The next segment: a shared receive queue, or a list of striding buffers.
    Next,
    /// A signature: a queue pair with signatures.
    Signature,
}

/// A receive request taken apart.
#[derive(Debug, Clone)]
pub struct Receive {
    /// As `--json` has it.
    pub json: Map<String, Value>,
    /// Its segments, each with its place.
    pub structures: Vec<Structure>,
    /// In one sentence.
    pub says: String,
    /// What in it misleads.
    pub corrections: Vec<String>,
}

/// Takes apart a receive WQE: `None` if there is no whole segment. The list ends with the bytes, or where a terminator is.
pub fn receive(bytes: &[u8], head: ReceiveHead) -> Option<Receive> {
    let segments = bytes.as_chunks::<SEGMENT_BYTES>().0;
    segments.first()?;
    let (mut structures, mut json) = (Vec::new(), Map::new());
    let mut add = |title: &str, at: usize, desc, json_name: &str| {
        let here = &bytes[at..at + SEGMENT_BYTES];
        structures.push(Structure { title: title.into(), offset_bytes: at, desc, bytes: here.to_vec() });
        let segment = Value::Object(fields(desc, here));
        match json.get_mut(json_name) {
            Some(Value::Array(list)) => list.push(segment),
            _ if json_name == "data" => drop(json.insert(json_name.into(), json!([segment]))),
            _ => drop(json.insert(json_name.into(), segment)),
        }
    };
    let n_heads = match head {
        ReceiveHead::None => 0,
        ReceiveHead::Next => {
            add("next segment", 0, SrqNextSeg::DESC, "srq_next");
            1
        }
        ReceiveHead::Signature => {
            add("signature segment", 0, RecvSigSeg::DESC, "rq_sig");
            1
        }
    };
    let (mut n_pieces, mut total, mut ended_at) = (0, 0, None);
    for (i, segment) in segments.iter().enumerate().skip(n_heads) {
        let data = DataSeg::from_bytes(*segment);
        let at = i * SEGMENT_BYTES;
        if data.is_terminator() {
            add("terminator", at, DataSeg::DESC, "terminator");
            ended_at = Some(at + SEGMENT_BYTES);
            break;
        }
        // What was never posted, or a shared queue's room that nobody has used.
        if data == DataSeg::new() {
            ended_at = Some(at);
            break;
        }
        n_pieces += 1;
        total += u64::from(data.len_bytes());
        add(&format!("data segment {n_pieces}"), at, DataSeg::DESC, "data");
    }
    let says = match n_pieces {
        0 => "receive request without memory: it takes a message of length 0".into(),
        1 => format!("receive request of {} bytes", grouped(total)),
        n => format!("receive request of {n} pieces, {} bytes in all", grouped(total)),
    };
    let stale = ended_at.is_some_and(|end| bytes[end..].iter().any(|byte| *byte != 0));
    let corrections = match stale {
        true => vec!["what follows the end of the list is left of older requests".to_owned()],
        false => Vec::new(),
    };
    Some(Receive { json, structures, says, corrections })
}
