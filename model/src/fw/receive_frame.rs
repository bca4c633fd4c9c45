//! A frame from the wire, or from a send queue here, to receive queues: steering, TIR, RQ, CQE.
#![forbid(unsafe_code)]

use super::{
    Function,
    host::FunctionHost,
    rq::Rq,
    tir::{Spread, Tir},
    wq::WqState,
};
use crate::{
    eth::{self, Hash, Headers, L4, Transport, checksum::Verdict},
    exec::{Counter, Host, Need, Right, Ring, Wake},
    strict::{Queue, Rule},
    trace::Kind,
};
use mlx5_direct::{
    cqe::{CqeL3HdrType, CqeL4HdrType, CqeOpcode, CqeSyndrome, ErrorCqe, EthernetCqe},
    mlx5::ids::Qpn,
    wqe::{DataSeg, SEGMENT_BYTES},
};

/// lkey of a data segment that ends a receive WQE's list.
const END_OF_LIST: u32 = 0x100;
const TCP_ACK: u16 = 0x10;

/// A frame, and what the device has found in it.
struct Arrival<'a> {
    frame: &'a [u8],
    headers: Headers,
    verdict: Verdict,
    hash: Hash,
    flow_tag: u32,
}

fn l4_type(arrival: &Arrival<'_>) -> CqeL4HdrType {
    let Some(L4 { transport, at, header_bytes }) = arrival.headers.l4 else { return CqeL4HdrType::NONE };
    let ack = arrival.headers.l4.is_some_and(|l4| l4.tcp_flags(arrival.frame) & TCP_ACK != 0);
    let end = arrival.headers.ip.map_or(0, |ip| ip.end(arrival.frame.len()));
    match (transport, ack, end > at + header_bytes) {
        (Transport::Udp, ..) => CqeL4HdrType::UDP,
        (Transport::Tcp, false, _) => CqeL4HdrType::TCP_NO_ACK,
        (Transport::Tcp, true, false) => CqeL4HdrType::TCP_ACK_NO_DATA,
        (Transport::Tcp, true, true) => CqeL4HdrType::TCP_ACK_AND_DATA,
    }
}

/// The CQE, but for what the queue says.
fn describe(arrival: &Arrival<'_>) -> EthernetCqe {
    let ip = arrival.headers.ip;
    EthernetCqe::new()
        .with_opcode(CqeOpcode::RESP_SEND)
        .with_l2_ok(true)
        .with_l3_ok(arrival.verdict.l3_ok)
        .with_l4_ok(arrival.verdict.l4_ok)
        .with_check_sum(arrival.verdict.complete)
        .with_l3_hdr_type(
            ip.map_or(CqeL3HdrType::NONE, |ip| if ip.v6 { CqeL3HdrType::IPV6 } else { CqeL3HdrType::IPV4 }),
        )
        .with_l4_hdr_type(l4_type(arrival))
        .with_ip_frag(ip.is_some_and(|ip| ip.fragment))
        .with_ip_ext_opts(ip.is_some_and(|ip| ip.options))
        .with_rss_hash_result(arrival.hash.result)
        .with_rss_hash_l4(arrival.hash.l4)
        .with_rss_hash_ip(arrival.hash.ip)
        .with_flow_tag(arrival.flow_tag)
}

impl Function {
    /// Steers a frame. `from` is the transport domain of the queue here that sent it, if one did.
    pub(super) fn receive_frame(&mut self, frame: &[u8], from: Option<u32>) {
        let headers = Headers::of(frame);
        let verdict = eth::checksum::check(frame, &headers);
        let fields = eth::fields(frame, &headers, &verdict);
        let mut targets = self.steering.steer(&fields, frame.len());
        if let Some(domain) = from {
            // The port's own multicasts come by here too: not received, nor missed, if nobody wants them.
            let takes = |tir: &Tir| tir.takes_own(domain, eth::is_multicast(frame));
            targets.retain(|target| self.tirs.get(target.tir).is_some_and(takes));
        }
        if from.is_none() || !targets.is_empty() {
            self.count_steered(frame, !targets.is_empty());
        }
        if targets.is_empty() {
            self.record(Kind::Note, &[], || "frame dropped: no flow entry takes it".into());
        }
        for target in targets {
            let Some(tir) = self.tirs.get(target.tir) else { continue };
            let mut arrival =
                Arrival { frame, headers, verdict, hash: Hash::default(), flow_tag: target.flow_tag };
            let number = match tir.spread() {
                Spread::Direct(rqn) => Some(rqn),
                Spread::Table { rqt, function, select } => {
                    if let Some(function) = function {
                        arrival.hash = eth::hash(frame, &headers, &function, &select);
                    }
                    self.rqts.get(rqt).and_then(|rqt| rqt.select(arrival.hash.result))
                }
            };
            if let Some(number) = number {
                self.fill_rq(number, &arrival);
            }
        }
    }

