//! What kind of card to make: `ports=2,mtu=4096,bar=trapped,drive=step`.
#![forbid(unsafe_code)]

use crate::{
    fault::{self, FaultScript, ScriptError},
    wire::UplinkAddress,
};
use std::{fmt, str::FromStr};

/// How a driver's stores to mapped UAR pages reach the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Bar {
    /// The first UAR page of a driver, where its event queues are, is trapped, and so is what comes before it; the
    /// other UAR pages are mapped. Whoever maps a trapped page needs x86-64.
    #[default]
    Sparse,
    /// Every store is carried out by the model, and faults if the page is mapped: order, width and bytes are exact.
    /// x86-64 only.
    Trapped,
    /// UAR pages are plain shared memory and the model looks at them. Doorbells can merge: of several event queues on
    /// one page the model cannot tell how far each is consumed.
    Mapped,
}

/// Who makes the model run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Drive {
    /// One engine thread per card, real time.
    #[default]
    Thread,
    /// Whoever stores to a register: what follows from it is done before the store is. An engine thread does what no
    /// store asks for: timers, doorbells in mapped pages, frames from other processes. Quicker where threads wait for a
    /// processor, as under virtual machines.
    Store,
    /// The caller: [`Model::step`](crate::Model::step) and [`Model::advance`](crate::Model::advance), virtual
    /// time. Commands run inside the register write that rings them.
    Step,
}

/// What a violation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Strict {
    /// It is collected.
    #[default]
    Report,
    /// It is collected, and the device goes into fatal health.
    Stop,
}

/// What a card's ports are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LinkType {
    /// Ethernet, with RoCE.
    #[default]
    Ethernet,
    /// InfiniBand.
    InfiniBand,
}

/// Which card the config space and the capabilities tell of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Part {
    /// ConnectX-5, 15b3:1017.
    #[default]
    Cx5,
    /// ConnectX-6, 15b3:101b.
    Cx6,
    /// ConnectX-6 Dx, 15b3:101d.
    Cx6Dx,
}

impl Part {
    /// PCI device ID.
    pub const fn device_id(self) -> u16 {
        match self {
            Self::Cx5 => 0x1017,
            Self::Cx6 => 0x101b,
            Self::Cx6Dx => 0x101d,
        }
    }
}

/// A card's make. [`FromStr`] takes `key=value` pairs with commas between, in any order; an empty string
/// is the default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelConfig {
    /// Number of ports, each one PCI function. Two ports are cabled to each other; one port loops back.
    pub ports: u8,
    /// Largest RDMA MTU of a port in bytes: 256, 512, 1024, 2048 or 4096.
    pub mtu_bytes: u16,
    /// How mapped doorbells reach the model.
    pub bar: Bar,
    /// Who makes the model run.
    pub drive: Drive,
    /// What a violation does.
    pub strict: Strict,
    /// Which card it is.
    pub part: Part,
    /// BlueFlame is among the capabilities.
    pub blue_flame: bool,
    /// MSI-X vectors of a function, 1 to 64.
    pub n_vectors: u16,
    /// Where frames go that are for no port of this card: to another process. A card without one keeps to itself.
    pub wire: Option<UplinkAddress>,
    /// What the ports are.
    pub link: LinkType,
    /// InfiniBand: the card configures its own ports when a link comes up, as a subnet manager would. Without, they
    /// wait for one.
    pub subnet_manager: bool,
    /// InfiniBand: the LID that the first port gets from the card's own subnet manager; the second gets the next.
    pub lid: u16,
    /// MAC of the first port; the second port's is the next. Default: one that all cards have, or with a wire one
    /// that follows from the wire's own end.
    pub mac: Option<[u8; 6]>,
    /// What goes wrong, counted and timed from the beginning.
    pub faults: FaultScript,
}

impl Default for ModelConfig {
    fn default() -> Self {
        Self {
            ports: 1,
            mtu_bytes: 4096,
            bar: Bar::default(),
            drive: Drive::default(),
            strict: Strict::default(),
            part: Part::default(),
            blue_flame: true,
            n_vectors: 16,
            wire: None,
            link: LinkType::default(),
            subnet_manager: true,
            lid: 1,
            mac: None,
            faults: FaultScript::default(),
        }
    }
}

