//! The address of a queue pair, as peers tell it each other.
#![forbid(unsafe_code)]

use crate::{
    Error, Result,
    backend::link_local_mac,
    mlx5::{
        context::Mtu,
        ids::{Psn, Qpn},
    },
};
use std::{fmt, net::Ipv6Addr, str::FromStr};

/// What a peer has to know of a queue pair to connect to it.
///
/// It is data: [`Display`](fmt::Display) writes it as one line of text and [`FromStr`] reads that, so two hosts can
/// tell each other over any channel.
///
/// ```no_run
/// use mlx5_direct::{Connection, Qp, QpAddress};
/// use std::{io::{BufRead, BufReader, Write}, net::TcpStream};
///
/// /// Both ends call it, on a socket between them.
/// fn connect(qp: &mut Qp, socket: &mut TcpStream) -> Result<(), Box<dyn std::error::Error>> {
///     let how = Connection::default();
///     writeln!(socket, "{}", qp.address(how.port, how.gid_index)?)?;
///     let mut line = String::new();
///     BufReader::new(&*socket).read_line(&mut line)?;
///     let peer: QpAddress = line.trim_end().parse()?;
///     qp.connect(&peer, &how)?;
///     Ok(())
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QpAddress {
    /// Number of the queue pair.
    pub qpn: Qpn,
    /// First PSN that it sends.
    pub psn: Psn,
    /// GID of its port. An IPv4 address is `::ffff:a.b.c.d`.
    pub gid: [u8; 16],
    /// MAC of its port, or of the gateway to it (RoCE).
    pub mac: [u8; 6],
    /// LID of its port (InfiniBand).
    pub lid: u16,
    /// Largest payload of a packet that its port carries.
    pub mtu: Mtu,
}

impl QpAddress {
    /// A queue pair of which only number, PSN and GID are known. The MAC follows from the GID; the MTU is the
    /// largest that there is, so that the own port's counts.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the GID tells no MAC: it is no link-local address made of one.
    pub fn from_gid(qpn: Qpn, psn: Psn, gid: [u8; 16]) -> Result<Self> {
        let mac = link_local_mac(&gid).ok_or_else(|| {
            Error::invalid(format!(
                "GID {} tells no MAC address: only a link-local one made of a MAC does (fe80::/64, EUI-64); give the \
                 peer's MAC, or that of the gateway to it",
                Ipv6Addr::from(gid)
            ))
        })?;
        Ok(Self { qpn, psn, gid, mac, lid: 0, mtu: Mtu::MTU_4096 })
    }
}

/// The names of the fields, in their order.
const FIELDS: [&str; 6] = ["qpn", "psn", "gid", "mac", "lid", "mtu"];

impl fmt::Display for QpAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.mac;
        write!(
            f,
            "qpn={} psn={} gid={} mac={a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x} lid={} mtu={}",
            self.qpn,
            self.psn,
            Ipv6Addr::from(self.gid),
            self.lid,
            self.mtu.bytes().unwrap_or(0)
        )
    }
}

impl FromStr for QpAddress {
    type Err = Error;

    /// Takes what [`Display`](fmt::Display) writes.
    fn from_str(text: &str) -> Result<Self> {
        let bad = |name: &str, takes: &str| {
            Error::invalid(format!("address of a queue pair `{text}`: {name} takes {takes}"))
        };
        let mut words = text.split(' ');
        let mut values = [""; 6];
        for (name, value) in FIELDS.iter().zip(&mut values) {
            let word = words.next().and_then(|word| word.strip_prefix(*name)?.strip_prefix('='));
            *value = word.ok_or_else(|| bad("it", &format!("{} in this order", FIELDS.join("=… "))))?;
        }
        if words.next().is_some() {
            return Err(bad("it", "nothing after mtu"));
        }
        let [qpn, psn, gid, mac, lid, mtu] = values;
        let number = |name, text: &str| {
            let digits = text.strip_prefix("0x").and_then(|digits| u32::from_str_radix(digits, 16).ok());
            digits.filter(|n| n >> 24 == 0).ok_or_else(|| bad(name, "24 bits in hexadecimal, as 0x100"))
        };
        let mtu = [Mtu::MTU_256, Mtu::MTU_512, Mtu::MTU_1024, Mtu::MTU_2048, Mtu::MTU_4096]
            .into_iter()
            .find(|known| known.bytes().is_some_and(|bytes| bytes.to_string() == mtu));
        Ok(Self {
            qpn: Qpn::new(number("qpn", qpn)?),
            psn: Psn::new(number("psn", psn)?),
            gid: gid.parse::<Ipv6Addr>().map_err(|_| bad("gid", "an IPv6 address"))?.octets(),
            mac: parse_mac(mac)
                .ok_or_else(|| bad("mac", "six bytes in hexadecimal, as 02:00:00:00:00:01"))?,
            lid: lid.parse().map_err(|_| bad("lid", "0 to 65535"))?,
            mtu: mtu.ok_or_else(|| bad("mtu", "256, 512, 1024, 2048 or 4096"))?,
        })
    }
}

fn parse_mac(text: &str) -> Option<[u8; 6]> {
    let mut mac = [0; 6];
    let mut words = text.split(':');
    for byte in &mut mac {
        *byte =
            words.next().filter(|word| word.len() == 2).and_then(|word| u8::from_str_radix(word, 16).ok())?;
    }
    words.next().is_none().then_some(mac)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{gid_of, link_local_gid};

    const MAC: [u8; 6] = [2, 0, 0, 0x12, 0x34, 0xff];

    fn address() -> QpAddress {
        QpAddress::from_gid(Qpn::new(0x100), Psn::new(0xfffff0), link_local_gid(MAC)).unwrap()
    }

    #[test]
    fn the_mac_follows_from_a_link_local_gid_and_no_other() {
        assert_eq!((address().mac, address().mtu), (MAC, Mtu::MTU_4096));
        let refused =
            QpAddress::from_gid(Qpn::new(1), Psn::new(1), gid_of([10, 0, 0, 1].into())).unwrap_err();
        let refused = refused.to_string();
        assert!(refused.contains("::ffff:10.0.0.1") && refused.contains("give the peer's MAC"), "{refused}");
    }

    #[test]
    fn text_and_back() {
        let address = QpAddress { lid: 7, mtu: Mtu::MTU_1024, ..address() };
        let text = "qpn=0x100 psn=0xfffff0 gid=fe80::ff:fe12:34ff mac=02:00:00:12:34:ff lid=7 mtu=1024";
        assert_eq!(address.to_string(), text);
        assert_eq!(text.parse::<QpAddress>().unwrap(), address);
    }

    #[test]
    fn what_is_wrong_in_a_text_is_told() {
        let good = address().to_string();
        for (from, to, told) in [
            ("qpn=0x100", "qpn=256", "qpn takes 24 bits"),
            ("psn=0xfffff0", "psn=0x1000000", "psn takes 24 bits"),
            ("gid=fe80", "gid=xyz", "gid takes an IPv6 address"),
            ("mac=02:", "mac=", "mac takes six bytes"),
            ("mac=02:", "mac=02:02:", "mac takes six bytes"),
            ("lid=0", "lid=65536", "lid takes 0 to 65535"),
            ("mtu=4096", "mtu=1500", "mtu takes 256"),
            (" mtu=4096", "", "mtu in this order"),
            ("mtu=4096", "mtu=4096 x=1", "nothing after mtu"),
        ] {
            let bad = good.replace(from, to);
            assert_ne!(bad, good);
            let error = bad.parse::<QpAddress>().unwrap_err().to_string();
            assert!(error.contains(told), "{bad}: {error}");
        }
    }
}
