//! The command line, as it is written.

use crate::{
    decode::Decode,
    diff::Diff,
    encode::Encode,
    failure::Failure,
    hosts::host_port,
    notes::Notes,
    plan::{Op, Transport},
    tour::TourArgs,
};
use clap::{Args, Parser, Subcommand, ValueEnum, value_parser};
use mlx5_direct::mlx5::context::Mtu;
use std::{ffi::OsString, net::IpAddr, path::PathBuf};

/// Kernel-bypass driver for mlx5 NICs, and a software ConnectX to run it on.
#[derive(Debug, Parser)]
#[command(name = "mlx5", version, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Exchange messages between two queue pairs and print the latency histogram
    Pingpong(Pingpong),
    /// Measure the latency of one operation
    Lat(Traffic),
    /// Measure bandwidth and message rate of one operation
    Bw(Traffic),
    /// Show a device as ibv_devinfo -v does: firmware, limits, ports, GIDs
    Info(Info),
    /// List the mlx5 devices of this computer, and what each is bound to
    List(List),
    /// Look for what keeps a device from working, and say what helps; exit code 1 if something does
    Doctor(Doctor),
    /// Explain dumps and error lines of mlx5 devices, wherever they stand in pasted text or a log
    Decode(Decode),
    /// What each structure of the device is: notes as text, or one page with all
    Notes(Notes),
    /// Compare two WQEs, CQEs, dumps or traces, field by field; exit code 1 if they differ
    Diff(Diff),
    /// Tell how a READ, WRITE, SEND or atomic goes from host to host, with the bytes of a run
    Tour(TourArgs),
    /// The bytes of a work request, each field beside them, with doorbell record and register
    Encode(Encode),
    /// The software ConnectX, for other programs
    #[command(subcommand)]
    Model(ModelCommand),
}

/// How the program's stores to registers are seen.
const RUN_NOTES: &str = "\
BAR0 of the card, by the option `bar` of --device:
  sparse   (default) right for any program: the first UAR page that a driver allocates, where its event queues ring, is
           trapped, and so are the registers before it; all other UAR pages may be mapped, and the card looks at them
  trapped  every store is seen as it is, so all rules about doorbells are checked; slower, and no BlueFlame
  mapped   all UAR pages may be mapped: for machines that cannot trap (other than x86-64). Of several event queues on one
           page the card cannot tell how far each is consumed, and does not check that
At the end it prints how many WQEs came by BlueFlame, and the rules that were broken.";

/// What to do with the software ConnectX.
#[derive(Debug, Subcommand)]
pub(crate) enum ModelCommand {
    /// Start a program that finds the software ConnectX behind /dev/vfio (group 5555), or as an RDMA device
    #[command(after_help = RUN_NOTES)]
    Run(ModelRun),
    /// Serve one of its functions over vfio-user, to one client after the other
    Serve(Serve),
}

/// Arguments of `model serve`.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Where to listen; the socket of a server that is gone is replaced
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: PathBuf,
    #[command(flatten)]
    pub(crate) device: DeviceArg,
    /// Which PCI function of the card, from 0
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(crate) function: usize,
    /// End when the first client is gone; exit code 1 if it broke a rule
    #[arg(long)]
    pub(crate) once: bool,
}

/// Arguments of `model run`.
#[derive(Debug, Args)]
pub(crate) struct ModelRun {
    #[command(flatten)]
    pub(crate) device: DeviceArg,
    #[command(flatten)]
    pub(crate) recording: Recording,
    /// The program finds the card as verbs do, as a kernel's RDMA device mlx5_0: for any program of libibverbs
    #[arg(long)]
    pub(crate) verbs: bool,
    /// The program twice, on two cards with a wire between them, both found as with --verbs, which need not be said: as
    /// it is written, which is the server, and with 127.0.0.1 after its arguments, which is the client. What the server
    /// says is printed at the end
    #[arg(long)]
    pub(crate) pair: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    pub(crate) command: Vec<OsString>,
}

/// Which device to use.
#[derive(Debug, Clone, Args)]
pub(crate) struct DeviceArg {
    /// `model` is the software ConnectX, with options as in `model:ports=2,mtu=4096,bar=trapped`;
    /// `vfio:0000:01:00.0` is a function that is bound to vfio-pci, `vfio-user:PATH` one that is served there; two with a
    /// comma between them are the two ends
    #[arg(long, default_value = "model", value_name = "DEVICE")]
    device: String,
    /// Software card: what it does when the driver breaks a rule of the interface. As the option `strict=` of --device
    #[arg(long, value_enum)]
    strict: Option<Strict>,
}

