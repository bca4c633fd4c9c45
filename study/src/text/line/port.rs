//! Links of mlx5 interfaces that go up and down.

use super::{
    Hit,
    view::{View, caught, pattern},
};
use crate::{record::Record, text::Window};
use serde_json::json;

pub(super) const KEYWORDS: &[&str] = &["Link down", "Link up"];

pub(super) fn read(_: &Window<'_>, view: &View, from: usize) -> Option<Hit> {
    let pattern =
        pattern!(r"mlx5_core(?: (?P<pci>[0-9a-f:.]+))?:? (?P<dev>[\w.\-]+): (?P<state>Link (?:down|up))\b");
    let text = view.text.get(from..)?;
    let captures = pattern.captures(text)?;
    let whole = captures.get(0)?;
    let is_down = caught(&captures, "state")?.ends_with("down");
    let interface = caught(&captures, "dev")?;
    let mut record = Record::new("link", 0..=0);
    let (name, word) = if is_down { ("LINK_DOWN", "went down") } else { ("LINK_UP", "came up; no error") };
    record.parts.insert(
        "event".into(),
        json!({ "event_type": "0x09 PORT_CHANGE", "event": name, "interface": interface }),
    );
    record.says = format!("The link of {interface} {word}.");
    if is_down {
        record.check.push(
            "a module event just before; mlxlink or ethtool for the reason; the switch port".to_owned(),
        );
    }
    let (start, end) = (from + whole.start(), from + whole.end());
    Some(Hit { start, end, lines: view.lines_of(&(start..end)), record })
}
