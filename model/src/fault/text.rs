//! Scripts as text: what is printed is what is parsed.

use super::script::{CommandFate, EntryFate, Fault, FaultScript, Mishap, Nth, PacketFate};
use crate::fw::health::Fatal;
use mlx5_direct::{
    cqe::CqeSyndrome,
    mlx5::{
        cmd::{CmdOpcode, CmdStatus, DeliveryStatus},
        eqe::EventType,
        init_segment::HealthSyndrome,
    },
};
use std::{fmt, str::FromStr, time::Duration};

/// A script that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptError {
    /// Line, from 1; 0 if there is no script at all.
    pub line: usize,
    /// What is wrong, and what would be right.
    pub problem: String,
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.problem),
            line => write!(f, "fault script, line {line}: {}", self.problem),
        }
    }
}

impl std::error::Error for ScriptError {}

impl FromStr for FaultScript {
    type Err = ScriptError;

    fn from_str(text: &str) -> Result<Self, ScriptError> {
        let mut script = Self::default();
        for (number, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or("").trim();
            let read = match line.strip_prefix("seed ") {
                _ if line.is_empty() => continue,
                Some(seed) => number_of(seed.trim())
                    .map(|seed| script.seed = seed)
                    .ok_or_else(|| format!("`{seed}` is no seed")),
                None => fault(line).map(|fault| script.faults.push(fault)),
            };
            read.map_err(|problem| ScriptError { line: number + 1, problem })?;
        }
        Ok(script)
    }
}

impl FromStr for Fault {
    type Err = ScriptError;

    fn from_str(line: &str) -> Result<Self, ScriptError> {
        fault(line.trim()).map_err(|problem| ScriptError { line: 1, problem })
    }
}

const PACKET: &str = "packet N drop | duplicate N | reorder N | delay TIME | corrupt [BIT] | psn ±N";
const RECEIVE: &str = "receive N missing";
const COMMAND: &str =
    "command [OPCODE] N stuck | late TIME | last | fail STATUS [SYNDROME] | undelivered STATUS";
const EVENT: &str = "event [TYPE] N garbage [SEED] | owner | lost | silent";
const COMPLETION: &str = "completion N garbage [SEED] | owner | lost | silent | fail SYNDROME [VENDOR]";
const AT: &str =
    "[time TIME] link down | link up | gone | back | health SYNDROME [EXT] | hang | reset | pages N";

fn fault(line: &str) -> Result<Fault, String> {
    let mut words = line.split_whitespace().peekable();
    let function = match words.peek().and_then(|word| word.strip_prefix('@')) {
        Some(number) => {
            words.next();
            Some(number.parse().map_err(|_| format!("`@{number}`: a function is @0 or @1"))?)
        }
        None => None,
    };
    let words: Vec<&str> = words.collect();
    let syntax =
        |takes: &str| format!("`{line}`: it takes {takes}; N is 7, 7..9, * or 3%, TIME is 50us or 5ms");
    match words.as_slice() {
        ["packet", nth, fate @ ..] => {
            let (nth, fate) = nth_of(nth).zip(packet_fate(fate)).ok_or_else(|| syntax(PACKET))?;
            Ok(Fault::Packet { function, nth, fate })
        }
        ["receive", nth, "missing"] => {
            let nth = nth_of(nth).ok_or_else(|| syntax(RECEIVE))?;
            Ok(Fault::ReceiveMissing { function, nth })
        }
        ["receive", ..] => Err(syntax(RECEIVE)),
        ["command", rest @ ..] => {
            let (opcode, nth, fate) = counted(rest, opcode_of).ok_or_else(|| syntax(COMMAND))?;
            let fate = command_fate(fate).ok_or_else(|| syntax(COMMAND))?;
            Ok(Fault::Command { function, opcode, nth, fate })
        }
        ["event", rest @ ..] => {
            let (event, nth, fate) = counted(rest, event_of).ok_or_else(|| syntax(EVENT))?;
            let fate = entry_fate(fate).ok_or_else(|| syntax(EVENT))?;
            Ok(Fault::Event { function, event, nth, fate })
        }
        ["completion", nth, fate @ ..] => {
            let (nth, fate) = nth_of(nth).zip(cqe_fate(fate)).ok_or_else(|| syntax(COMPLETION))?;
            Ok(Fault::Completion { function, nth, fate })
        }
        ["time", time, mishap @ ..] => {
            let (time, mishap) = time_of(time).zip(mishap_of(mishap)).ok_or_else(|| syntax(AT))?;
            Ok(Fault::At { function, time, mishap })
        }
        mishap => match mishap_of(mishap) {
            Some(mishap) => Ok(Fault::At { function, time: Duration::ZERO, mishap }),
            None => Err(format!(
                "`{line}` is none of: {PACKET}; {RECEIVE}; {COMMAND}; {EVENT}; {COMPLETION}; {AT}; seed N"
            )),
        },
    }
}

