//! A send WQE taken apart: for error reports, `--explain`, and whoever looks at a ring.

mod rule;
mod segment;
#[cfg(test)]
mod tests;
mod umr;
mod walk;

pub use rule::{DecodeError, Rule};
pub use segment::{Placed, Segment};
pub use walk::Segments;

use super::{CtrlSeg, SEGMENT_BYTES};
use core::fmt;

/// What of a request says whom it is for, behind the control segment. It depends on the queue pair, and no WQE says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Peer {
    /// Nothing, since the queue pair knows: RC and UC.
    None,
    /// An address vector: UD.
    Av,
    /// An address vector with an access key: a DC initiator.
    DcAv,
    /// The number of a shared receive queue: an XRC initiator.
    Xrc,
    /// No peer at all, but what the device does to the frame: raw packets, and Linux's netdevs.
    Eth,
    /// An address vector, and what the device does to the packet: IPoIB of Linux's netdevs.
    Ipoib,
}

/// A send WQE whose segments fit its opcode and length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodedWqe<'a> {
    bytes: &'a [u8],
    peer: Peer,
}

/// Takes apart the WQE at the start of `bytes`, which go on at least to its end (a wrapped one is copied out
/// of its ring first: [`SendQueue::copy_wqe`](crate::queue::SendQueue::copy_wqe)).
///
/// ```
/// use mlx5_direct::wqe::{self, CtrlSeg, SendOpcode};
///
/// let nop = CtrlSeg::new().with_opcode(SendOpcode::NOP).with_ds(1);
/// assert_eq!(wqe::decode(&nop.to_bytes()).unwrap().segments().count(), 1);
///
/// let long = nop.with_ds(2).to_bytes();
/// assert!(wqe::decode(&long).unwrap_err().to_string().contains("ds says 32 bytes, but only 16 are there"));
/// ```
///
/// # Errors
/// The first rule that the WQE breaks, and where.
pub fn decode(bytes: &[u8]) -> Result<DecodedWqe<'_>, DecodeError> {
    decode_as(bytes, Peer::None)
}

/// As [`decode`], of a queue pair whose requests say so much of their peer.
///
/// # Errors
/// The first rule that the WQE breaks, and where.
pub fn decode_as(bytes: &[u8], peer: Peer) -> Result<DecodedWqe<'_>, DecodeError> {
    let mut walk = Segments::new(bytes, peer);
    if let Some(error) = walk.shortage() {
        return Err(error);
    }
    let whole = walk.bytes;
    walk.try_for_each(|placed| placed.map(|_| ()))?;
    Ok(DecodedWqe { bytes: whole, peer })
}

impl<'a> DecodedWqe<'a> {
    /// The control segment.
    pub fn ctrl(&self) -> CtrlSeg {
        let mut first = [0; SEGMENT_BYTES];
        first.copy_from_slice(&self.bytes[..SEGMENT_BYTES]);
        CtrlSeg::from_bytes(first)
    }

    /// The WQE: `ds` times 16 bytes.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The segments, in order.
    pub fn segments(&self) -> impl Iterator<Item = Segment<'a>> + use<'a> {
        self.placed().map(|placed| placed.segment)
    }

    /// The segments, each with its place.
    pub fn placed(&self) -> impl Iterator<Item = Placed<'a>> + use<'a> {
        Segments::new(self.bytes, self.peer).map_while(Result::ok)
    }
}

impl fmt::Display for DecodedWqe<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ctrl = self.ctrl();
        writeln!(
            f,
            "WQE 0x{:04x} of QP {}: {}, {} bytes",
            ctrl.wqe_index(),
            ctrl.qpn(),
            ctrl.opcode(),
            self.bytes.len()
        )?;
        for Placed { at_bytes, segment } in self.placed() {
            let what = match segment.desc() {
                Some(desc) => {
                    write!(f, "{}:\n{}", desc.name, desc.explain(&self.bytes[at_bytes..]))?;
                    if matches!(segment, Segment::Eth { .. }) { "header" } else { "data" }
                }
                None => {
                    writeln!(f, "segments of {}:", ctrl.opcode())?;
                    "bytes"
                }
            };
            hex(f, what, segment.payload())?;
        }
        Ok(())
    }
}

fn hex(f: &mut fmt::Formatter<'_>, what: &str, bytes: &[u8]) -> fmt::Result {
    for (i, line) in bytes.chunks(16).enumerate() {
        write!(f, "  {:<28} ", if i == 0 { what } else { "" })?;
        for byte in line {
            write!(f, "{byte:02x}")?;
        }
        writeln!(f)?;
    }
    Ok(())
}
