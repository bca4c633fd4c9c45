//! Ways to peers. The kernel asks the neighbour table for MAC addresses; here they follow from the GID.
#![forbid(unsafe_code)]

use super::{card::Host, complain};
use mlx5_direct::backend::{Control, LinkLayer, link_local_mac};
use mlx5_model::{ModelConfig, config::LinkType, wire::UplinkAddress};
use std::{
    ffi::c_int,
    net::{IpAddr, Ipv6Addr},
};

/// Entries of the own table that are looked through: there are not more of them in the folder of sysfs.
const N_OWN_GIDS: u16 = 16;

/// The link layer of a card's ports.
pub(super) fn link_layer(config: &ModelConfig) -> LinkLayer {
    match config.link {
        LinkType::Ethernet => LinkLayer::Ethernet,
        LinkType::InfiniBand => LinkLayer::InfiniBand,
    }
}

/// The MAC behind a GID.
pub(super) fn dmac(host: &Host, gid: &[u8; 16]) -> Result<[u8; 6], c_int> {
    if link_layer(&host.config) == LinkLayer::InfiniBand {
        return Ok([0; 6]);
    }
    let address = Ipv6Addr::from(*gid);
    let [.., a, b, c, d] = *gid;
    if address.is_multicast() {
        // An IPv4 group comes as `ff0e::ffff:a.b.c.d`.
        let is_ipv4 = gid[10..12] == [0xff, 0xff];
        return Ok(if is_ipv4 { [0x01, 0, 0x5e, b & 0x7f, c, d] } else { [0x33, 0x33, a, b, c, d] });
    }
    if let Some(mac) = link_local_mac(gid) {
        return Ok(mac);
    }
    let own = (0..N_OWN_GIDS).find_map(|index| {
        let entry = host.control.query_gid(1, index).ok()?;
        (entry.gid == *gid).then_some(entry.mac)
    });
    own.or_else(|| peer(&host.config, address)).ok_or_else(|| {
        complain(&format!(
            "no MAC address is known for GID {address}: known are those of link-local GIDs, of this card's, and of \
             the wire's other end"
        ));
        libc::EHOSTUNREACH
    })
}

/// The MAC of the card at the other end of the wire, if the address is that end's and the card has the MAC that follows
/// from it.
fn peer(config: &ModelConfig, address: Ipv6Addr) -> Option<[u8; 6]> {
    let address = address.to_canonical();
    let wire = match config.wire.as_ref()? {
        UplinkAddress::Udp { local, peer } if peer.ip() == address => {
            UplinkAddress::Udp { local: *peer, peer: *local }
        }
        UplinkAddress::Roce { .. } => match address {
            IpAddr::V4(local) => UplinkAddress::Roce { local },
            IpAddr::V6(_) => return None,
        },
        _ => return None,
    };
    Some(ModelConfig { wire: Some(wire), mac: None, ..config.clone() }.port_mac(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_end_of_the_wire_has_a_mac() {
        let config = |text: &str| text.parse::<ModelConfig>().unwrap();
        let a = config("wire=udp:10.0.0.1:7/10.0.0.2:8");
        let gid = |text: &str| text.parse::<Ipv6Addr>().unwrap();
        assert_eq!(
            peer(&a, gid("::ffff:10.0.0.2")),
            Some(config("wire=udp:10.0.0.2:8/10.0.0.1:7").port_mac(0))
        );
        assert_eq!(peer(&a, gid("::ffff:10.0.0.3")), None);
        let roce = config("wire=roce:127.0.0.2");
        assert_eq!(peer(&roce, gid("::ffff:127.0.0.3")), Some(config("wire=roce:127.0.0.3").port_mac(0)));
        assert_eq!(peer(&ModelConfig::default(), gid("::ffff:10.0.0.2")), None);
    }
}