    /// Takes a receive WQE and writes the frame to where it says.
    fn fill_rq(&mut self, number: u32, arrival: &Arrival<'_>) {
        let Some(rq) = self.rqs.get(number).filter(|rq| rq.state == WqState::Ready) else { return };
        let set = rq.counter_set();
        let Some(n_posted) = self.posted(number) else { return };
        if n_posted == 0 {
            self.note(|| format!("RQ 0x{number:x}: frame dropped, no WQE is posted"));
            return self.count_in(set, Counter::OutOfBuffer);
        }
        let Some(rq) = self.rqs.get_mut(number) else { return };
        let index = rq.consumer;
        rq.consumer = index.wrapping_add(1);
        let mut cqe = describe(arrival);
        let stripped = match arrival.headers.tags[0] {
            Some((eth::C_VLAN, tci)) if rq.strips_vlan() => {
                cqe.set_vlan_stripped(true);
                cqe.set_vlan_prio((tci >> 13) as u8);
                cqe.set_vlan_cfi(tci >> 12 & 1 != 0);
                cqe.set_vlan_vid(tci);
                Some(eth::untagged(arrival.frame))
            }
            _ => None,
        };
        let mut frame = stripped.as_deref().unwrap_or(arrival.frame).to_vec();
        if rq.keeps_fcs() {
            frame.extend(crc32fast::hash(arrival.frame).to_le_bytes());
        }
        let (user_index, cqn) = (rq.user_index(), rq.cqn());
        match self.scatter(number, index, &frame) {
            Err(syndrome) => self.fail_rq(number, index, syndrome),
            Ok(()) => {
                let cqe = cqe
                    .with_srqn_or_user_index(user_index)
                    .with_byte_cnt(frame.len() as u32)
                    .with_timestamp(self.clock.now_ns())
                    .with_wqe_counter(index);
                self.post_completion(cqn, &cqe.into(), Wake::Any);
            }
        }
    }

    /// How many WQEs are posted and not taken, or `None` if the record makes no sense.
    fn posted(&mut self, number: u32) -> Option<u16> {
        let rq = self.rqs.get(number)?;
        let (consumer, n_wqes) = (rq.consumer, rq.n_wqes());
        match self.dma.load_be32(rq.receive_record()) {
            Ok(word) => {
                let producer = word as u16;
                let n_posted = producer.wrapping_sub(consumer);
                if u32::from(n_posted) <= n_wqes {
                    return Some(n_posted);
                }
                let detail = format!("counter {producer}: {n_posted} WQEs posted, the ring has {n_wqes}");
                self.violate_on(Queue::Rq(number), Rule::ProducerWithinRing, detail);
            }
            Err(fault) => {
                let detail = format!("doorbell record: {fault}");
                self.violate_on(Queue::Rq(number), Rule::DmaUnmapInUse, detail);
            }
        }
        None
    }

    fn scatter(&mut self, number: u32, index: u16, frame: &[u8]) -> Result<(), CqeSyndrome> {
        let rq = self.rqs.get(number).ok_or(CqeSyndrome::LOCAL_QP_OP_ERR)?;
        let pd = rq.pd();
        let wqe = rq.read_wqe(&self.dma, index).map_err(|fault| {
            self.violate_on(Queue::Rq(number), Rule::DmaUnmapInUse, format!("ring: {fault}"));
            CqeSyndrome::LOCAL_QP_OP_ERR
        })?;
        self.record(Kind::RecvWqe, &wqe, || format!("RQ 0x{number:x}, index {index}"));
        let mut rest = frame;
        for segment in wqe.as_chunks::<SEGMENT_BYTES>().0 {
            let data = DataSeg::from_bytes(*segment);
            if rest.is_empty() || data.lkey().get() == END_OF_LIST && data.len_bytes() == 0 {
                break;
            }
            let (piece, after) = rest.split_at(rest.len().min(data.len_bytes() as usize));
            rest = after;
            if !piece.is_empty() {
                let key = data.lkey().get();
                let right =
                    Right { key, pd, qpn: Qpn::new(number), need: Need::LocalWrite, queue: Ring::Receive };
                let written = FunctionHost { function: self }.write(&right, data.addr(), piece);
                written.map_err(|_| CqeSyndrome::LOCAL_PROT_ERR)?;
            }
        }
        if rest.is_empty() { Ok(()) } else { Err(CqeSyndrome::LOCAL_LENGTH_ERR) }
    }

    /// A WQE failed: the queue stops.
    fn fail_rq(&mut self, number: u32, index: u16, syndrome: CqeSyndrome) {
        self.post_rq_error(number, index, syndrome);
        if let Some(rq) = self.rqs.get_mut(number) {
            rq.state = WqState::Error;
        }
        self.flush_rq(number);
    }

    /// Completes everything posted as flushed.
    pub(super) fn flush_rq(&mut self, number: u32) {
        if !self.rqs.get(number).is_some_and(Rq::flushes) {
            return;
        }
        for _ in 0..self.posted(number).unwrap_or(0) {
            let Some(rq) = self.rqs.get_mut(number) else { return };
            let index = rq.consumer;
            rq.consumer = index.wrapping_add(1);
            self.post_rq_error(number, index, CqeSyndrome::WR_FLUSH_ERR);
        }
    }

    fn post_rq_error(&mut self, number: u32, index: u16, syndrome: CqeSyndrome) {
        let Some(rq) = self.rqs.get(number) else { return };
        let cqe = ErrorCqe::new()
            .with_srqn_or_user_index(rq.user_index())
            .with_syndrome(syndrome)
            .with_qpn(Qpn::new(number))
            .with_wqe_counter(index)
            .with_opcode(CqeOpcode::RESP_ERR);
        self.post_completion(rq.cqn(), &cqe.into(), Wake::Solicited);
    }
}
