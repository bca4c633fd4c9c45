//! Requests in JSON, encoded.

use mlx5_direct::wqe::{self, Peer};
use mlx5_study::{
    encode::encode,
    structure::{self, ReceiveHead, Transport},
};
use serde_json::Value;

/// A request as a line of JSON: what is encoded can be taken apart, and is no longer than its ring.
pub(crate) fn check(input: &[u8]) {
    let Ok(request) = serde_json::from_slice::<Value>(input) else { return };
    let encoded = match encode(&request) {
        Ok(encoded) => encoded,
        Err(refusal) => return assert!(!refusal.to_string().is_empty()),
    };
    assert!(encoded.json(request.get("id")).is_object());
    let wqe = encoded.wqe();
    let Some(transport) = encoded.transport else {
        let receive = structure::receive(wqe, ReceiveHead::None);
        return assert!(receive.is_some_and(|receive| !receive.says.is_empty()), "{request}");
    };
    let peer = match transport {
        Transport::Ud => Peer::Av,
        Transport::Xrc => Peer::Xrc,
        Transport::Raw => Peer::Eth,
        _ => Peer::None,
    };
    let decoded = wqe::decode_as(wqe, peer).unwrap_or_else(|error| panic!("{request}: {error}"));
    assert_eq!(decoded.bytes(), wqe);
    for placed in decoded.placed() {
        if let Some(desc) = placed.segment.desc() {
            assert_eq!(desc.reserved_bit_set(&wqe[placed.at_bytes..]), None, "{}: {request}", desc.name);
        }
    }
    let says = structure::wqe(wqe, Some(transport)).map(|wqe| wqe.says);
    assert!(says.is_some_and(|says| !says.is_empty()), "{request}");
    assert_eq!(encoded.drafted.n_wqebbs as usize, wqe.len().div_ceil(64), "{request}");
}