/// What the software card does when a rule is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Strict {
    /// It goes on, and the rule is told at the end (the default)
    Report,
    /// It stops at the first one, and the command fails with it
    Stop,
}

impl DeviceArg {
    /// The device as it is named, with all its options.
    pub(crate) fn text(&self) -> Result<String, Failure> {
        let strict = match self.strict {
            None => return Ok(self.device.clone()),
            Some(Strict::Report) => "strict=report",
            Some(Strict::Stop) => "strict=stop",
        };
        match self.device.split_once(':') {
            None if self.device == "model" => Ok(format!("model:{strict}")),
            Some(("model", options)) => Ok(format!("model:{options},{strict}")),
            _ => Err(Failure::Usage(format!(
                "--strict is of the software card: `{}` does not tell what rules are broken",
                self.device
            ))),
        }
    }
}

/// Arguments of `info`.
#[derive(Debug, Args)]
pub(crate) struct Info {
    #[command(flatten)]
    pub(crate) device: DeviceArg,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `list`.
#[derive(Debug, Args)]
pub(crate) struct List {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `doctor`.
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// The device, which is opened for a moment if nothing speaks against it. Without it, all of this computer are looked
    /// at, and none is opened
    #[arg(long, value_name = "DEVICE")]
    pub(crate) device: Option<String>,
}

/// Arguments of `pingpong`.
#[derive(Debug, Clone, Args)]
pub(crate) struct Pingpong {
    /// Bytes of a message (64, 4k, 1m)
    #[arg(long, default_value = "64", value_name = "BYTES", value_parser = size)]
    pub(crate) size: u32,
    /// Round trips to measure
    #[arg(long, default_value_t = 10_000, value_name = "N", value_parser = value_parser!(u64).range(1..=1 << 40))]
    pub(crate) iters: u64,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Arguments of `lat` and `bw`.
#[derive(Debug, Clone, Args)]
pub(crate) struct Traffic {
    /// The operation
    #[arg(long, value_enum, default_value_t = Op::Send)]
    pub(crate) op: Op,
    /// Bytes of a message: one size, a list, or a sweep in powers of two. Atomics are always 8 bytes.
    /// Default: 64 for lat, 64k for bw, 1k by datagrams
    #[arg(long, value_name = "BYTES|A,B|FROM..TO", value_parser = Sizes::parse)]
    pub(crate) size: Option<Sizes>,
    /// Operations of each size, shared among the queue pairs. Default: 10000, fewer where messages are long
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..=1 << 40))]
    pub(crate) iters: Option<u64>,
    /// Requests posted by one doorbell; of `lat`, messages in one exchange
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    pub(crate) batch: u32,
    /// Requests that each queue holds
    #[arg(long, default_value_t = 128, value_name = "N", value_parser = value_parser!(u32).range(1..=32_768))]
    pub(crate) depth: u32,
    /// Queue pairs, in turn
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = value_parser!(u32).range(1..=65_536))]
    pub(crate) qps: u32,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// What the software card writes down, and what goes wrong with it.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Recording {
    /// Write all that the card sees to FILE: commands, doorbells, WQEs, CQEs, events, packets, as hexdumps
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Write the packets to FILE, in pcap format
    #[arg(long, value_name = "FILE")]
    pub(crate) pcap: Option<PathBuf>,
    /// Let these faults happen to the card: a fault script, or one that is drawn from a seed. What did happen is printed as a
    /// script if the command fails
    #[arg(long, value_name = "FILE|seed:N")]
    pub(crate) faults: Option<String>,
}