/// A description of a card that cannot be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigError {
    /// A pair without `=`.
    NotAPair(String),
    /// A key that no option has.
    UnknownKey(String),
    /// A key given twice.
    Twice(String),
    /// A value that the key does not take.
    BadValue {
        /// The key.
        key: &'static str,
        /// What was given.
        value: String,
    },
    /// A fault script that cannot be read.
    Faults(ScriptError),
    /// An option that this machine cannot offer.
    Unsupported(&'static str),
}

/// Every key and what it takes.
const KEYS: &[(&str, &str)] = &[
    ("ports", "1 or 2"),
    ("mtu", "256, 512, 1024, 2048 or 4096 (bytes)"),
    ("bar", "sparse, trapped or mapped"),
    ("drive", "thread or step"),
    ("strict", "report or stop"),
    ("part", "cx5, cx6 or cx6dx"),
    ("bf", "on or off"),
    ("vectors", "1 to 64"),
    ("wire", UplinkAddress::SYNTAX),
    ("link", "eth or ib"),
    ("sm", "on or off"),
    ("lid", "1 to 49150"),
    ("faults", "a file with a fault script, or seed:N, seed:N:errors or seed:N:wire"),
    ("mac", "a unicast address whose last bit is 0, as 02:00:00:00:00:10"),
];

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAPair(text) => write!(f, "model option `{text}` is not key=value; known keys:")?,
            Self::UnknownKey(key) => write!(f, "model option `{key}` is unknown; known keys:")?,
            Self::Twice(key) => return write!(f, "model option `{key}` is given twice; give it once"),
            Self::BadValue { key, value } => {
                let takes = KEYS.iter().find(|(k, _)| k == key).map_or("", |(_, takes)| takes);
                return write!(f, "model option `{key}={value}`: `{key}` takes {takes}");
            }
            Self::Faults(error) => return write!(f, "model option `faults=`: {error}"),
            Self::Unsupported(what) => return f.write_str(what),
        }
        for (at, (key, takes)) in KEYS.iter().enumerate() {
            write!(f, "{} {key} ({takes})", if at == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

impl FromStr for ModelConfig {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let mut config = Self::default();
        let mut seen = Vec::new();
        for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').ok_or_else(|| ConfigError::NotAPair(pair.into()))?;
            let (key, value) = (key.trim(), value.trim());
            let key = KEYS
                .iter()
                .find(|(known, _)| *known == key)
                .map(|(known, _)| *known)
                .ok_or_else(|| ConfigError::UnknownKey(key.into()))?;
            if seen.contains(&key) {
                return Err(ConfigError::Twice(key.into()));
            }
            seen.push(key);
            if key == "faults" {
                config.faults = fault::from_file_or_seed(value).map_err(ConfigError::Faults)?;
                continue;
            }
            config.set(key, value).ok_or_else(|| ConfigError::BadValue { key, value: value.into() })?;
        }
        Ok(config)
    }
}

impl ModelConfig {
    /// Sets one known key; `None` if it does not take the value.
    fn set(&mut self, key: &str, value: &str) -> Option<()> {
        match (key, value) {
            ("ports", _) => self.ports = value.parse().ok().filter(|n| (1..=2).contains(n))?,
            ("mtu", _) => {
                self.mtu_bytes =
                    value.parse().ok().filter(|n: &u16| n.is_power_of_two() && (256..=4096).contains(n))?;
            }
            ("bar", "sparse") => self.bar = Bar::Sparse,
            ("bar", "trapped") => self.bar = Bar::Trapped,
            ("bar", "mapped") => self.bar = Bar::Mapped,
            ("drive", "thread") => self.drive = Drive::Thread,
            ("drive", "store") => self.drive = Drive::Store,
            ("drive", "step") => self.drive = Drive::Step,
            ("strict", "report") => self.strict = Strict::Report,
            ("strict", "stop") => self.strict = Strict::Stop,
            ("part", "cx5") => self.part = Part::Cx5,
            ("part", "cx6") => self.part = Part::Cx6,
            ("part", "cx6dx") => self.part = Part::Cx6Dx,
            ("bf", "on") => self.blue_flame = true,
            ("bf", "off") => self.blue_flame = false,
            ("vectors", _) => self.n_vectors = value.parse().ok().filter(|n| (1..=64).contains(n))?,
            ("wire", _) => self.wire = Some(value.parse().ok()?),
            ("link", "eth") => self.link = LinkType::Ethernet,
            ("link", "ib") => self.link = LinkType::InfiniBand,
            ("sm", "on") => self.subnet_manager = true,
            ("sm", "off") => self.subnet_manager = false,
            ("lid", _) => self.lid = value.parse().ok().filter(|lid| (1..=0xbffe).contains(lid))?,
            ("mac", _) => self.mac = Some(parse_mac(value)?),
            _ => return None,
        }
        Some(())
    }

