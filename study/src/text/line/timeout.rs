//! Commands that firmware did not finish in time.

use super::{
    Hit,
    view::{View, caught, number, pattern},
};
use crate::{record::Record, text::Window};
use serde_json::{Map, json};

pub(super) const KEYWORDS: &[&str] = &[
    ") timeout",
    "Async, timeout",
    "wait_func",
    "leak of a command resource",
    "No done completion",
    "recovered after timeout",
    "canceled on out of queue",
    "cmd_work_handler",
];

pub(super) fn read(_: &Window<'_>, view: &View, from: usize) -> Option<Hit> {
    let named = pattern!(
        r"(?:cmd\[(?P<slot>\d+)\]: )?(?P<name>[A-Z0-9][A-Z0-9_]*) ?\(0x(?P<opcode>[0-9a-f]+)\) (?P<what>(?:Async, )?timeout\. ?(?:Will cause a leak of a command resource)?|No done completion|(?:Async, )?recovered after timeout|canceled on out of queue timeout)"
    );
    let bare = pattern!(
        r"cmd_work_handler:\d+:\(pid \d+\): (?P<what>failed to allocate command entry|failed to acquire semaphore)"
    );
    let text = view.text.get(from..)?;
    let captures = named.captures(text).or_else(|| bare.captures(text))?;
    let whole = captures.get(0)?;
    let what = caught(&captures, "what")?.split_whitespace().collect::<Vec<_>>().join(" ");
    let (outcome, says) = outcome(&what);
    let mut command = Map::new();
    if let Some(name) = caught(&captures, "name") {
        command.insert("command".into(), json!(name));
        command.insert("opcode".into(), json!(format!("0x{}", caught(&captures, "opcode")?)));
    }
    command.insert("slot".into(), json!(caught(&captures, "slot").and_then(number)));
    command.insert("outcome".into(), json!(outcome));
    let name = caught(&captures, "name").unwrap_or("A command");
    let mut record = Record::new("command time-out", 0..=0);
    record.push("commands", json!(command));
    record.says = format!("{name} {says}.");
    record.check.extend(
        [
            "health lines and 'Fatal error' before this: firmware that has died answers no command",
            "whether the device was unplugged, or its function reset: registers then read all ones",
            "lost interrupts: 'recovered after timeout' says that the command had finished",
        ]
        .map(str::to_owned),
    );
    let (start, end) = (from + whole.start(), from + whole.end());
    Some(Hit { start, end, lines: view.lines_of(&(start..end)), record })
}

/// The outcome's name, and what it says.
fn outcome(what: &str) -> (&'static str, &'static str) {
    if what.contains("recovered") {
        ("recovered", "had finished, but its interrupt or event was lost: the driver found it by looking")
    } else if what.contains("No done completion") {
        (
            "no done completion",
            "got no completion from firmware in time, and its slot still belongs to the device",
        )
    } else if what.contains("canceled") {
        ("canceled", "was given up before it reached the device: all slots were taken")
    } else if what.contains("allocate") || what.contains("semaphore") {
        ("not sent", "was not sent: no slot of the command queue was free")
    } else if what.starts_with("Async") {
        ("timeout", "(asynchronous) was not answered by firmware in time; the kernel leaks what it was for")
    } else {
        ("timeout", "was not answered by firmware in time; the kernel leaks what it was for")
    }
}