/// An optional name, a count, and the rest.
fn counted<'a, T>(
    words: &'a [&'a str],
    name_of: fn(&str) -> Option<T>,
) -> Option<(Option<T>, Nth, &'a [&'a str])> {
    let (first, rest) = words.split_first()?;
    match nth_of(first) {
        Some(nth) => Some((None, nth, rest)),
        None => {
            let (nth, rest) = rest.split_first()?;
            Some((Some(name_of(first)?), nth_of(nth)?, rest))
        }
    }
}

fn packet_fate(words: &[&str]) -> Option<PacketFate> {
    Some(match words {
        ["drop"] => PacketFate::Drop,
        ["duplicate", n] => PacketFate::Duplicate(n.parse().ok()?),
        ["reorder", n] => PacketFate::Reorder(n.parse().ok()?),
        ["delay", time] => PacketFate::Delay(time_of(time)?),
        ["corrupt"] => PacketFate::Corrupt(None),
        ["corrupt", bit] => PacketFate::Corrupt(Some(number_of(bit)?)),
        ["psn", by] => PacketFate::Psn(by.parse().ok()?),
        _ => return None,
    })
}

fn command_fate(words: &[&str]) -> Option<CommandFate> {
    let byte = |text: &str| u8::try_from(number_of(text)?).ok();
    Some(match words {
        ["stuck"] => CommandFate::Stuck,
        ["late", time] => CommandFate::Late(time_of(time)?),
        ["last"] => CommandFate::Last,
        ["fail", status] => CommandFate::Fail(CmdStatus(byte(status)?), 0),
        ["fail", status, syndrome] => {
            CommandFate::Fail(CmdStatus(byte(status)?), u32::try_from(number_of(syndrome)?).ok()?)
        }
        ["undelivered", status] => {
            // Seven bits in the slot.
            CommandFate::Undelivered(DeliveryStatus(byte(status).filter(|status| *status < 0x80)?))
        }
        _ => return None,
    })
}

fn entry_fate(words: &[&str]) -> Option<EntryFate> {
    Some(match words {
        ["garbage"] => EntryFate::Garbage(None),
        ["garbage", seed] => EntryFate::Garbage(Some(number_of(seed)?)),
        ["owner"] => EntryFate::Owner,
        ["lost"] => EntryFate::Lost,
        ["silent"] => EntryFate::Silent,
        _ => return None,
    })
}

fn cqe_fate(words: &[&str]) -> Option<EntryFate> {
    let byte = |text: &str| u8::try_from(number_of(text)?).ok();
    let syndrome =
        |text: &str| by_name(CqeSyndrome::TABLE, text).map(|named| named as u8).or_else(|| byte(text));
    match words {
        ["fail", what] => Some(EntryFate::Fail(CqeSyndrome(syndrome(what)?), 0)),
        ["fail", what, vendor] => Some(EntryFate::Fail(CqeSyndrome(syndrome(what)?), byte(vendor)?)),
        _ => entry_fate(words),
    }
}

fn mishap_of(words: &[&str]) -> Option<Mishap> {
    let fatal = |syndrome: &str, ext: &str| {
        let named = by_name(HealthSyndrome::TABLE, syndrome).or_else(|| number_of(syndrome));
        let syndrome = HealthSyndrome(u8::try_from(named?).ok()?);
        Some(Mishap::Health(Fatal { syndrome, ext_syndrome: u16::try_from(number_of(ext)?).ok()? }))
    };
    Some(match words {
        ["link", "down"] => Mishap::Link { up: false },
        ["link", "up"] => Mishap::Link { up: true },
        ["gone"] => Mishap::Gone,
        ["back"] => Mishap::Back,
        ["health", syndrome] => fatal(syndrome, "0")?,
        ["health", syndrome, ext] => fatal(syndrome, ext)?,
        ["hang"] => Mishap::Hang,
        ["reset"] => Mishap::Reset,
        ["pages", n] => Mishap::Pages(n.parse().ok()?),
        _ => return None,
    })
}