    /// MAC of port `index`, counted from 0.
    pub fn port_mac(&self, index: u8) -> [u8; 6] {
        let first = match (self.mac, &self.wire) {
            (Some(mac), _) => mac,
            (None, Some(wire)) => wire.mac(),
            (None, None) => return [0x02, 0x6d, 0x6c, 0x78, 0x35, 0x01 + index],
        };
        let [a, b, c, d, e, f] = first;
        [a, b, c, d, e, f | index]
    }
}

/// A MAC for the first port: not a group's, and with room for the second port's.
fn parse_mac(text: &str) -> Option<[u8; 6]> {
    let bytes: Vec<u8> =
        text.split(':').map(|byte| u8::from_str_radix(byte, 16)).collect::<Result<_, _>>().ok()?;
    <[u8; 6]>::try_from(bytes).ok().filter(|mac| mac[0] & 1 == 0 && mac[5] & 1 == 0 && *mac != [0; 6])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_in_any_order() {
        let config: ModelConfig =
            "drive=step, mtu=1024,ports=2,bar=trapped,strict=stop,part=cx6".parse().unwrap();
        assert_eq!((config.ports, config.mtu_bytes, config.part.device_id()), (2, 1024, 0x101b));
        assert_eq!((config.bar, config.drive, config.strict), (Bar::Trapped, Drive::Step, Strict::Stop));
        assert_eq!("".parse(), Ok(ModelConfig::default()));
    }

    #[test]
    fn the_readme_has_every_key() {
        for (key, _) in KEYS {
            let row = format!("| `{key}=");
            assert!(include_str!("../../README.md").contains(&row), "no row {row}");
        }
    }

    #[test]
    fn cards_with_a_wire_differ_in_mac() {
        let macs = |text: &str| {
            let config: ModelConfig = text.parse().unwrap();
            [config.port_mac(0), config.port_mac(1)]
        };
        let [a, b] = macs("wire=udp:127.0.0.1:4000/127.0.0.1:4001");
        let [c, d] = macs("wire=udp:127.0.0.1:4001/127.0.0.1:4000");
        assert!(a != b && a != c && a != d && b != c && b != d && c != d);
        assert_eq!(macs("mac=02:00:00:00:00:10")[1], [2, 0, 0, 0, 0, 0x11]);
    }

    #[test]
    fn refusals_name_the_key_and_what_is_known() {
        let error = "prots=2".parse::<ModelConfig>().unwrap_err();
        assert_eq!(error, ConfigError::UnknownKey("prots".into()));
        assert!(error.to_string().contains("ports (1 or 2)"));
        let error = "mtu=1500".parse::<ModelConfig>().unwrap_err().to_string();
        assert!(error.contains("mtu=1500") && error.contains("1024"), "{error}");
        assert_eq!("ports=1,ports=2".parse::<ModelConfig>(), Err(ConfigError::Twice("ports".into())));
        let error = "faults=seed:x".parse::<ModelConfig>().unwrap_err().to_string();
        assert!(error.contains("`faults=`: `x` is no seed"), "{error}");
        assert_eq!("bar".parse::<ModelConfig>(), Err(ConfigError::NotAPair("bar".into())));
        for bad in [
            "ports=3",
            "ports=x",
            "bar=none",
            "vectors=0",
            "drive=",
            "link=fc",
            "sm=",
            "lid=0",
            "lid=49151",
            "part=cx4",
            "wire=udp:1",
            "mac=01:00:00:00:00:00",
        ] {
            assert!(matches!(bad.parse::<ModelConfig>(), Err(ConfigError::BadValue { .. })), "{bad}");
        }
    }
}
