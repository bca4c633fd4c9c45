//! Datagrams: to one's peers without a connection.
#![forbid(unsafe_code)]

use super::UdQp;
use crate::{
    Error, QpAddress, Result,
    backend::{AddressVector, GidType, LinkLayer, QpModify, link_local_mac},
    cqe::RoceL3,
    mlx5::{context::QpState, ids::Qpn},
    queue::{AddressHandle, Grh, Source},
};

impl UdQp {
    /// Moves from RST over INIT and RTR to RTS, on `port`. Datagrams that do not carry `qkey` are dropped in silence.
    ///
    /// From then on a message is of as many bytes at most as a packet of the port carries
    /// ([`send_limits`](Self::send_limits)).
    pub fn activate(&mut self, port: u8, qkey: u32) -> Result<()> {
        self.modify(&QpModify {
            pkey_index: Some(0),
            port: Some(port),
            qkey: Some(qkey),
            ..QpModify::to(QpState::INIT)
        })?;
        self.modify(&QpModify::to(QpState::RTR))?;
        self.modify(&QpModify { sq_psn: Some(self.psn), ..QpModify::to(QpState::RTS) })
    }

    /// The way to a peer, from the [usual entry](crate::Context::usual_gid_index) of the own GID table. What it says may
    /// be changed before a [handle](Self::address_handle) is made of it.
    pub fn address_to(&self, peer: &QpAddress) -> Result<AddressVector> {
        let port = self.object.context().port(self.port)?;
        self.way_to(peer, self.port, &port, port.link_layer.usual_gid_index())
    }

    /// The way back to who sent a datagram: `source` is what its [completion](crate::queue::Completion::source) says, and
    /// `grh` the first 40 bytes of its buffer.
    ///
    /// On RoCE the MAC address follows from the sender's GID if that is link-local. Otherwise
    /// [`dmac`](AddressVector::dmac) is zeros: fill it in, where the kernel does not do so (verbs).
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if it was sent to an address that the port does not have any more.
    pub fn address_from(&self, source: &Source, grh: &[u8; Grh::BYTES]) -> Result<AddressVector> {
        let ctx = self.object.context();
        let port = ctx.port(self.port)?;
        let l3 = match port.link_layer {
            LinkLayer::Ethernet => source.roce_l3(),
            LinkLayer::InfiniBand => RoceL3::GRH,
        };
        let way = AddressVector {
            port: self.port,
            sgid_index: port.link_layer.usual_gid_index(),
            dgid: [0; 16],
            dmac: [0; 6],
            dlid: source.slid,
            sl: if port.link_layer == LinkLayer::Ethernet { 0 } else { source.sl },
            hop_limit: 64,
            traffic_class: 0,
            flow_label: 0,
            udp_sport: None,
            force_loopback: false,
        };
        if !source.grh {
            return Ok(way);
        }
        let grh = Grh::parse(grh, l3);
        let own_type = match (port.link_layer, l3) {
            (LinkLayer::InfiniBand, _) => GidType::Ib,
            (LinkLayer::Ethernet, RoceL3::GRH) => GidType::RoceV1,
            (LinkLayer::Ethernet, _) => GidType::RoceV2,
        };
        let is_ours = |index: &u8| {
            ctx.gid(self.port, (*index).into())
                .is_ok_and(|own| own.gid == grh.dgid && own.gid_type == own_type)
        };
        let last = port.gid_tbl_len.min(u8::MAX.into()) as u8;
        let sgid_index = (0..last).find(is_ours).ok_or_else(|| {
            Error::invalid(format!(
                "a datagram to {}, which is no address of port {} in {own_type:?}",
                std::net::Ipv6Addr::from(grh.dgid),
                self.port
            ))
        })?;
        Ok(AddressVector {
            sgid_index,
            dgid: grh.sgid,
            dmac: link_local_mac(&grh.sgid).unwrap_or_default(),
            traffic_class: grh.traffic_class,
            flow_label: grh.flow_label,
            ..way
        })
    }

    /// Makes a handle for queue pair `qpn` behind a port. `qkey` is what that queue pair was
    /// [activated](Self::activate) with.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for what no packet can be sent to, by name.
    pub fn address_handle(&self, to: &AddressVector, qpn: Qpn, qkey: u32) -> Result<AddressHandle> {
        let control = self.object.context().control();
        let av = control.address_vector(self.pd().pdn(), to, self.qpn(), qpn)?;
        Ok(AddressHandle::new(av).with_peer(qpn, qkey))
    }
}