fn nth_of(text: &str) -> Option<Nth> {
    let count = |text: &str| text.parse::<u64>().ok().filter(|n| *n > 0);
    if text == "*" {
        return Some(Nth::All);
    }
    if let Some(percent) = text.strip_suffix('%') {
        return percent.parse().ok().filter(|percent| (1..=100).contains(percent)).map(Nth::Percent);
    }
    match text.split_once("..") {
        Some((first, last)) => Some(Nth::Range(count(first)?, count(last)?)),
        None => count(text).map(Nth::One),
    }
}

fn number_of(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Units of time, the longest first, in nanoseconds.
const UNITS: [(&str, u64); 4] = [("ms", 1_000_000), ("us", 1_000), ("ns", 1), ("s", 1_000_000_000)];

fn time_of(text: &str) -> Option<Duration> {
    UNITS.iter().find_map(|(unit, ns)| {
        let n: u64 = text.strip_suffix(unit)?.parse().ok()?;
        n.checked_mul(*ns).map(Duration::from_nanos)
    })
}

fn by_name((_, values): (&str, &[(&str, u64)]), name: &str) -> Option<u64> {
    values.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
}

fn opcode_of(text: &str) -> Option<CmdOpcode> {
    let value =
        by_name(CmdOpcode::TABLE, text).or_else(|| text.strip_prefix("0x").and_then(|_| number_of(text)))?;
    u16::try_from(value).ok().map(CmdOpcode)
}

fn event_of(text: &str) -> Option<EventType> {
    let value =
        by_name(EventType::TABLE, text).or_else(|| text.strip_prefix("0x").and_then(|_| number_of(text)))?;
    u8::try_from(value).ok().map(EventType)
}

/// A time in the largest unit that it is a whole number of.
struct Time(Duration);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.0.as_nanos() as u64;
        let (unit, in_ns) =
            UNITS[..3].iter().find(|(_, in_ns)| ns.is_multiple_of(*in_ns)).unwrap_or(&("ns", 1));
        write!(f, "{}{unit}", ns / in_ns)
    }
}

impl fmt::Display for Nth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(n) => write!(f, "{n}"),
            Self::Range(first, last) => write!(f, "{first}..{last}"),
            Self::All => f.write_str("*"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

impl fmt::Display for PacketFate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Drop => f.write_str("drop"),
            Self::Duplicate(n) => write!(f, "duplicate {n}"),
            Self::Reorder(n) => write!(f, "reorder {n}"),
            Self::Delay(time) => write!(f, "delay {}", Time(*time)),
            Self::Corrupt(None) => f.write_str("corrupt"),
            Self::Corrupt(Some(bit)) => write!(f, "corrupt {bit}"),
            Self::Psn(by) => write!(f, "psn {by:+}"),
        }
    }
}

impl fmt::Display for CommandFate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stuck => f.write_str("stuck"),
            Self::Late(time) => write!(f, "late {}", Time(*time)),
            Self::Last => f.write_str("last"),
            Self::Fail(status, syndrome) => write!(f, "fail 0x{:x} 0x{syndrome:x}", status.0),
            Self::Undelivered(status) => write!(f, "undelivered 0x{:x}", status.0),
        }
    }
}

impl fmt::Display for EntryFate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Garbage(None) => f.write_str("garbage"),
            Self::Garbage(Some(seed)) => write!(f, "garbage {seed}"),
            Self::Owner => f.write_str("owner"),
            Self::Lost => f.write_str("lost"),
            Self::Silent => f.write_str("silent"),
            Self::Fail(syndrome, vendor) => match syndrome.name() {
                Some(name) => write!(f, "fail {name} 0x{vendor:x}"),
                None => write!(f, "fail 0x{:x} 0x{vendor:x}", syndrome.0),
            },
        }
    }
}

