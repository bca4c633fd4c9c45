//! WQEs, taken apart.

use mlx5_direct::wqe::{self, Peer, Placed, Segments};

/// The bytes of a WQE, for whichever peer.
pub(crate) fn check(input: &[u8]) {
    for peer in [Peer::None, Peer::Av, Peer::DcAv, Peer::Xrc, Peer::Eth, Peer::Ipoib] {
        // What there is of a broken one: bytes in order, each once, and the rule last.
        let (mut end, mut n_segments, mut broken) = (0, 0, None);
        for placed in Segments::new(input, peer) {
            assert_eq!(broken, None);
            match placed {
                Ok(Placed { at_bytes, segment }) => {
                    assert!(at_bytes >= end, "{segment:?}");
                    end = at_bytes + segment.desc().map_or(segment.payload().len(), |desc| desc.size_bytes);
                    assert!(end <= input.len());
                    n_segments += 1;
                }
                Err(error) => broken = Some(error),
            }
        }
        match wqe::decode_as(input, peer) {
            Ok(wqe) => {
                assert_eq!(broken, None);
                assert_eq!(wqe.segments().count(), n_segments);
                assert!(n_segments <= 64 && end <= wqe.bytes().len());
                assert!(wqe.to_string().lines().count() > n_segments && !format!("{wqe:?}").is_empty());
            }
            Err(error) => {
                assert!(error.at_bytes <= input.len() && !error.to_string().is_empty(), "{error}");
            }
        }
    }
}
