//! Structures, traces and packets, taken apart to be compared.

use super::decoding::{KINDS, TALKS};
use mlx5_study::{
    diff::{
        Parts, compare,
        trace::{self, Aligned},
    },
    wire::Packet,
};

/// As what, of which transport, and what is different on the other side; then the bytes.
pub(crate) fn check(input: &[u8]) {
    let Some(([kind, talks, at, change], bytes)) = input.split_first_chunk() else { return };
    let (kind, transport) =
        (KINDS[usize::from(*kind) % KINDS.len()], TALKS[usize::from(*talks) % TALKS.len()]);
    let mut other = bytes.to_vec();
    if let Some(n) = usize::from(*at).checked_rem(other.len()) {
        other[n] ^= change;
    }
    match [bytes, &other].map(|bytes| Parts::parse(bytes, kind, transport)) {
        [Ok(a), Ok(b)] => {
            let difference = compare(&a, &b);
            assert_eq!(
                difference.is_equal(),
                bytes == other,
                "{kind:?} {transport:?} {bytes:02x?}: {difference:?}"
            );
            assert_eq!(difference.json().as_array().map(Vec::len), Some(difference.pairs.len()));
        }
        sides => {
            for refused in sides.into_iter().filter_map(Result::err) {
                assert!(!refused.is_empty());
            }
        }
    }
    traces(bytes);
    packet(bytes);
}

/// A trace is aligned with itself, and so are its events.
fn traces(bytes: &[u8]) {
    let Some(events) = trace::read(bytes) else { return };
    let aligned = trace::align(&events, &events).expect("no edits");
    let both = |n: usize| aligned[n] == Aligned::Both(n, n);
    assert!(aligned.len() == events.len() && (0..events.len()).all(both), "{aligned:?}");
    for event in &events {
        let parts = Parts::of_event(event);
        assert!(compare(&parts, &parts).is_equal() && !event.to_string().is_empty());
    }
}

/// Headers stand side by side, with the payload and its padding before the ICRC, which is last.
fn packet(bytes: &[u8]) {
    let packet = match Packet::parse(bytes) {
        Ok(packet) => packet,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let mut at = 0;
    let (icrc, headers) = packet.headers.split_last().expect("headers");
    for header in headers {
        assert_eq!(
            (header.offset_bytes, header.bytes.len()),
            (at, header.desc.size_bytes),
            "{}",
            header.title
        );
        at += header.bytes.len();
    }
    assert_eq!(packet.payload.start, at);
    assert_eq!(packet.payload.end + packet.pad_bytes, icrc.offset_bytes);
    assert!(icrc.offset_bytes + 4 <= bytes.len());
}
