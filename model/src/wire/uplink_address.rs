//! Where a card's wire leads, as the option `wire=` says it.

use std::{
    fmt,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    str::FromStr,
};

/// The two ends of a wire that leaves the process. As text `udp:LOCALIP:PORT/PEERIP:PORT`,
/// `unix:LOCALPATH:PEERPATH` or `roce:LOCALIP`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UplinkAddress {
    /// An Ethernet frame in a UDP datagram, without its FCS: what `-netdev dgram` and `-netdev socket,udp=` of
    /// QEMU send and take.
    Udp {
        /// Bound here.
        local: SocketAddr,
        /// The only peer.
        peer: SocketAddr,
    },
    /// The same in datagrams of Unix sockets.
    Unix {
        /// Made here; replaced if it is left over.
        local: PathBuf,
        /// Where the peer makes its own.
        peer: PathBuf,
    },
    /// RoCE v2 over the host's IPv4: packets of GID `::ffff:LOCALIP` are datagrams of UDP port 4791, to whatever
    /// address their GID names. Other frames are lost.
    Roce {
        /// Address of this host.
        local: Ipv4Addr,
    },
}

impl UplinkAddress {
    /// What the option takes.
    pub const SYNTAX: &str = "udp:LOCALIP:PORT/PEERIP:PORT, unix:LOCALPATH:PEERPATH or roce:LOCALIP";

    /// The own end, as text: no two cards of a machine have the same.
    fn local(&self) -> String {
        match self {
            Self::Udp { local, .. } => local.to_string(),
            Self::Unix { local, .. } => local.display().to_string(),
            Self::Roce { local } => local.to_string(),
        }
    }

    /// A locally administered MAC that differs from those of other cards, since the own end does.
    pub(crate) fn mac(&self) -> [u8; 6] {
        // FNV-1a.
        let hash = self
            .local()
            .bytes()
            .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        let [a, b, c, d] = hash.to_be_bytes();
        // A card has two ports at most, whose MACs differ in the last bit.
        [0x02, 0x6d, a, b, c, d & 0xfe]
    }
}

impl FromStr for UplinkAddress {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text.split_once(':') {
            Some(("udp", ends)) => {
                let (local, peer) = ends.split_once('/').ok_or(())?;
                let end = |text: &str| text.parse().ok().filter(|end: &SocketAddr| end.port() != 0).ok_or(());
                let (local, peer): (SocketAddr, SocketAddr) = (end(local)?, end(peer)?);
                if local == peer || local.is_ipv4() != peer.is_ipv4() {
                    return Err(());
                }
                Ok(Self::Udp { local, peer })
            }
            Some(("unix", ends)) => match ends.split_once(':') {
                Some((local, peer)) if !local.is_empty() && !peer.is_empty() && local != peer => {
                    Ok(Self::Unix { local: Path::new(local).into(), peer: Path::new(peer).into() })
                }
                _ => Err(()),
            },
            Some(("roce", local)) => Ok(Self::Roce { local: local.parse().map_err(|_| ())? }),
            _ => Err(()),
        }
    }
}

impl fmt::Display for UplinkAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Udp { local, peer } => write!(f, "udp:{local}/{peer}"),
            Self::Unix { local, peer } => write!(f, "unix:{}:{}", local.display(), peer.display()),
            Self::Roce { local } => write!(f, "roce:{local}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_comes_back() {
        for text in [
            "udp:127.0.0.1:4000/10.0.0.2:4001",
            "udp:[::1]:4000/[::1]:4001",
            "unix:/tmp/a:/tmp/b",
            "roce:127.0.0.2",
        ] {
            assert_eq!(text.parse::<UplinkAddress>().map(|address| address.to_string()), Ok(text.into()));
        }
    }

    #[test]
    fn what_has_not_two_ends_is_refused() {
        for text in [
            "udp:127.0.0.1:4000",
            "udp:127.0.0.1:4000/127.0.0.1:4000",
            "udp:127.0.0.1:4000/[::1]:4001",
            "udp:127.0.0.1:0/127.0.0.1:4001",
            "udp:localhost:4000/localhost:4001",
            "unix:/tmp/a",
            "unix:/tmp/a:/tmp/a",
            "unix::/tmp/a",
            "tcp:127.0.0.1:1/127.0.0.1:2",
            "roce:fe80::1",
            "",
        ] {
            assert_eq!(text.parse::<UplinkAddress>(), Err(()), "{text}");
        }
    }

    #[test]
    fn ends_have_their_own_mac() {
        let mac = |text: &str| text.parse::<UplinkAddress>().map(|address| address.mac());
        let (a, b) = (mac("udp:127.0.0.1:4000/127.0.0.1:4001"), mac("udp:127.0.0.1:4001/127.0.0.1:4000"));
        assert_ne!(a, b);
        assert_eq!(a.map(|mac| mac[0] & 3), Ok(2), "locally administered, unicast");
    }
}
