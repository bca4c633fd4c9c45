//! Frames of send queues: gathered, offloaded, sent.
#![forbid(unsafe_code)]

use super::{Function, host::FunctionHost, sq::Fault};
use crate::{
    eth,
    exec::{Host, Need, Right, Ring},
    strict::Rule,
    trace::Kind,
};
use mlx5_direct::{
    cqe::CqeSyndrome,
    mlx5::{
        context::InlineMode,
        ids::{Pdn, Qpn},
    },
    wqe::{DataSeg, EthSeg, InlineSeg, SEGMENT_BYTES, SendOpcode},
};

/// Bytes of a frame's head that [`EthSeg`] itself holds.
const INLINE_START_BYTES: usize = EthSeg::HEADER_START_BYTES;
/// `inline_hdr_sz`: its bits.
const INLINE_SIZE: u16 = 0x3ff;
/// Shortest Ethernet header.
const ETHERNET_BYTES: usize = eth::MACS_BYTES + 2;
/// Longest frame, headers included.
const MAX_FRAME_BYTES: usize = super::vport::MAX_FRAME_MTU as usize + 18;
/// Longest payload of a large send.
const MAX_LSO_BYTES: usize = 1 << super::caps::LOG_MAX_LSO;

/// What a WQE holds.
struct Gathered {
    /// The inline header and what the data segments name.
    bytes: Vec<u8>,
    /// Bytes that were inline.
    n_inline: usize,
}

fn broken<T>(rule: Rule, text: impl Into<String>) -> Result<T, Fault> {
    Err((CqeSyndrome::LOCAL_QP_OP_ERR, Some((rule, text.into()))))
}

/// Bytes of a frame's head that a mode wants inline.
fn n_wanted(mode: InlineMode, head: &[u8]) -> usize {
    let headers = eth::Headers::of(head);
    match mode {
        InlineMode::L2 => ETHERNET_BYTES,
        InlineMode::IP => headers.ip.map_or(ETHERNET_BYTES, |ip| ip.at + ip.header_bytes),
        InlineMode::TCP_UDP => match (headers.l4, headers.ip) {
            (Some(l4), _) => l4.at + l4.header_bytes,
            (None, Some(ip)) => ip.at + ip.header_bytes,
            _ => ETHERNET_BYTES,
        },
        _ => 0,
    }
}

impl Function {
    /// Executes SEND and LSO.
    pub(super) fn send_frame(&mut self, number: u32, opcode: SendOpcode, wqe: &[u8]) -> Result<(), Fault> {
        let Some(segment) = wqe.get(SEGMENT_BYTES..2 * SEGMENT_BYTES).and_then(|bytes| bytes.try_into().ok())
        else {
            return broken(Rule::DsCoversSegments, "no Ethernet segment");
        };
        let eth = EthSeg::from_bytes(segment);
        let large = opcode == SendOpcode::LSO;
        let limit = if large { MAX_LSO_BYTES + usize::from(INLINE_SIZE) } else { MAX_FRAME_BYTES };
        let gathered = self.gather_frame(number, &eth, wqe, limit)?;
        let Some(context) = self.sqs.get(number).map(|sq| sq.context) else { return Ok(()) };
        let tag = eth.inline_hdr_sz() & EthSeg::INSERT_VLAN != 0;
        let wanted = n_wanted(context.min_wqe_inline_mode(), &gathered.bytes);
        // A tag to insert takes the inline header's place.
        if gathered.n_inline < wanted && !tag {
            let text = format!("{} bytes of the frame are inline, {wanted} must be", gathered.n_inline);
            return broken(Rule::MinInline, text);
        }
        if gathered.bytes.len() < ETHERNET_BYTES {
            return broken(Rule::MessageWithinLimit, "a frame without an Ethernet header");
        }
        if large != (eth.mss() != 0) {
            let text = format!("mss {} with opcode 0x{:02x}", eth.mss(), opcode.0);
            return broken(Rule::LsoSegments, text);
        }
        let frames = if large {
            let (head, payload) = gathered.bytes.split_at(gathered.n_inline);
            match eth::segments(head, payload, eth.mss().into()) {
                Some(frames) => frames,
                None => {
                    let text = format!("the {} inline bytes do not end with a TCP or UDP header", head.len());
                    return broken(Rule::LsoSegments, text);
                }
            }
        } else {
            vec![gathered.bytes]
        };
        let domain = self.tiss.get(context.tis_num_0()).map_or(0, |tis| tis.context.transport_domain());
        for frame in frames {
            let mut frame = if tag { eth::tagged(&frame, eth.inline_hdr_start()) } else { frame };
            eth::checksum::fill(&mut frame, eth.cs_flags());
            self.transmit_frame(frame, domain);
        }
        Ok(())
    }