/// The other end in another process, on this host or another. Without it both ends are here.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Two hosts")]
pub(crate) struct PeerArgs {
    /// Wait for the peer at this TCP address, and be the end that answers. Default: all addresses, port 18515
    #[arg(long, value_name = "[ADDR]:PORT", num_args = 0..=1, default_missing_value = "", value_parser = host_port)]
    pub(crate) listen: Option<(String, u16)>,
    /// Connect to the peer that listens there, and be the end that asks. Default: port 18515
    #[arg(long, value_name = "HOST[:PORT]", conflicts_with = "listen", value_parser = host_port)]
    pub(crate) connect: Option<(String, u16)>,
    /// How the two ends tell each other their addresses, and what they run
    #[arg(long, value_enum, default_value_t = Exchange::Mlx5)]
    pub(crate) exchange: Exchange,
    /// Own IP address in RoCE v2: given to the port, and used. Default: the entry of --gid-index
    #[arg(long, value_name = "ADDR")]
    pub(crate) ip: Option<IpAddr>,
    /// Own entry in the GID table: 0 and 1 are the link-local address in RoCE v1 and v2. Default: 1; 0 on InfiniBand
    #[arg(long, value_name = "N", conflicts_with = "ip")]
    pub(crate) gid_index: Option<u8>,
    /// MAC of the peer or of the gateway to it, where neither the exchange nor a link-local GID tells it
    #[arg(long, value_name = "MAC", value_parser = mac)]
    pub(crate) peer_mac: Option<[u8; 6]>,
    /// Bytes of a packet's payload (256 to 4096). Default: the largest that both ports carry; 1024 with
    /// ibv_rc_pingpong and ibv_uc_pingpong, whose default it is
    #[arg(long, value_name = "BYTES", value_parser = mtu)]
    pub(crate) mtu: Option<Mtu>,
    /// How long to wait for the peer to come
    #[arg(long, default_value_t = 60, value_name = "SECONDS", value_parser = value_parser!(u32).range(1..=86_400))]
    pub(crate) wait: u32,
}

impl PeerArgs {
    /// Whether there is a peer.
    pub(crate) fn is_given(&self) -> bool {
        self.listen.is_some() || self.connect.is_some()
    }
}

/// Whose exchange of addresses is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Exchange {
    /// That of this program: the ends compare what they run, and the data is checked at both
    #[default]
    Mlx5,
    /// That of rdma-core's ibv_rc_pingpong: give both the same --size and --iters
    #[value(name = "ibv_rc_pingpong")]
    IbvRcPingpong,
    /// The same, over an unreliable connection
    #[value(name = "ibv_uc_pingpong")]
    IbvUcPingpong,
    /// The same, by datagrams
    #[value(name = "ibv_ud_pingpong")]
    IbvUdPingpong,
    /// That of perftest (ib_send_lat, ib_write_bw and others; version 4.5): give it the same -s and -n
    Perftest,
}

impl Exchange {
    /// The transport of the programs that speak it.
    pub(crate) fn transport(self) -> Option<Transport> {
        match self {
            Self::Mlx5 => None,
            Self::IbvRcPingpong | Self::Perftest => Some(Transport::Rc),
            Self::IbvUcPingpong => Some(Transport::Uc),
            Self::IbvUdPingpong => Some(Transport::Ud),
        }
    }

    /// Whether it is one of the ping-pongs of rdma-core.
    pub(crate) fn is_ibv_pingpong(self) -> bool {
        matches!(self, Self::IbvRcPingpong | Self::IbvUcPingpong | Self::IbvUdPingpong)
    }
}

/// What every traffic command takes.
#[derive(Debug, Clone, Args)]
pub(crate) struct Common {
    #[command(flatten)]
    pub(crate) device: DeviceArg,
    #[command(flatten)]
    pub(crate) peer: PeerArgs,
    /// How the queue pairs talk. Default: that of --exchange, else rc
    #[arg(long, value_enum)]
    pub(crate) transport: Option<Transport>,
    /// Carry the message in the WQE itself
    #[arg(long)]
    pub(crate) inline: bool,
    /// Ask for a completion of every Nth send request only
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    pub(crate) signal_every: u32,
    /// Sleep for completion events instead of polling
    #[arg(long)]
    pub(crate) events: bool,
    /// Seed of the payload, against which everything is checked
    #[arg(long, default_value_t = 1, value_name = "SEED")]
    pub(crate) seed: u64,
    /// Give up when nothing happens for so long, and a second more for each 10 MB of a batch; where only the peer
    /// sees its run, for that and 20 ms more for each exchange
    #[arg(long, default_value_t = 10, value_name = "SECONDS", value_parser = value_parser!(u32).range(1..=3600))]
    pub(crate) timeout: u32,
    #[command(flatten)]
    pub(crate) recording: Recording,
    /// Print the first WQE, its doorbell and its CQE, field by field
    #[arg(long, conflicts_with = "json")]
    pub(crate) explain: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Message sizes, in the order to run them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sizes(pub(crate) Vec<u32>);

impl Sizes {
    fn parse(text: &str) -> Result<Self, String> {
        let Some((from, to)) = text.split_once("..") else {
            return text.split(',').map(size).collect::<Result<_, _>>().map(Self);
        };
        let (from, to) = (size(from)?.max(1), size(to)?);
        if from > to {
            return Err(format!("the sweep is empty: {from} is above {to}"));
        }
        Ok(Self(std::iter::successors(Some(from), |n| n.checked_mul(2)).take_while(|n| *n <= to).collect()))
    }
}

/// A size in bytes, with k, m or g for powers of 1024.
fn size(text: &str) -> Result<u32, String> {
    let (digits, shift) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 10),
        Some((at, 'm' | 'M')) => (&text[..at], 20),
        Some((at, 'g' | 'G')) => (&text[..at], 30),
        _ => (text, 0),
    };
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(format!(
            "`{text}` is not a size in bytes: write 64, 4k, 1m, a list 1,64 or a sweep 1..64k"
        ));
    }
    let bytes = digits.parse::<u32>().ok().and_then(|n| n.checked_mul(1 << shift));
    bytes.ok_or_else(|| format!("{text} bytes are more than the {} that a size can be", u32::MAX))
}

