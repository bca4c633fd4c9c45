//! Cable modules, temperature and power of the slot.

use super::{
    Hit,
    view::{View, caught, hex, number, pattern},
};
use crate::{facts::sensors, record::Record, text::Window};
use serde_json::json;

pub(super) const KEYWORDS: &[&str] =
    &["High temperature on sensors", "Port module event", "port_module_event", "PCIe slot", "temp_warn"];

pub(super) fn read(_: &Window<'_>, view: &View, from: usize) -> Option<Hit> {
    let text = view.text.get(from..)?;
    temperature(view, text, from).or_else(|| module(view, text, from)).or_else(|| power(view, text, from))
}

fn temperature(view: &View, text: &str, from: usize) -> Option<Hit> {
    // Hexadecimal with `0x` or without, the upper half first.
    let bits = pattern!(
        r"High temperature on sensors with bit set (?P<msb>(?:0x)?[0-9a-f]+) (?P<lsb>(?:0x)?[0-9a-f]+)"
    );
    let names = pattern!(r"^[^\n]*\n?[^\n]*Sensor name(?:\[s\])?: (?P<names>[^\n]+)");
    let captures = bits.captures(text)?;
    let (msb, lsb) = (caught(&captures, "msb").and_then(hex)?, caught(&captures, "lsb").and_then(hex)?);
    let set = sensors(msb, lsb);
    let named = names
        .captures(&text[captures.get(0)?.end()..])
        .and_then(|captures| Some(captures.name("names")?.as_str().trim().to_owned()));
    let mut record = Record::new("temperature warning", 0..=0);
    let mut event = json!({ "event": "TEMP_WARN", "msb": format!("0x{msb:x}"), "lsb": format!("0x{lsb:x}"), "sensors": set });
    if let Some(named) = &named {
        event["sensor_names"] = json!(named);
    }
    record.parts.insert("event".into(), event);
    let list: Vec<String> = set.iter().map(u32::to_string).collect();
    record.says = format!(
        "The device is too hot at sensor {}{}.",
        list.join(", "),
        named.map_or(String::new(), |named| format!(" ({named})"))
    );
    record.corrections.push("the two numbers are hexadecimal bit masks (upper 64 sensors, lower 64), not temperatures; sensor 0 is the device itself, modules follow from 64 on".to_owned());
    record.check.push("fans and air flow; sensors or mget_temp for readings; a health line with synd 0x10 is next if it goes on".to_owned());
    Some(hit(view, from, &captures, record))
}

fn module(view: &View, text: &str, from: usize) -> Option<Hit> {
    let pattern = pattern!(
        r"(?:Port module event(?:\[error\])?: module|port_module_event:\d+:\(pid \d+\): Module) (?P<module>\d+), (?:(?:Cable|status:) error, (?P<why>[A-Za-z][\w ./()\-]*[\w)])|(?:status: )?(?P<state>Cable [a-z]+(?: [a-z]+)?|[A-Za-z][\w ]*[\w]))"
    );
    let captures = pattern.captures(text)?;
    let module = caught(&captures, "module").and_then(number);
    let first_line =
        |name: &str| caught(&captures, name).and_then(|text| text.lines().next()).map(str::trim_end);
    let (state, why) = (first_line("state"), first_line("why"));
    let mut record = Record::new("module event", 0..=0);
    let mut event = json!({ "event_type": "0x16 PORT_MODULE_EVENT", "module": module, "status": state.unwrap_or("Cable error") });
    if let Some(why) = why {
        event["error"] = json!(why);
    }
    record.parts.insert("event".into(), event);
    record.says = match why {
        Some(why) => format!("The cable module {} failed: {why}.", module.unwrap_or(0)),
        None => format!("Module {}: {}.", module.unwrap_or(0), state.unwrap_or("changed")),
    };
    record.check.push(
        "ethtool -m or mlxlink -m: whether the module is supported, its power class and temperature"
            .to_owned(),
    );
    Some(hit(view, from, &captures, record))
}

fn power(view: &View, text: &str, from: usize) -> Option<Hit> {
    let pattern = pattern!(
        r"(?P<how>Detected insufficient power on the PCIe slot|PCIe slot advertised sufficient power|Failed to detect power[^\n(]*PCIe slot) ?\(?(?P<watts>\d+)?W?"
    );
    let captures = pattern.captures(text)?;
    let watts = caught(&captures, "watts").and_then(number);
    let is_low = caught(&captures, "how")?.starts_with("Detected");
    let mut record = Record::new("slot power", 0..=0);
    let name = if is_low { "INSUFFICIENT_SLOT_POWER" } else { "SLOT_POWER" };
    record.parts.insert("event".into(), json!({ "event": name, "watts": watts }));
    record.says = if is_low {
        format!(
            "The PCIe slot offers the card {} W, less than it needs: ports or modules may stay off.",
            watts.unwrap_or(0)
        )
    } else {
        "The PCIe slot's power is told; no error.".to_owned()
    };
    record
        .check
        .push("the slot's power setting in the BIOS, and the card's need in its data sheet".to_owned());
    Some(hit(view, from, &captures, record))
}

fn hit(view: &View, from: usize, captures: &regex::Captures<'_>, record: Record) -> Hit {
    let range = captures.get(0).map_or(0..0, |whole| from + whole.start()..from + whole.end());
    Hit { start: range.start, end: range.end, lines: view.lines_of(&range), record }
}
