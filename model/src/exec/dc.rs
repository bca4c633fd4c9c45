//! Dynamically connected transport. An initiator is an RC requester whose requests say each where they go; a target is a
//! responder for every initiator that has its key.

use super::{
    config::{DcStreams, Path, QpConfig},
    courier::Courier,
    host::Host,
    responder::Responder,
    wqe::SendWqe,
};
use crate::wire::{Acknowledgement, Aeth, DcEth, LinkHeader, Packet, Transport, packet::DEFAULT_PKEY};
use mlx5_direct::mlx5::ids::{Psn, Qpn};
use std::collections::{BTreeMap, BTreeSet};

/// Initiators that a target remembers. It forgets who was silent for longest.
const MAX_INITIATORS: usize = 4096;

/// Where a request of an initiator goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Destination {
    dctn: Qpn,
    access_key: u64,
    path: Path,
}

impl Destination {
    /// That of a WQE, if it has an address vector.
    pub(super) fn of(wqe: &SendWqe) -> Option<Self> {
        let av = wqe.av.as_ref()?;
        Some(Self { dctn: av.dqpn_dctn(), access_key: wqe.dc_access_key, path: super::ud::path(av) })
    }

    /// The way there.
    pub(super) const fn path(&self) -> &Path {
        &self.path
    }

    /// The attributes by which its packets are sent.
    pub(super) fn route(&self, config: &QpConfig) -> QpConfig {
        let path = Path { ack_timeout: config.path.ack_timeout, ..self.path };
        QpConfig { path, remote_qpn: self.dctn, ..*config }
    }

    /// The header of a request.
    pub(super) fn header(&self, config: &QpConfig, oldest: Psn) -> DcEth {
        DcEth { access_key: self.access_key, session: config.dc_session, source_qpn: config.qpn, oldest }
    }
}

/// Streams of an initiator in error. WQEs of these are flushed, and the others go on.
#[derive(Debug, Default)]
pub(super) struct Streams {
    errored: BTreeSet<u16>,
}

impl Streams {
    pub(super) fn is_errored(&self, config: &QpConfig, stream: u16) -> bool {
        config.dc_streams.is_some_and(|streams| self.errored.contains(&channel(streams, stream)))
    }

    /// The stream of a WQE that failed is in error. Returns false if that is the whole queue pair's end: it has no streams,
    /// or as many are in error as it may have.
    pub(super) fn fail(&mut self, config: &QpConfig, stream: u16) -> bool {
        let Some(streams) = config.dc_streams else { return false };
        self.errored.insert(channel(streams, stream));
        self.errored.len() < 1 << streams.log_errored
    }

    /// Software has seen the error of a stream. Returns false if there was none.
    pub(super) fn reset(&mut self, config: &QpConfig, stream: u16) -> bool {
        config.dc_streams.is_some_and(|streams| self.errored.remove(&channel(streams, stream)))
    }
}

/// The channel that executes a stream.
const fn channel(streams: DcStreams, stream: u16) -> u16 {
    stream & ((1 << streams.log_channels) - 1)
}

/// An initiator, as a target tells them apart: where it is, and its number.
type Initiator = (Vec<u8>, u32);

/// What a target knows of an initiator.
#[derive(Debug)]
struct Connection {
    session: u32,
    /// The target's attributes with the way to this initiator.
    config: QpConfig,
    responder: Responder,
    courier: Courier,
    /// A request was refused for good: nothing is executed before the initiator has given it up.
    failed: bool,
    /// When it was heard last, in packets of the target.
    heard: u64,
}

/// A DC target. See the [module](super) for when which call is made.
#[derive(Debug)]
pub struct DcTarget {
    config: QpConfig,
    access_key: u64,
    connections: BTreeMap<Initiator, Connection>,
    n_packets: u64,
    n_key_violations: u32,
}

impl DcTarget {
    /// A target that is ready to receive. `config` has its own side of the path.
    pub fn new(config: QpConfig, access_key: u64) -> Self {
        Self { config, access_key, connections: BTreeMap::new(), n_packets: 0, n_key_violations: 0 }
    }

    /// Requests that came with another key.
    pub const fn n_key_violations(&self) -> u32 {
        self.n_key_violations
    }

