//! Failed completions of verbs in whatever words: SPDK, Mooncake, libfabric, Open MPI, NVMe-oF, iSER, SRP, RPC, RDS,
//! Ceph, DPDK and all others that print `ibv_wc_status` by number, text or name.

use super::{
    Hit,
    completion::Failed,
    view::{View, bare, caught, number, pattern},
    wc_fields::{queue_in, status_at, status_in, vendor_in},
};
use crate::{
    facts::{Wc, wc_by_name, wc_by_number},
    record::Record,
    text::Window,
};
use serde_json::{Value, json};
use std::ops::Range;

pub(super) const KEYWORDS: &[&str] = &[
    "IBV_WC_",
    "IB_WC_",
    "wc status",
    "wc.status",
    "wc->status",
    "WC error",
    "status",
    "retry counter exceeded",
    "retry count exceeded",
    "flushed",
    "protection error",
    "access error",
    "QP operation error",
    "operation error",
    "length error",
    "invalid request error",
    "bad response error",
    "vend_err",
    "vendor_err",
    "vendor err",
    "memory bind",
    "retry exceeded",
    "kiblnd_",
];

pub(super) fn read(window: &Window<'_>, view: &View, from: usize) -> Option<Hit> {
    // What begins on a later line is found when that is looked at.
    let (range, status, is_named) = status(view, from)?;
    let start = from + range.start;
    // What else the message says is on the line of its status, or on the next if that is wrapped.
    let message = view.message_around(&(start..from + range.end));
    let line = view.text.get(message.clone()).unwrap_or("");
    let (vendor, is_guessed) = vendor_in(line).map_or((None, false), |(code, guessed)| (Some(code), guessed));
    let failed = Failed::of_status(status, vendor);
    let mut completion = failed.as_wc();
    let queue = queue_in(line);
    if let Some(queue) = &queue {
        completion.insert("qpn".into(), json!(queue));
    }
    let mut record = Record::new("verbs completion", 0..=0);
    note_stale(&mut completion, line);
    note_decimal(&mut record, line);
    if is_guessed && let Some(code) = vendor {
        record.corrections.push(format!(
            "the vendor syndrome is printed without 0x: read as {}",
            if line.contains("vend_err") {
                format!("hexadecimal (0x{code:02x}), as iSER and SRP print it")
            } else {
                format!("decimal ({code} is 0x{code:02x})")
            }
        ));
    }
    record.push("completion", Value::Object(completion));
    failed.explain(&mut record, "A work request", queue);
    if !is_named && status.number > 9 {
        record.corrections.push(format!("{} is a status of verbs, not a CQE syndrome", status.number));
    }
    let end = from + range.end;
    let mut lines = view.lines_of(&message);
    // The rest of a line says no more of the same failure.
    let end = end.max(view.first_end());
    fold(window, &mut lines, &mut record, &failed);
    Some(Hit { start, end, lines, record })
}

/// The first failed status of the line that `from` is in: where from there, which, and whether by name or text.
fn status(view: &View, from: usize) -> Option<(Range<usize>, &'static Wc, bool)> {
    let text = view.text.get(from..)?;
    let limit = view.line_end(from).saturating_sub(from);
    [
        by_name(text, limit),
        by_text(text, limit),
        by_number(text, limit, view.line_around(from)),
        of_lnet(text, limit),
    ]
    .into_iter()
    .flatten()
    .filter(|(_, status, _)| status.number != 0)
    .min_by_key(|(range, ..)| range.start)
}

/// `IBV_WC_RETRY_EXC_ERR`, but not where a program compares with it.
fn by_name(text: &str, limit: usize) -> Option<(Range<usize>, &'static Wc, bool)> {
    let pattern = pattern!(r"(?P<code>case |[!=]= ?|return )?\bIBV?_WC_(?P<name>[A-Z_]+)\b");
    let in_reach = pattern.captures_iter(text).take_while(|captures| captures.get_match().start() < limit);
    let mut all = in_reach.filter(|captures| captures.name("code").is_none());
    all.find_map(|captures| {
        let whole = captures.get(0)?;
        Some((whole.range(), wc_by_name(caught(&captures, "name")?)?, true))
    })
}

