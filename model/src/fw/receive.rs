//! Frames from the wire to queue pairs.
#![forbid(unsafe_code)]

use super::{Function, multicast::MULTICAST_QPN};
use crate::{
    eth,
    trace::Kind,
    wire::{Packet, neighbour},
};
use mlx5_direct::mlx5::context::ServiceType;

/// Every port takes frames of this length (IEEE 802.3 3.2.7, with a VLAN tag).
const MAX_BASIC_FRAME_BYTES: usize = 1522;
/// QP1.
const GENERAL_SERVICES_QPN: u32 = 1;

impl Function {
    /// Number of the queue pair of a type of which a port has one: QP0 or QP1.
    pub(super) fn qp_of_type(&self, st: ServiceType) -> Option<u32> {
        self.qps.iter().find(|(_, qp)| qp.context.st() == st).map(|(number, _)| number)
    }

    /// Own MAC address.
    pub(crate) fn mac(&self) -> [u8; 6] {
        self.vport.mac()
    }

    pub(crate) fn link_up(&self) -> bool {
        self.vport.link_up()
    }

    /// What an IP stack would say if the driver had one: who has the addresses of the RoCE table. None once a driver
    /// takes Ethernet frames, and answers itself.
    pub(crate) fn answer_for_neighbours(&self, frame: &[u8]) -> Option<Vec<u8>> {
        if !self.running() || !self.vport.roce_enabled() || !self.link_up() || self.steering.has_root() {
            return None;
        }
        neighbour::answer(frame, |gid| {
            let entry = self.roce_addresses.iter().find(|entry| entry.source_l3_address() == gid)?;
            Some(entry.source_mac())
        })
    }

    /// A frame has come in.
    pub(crate) fn receive(&mut self, frame: &[u8]) {
        if self.is_infiniband() {
            return self.receive_infiniband(frame);
        }
        let looped_back = frame.get(6..12) == Some(&self.mac()[..]);
        if !self.running() || !(looped_back || self.link_up()) {
            return;
        }
        if !(self.vport.roce_enabled() && eth::is_roce(frame)) {
            if frame.len() + eth::FCS_BYTES > usize::from(self.vport.frame_mtu).max(MAX_BASIC_FRAME_BYTES) {
                self.port_counters.too_long += 1;
                return self.record(Kind::Note, &[], || format!("frame dropped: {} bytes", frame.len()));
            }
            if !looped_back {
                self.count_in_port(frame);
            }
            return self.receive_frame(frame, None);
        }
        if !looped_back {
            self.count_in_port(frame);
        }
        let packet = match Packet::parse(frame) {
            Ok(packet) => packet,
            Err(error) => {
                self.count_wrong(error);
                return self.record(Kind::Note, frame, || format!("frame dropped: {error}"));
            }
        };
        if packet.headers.bth.dest_qpn.get() == MULTICAST_QPN {
            self.count_rdma_received(true, frame.len());
            return self.receive_multicast(&packet);
        }
        let dest_gid = packet.headers.network.map(|network| network.dest_gid);
        if !self.roce_addresses.iter().any(|entry| Some(entry.source_l3_address()) == dest_gid) {
            return self.record(Kind::Note, frame, || "frame dropped: not for a GID of this port".into());
        }
        self.count_rdma_received(false, frame.len());
        let number = match packet.headers.bth.dest_qpn.get() {
            // The well-known number of the port's management, whatever queue pair has it.
            GENERAL_SERVICES_QPN => match self.qp_of_type(ServiceType::QP1) {
                Some(number) => number,
                None => return self.record(Kind::Note, frame, || "frame dropped: there is no QP1".into()),
            },
            number => number,
        };
        self.receive_at(number, &packet);
    }

    /// Gives a packet to a queue pair or DC target, if there is one with this number.
    pub(super) fn receive_at(&mut self, number: u32, packet: &Packet<'_>) {
        if self.dcts.contains(number) {
            return self.receive_at_dct(number, packet);
        }
        if self.with_engine(number, |engine, host| engine.receive(host, packet)).is_some() {
            self.ready.insert(number);
        }
    }
}