    /// Reads the frame that a WQE describes.
    fn gather_frame(
        &mut self,
        number: u32,
        eth: &EthSeg,
        wqe: &[u8],
        limit_bytes: usize,
    ) -> Result<Gathered, Fault> {
        let (mut bytes, mut at) = (Vec::new(), 2 * SEGMENT_BYTES);
        if eth.inline_hdr_sz() & EthSeg::INSERT_VLAN == 0 && eth.inline_hdr_sz() != 0 {
            let n = usize::from(eth.inline_hdr_sz() & INLINE_SIZE);
            let start = at - INLINE_START_BYTES;
            let Some(inline) = wqe.get(start..start + n) else {
                return broken(Rule::DsCoversSegments, "the inline header ends after the WQE");
            };
            bytes.extend_from_slice(inline);
            at += n.saturating_sub(INLINE_START_BYTES).next_multiple_of(SEGMENT_BYTES);
        }
        let n_inline = bytes.len();
        let Some(sq) = self.sqs.get(number) else { return Ok(Gathered { bytes, n_inline }) };
        let pd: Pdn = sq.context.wq().pd();
        while let Some(segment) = wqe.get(at..).and_then(|rest| rest.first_chunk::<SEGMENT_BYTES>()) {
            let data = DataSeg::from_bytes(*segment);
            if data.inline() {
                // libmlx5 posts small frames so (`IBV_SEND_INLINE`).
                let n = usize::from(
                    InlineSeg::from_bytes(data.to_bytes()[..4].try_into().unwrap_or_default()).byte_count(),
                );
                let start = at + InlineSeg::HEADER_BYTES;
                let Some(inline) = wqe.get(start..start + n) else {
                    return broken(Rule::DsCoversSegments, "inline data end after the WQE");
                };
                bytes.extend_from_slice(inline);
                at += InlineSeg::n_octowords(n) * SEGMENT_BYTES;
                continue;
            }
            at += SEGMENT_BYTES;
            let len_bytes = data.len_bytes() as usize;
            if bytes.len() + len_bytes > limit_bytes {
                return broken(Rule::MessageWithinLimit, format!("more than {limit_bytes} bytes"));
            }
            if len_bytes == 0 {
                continue;
            }
            let start = bytes.len();
            bytes.resize(start + len_bytes, 0);
            let right = Right {
                key: data.lkey().get(),
                pd,
                qpn: Qpn::new(number),
                need: Need::LocalRead,
                queue: Ring::Send,
            };
            let read = FunctionHost { function: self }.read(&right, data.addr(), &mut bytes[start..]);
            read.map_err(|_| (CqeSyndrome::LOCAL_PROT_ERR, None))?;
        }
        Ok(Gathered { bytes, n_inline })
    }

    /// Sends a frame to the wire, to queues here, or to both, as its destination says.
    fn transmit_frame(&mut self, mut frame: Vec<u8>, domain: u32) {
        // Short frames are padded.
        frame.resize(frame.len().max(eth::MIN_FRAME_BYTES), 0);
        self.record(Kind::Packet, &frame, || "sent".into());
        self.count_sent(&frame);
        let own = frame[..6] == self.mac();
        let multicast = eth::is_multicast(&frame);
        if own && self.vport.loops_unicast() || multicast && self.vport.loops_multicast() {
            self.receive_frame(&frame, Some(domain));
        }
        if !own {
            self.outbox.push_back(frame);
        }
    }
}