    /// A packet for this target came, with a good ICRC.
    pub fn receive(&mut self, host: &mut dyn Host, packet: &Packet<'_>) {
        let headers = &packet.headers;
        let Some(dc) = headers.dc.filter(|_| headers.bth.opcode.transport() == Some(Transport::Dc)) else {
            return;
        };
        if headers.bth.pkey != DEFAULT_PKEY {
            return;
        }
        let config = self.way_back(packet, dc.source_qpn);
        if dc.access_key != self.access_key {
            self.n_key_violations = self.n_key_violations.wrapping_add(1);
            let refusal = Aeth::new(Acknowledgement::AccessError, 0);
            return Courier::default().acknowledge(host, &config, headers.bth.psn, refusal, None);
        }
        self.n_packets += 1;
        let connection = self.connection(host, initiator(packet, dc.source_qpn), &dc, config);
        if connection.responder.skip_to(host, &connection.config, dc.oldest) {
            connection.failed = false;
        }
        if !connection.failed
            && connection.responder.receive(host, &connection.config, packet, false).is_err()
        {
            connection.failed = true;
            connection.responder.flush(host, &connection.config);
        }
    }

    /// The connection of an initiator in this session, begun if need be.
    fn connection(
        &mut self,
        host: &mut dyn Host,
        initiator: Initiator,
        dc: &DcEth,
        config: QpConfig,
    ) -> &mut Connection {
        let fresh = || {
            let mut responder = Responder::default();
            responder.start(&QpConfig { next_rcv_psn: dc.oldest, ..config });
            let (session, courier) = (dc.session, Courier::default());
            Connection { session, config, responder, courier, failed: false, heard: 0 }
        };
        if !self.connections.contains_key(&initiator) && self.connections.len() >= MAX_INITIATORS {
            self.forget_oldest(host);
        }
        let connection = self.connections.entry(initiator).or_insert_with(fresh);
        if connection.session != dc.session {
            connection.responder.flush(host, &connection.config);
            *connection = fresh();
        }
        (connection.config, connection.heard) = (config, self.n_packets);
        connection
    }

    fn forget_oldest(&mut self, host: &mut dyn Host) {
        let oldest = self.connections.iter().min_by_key(|(_, c)| c.heard).map(|(key, _)| key.clone());
        if let Some(mut connection) = oldest.and_then(|key| self.connections.remove(&key)) {
            connection.responder.flush(host, &connection.config);
        }
    }

    /// The attributes by which an initiator is answered.
    fn way_back(&self, packet: &Packet<'_>, source_qpn: Qpn) -> QpConfig {
        let own = &self.config.path;
        let mut path = match packet.headers.link {
            LinkHeader::Ethernet(ethernet) => Path { dest_mac: ethernet.source, ..*own },
            LinkHeader::InfiniBand(lrh) => Path { dest_lid: lrh.source_lid, sl: lrh.sl, ..*own },
        };
        if let Some(network) = packet.headers.network {
            (path.dest_gid, path.grh) = (network.source_gid, true);
        }
        QpConfig { path, remote_qpn: source_qpn, ..self.config }
    }

    /// Answers, at most about `budget_packets`. Returns whether there is more to do at once.
    pub fn run(&mut self, host: &mut dyn Host, budget_packets: usize) -> bool {
        let mut left = budget_packets;
        for connection in self.connections.values_mut() {
            loop {
                let Connection { config, responder, courier, failed, .. } = connection;
                match responder.reply_next(host, config, courier) {
                    Ok(false) => break,
                    Ok(true) => {}
                    Err(_) => {
                        *failed = true;
                        responder.flush(host, config);
                    }
                }
                left -= 1;
                if left == 0 {
                    return true;
                }
            }
        }
        false
    }

    /// The driver has answered the page fault of the one connection that told of one.
    pub fn resume(&mut self, error: bool) {
        for connection in self.connections.values_mut() {
            connection.responder.resume(error);
        }
    }

    /// Ends all connections: what was executed is acknowledged, and a message of which a part came is given up.
    pub fn drain(&mut self, host: &mut dyn Host) {
        for connection in self.connections.values_mut() {
            connection.responder.replies.part(host, &connection.config, &mut connection.courier);
            connection.responder.flush(host, &connection.config);
        }
        self.connections.clear();
    }
}

fn initiator(packet: &Packet<'_>, source_qpn: Qpn) -> Initiator {
    let place = match (packet.headers.network, packet.headers.link) {
        (Some(network), _) => network.source_gid.to_vec(),
        (None, LinkHeader::InfiniBand(lrh)) => lrh.source_lid.to_be_bytes().to_vec(),
        (None, LinkHeader::Ethernet(ethernet)) => ethernet.source.to_vec(),
    };
    (place, source_qpn.get())
}
