//! What drivers say of a device's health besides its buffer: sensors, resets, recovery.

use super::{
    Hit,
    view::{View, caught, number, pattern},
};
use crate::{record::Record, text::Window};
use serde_json::json;
use std::sync::LazyLock;

pub(super) const KEYWORDS: &[&str] = &[
    "health compromised",
    "Fatal error",
    "fatal error detected",
    "handling bad device",
    "health recovery",
    "bad state",
    "PCI reads still not working",
    "Cold reset is required",
    "health works are not permitted",
    "Failed to recover",
    "Driver is in error state",
    "mlx5_error_sw_reset",
    "mlx5_pci_err_detected",
    "Internal reset",
    "NIC interface",
    "PCI slot",
    "PCI channel offline",
    "Skipping wait for vf pages",
    "crdump",
    "tear_down_hca failed",
];

/// Sensors of a fatal error (`MLX5_SENSOR_…`).
const SENSORS: [&str; 6] = [
    "no error",
    "PCI communication: the health buffer reads all ones, or nonsense",
    "PCI: the device is not accessible on the bus",
    "the NIC interface is disabled",
    "the NIC interface is in software reset",
    "firmware asks for a reset (rfr) with a syndrome",
];

/// A message, its event's name, and what it says.
const MESSAGES: &[(&str, &str, &str)] = &[
    (
        "device's health compromised - reached miss count",
        "HEALTH_COUNTER_STOPPED",
        "firmware's health counter stands still: firmware hangs, or the device does not answer",
    ),
    (
        "device's health compromised",
        "HEALTH_COUNTER_STOPPED",
        "firmware's health counter stands still: firmware hangs, or the device does not answer",
    ),
    (
        "handling bad device here",
        "RECOVERY_STARTED",
        "the driver begins to deal with a device that has failed",
    ),
    ("starting health recovery flow", "RECOVERY_STARTED", "the driver begins to bring the device back"),
    (
        "health recovery flow aborted since the nic state is invalid",
        "RECOVERY_ABORTED",
        "the driver gave up bringing the device back: registers read nonsense",
    ),
    ("health recovery flow aborted", "RECOVERY_ABORTED", "the driver gave up bringing the device back"),
    ("health recovery flow abort", "RECOVERY_ABORTED", "the driver gave up bringing the device back"),
    ("health recovery failed", "RECOVERY_FAILED", "the driver could not bring the device back"),
    ("health recovery succeeded", "RECOVERED", "the driver brought the device back"),
    (
        "PCI reads still not working",
        "PCI_DEAD",
        "registers still cannot be read: the device is not on the bus",
    ),
    ("Failed to recover the device", "RECOVERY_FAILED", "the driver could not bring the device back"),
    ("Cold reset is required", "COLD_RESET_REQUIRED", "only power off and on brings the device back (crr)"),
    (
        "new health works are not permitted at this stage",
        "RECOVERY_REFUSED",
        "the driver is being unloaded and starts no recovery",
    ),
    (
        r"print_health_info:\d+:\(pid \d+\): PCI slot (?:\d+ )?is unavailable",
        "PCI_DEAD",
        "the card is off the bus: its slot lost it (surprise removal, link down, power)",
    ),
    (
        "PCI channel offline",
        "PCI_DEAD",
        "the card is off the bus: the driver waits for its registers no more",
    ),
    (
        "mlx5_pci_err_detected",
        "PCI_ERROR",
        "the PCI layer reported an error of the slot (AER or EEH): the driver unloads, and comes back if the slot does",
    ),
    (r"mlx5_error_sw_reset:\d+:\(pid \d+\): start", "RESET", "the driver resets a device that has failed"),
    (
        "crdump: failed to lock",
        "NO_CRDUMP",
        "no snapshot of the device's registers could be taken: it does not answer on the bus",
    ),
    (
        "tear_?down_hca failed",
        "TEARDOWN_FAILED",
        "the device did not take the driver's good-bye: memory that it may still reach is not given back",
    ),
    (
        r"print_health:\d+:\(pid \d+\): Fatal error detected",
        "FATAL_ERROR",
        "the driver found the device dead",
    ),
    ("Driver is in error state. Unloading", "UNLOADING", "the driver unloads from a device that has failed"),
];

pub(super) fn read(_: &Window<'_>, view: &View, from: usize) -> Option<Hit> {
    let text = view.text.get(from..)?;
    if !pattern!(r"(?i)mlx5|poll_health|health").is_match(text) {
        return None;
    }
    sensor(view, text, from).or_else(|| message(view, text, from))
}

fn sensor(view: &View, text: &str, from: usize) -> Option<Hit> {
    let pattern =
        pattern!(r"Fatal error (?P<n1>\d+) detected|fatal error detected: [^(\n]{0,60}\((?P<n2>\d+)\)");
    let captures = pattern.captures(text)?;
    let whole = captures.get(0)?;
    let sensor = caught(&captures, "n1").or_else(|| caught(&captures, "n2")).and_then(number)?;
    let name = SENSORS.get(usize::try_from(sensor).ok()?).copied().unwrap_or("a sensor that is not known");
    let mut record = Record::new("health event", 0..=0);
    record
        .parts
        .insert("event".into(), json!({ "event": "FATAL_ERROR", "sensor": sensor, "sensor_name": name }));
    record.says = format!("The driver found the device dead: {name} (sensor {sensor}).");
    record.check.push("the health buffer that follows; lspci -vv, AER lines before this".to_owned());
    Some(hit(view, from + whole.start(), from + whole.end(), record))
}

static PATTERNS: LazyLock<Vec<regex::Regex>> =
    LazyLock::new(|| MESSAGES.iter().map(|(message, ..)| super::view::regex_of(message)).collect());

fn message(view: &View, text: &str, from: usize) -> Option<Hit> {
    let (found, name, says) = MESSAGES
        .iter()
        .zip(PATTERNS.iter())
        .filter_map(|((_, name, says), pattern)| Some((pattern.find(text)?.range(), *name, *says)))
        .min_by_key(|(found, ..)| found.start)?;
    let mut record = Record::new("health event", 0..=0);
    record.parts.insert("event".into(), json!({ "event": name }));
    record.says = format!("{}{}.", says[..1].to_uppercase(), &says[1..]);
    record.check.push(
        "the health buffer near this line: synd, ext_synd; AER and temperature lines before it".to_owned(),
    );
    Some(hit(view, from + found.start, from + found.end, record))
}

fn hit(view: &View, start: usize, end: usize, record: Record) -> Hit {
    Hit { start, end, lines: view.lines_of(&(start..end)), record }
}
