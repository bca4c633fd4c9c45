//! Ways to peers: in the context of a connected queue pair, and in the requests of a datagram one.
#![forbid(unsafe_code)]

use super::PrmControl;
use crate::{
    Error, Result,
    backend::{AddressVector, LinkLayer},
    mlx5::{context::Ads, ids::Qpn},
    wqe::AvSeg,
};

impl PrmControl {
    /// The path of a connected queue pair, whose `ah` is within its limits.
    pub(super) fn address_path(&self, path: Ads, ah: &AddressVector, local: Qpn, remote: Qpn) -> Result<Ads> {
        let path = path
            .with_fl(ah.force_loopback)
            .with_grh(true)
            .with_src_addr_index(ah.sgid_index)
            .with_hop_limit(ah.hop_limit)
            .with_tclass(ah.traffic_class)
            .with_flow_label(ah.flow_label)
            .with_rgid_rip(ah.dgid)
            .with_vhca_port_num(ah.port);
        if self.link_layer() == LinkLayer::InfiniBand {
            return Ok(path.with_rlid(ah.dlid).with_sl(ah.sl).with_grh(ah.dgid != [0; 16]));
        }
        check_station(ah)?;
        Ok(path
            .with_rmac(ah.dmac)
            .with_udp_sport(self.udp_sport(ah, local, remote))
            .with_eth_prio(ah.sl)
            .with_dscp(ah.traffic_class >> 2))
    }

    /// The way as a datagram carries it.
    pub(super) fn make_av(&self, ah: &AddressVector, local: Qpn, remote: Qpn) -> Result<AvSeg> {
        self.check_port(ah.port)?;
        ah.check(self, self.link_layer())?;
        let av = AvSeg::new()
            .with_ext(true)
            .with_dqpn_dctn(remote)
            .with_fl(ah.force_loopback)
            .with_src_addr_index(ah.sgid_index)
            .with_hop_limit(ah.hop_limit)
            .with_tclass(ah.traffic_class)
            .with_flow_label(ah.flow_label)
            .with_rgid(ah.dgid);
        if self.link_layer() == LinkLayer::InfiniBand {
            return Ok(av.with_rlid_or_udp_sport(ah.dlid).with_sl(ah.sl).with_grh(ah.dgid != [0; 16]));
        }
        check_station(ah)?;
        // The header is always there, and needs no bit. The service level stands one bit further up than InfiniBand's.
        Ok(av
            .with_rmac(ah.dmac)
            .with_rlid_or_udp_sport(self.udp_sport(ah, local, remote))
            .with_sl(ah.sl << 1))
    }

    /// The source port that is asked for, or one that tells flows apart: by their label if there is one, as Linux does
    /// (`rdma_flow_label_to_udp_sport`), or else by the queue pairs.
    fn udp_sport(&self, ah: &AddressVector, local: Qpn, remote: Qpn) -> u16 {
        let entropy = match ah.flow_label {
            0 => udp_entropy(local, remote),
            label => (label & 0x3fff ^ label >> 14) as u16,
        };
        ah.udp_sport.unwrap_or(self.caps.roce.r_roce_min_src_udp_port() | entropy)
    }
}

/// Refuses what is no peer's MAC address.
fn check_station(ah: &AddressVector) -> Result<()> {
    if !is_station(ah.dmac) {
        return Err(Error::invalid(format!(
            "ah.dmac {:02x?} is not the MAC address of one station; give the peer's, or its gateway's",
            ah.dmac
        )));
    }
    Ok(())
}

/// Spreads connections over paths, as RoCE v2 wants: 14 bits out of both queue pair numbers, the same seen
/// from either side.
fn udp_entropy(local: Qpn, remote: Qpn) -> u16 {
    let mixed = u64::from(local.get()) * u64::from(remote.get());
    let mixed = mixed ^ (mixed >> 20) ^ (mixed >> 40);
    (mixed ^ (mixed >> 14)) as u16 & 0x3fff
}

/// Whether `mac` is the address of one station: not nobody's, not a group's.
pub(super) fn is_station(mac: [u8; 6]) -> bool {
    mac != [0; 6] && mac[0] & 1 == 0
}
