//! Packets of InfiniBand from the wire: to the port's agent, to QP0 and QP1, to queue pairs.
#![forbid(unsafe_code)]

use super::{
    super::{Function, multicast::MULTICAST_QPN},
    port::LinkState,
    smp::{PERMISSIVE_LID, Smp},
};
use crate::{
    exec::{RoceKind, SourceAddress, Station},
    trace::Kind,
    wire::{Headers, LinkHeader, Lrh, Packet, link::dest_lid, packet::VCRC_BYTES},
};
use mlx5_direct::mlx5::context::ServiceType;

/// First LID of a multicast group.
const FIRST_MULTICAST_LID: u16 = 0xc000;
/// The virtual lane of subnet management.
const MANAGEMENT_VL: u8 = 15;

/// Whether a packet is subnet management, by its lane.
pub(super) fn is_management(packet: &[u8]) -> bool {
    packet.first().is_some_and(|byte| byte >> 4 == MANAGEMENT_VL)
}

/// Whether a packet is for a multicast group, by its LID.
pub(in crate::fw) fn is_to_group(packet: &[u8]) -> bool {
    (FIRST_MULTICAST_LID..PERMISSIVE_LID).contains(&dest_lid(packet))
}

impl Function {
    /// A packet has come in.
    pub(in crate::fw) fn receive_infiniband(&mut self, bytes: &[u8]) {
        let Some(port) = &self.ib_port else { return };
        let (state, management) = (port.state(), is_management(bytes));
        if state == LinkState::Down || state != LinkState::Active && !management {
            return;
        }
        let packet = match Packet::parse_infiniband(bytes) {
            Ok(packet) => packet,
            Err(error) => {
                self.count_wrong(error);
                return self.record(Kind::Note, bytes, || format!("packet dropped: {error}"));
            }
        };
        let LinkHeader::InfiniBand(lrh) = packet.headers.link else { return };
        let for_this_port = match lrh.dest_lid {
            PERMISSIVE_LID => management,
            FIRST_MULTICAST_LID.. => true,
            lid => port.has_lid(lid),
        };
        let dest_gid = packet.headers.network.map(|network| network.dest_gid);
        let is_own =
            |gid: [u8; 16]| gid[0] == 0xff || (0..).map_while(|at| port.gid(at)).any(|own| own == gid);
        if !for_this_port || !dest_gid.is_none_or(is_own) {
            return self.record(Kind::Note, bytes, || "packet dropped: not for this port".into());
        }
        self.count_rdma_received(is_to_group(bytes), bytes.len() - VCRC_BYTES);
        match packet.headers.bth.dest_qpn.get() {
            0 => self.receive_management(&packet, lrh),
            _ if !self.running() => {}
            MULTICAST_QPN => self.receive_multicast(&packet),
            1 => self.receive_at_type(ServiceType::QP1, &packet),
            number => self.receive_at(number, &packet),
        }
    }

    /// The agent answers what is asked of it, whether a driver runs or not. Anything else is for the driver's QP0.
    fn receive_management(&mut self, packet: &Packet<'_>, lrh: Lrh) {
        let request = packet.payload.try_into().map(Smp).ok().filter(Smp::is_for_the_agent);
        let Some(request) = request.filter(|smp| !smp.directed() || smp.ends_here()) else {
            return self.receive_at_type(ServiceType::QP0, packet);
        };
        let answer = self.agent(&request).filter(|_| request.is_answered());
        let Some(mut answer) = answer else { return };
        if request.directed() {
            answer.turn_back(1);
        }
        let source_lid = if lrh.dest_lid == PERMISSIVE_LID { self.own_lid() } else { lrh.dest_lid };
        let headers = Headers {
            link: LinkHeader::InfiniBand(Lrh {
                dest_lid: answer.answer_lid(lrh.source_lid),
                source_lid,
                ..lrh
            }),
            ..packet.headers
        };
        let bytes = headers.frame(&answer.0);
        self.count_rdma_sent(&bytes);
        self.record(Kind::Packet, &bytes, || "sent by the subnet management agent".into());
        self.outbox.push_back(bytes);
    }

    /// Source LID of packets; a port without a LID has the permissive one.
    fn own_lid(&self) -> u16 {
        self.ib_port.as_ref().map(|port| port.lid()).filter(|lid| *lid != 0).unwrap_or(PERMISSIVE_LID)
    }

    /// What packets say of where they come from. Without a GRH no GID is said, and then any index will do.
    pub(in crate::fw) fn ib_source_address(&self, gid_index: u8) -> Option<SourceAddress> {
        let gid = self.ib_port.as_ref()?.gid(gid_index.into())?;
        Some(SourceAddress { station: Station::InfiniBand { lid: self.own_lid() }, gid, kind: RoceKind::V1 })
    }

    fn receive_at_type(&mut self, st: ServiceType, packet: &Packet<'_>) {
        match self.qp_of_type(st) {
            Some(number) => self.receive_at(number, packet),
            None => self.note(|| format!("packet dropped: there is no queue pair of type {st:?}")),
        }
    }
}
