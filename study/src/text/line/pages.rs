//! Pages that firmware asked for and did not get, or did not give back.

use super::{
    Hit,
    view::{View, caught, pattern},
};
use crate::{record::Record, text::Window};
use serde_json::{Map, json};

pub(super) const KEYWORDS: &[&str] = &[
    "give_pages",
    "reclaim_pages",
    "pages_work_handler",
    "npages",
    "FW did not return all",
    "failed reclaiming pages",
];

pub(super) fn read(_: &Window<'_>, view: &View, from: usize) -> Option<Hit> {
    let text = view.text.get(from..)?;
    // `give_pages`, and `reclaim_pages` in its forms since 3.11.
    let given = pattern!(
        r"give_pages[^\n]{0,24}? func_id (?P<func>0x[0-9a-f]+|\d+), npages (?P<npages>-?\d+), err (?P<err>-?\d+)"
    );
    let reclaimed = pattern!(
        r"(?P<reclaim>failed reclaiming pages|reclaim_pages err)(?:: err (?P<err1>-?\d+)| \((?P<err2>-?\d+)\))?(?: (?:for func id |func_id=)(?P<func>0x[0-9a-f]+))?"
    );
    let work = pattern!(r"pages_work_handler[^\n]{0,24}? (?:give|(?P<reclaim>reclaim)) fail (?P<err>-?\d+)");
    let startup =
        pattern!(r"FW did not return all (?:VFs |SFs |host PF )?pages(?:\. will cause to leak| giving up)?");
    let mut record = Record::new("firmware pages", 0..=0);
    let failed = given.captures(text).or_else(|| reclaimed.captures(text)).or_else(|| work.captures(text));
    let (captures, says) = if let Some(captures) = failed {
        let field = |names: &[&str]| names.iter().find_map(|name| caught(&captures, name)).map(str::to_owned);
        let err = field(&["err", "err1", "err2"]);
        let is_reclaim = captures.name("reclaim").is_some();
        let mut event = Map::new();
        event.insert("event_type".into(), json!("0x0b PAGE_REQUEST"));
        event.insert(
            "event".into(),
            json!(if is_reclaim { "RECLAIM_PAGES_FAILED" } else { "GIVE_PAGES_FAILED" }),
        );
        event.insert("func_id".into(), json!(field(&["func"])));
        event
            .insert("npages".into(), json!(field(&["npages"]).and_then(|npages| npages.parse::<i64>().ok())));
        event.insert("err".into(), json!(err));
        record.parts.insert("event".into(), json!(event));
        let what = if is_reclaim {
            "take pages back from firmware"
        } else {
            "give firmware the pages that it asked for"
        };
        let why = match err.as_deref() {
            Some("-12") => ": the host has no memory for them",
            Some("-110") => ": firmware did not answer in time",
            Some("-5") => ": firmware or the bus failed",
            _ => "",
        };
        (captures, format!("The driver could not {what}{why}."))
    } else {
        let captures = startup.captures(text)?;
        record
            .parts
            .insert("event".into(), json!({ "event_type": "0x0b PAGE_REQUEST", "event": "PAGES_LEAKED" }));
        (
            captures,
            "Firmware kept pages that the driver wanted back; they are lost until the next boot.".to_owned(),
        )
    };
    record.says = says;
    record.check.push("free memory and the function's limits; health lines before this: firmware that has died returns nothing".to_owned());
    let range = captures.get(0).map(|whole| from + whole.start()..from + whole.end())?;
    Some(Hit { start: range.start, end: range.end, lines: view.lines_of(&range), record })
}
