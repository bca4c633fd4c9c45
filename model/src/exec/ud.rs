//! Datagrams: the engine of UD queue pairs, of QP0 and QP1, and of the queue pair that registers memory.
//!
//! A SEND is one packet, and done when it is sent. What arrives is preceded by 40 bytes of network header.

use super::{
    completion::{self, Failure},
    config::{Path, QpConfig, QpState},
    counter::Counter,
    courier::{Courier, right},
    host::{Host, KeyFault, Need, Rule},
    paging::Waiting,
    progress::QpProgress,
    receive::{Missing, ReceiveQueue, last_wqe_reached},
    requester::Requester,
    wqe::{Piece, SendWqe, for_each_part},
};
use crate::wire::{
    Deth, LinkHeader, Opcode, Packet,
    packet::{DEFAULT_PKEY, GRH_BYTES},
};
use mlx5_direct::{
    mlx5::ids::Psn,
    wqe::{AvSeg, SendOpcode},
};

/// One queue pair of datagrams. See the [module](super).
#[derive(Debug)]
pub struct UdQp {
    config: QpConfig,
    state: QpState,
    requester: Requester,
    queue: ReceiveQueue,
    courier: Courier,
    /// The driver could not bring the pages of the next WQE.
    without_pages: bool,
}

impl UdQp {
    /// A QP in RST.
    pub fn new(config: QpConfig) -> Self {
        Self {
            config,
            state: QpState::Rst,
            requester: Requester::default(),
            queue: ReceiveQueue::default(),
            courier: Courier::default(),
            without_pages: false,
        }
    }

    /// Its state. The engine itself goes to SQER when a send fails, and to ERR when a receive does.
    pub const fn state(&self) -> QpState {
        self.state
    }

    /// Its attributes.
    pub const fn config(&self) -> &QpConfig {
        &self.config
    }

    /// Takes new attributes, and a state that the host found a legal transition to.
    pub fn set_state(&mut self, host: &mut dyn Host, state: QpState, config: QpConfig) {
        let from = std::mem::replace(&mut self.state, state);
        self.config = config;
        match state {
            QpState::Rst => *self = Self::new(config),
            QpState::Rts if from == QpState::Rtr => self.requester.start(&self.config),
            QpState::Err => {
                self.state = from;
                self.enter_error(host);
            }
            _ => {}
        }
    }

    /// The send doorbell rang, and record word 1 holds `counter`.
    pub fn doorbell(&mut self, host: &mut dyn Host, counter: u16) {
        self.requester.doorbell(host, &self.config, self.state, counter);
    }

    /// A packet for this QP came, with a good ICRC. One that nothing can take is dropped, as datagrams are.
    pub fn receive(&mut self, host: &mut dyn Host, packet: &Packet<'_>) {
        let headers = &packet.headers;
        let Some(deth) = headers.deth else { return };
        let receives = !matches!(self.state, QpState::Rst | QpState::Init | QpState::Err);
        if !receives || headers.bth.pkey != DEFAULT_PKEY {
            return;
        }
        if deth.qkey != self.config.qkey {
            return host.qkey_violation();
        }
        let (config, queue) = (&self.config, &mut self.queue);
        let ready = queue.ready(host, config, config.shared);
        let taken = match ready.and_then(|()| queue.take(host, config, config.shared)) {
            Ok(taken) => taken,
            Err(Missing::Broken) => return self.enter_error(host),
            Err(Missing::NoQueue | Missing::Empty) => {
                return host.count(self.config.qpn, Counter::OutOfBuffer);
            }
        };
        let len_bytes = GRH_BYTES + packet.payload.len();
        let config = &self.config;
        let result = if self.queue.capacity < len_bytes as u64 {
            Err(Failure::LOCAL_LENGTH)
        } else {
            // The 40 bytes are skipped where there is no header to put into them.
            let grh = headers.grh(packet.payload.len());
            let queue = &self.queue;
            grh.map_or(Ok(()), |grh| queue.scatter(host, config, &taken, 0, &grh))
                .and_then(|()| queue.scatter(host, config, &taken, GRH_BYTES as u64, packet.payload))
                .map_err(|_| Failure::RECEIVE_PROTECTION)
        };
        match result {
            Ok(()) => completion::receive_done(host, config, headers, &taken, len_bytes as u64, &[]),
            Err(failure) => {
                completion::receive_failed(host, config, &taken, failure);
                self.enter_error(host);
            }
        }
    }

    /// Sends what can be sent, at most `budget_packets`. Returns whether there is more to do at once.
    pub fn run(&mut self, host: &mut dyn Host, budget_packets: usize) -> bool {
        for _ in 0..budget_packets {
            match self.state {
                QpState::Rts if self.requester.has_next() => self.send_next(host),
                QpState::Sqer => {
                    self.requester.flush(host, &self.config);
                    return false;
                }
                QpState::Err => {
                    self.flush(host);
                    return false;
                }
                _ => return false,
            }
        }
        true
    }

