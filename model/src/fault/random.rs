//! Scripts drawn from a seed.

use super::{
    draw::Draw,
    script::{CommandFate, EntryFate, Fault, FaultScript, Mishap, Nth, PacketFate},
    text::ScriptError,
};
use crate::fw::health::Fatal;
use mlx5_direct::mlx5::{
    cmd::{CmdStatus, DeliveryStatus},
    init_segment::HealthSyndrome,
};
use std::{fs, time::Duration};

/// What a drawn script may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mix {
    /// What a reliable transport repairs, and a driver's user never hears of.
    Wire,
    /// That, and what single requests and commands fail of, on a device that lives.
    Errors,
    /// Everything, the device's death too.
    All,
}

/// The script that `text` names: `seed:N` is drawn, `seed:N:wire` and `seed:N:errors` too, of less; anything else is the
/// path of a file.
pub fn from_file_or_seed(text: &str) -> Result<FaultScript, ScriptError> {
    let refuse = |problem| ScriptError { line: 0, problem };
    match text.strip_prefix("seed:") {
        Some(rest) => {
            let (seed, mix) = rest.split_once(':').unwrap_or((rest, "all"));
            let mix = match mix {
                "wire" => Mix::Wire,
                "errors" => Mix::Errors,
                "all" => Mix::All,
                other => return Err(refuse(format!("`{other}`: a seed's faults are wire, errors or all"))),
            };
            let seed = seed.parse().map_err(|_| refuse(format!("`{seed}` is no seed")))?;
            Ok(FaultScript::random(seed, mix))
        }
        None => fs::read_to_string(text)
            .map_err(|error| refuse(format!("fault script `{text}`: {error}; or write seed:N")))?
            .parse(),
    }
}

impl FaultScript {
    /// One to a dozen faults, the same for the same seed.
    pub fn random(seed: u64, mix: Mix) -> Self {
        let mut draw = Draw::new(seed);
        let n = 1 + draw.below(12);
        let mut faults: Vec<Fault> = (0..n).map(|_| one(&mut draw, mix)).collect();
        // One death a script, and half of the scripts without: there is more to be seen of a device that lives.
        if mix == Mix::All && draw.below(2) == 0 {
            // Early or late: 16 µs to 16 ms.
            let time = 16u64 << draw.below(11);
            let (function, time) = (function(&mut draw), Duration::from_micros(time));
            let syndrome = draw.of(HealthSyndrome::TABLE.1).1 as u8;
            let health = Mishap::Health(Fatal::new(HealthSyndrome(syndrome)));
            let mishap = draw.of(&[health, Mishap::Gone, Mishap::Hang, Mishap::Reset]);
            faults.push(Fault::At { function, time, mishap });
        }
        Self { seed, faults }
    }
}

fn function(draw: &mut Draw) -> Option<u8> {
    draw.of(&[None, Some(0), Some(1)])
}

fn one(draw: &mut Draw, mix: Mix) -> Fault {
    let kinds = if mix == Mix::Wire { 8 } else { 16 };
    let function = function(draw);
    let nth = match draw.below(4) {
        0 => Nth::Percent(1 + draw.below(5) as u8),
        1 => {
            let first = 1 + draw.below(200);
            Nth::Range(first, first + draw.below(6))
        }
        _ => Nth::One(1 + draw.below(200)),
    };
    match draw.below(kinds) {
        0..7 => {
            // A forged PSN can make one message pass for another: no transport repairs that.
            let fate = match draw.below(if mix == Mix::Wire { 5 } else { 6 }) {
                0 => PacketFate::Drop,
                1 => PacketFate::Duplicate(2 + draw.below(2) as u32),
                2 => PacketFate::Reorder(1 + draw.below(6) as u32),
                3 => PacketFate::Delay(Duration::from_micros(draw.below(300))),
                4 => PacketFate::Corrupt(None),
                _ => PacketFate::Psn(draw.of(&[1, 3, 100, -1, -7])),
            };
            Fault::Packet { function, nth, fate }
        }
        7 => Fault::ReceiveMissing { function, nth },
        8..12 => {
            let nth = Nth::One(1 + draw.below(40));
            let fate = match draw.below(5) {
                0 => CommandFate::Stuck,
                1 => CommandFate::Late(Duration::from_micros(draw.below(5000))),
                2 => CommandFate::Last,
                3 => CommandFate::Fail(CmdStatus(1 + draw.below(0x51) as u8), draw.below(1 << 32) as u32),
                _ => CommandFate::Undelivered(DeliveryStatus(1 + draw.below(0x10) as u8)),
            };
            Fault::Command { function, opcode: None, nth, fate }
        }
        12 => {
            let fate = draw.of(&[EntryFate::Garbage(None), EntryFate::Lost, EntryFate::Silent]);
            Fault::Event { function, event: None, nth: Nth::One(1 + draw.below(20)), fate }
        }
        13 => Fault::At {
            function,
            time: Duration::from_micros(draw.below(20_000)),
            mishap: Mishap::Pages(draw.of(&[1, 100, 5000, i32::MAX, -1, -100_000, i32::MIN])),
        },
        14 => Fault::Completion { function, nth: Nth::One(1 + draw.below(100)), fate: EntryFate::Silent },
        _ => Fault::At {
            function,
            time: Duration::from_micros(draw.below(20_000)),
            mishap: Mishap::Link { up: draw.below(2) == 0 },
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_script_that_prints_and_parses() {
        for seed in 0..2000 {
            for mix in [Mix::Wire, Mix::Errors, Mix::All] {
                let script = FaultScript::random(seed, mix);
                assert_eq!(script, FaultScript::random(seed, mix));
                assert_eq!(script.to_string().parse(), Ok(script.clone()), "{script}");
            }
        }
        assert_eq!(from_file_or_seed("seed:7"), Ok(FaultScript::random(7, Mix::All)));
        assert_eq!(from_file_or_seed("seed:7:wire"), Ok(FaultScript::random(7, Mix::Wire)));
        for bad in ["seed:x", "seed:1:weather", "/no/such/file"] {
            assert_eq!(from_file_or_seed(bad).unwrap_err().line, 0, "{bad}");
        }
    }
}