impl fmt::Display for Mishap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Link { up: true } => f.write_str("link up"),
            Self::Link { up: false } => f.write_str("link down"),
            Self::Gone => f.write_str("gone"),
            Self::Back => f.write_str("back"),
            Self::Health(Fatal { syndrome, ext_syndrome }) => {
                match syndrome.name() {
                    Some(name) => write!(f, "health {name}")?,
                    None => write!(f, "health 0x{:x}", syndrome.0)?,
                }
                write!(f, " 0x{ext_syndrome:x}")
            }
            Self::Hang => f.write_str("hang"),
            Self::Reset => f.write_str("reset"),
            Self::Pages(n) => write!(f, "pages {n}"),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(function) = self.function() {
            write!(f, "@{function} ")?;
        }
        match self {
            Self::Packet { nth, fate, .. } => write!(f, "packet {nth} {fate}"),
            Self::ReceiveMissing { nth, .. } => write!(f, "receive {nth} missing"),
            Self::Command { opcode, nth, fate, .. } => {
                f.write_str("command ")?;
                match opcode.map(|opcode| (opcode.name(), opcode.0)) {
                    Some((Some(name), _)) => write!(f, "{name} ")?,
                    Some((None, opcode)) => write!(f, "0x{opcode:x} ")?,
                    None => {}
                }
                write!(f, "{nth} {fate}")
            }
            Self::Event { event, nth, fate, .. } => {
                f.write_str("event ")?;
                match event.map(|event| (event.name(), event.0)) {
                    Some((Some(name), _)) => write!(f, "{name} ")?,
                    Some((None, event)) => write!(f, "0x{event:x} ")?,
                    None => {}
                }
                write!(f, "{nth} {fate}")
            }
            Self::Completion { nth, fate, .. } => write!(f, "completion {nth} {fate}"),
            Self::At { time, mishap, .. } => write!(f, "time {} {mishap}", Time(*time)),
        }
    }
}

impl fmt::Display for FaultScript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.seed != 0 {
            writeln!(f, "seed {}", self.seed)?;
        }
        self.faults.iter().try_for_each(|fault| writeln!(f, "{fault}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_script_is_read_and_printed() {
        let doc = include_str!("mod.rs");
        let lines = doc.lines().skip_while(|line| *line != "//! ```text").skip(1);
        let lines = lines.take_while(|line| *line != "//! ```");
        let text: Vec<&str> = lines
            .map(|line| line.trim_start_matches("//! "))
            // What explains a line is two spaces away from it.
            .map(|line| line.split("  ").next().unwrap())
            .collect();
        assert!(text.len() > 20, "{text:?}");
        let script: FaultScript = text.join("\n").parse().unwrap();
        assert_eq!((script.seed, script.faults.len()), (7, text.len() - 1));
        assert_eq!(script.to_string().parse(), Ok(script.clone()));
        // What is written in full comes back as it was.
        for (line, fault) in text[1..].iter().zip(&script.faults) {
            let printed = fault.to_string();
            assert!(printed.starts_with(line), "{line}: {printed}");
        }
    }

    #[test]
    fn now_is_a_time() {
        let fault: Fault = "@1 gone".parse().unwrap();
        assert_eq!(fault, Fault::At { function: Some(1), time: Duration::ZERO, mishap: Mishap::Gone });
        assert_eq!(fault.to_string(), "@1 time 0ms gone");
        assert_eq!("time 1500us hang".parse::<Fault>().unwrap().to_string(), "time 1500us hang");
        assert_eq!("time 2s hang".parse::<Fault>().unwrap().to_string(), "time 2000ms hang");
    }

    #[test]
    fn refusals_name_the_line_and_what_it_takes() {
        for (text, line, part) in [
            ("packet 1 drop\npacket 0 drop", 2, "psn"),
            ("packet x drop", 1, "7..9"),
            ("packet 101% drop", 1, "3%"),
            ("packet 1 explode", 1, "duplicate"),
            ("command NO_SUCH 1 stuck", 1, "OPCODE"),
            ("command 1 undelivered 0x80", 1, "undelivered"),
            ("event 1 late", 1, "silent"),
            ("completion 1", 1, "owner"),
            ("receive 1 drop", 1, "missing"),
            ("time 5 gone", 1, "5ms"),
            ("health NO_SUCH", 1, "health SYNDROME"),
            ("@x gone", 1, "@0"),
            ("# fine\n\nseed x", 3, "seed"),
            ("", 0, ""),
        ] {
            match text.parse::<FaultScript>() {
                Ok(script) => assert!(line == 0 && script.is_empty(), "{text}"),
                Err(error) => {
                    assert_eq!(error.line, line, "{text}: {error}");
                    assert!(error.to_string().contains(part), "{error}");
                }
            }
        }
    }
}
