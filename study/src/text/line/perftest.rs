//! perftest's failed completions: three lines, of which the first and the last may be missing.

use super::{
    Hit,
    completion::Failed,
    view::{View, bare, caught, hex, number, pattern},
};
use crate::{facts::wc_by_number, record::Record, text::Window};
use serde_json::{Value, json};

pub(super) const KEYWORDS: &[&str] = &["Completion with error at", "Failed status", "syndrom 0x"];

/// How far behind the head its other lines are looked for.
const SIGHT: usize = 5;

pub(super) fn read(window: &Window<'_>, view: &View, from: usize) -> Option<Hit> {
    // Since 2013 "Failed status 4:", since 2025-07 with qp_num, since 2025-08 "Failed status-TEXT (4):".
    let failed = pattern!(
        r"Failed status(?:-[^(\n]*\((?P<n1>\d+)\)| (?P<n2>\d+)): (?:qp_num (?P<qpn>-?\d+) )?wr_id (?P<wr>-?\d+) syndrome? 0x(?P<vend>[0-9a-f]+)"
    );
    let at = pattern!(r"Completion with error at (?P<side>client|server)");
    let text = view.text.get(from..)?;
    let head = at.captures(text);
    let captures = failed.captures(text)?;
    let whole = captures.get(0)?;
    let side = head.as_ref().filter(|head| head.get(0).is_some_and(|at| at.end() <= whole.start()));
    // A head with its status out of sight is of somebody else.
    let start = from + side.and_then(|head| head.get(0)).map_or(whole.start(), |at| at.start());
    let status = caught(&captures, "n1").or_else(|| caught(&captures, "n2")).and_then(number)?;
    let status = wc_by_number(u32::try_from(status).ok()?)?;
    let vendor = u8::try_from(hex(caught(&captures, "vend")?)?).ok();
    let described = Failed::of_status(status, vendor);
    let mut completion = described.as_wc();
    let wr_id: Option<i64> = caught(&captures, "wr").and_then(|wr| wr.parse().ok());
    completion.insert("wr_id".into(), json!(wr_id));
    let qpn = caught(&captures, "qpn")
        .and_then(|qpn| qpn.parse::<i64>().ok())
        .map(|qpn| format!("0x{:x}", qpn & 0xff_ffff));
    if let Some(qpn) = &qpn {
        completion.insert("qpn".into(), json!(qpn));
    }
    if let Some(side) = side {
        completion.insert("side".into(), json!(caught(side, "side")));
    }
    let mut record = Record::new("perftest completion", 0..=0);
    record.push("completion", Value::Object(completion));
    let mut lines = view.lines_of(&(start..from + whole.end()));
    let mut end = from + whole.end();
    if let Some((posted, completed, line, ends)) = counters(window, view, end, *lines.last()?) {
        let outstanding = posted.saturating_sub(completed);
        record.parts.insert(
            "counters".into(),
            json!({ "posted (scnt)": posted, "completed (ccnt)": completed, "outstanding": outstanding }),
        );
        if line > *lines.last()? {
            lines.push(line);
        }
        end = end.max(ends);
    }
    described.explain(&mut record, "A request of perftest", qpn);
    record
        .corrections
        .push("'syndrom' of this line is the vendor syndrome, not the CQE's syndrome".to_owned());
    Some(Hit { start, end, lines, record })
}

/// `scnt=828, ccnt=700` behind the status: both counters, the line, and where that ends in the view.
fn counters(window: &Window<'_>, view: &View, from: usize, after: usize) -> Option<(u64, u64, usize, usize)> {
    let pattern = pattern!(r"scnt=(?P<scnt>\d+), ccnt=(?P<ccnt>\d+)");
    let both = |text: &str| {
        let captures = pattern.captures(text)?;
        let counter = |name| caught(&captures, name).and_then(number);
        Some((counter("scnt")?, counter("ccnt")?, captures.get(0)?.end()))
    };
    let same = view.text.get(from..view.first_end()).and_then(both);
    if let Some((posted, completed, end)) = same {
        return Some((posted, completed, after, from + end));
    }
    let behind = window.lines.iter().enumerate().skip(after + 1).take(SIGHT);
    behind
        .filter_map(|(place, line)| both(bare(&line.text)).map(|found| (place, found)))
        .next()
        .map(|(place, (posted, completed, _))| (posted, completed, place, from))
}
