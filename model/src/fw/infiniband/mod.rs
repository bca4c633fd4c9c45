//! A port of InfiniBand: its subnet management agent, what a subnet manager sets, and packets by LID.
//!
//! Without a subnet manager no packet passes. With `sm=on` the card has a small one of its own, which gives its ports
//! their LIDs when the link comes up; with `sm=off` the port waits for one, as cards do: opensm, for example.
#![forbid(unsafe_code)]

mod port;
mod receive;
mod sma;
mod smp;

pub(crate) use port::{IbPort, LinkState};
use receive::is_management;
pub(super) use receive::is_to_group;

use super::Function;
use crate::{config::LinkType, wire::link::Address};
use mlx5_direct::mlx5::{
    context::Mtu,
    eqe::{EqePortState, EventType, PortChange},
};
use port::Changes;
use sma::Node;
use smp::{MAD_BYTES, Smp, UNSUPPORTED};

impl Function {
    /// The port is one of InfiniBand.
    pub(crate) fn is_infiniband(&self) -> bool {
        self.ib_port.is_some()
    }

    /// What a reset makes of the port.
    pub(super) fn new_ib_port(&mut self) {
        let mtu = match self.config.mtu_bytes {
            256 => Mtu::MTU_256,
            512 => Mtu::MTU_512,
            1024 => Mtu::MTU_1024,
            2048 => Mtu::MTU_2048,
            _ => Mtu::MTU_4096,
        };
        let infiniband = self.config.link == LinkType::InfiniBand;
        self.ib_port = infiniband.then(|| IbPort::new(self.vport.port_guid(), mtu.0));
        self.ib_link();
    }

    /// The port's address on its link.
    pub(crate) fn link_address(&self) -> Address {
        match &self.ib_port {
            Some(port) => Address::Lid { lid: port.lid(), lmc: port.lmc() },
            None => Address::Mac(self.mac()),
        }
    }

    /// Whether a frame that was sent leaves the port. What is for the port itself needs no cable; and before an
    /// InfiniBand port is active, only subnet management passes.
    pub(crate) fn lets_out(&self, frame: &[u8]) -> bool {
        match &self.ib_port {
            None => self.link_up() || frame.starts_with(&self.mac()),
            Some(port) => port.state() == LinkState::Active || self.link_up() && is_management(frame),
        }
    }

    /// MAD_IFC: the driver hands a datagram to the port's agents. There is none but that of subnet management,
    /// and on RoCE not even that: other datagrams are answered as those that ask for what there is not.
    pub(super) fn management(&mut self, mad: [u8; MAD_BYTES]) -> [u8; MAD_BYTES] {
        let request = Smp(mad);
        let answer = if request.is_for_the_agent() { self.agent(&request) } else { None };
        answer.unwrap_or_else(|| request.answer(Err(UNSUPPORTED))).0
    }

    /// The agent's answer; none on a port that has no agent.
    fn agent(&mut self, request: &Smp) -> Option<Smp> {
        let (system_image_guid, node_guid) = self.vport.guids();
        let node = Node { system_image_guid, node_guid, device_id: self.config.part.device_id() };
        let (answer, changes) = sma::answer(self.ib_port.as_mut()?, node, request);
        self.tell_changes(changes);
        Some(answer)
    }

    fn tell_changes(&mut self, changes: Changes) {
        let state = self.ib_port.as_ref().map(IbPort::state);
        let of_state = match state {
            Some(LinkState::Active) => PortChange::ACTIVE,
            Some(LinkState::Down) | None => PortChange::DOWN,
            Some(LinkState::Initialize | LinkState::Armed) => PortChange::INITIALIZED,
        };
        for (changed, what) in [
            (changes.lid, PortChange::LID),
            (changes.state, of_state),
            (changes.reregister, PortChange::CLIENT_REREG),
            (changes.pkeys, PortChange::PKEY),
            (changes.guids, PortChange::GUID),
        ] {
            if changed {
                let data = EqePortState::new().with_port_num(1).to_bytes();
                self.event(EventType::PORT_CHANGE, what.0, data);
            }
        }
    }

    /// The link may have come up or gone down.
    pub(super) fn ib_link(&mut self) {
        let (up, index) = (self.link_up(), self.index);
        let (own_manager, first_lid) = (self.config.subnet_manager, self.config.lid);
        let Some(port) = &mut self.ib_port else { return };
        let mut changes = Changes { state: port.set_link(up), ..Changes::default() };
        if port.state() == LinkState::Initialize && own_manager {
            let lid = first_lid + u16::from(index);
            changes.lid = port.lid() != lid;
            port.configure(lid, first_lid);
        }
        self.tell_changes(changes);
    }
}