/// A MAC address: six bytes in hexadecimal.
fn mac(text: &str) -> Result<[u8; 6], String> {
    let byte = |word: &str| u8::from_str_radix(word, 16).ok().filter(|_| word.len() == 2);
    let bytes: Option<Vec<_>> = text.split(':').map(byte).collect();
    let mac = bytes.and_then(|bytes| <[u8; 6]>::try_from(bytes).ok());
    mac.ok_or_else(|| format!("`{text}` is not a MAC address: write 02:00:00:00:00:01"))
}

/// A path MTU in bytes.
fn mtu(text: &str) -> Result<Mtu, String> {
    let known = [Mtu::MTU_256, Mtu::MTU_512, Mtu::MTU_1024, Mtu::MTU_2048, Mtu::MTU_4096];
    let found = known.into_iter().find(|mtu| mtu.bytes().is_some_and(|bytes| bytes.to_string() == text));
    found.ok_or_else(|| format!("path MTU `{text}`: give 256, 512, 1024, 2048 or 4096"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_sweeps() {
        assert_eq!(Sizes::parse("64"), Ok(Sizes(vec![64])));
        assert_eq!(Sizes::parse("4k"), Ok(Sizes(vec![4096])));
        assert_eq!(Sizes::parse("0,7,1m"), Ok(Sizes(vec![0, 7, 1 << 20])));
        assert_eq!(Sizes::parse("2..16"), Ok(Sizes(vec![2, 4, 8, 16])));
        assert_eq!(Sizes::parse("0..4"), Ok(Sizes(vec![1, 2, 4])));
        assert_eq!(Sizes::parse("1g..3g"), Ok(Sizes(vec![1 << 30, 1 << 31])));
        for bad in ["", "x", "4g", "-1", "+1", "8..4", "..", "99999999999", "k", "1,", "1é"] {
            assert!(Sizes::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn strict_is_an_option_of_the_software_card() {
        let text = |device: &str, strict| DeviceArg { device: device.into(), strict }.text();
        assert_eq!(text("model", None).unwrap(), "model");
        assert_eq!(text("model", Some(Strict::Stop)).unwrap(), "model:strict=stop");
        assert_eq!(text("model:ports=2", Some(Strict::Report)).unwrap(), "model:ports=2,strict=report");
        assert_eq!(text("vfio:0000:01:00.0", None).unwrap(), "vfio:0000:01:00.0");
        assert!(matches!(text("vfio:0000:01:00.0", Some(Strict::Stop)), Err(Failure::Usage(_))));
    }

    #[test]
    fn addresses_and_mtus() {
        assert_eq!(mac("02:00:00:00:0a:ff"), Ok([2, 0, 0, 0, 10, 255]));
        for bad in ["", "02:00:00:00:00", "02:00:00:00:00:1", "02:00:00:00:00:00:00", "02:00:00:00:00:0g"] {
            assert!(mac(bad).is_err(), "{bad}");
        }
        assert_eq!(mtu("1024"), Ok(Mtu::MTU_1024));
        assert!(mtu("1500").unwrap_err().contains("256, 512"));
    }

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