    fn send_next(&mut self, host: &mut dyn Host) {
        let mut wqe = SendWqe::default();
        let read = self.requester.read_wqe(host, &self.config, &mut wqe);
        self.requester.fetch = self.requester.fetch.wrapping_add(wqe.n_wqebbs);
        let without_pages = std::mem::take(&mut self.without_pages);
        let sent = read.and_then(|()| match wqe.opcode() {
            _ if without_pages => Err(Failure::SEND_PROTECTION),
            SendOpcode::NOP => Ok(true),
            _ => match &wqe.local {
                Some(local) => local.execute(host, &self.config, wqe.index, wqe.imm).map(|()| true),
                None => self.send(host, &wqe),
            },
        });
        match sent {
            Ok(true) => self.requester.complete(host, &self.config, &wqe, &[]),
            // It is read again when its pages are there.
            Ok(false) => self.requester.fetch = wqe.index,
            Err(failure) => {
                self.requester.report_failure(host, &self.config, &wqe, failure);
                self.state = QpState::Sqer;
            }
        }
    }

    /// Sends a datagram. Returns false if it has to wait for pages.
    fn send(&mut self, host: &mut dyn Host, wqe: &SendWqe) -> Result<bool, Failure> {
        let (mtu, len) = (u64::from(self.config.mtu_bytes), wqe.len_bytes);
        if len > mtu {
            let detail = format_args!("datagram of {len} bytes, the MTU is {mtu}");
            host.violation(self.config.qpn, Some(wqe.index), Rule::MessageTooLong, detail);
            return Err(Failure::LOCAL_LENGTH);
        }
        let av = wqe.av.unwrap_or_default();
        let config = QpConfig { path: path(&av), remote_qpn: av.dqpn_dctn(), ..self.config };
        let with_imm = wqe.opcode() == SendOpcode::SEND_IMM;
        let opcode = if with_imm { Opcode::UD_SEND_ONLY_IMM } else { Opcode::UD_SEND_ONLY };
        let psn = self.requester.next_psn;
        self.requester.next_psn = Psn::new(psn.get() + 1);
        // Without a source address nothing is sent; that was reported, and datagrams may be lost.
        let Some(mut headers) = self.courier.headers(host, &config, opcode, psn) else { return Ok(true) };
        if matches!(headers.link, LinkHeader::Ethernet(link) if link.dest == [0; 6]) {
            // A card sends it, to nobody.
            let detail = format_args!("rmac is 00:00:00:00:00:00");
            host.violation(self.config.qpn, Some(wqe.index), Rule::AddressVector, detail);
        }
        // The upper bit of the key given says: use the queue pair's own.
        let qkey = if av.qkey() >> 31 != 0 { self.config.qkey } else { av.qkey() };
        headers.deth = Some(Deth { qkey, source_qpn: self.config.source_qpn });
        headers.imm = Some(wqe.imm);
        headers.bth.solicited = wqe.solicited;
        let right = right(&config, 0, Need::LocalRead);
        let sent = self.courier.send(host, &headers, len as usize, |host, payload| {
            for_each_part(&wqe.pieces, 0, len, |part, range| match part {
                Piece::Memory { lkey, addr, .. } => {
                    host.read(&super::host::Right { key: lkey, ..right }, addr, &mut payload[range])
                }
                Piece::Inline { start, .. } => {
                    let data = &wqe.inline[start..start + range.len()];
                    payload[range].copy_from_slice(data);
                    Ok(())
                }
            })
        });
        match sent {
            Ok(()) => Ok(true),
            Err(KeyFault::Absent) => {
                self.requester.waiting = Some(Waiting::begin(host, &self.config, wqe, 0));
                Ok(false)
            }
            Err(_) => Err(Failure::SEND_PROTECTION),
        }
    }

    /// The driver has answered a page fault: it has brought the pages, or could not.
    pub fn resume(&mut self, error: bool) {
        let waiting = self.requester.waiting.take();
        self.without_pages = waiting.and_then(|waiting| waiting.failed(error)).is_some();
    }

    /// What QUERY_QP reports.
    pub fn progress(&self) -> QpProgress {
        QpProgress { hw_rq_counter: self.queue.consumed, ..QpProgress::unacknowledged(&self.requester) }
    }

    fn enter_error(&mut self, host: &mut dyn Host) {
        let was = std::mem::replace(&mut self.state, QpState::Err);
        self.flush(host);
        last_wqe_reached(host, &self.config, was);
    }

    fn flush(&mut self, host: &mut dyn Host) {
        self.requester.flush(host, &self.config);
        self.queue.flush(host, &self.config);
    }
}

/// The way that an address vector names.
pub(super) fn path(av: &AvSeg) -> Path {
    Path {
        gid_index: av.src_addr_index(),
        dest_mac: av.rmac(),
        dest_gid: av.rgid(),
        dest_lid: av.rlid_or_udp_sport(),
        sl: av.sl(),
        grh: av.grh(),
        udp_source_port: av.rlid_or_udp_sport(),
        traffic_class: av.tclass(),
        hop_limit: av.hop_limit(),
        flow_label: av.flow_label(),
        // Above a bit of its own: libmlx5 and Linux shift the service level by one on RoCE.
        eth_prio: av.sl() >> 1,
        ack_timeout: 0,
    }
}
