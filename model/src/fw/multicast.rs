//! Multicast groups: which datagram queue pairs have a copy of what is sent to a GID.
#![forbid(unsafe_code)]

use super::{
    Function, caps,
    dispatch::{Input, Output, done},
    infiniband::is_to_group,
    refusal::Refusal,
};
use crate::wire::Packet;
use mlx5_direct::mlx5::{
    cmd::{AttachToMcgIn, DetachFromMcgIn},
    context::ServiceType,
};
use std::collections::{BTreeMap, BTreeSet};

/// The destination QP of every multicast packet.
pub(super) const MULTICAST_QPN: u32 = 0xff_ffff;

type Gid = [u8; 16];

/// Members of each group.
#[derive(Debug, Default)]
pub(super) struct Multicast {
    groups: BTreeMap<Gid, BTreeSet<u32>>,
}

/// A GID of a group: IPv6 multicast, or the IPv4 kind mapped into IPv6.
fn is_multicast(gid: &Gid) -> bool {
    let ipv4_mapped = gid[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
    gid[0] == 0xff || ipv4_mapped && gid[12] & 0xf0 == 0xe0
}

impl Multicast {
    /// A queue pair is gone: so it is from its groups.
    pub(super) fn forget(&mut self, qpn: u32) {
        self.groups.retain(|_, members| {
            members.remove(&qpn);
            !members.is_empty()
        });
    }
}

impl Function {
    pub(super) fn attach_to_mcg(&mut self, input: &Input<'_>) -> Output {
        let input: AttachToMcgIn = input.get()?;
        let (qpn, gid) = (input.qpn().get(), input.multicast_gid());
        let qp = self.qps.get(qpn).ok_or(Refusal::NO_SUCH_OBJECT)?;
        if qp.context.st() != ServiceType::UD {
            return Err(Refusal::MULTICAST_SERVICE);
        }
        if !is_multicast(&gid) {
            return Err(Refusal::MULTICAST_GID);
        }
        let groups = &mut self.multicast.groups;
        if groups.len() >= 1 << caps::LOG_MAX_MCG && !groups.contains_key(&gid) {
            return Err(Refusal::TABLE_FULL);
        }
        let members = groups.entry(gid).or_default();
        if members.len() >= caps::MAX_QP_MCG as usize && !members.contains(&qpn) {
            return Err(Refusal::TABLE_FULL);
        }
        members.insert(qpn);
        done()
    }

    pub(super) fn detach_from_mcg(&mut self, input: &Input<'_>) -> Output {
        let input: DetachFromMcgIn = input.get()?;
        let (qpn, gid) = (input.qpn().get(), input.multicast_gid());
        let members = self.multicast.groups.get_mut(&gid).ok_or(Refusal::NO_SUCH_OBJECT)?;
        if !members.remove(&qpn) {
            return Err(Refusal::NO_SUCH_OBJECT);
        }
        if members.is_empty() {
            self.multicast.groups.remove(&gid);
        }
        done()
    }

    /// A copy for each member, the sender's own queue pairs too.
    pub(super) fn receive_multicast(&mut self, packet: &Packet<'_>) {
        let Some(network) = packet.headers.network else { return };
        let members = self.multicast.groups.get(&network.dest_gid).cloned().unwrap_or_default();
        for qpn in members {
            self.receive_at(qpn, packet);
        }
    }

    /// The same of what a queue pair here has sent, which may have asked not to hear itself (`block_lb_mc`).
    fn loop_to_members(&mut self, packet: &Packet<'_>) {
        let sender = packet.headers.deth.map_or(0, |deth| deth.source_qpn.get());
        let hears_itself = self.qps.get(sender).is_none_or(|qp| !qp.context.block_lb_mc());
        let Some(network) = packet.headers.network else { return };
        let members = self.multicast.groups.get(&network.dest_gid).cloned().unwrap_or_default();
        for qpn in members.into_iter().filter(|&qpn| hears_itself || qpn != sender) {
            self.receive_at(qpn, packet);
        }
    }

    /// A frame that this port sends: members here have it too, whoever else has it by the cable.
    pub(crate) fn loop_multicast_back(&mut self, frame: &[u8]) {
        let infiniband = self.is_infiniband();
        let to_group =
            if infiniband { is_to_group(frame) } else { frame.first().is_some_and(|byte| byte & 1 != 0) };
        if !to_group || self.multicast.groups.is_empty() {
            return;
        }
        let packet = if infiniband { Packet::parse_infiniband(frame) } else { Packet::parse(frame) };
        if let Ok(packet) = packet
            && packet.headers.bth.dest_qpn.get() == MULTICAST_QPN
        {
            self.loop_to_members(&packet);
        }
    }
}