/// A text that means nothing else, or any after a word that says `status`.
fn by_text(text: &str, limit: usize) -> Option<(Range<usize>, &'static Wc, bool)> {
    let plain = status_in(text).map(|(range, status)| (range, status, true));
    let sign = pattern!(
        r"(?i)(?:\bstatus\b[:= ]*(?:\(?\d+\)?[:,]? )?\(?|WC error: \d+, message: |completion[^\n]{0,60}(?:error|fail\w*)[^\n]{0,20}: )"
    );
    let said = sign.find_iter(text).take_while(|sign| sign.start() < limit).find_map(|sign| {
        let (status, len) = status_at(&text[sign.end()..])?;
        Some((sign.end()..sign.end() + len, status, true))
    });
    [plain, said].into_iter().flatten().min_by_key(|(range, ..)| range.start)
}

/// Lustre's `RDMA (tx: …) failed: 12` and the like: the number is the status.
fn of_lnet(text: &str, limit: usize) -> Option<(Range<usize>, &'static Wc, bool)> {
    let pattern = pattern!(r"kiblnd_[a-z_]+\(\)\)[^\n]{0,120}? failed:? (?P<n>\d{1,2})\b");
    let captures = pattern.captures(text).filter(|captures| captures.get_match().start() < limit)?;
    let status = wc_by_number(caught(&captures, "n")?.parse().ok()?)?;
    Some((captures.get_match().range(), status, false))
}

/// `status 12`, in a line about completions: of the lines behind it one that it is wrapped into, no other.
fn by_number(text: &str, limit: usize, line: &str) -> Option<(Range<usize>, &'static Wc, bool)> {
    let pattern = pattern!(
        r"(?i)(?P<no>exit |exited, |http |return |cmd |command |port )?(?:\b(?:(?:ibv_)?wc|cqe|completion)?[ ._]?(?:->)?(?:_)?status|WC error|wc_error|with error|completion error|state error)(?: code| number)?\s*[:=]?\s*\(?(?P<n>0x[0-9a-f]{1,2}|\d{1,2})\)?(?:[^\w.]|\.?(?:\s|\z))"
    );
    let context = pattern!(
        r"(?i)\b(?:ibv?_?\w*|wc|wr|wr_id|cqe?s?|verbs|rdma\w*|completions?|qpn?|work request|vend(?:or)?[_ ]err)\b"
    );
    let in_reach = pattern.captures_iter(text).take_while(|captures| captures.get_match().start() < limit);
    in_reach.filter(|captures| captures.name("no").is_none()).find_map(|captures| {
        let whole = captures.get(0)?;
        let status = wc_by_number(u32::try_from(number(caught(&captures, "n")?)?).ok()?)?;
        (status.number != 0 && context.is_match(line)).then_some((whole.range(), status, false))
    })
}

/// `opcode` and lengths on the line of a failed completion are stale.
fn note_stale(completion: &mut serde_json::Map<String, Value>, line: &str) {
    let pattern = pattern!(r"(?i)\bopcode[ =:]+(?P<v>\d+)");
    if let Some(opcode) = pattern.captures(line).and_then(|captures| number(caught(&captures, "v")?)) {
        completion.insert("opcode_as_printed".into(), json!(opcode));
        completion.insert("opcode_len_valid".into(), json!(false));
    }
}

/// SPDK printed request pointers as `0x` and decimal digits.
fn note_decimal(record: &mut Record, line: &str) {
    let pattern = pattern!(r"(?i)\brequest (?P<v>0x\d{15})\b");
    let is_decimal = pattern.captures(line).is_some_and(|captures| {
        caught(&captures, "v").is_some_and(|shown| {
            let decimal: u64 = shown[2..].parse().unwrap_or(0);
            // As hexadecimal it would be no address of a program; as decimal it is.
            number(shown).is_some_and(|hex| hex >> 47 != 0) && decimal >> 47 == 0
        })
    });
    if is_decimal {
        record.parts.insert("note".into(), json!("request number is decimal after a 0x prefix"));
    }
}

/// Flushes of the same queue in the same words on the lines behind: one record, with their number.
fn fold(window: &Window<'_>, lines: &mut Vec<usize>, record: &mut Record, failed: &Failed) {
    let Some(&last) = lines.last() else { return };
    if !failed.is_flush() || last != 0 {
        return;
    }
    let words =
        |text: &str| pattern!(r"(?:0x)?[0-9a-f]*\d[0-9a-f]*").replace_all(bare(text), "#").into_owned();
    let (wanted, queue) = (words(window.first()), queue_in(window.first()));
    let same = |text: &str| words(text) == wanted && queue_in(text) == queue;
    let more = window.lines.iter().skip(1).take_while(|line| same(&line.text)).count();
    if more > 0 {
        lines.extend(1..=more);
        record.parts.insert("repeated".into(), json!(more + 1));
    }
}
