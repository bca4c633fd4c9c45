//! Syndromes in sentences: by name, or by number with a name that may be another's.

use super::{
    Hit,
    completion::Failed,
    view::{View, caught, hex, pattern},
    wc_fields::{queue_in, status_at, vendor_in},
};
use crate::{facts::wc_of_syndrome, record::Record, text::Window};
use mlx5_direct::cqe::CqeSyndrome;
use serde_json::{Value, json};

pub(super) const KEYWORDS: &[&str] = &["MLX5_CQE_SYNDROME_", "syndrome", "syndrom ", "(synd"];

pub(super) fn read(_: &Window<'_>, view: &View, from: usize) -> Option<Hit> {
    let text = view.text.get(from..)?;
    names(view, text, from).or_else(|| number_and_name(view, text, from))
}

/// Every `MLX5_CQE_SYNDROME_…` of a sentence, in order.
fn names(view: &View, text: &str, from: usize) -> Option<Hit> {
    let pattern = pattern!(r"(?P<code>case |[!=]= ?)?MLX5_CQE_SYNDROME_(?P<name>[A-Z_]+)");
    let opcode = pattern!(r"MLX5_CQE_(?P<op>REQ|RESP)_ERR\b");
    let mut record = Record::new("prose", 0..=0);
    let mut places: Vec<(usize, usize)> = Vec::new();
    for captures in pattern.captures_iter(text).filter(|captures| captures.name("code").is_none()) {
        let (whole, name) = (captures.get(0)?, caught(&captures, "name")?);
        let Some((_, bits)) = CqeSyndrome::TABLE.1.iter().find(|(known, _)| *known == name) else { continue };
        let syndrome = CqeSyndrome(u8::try_from(*bits).ok()?);
        // A sentence's own vendor syndrome stands behind its name, before the next.
        let rest = &text[whole.end()..];
        let rest = &rest[..rest.find("MLX5_CQE_SYNDROME_").unwrap_or(rest.len())];
        let failed = Failed::of_syndrome(syndrome, vendor_in(rest).map(|(code, _)| code));
        let mut cqe = failed.as_cqe();
        let before = &text[places.last().map_or(0, |(_, end)| *end)..whole.start()];
        if let Some(captures) = opcode.captures_iter(before).last() {
            cqe.insert("cqe_opcode_name".into(), json!(format!("{}_ERR", caught(&captures, "op")?)));
        }
        record.push("cqe", Value::Object(cqe));
        if record.failure.is_none() {
            failed.explain(&mut record, "A work request", None);
        }
        places.push((whole.start(), whole.end()));
    }
    let (start, end) = (from + places.first()?.0, from + places.last()?.1);
    Some(Hit { start, end, lines: view.lines_of(&(start..end)), record })
}

/// `syndrome 0x14`, with words for it or beside a vendor syndrome.
fn number_and_name(view: &View, text: &str, from: usize) -> Option<Hit> {
    let pattern = pattern!(
        r"(?i)(?P<vendor>vendor[_ ](?:err[_ ]?)?)?\b(?P<cqe>CQE (?:error )?)?synd(?:rome?)?\s*(?:is|of|=|:|code)?\s*\(?(?P<synd>0x[0-9a-f]{1,2})\b\)?[`'\u{22}]*\s*(?:[\u{2014}\u{2013}:=,(/\-]+\s*)?[`'\u{22}]?"
    );
    let captures = pattern.captures_iter(text).find(|captures| captures.name("vendor").is_none())?;
    let whole = captures.get(0)?;
    let syndrome = CqeSyndrome(u8::try_from(hex(caught(&captures, "synd")?)?).ok()?);
    let line = view.line_around(from + whole.start());
    let named = status_at(&text[whole.end()..]).map(|(status, len)| (status, whole.end() + len));
    let vendor = vendor_in(line).map(|(code, _)| code);
    let is_completion = pattern!(r"(?i)\b(?:CQE|completion|wc|wqe|vendor)").is_match(line);
    // A number alone may be firmware's or a queue's: words, or a completion around it, have to say that it is a CQE's.
    if named.is_none() && !(syndrome.name().is_some() && is_completion) {
        return None;
    }
    let failed = Failed::of_syndrome(syndrome, vendor);
    let mut record = Record::new("prose", 0..=0);
    let mut cqe = failed.as_cqe();
    let queue = queue_in(line);
    if let Some(queue) = &queue {
        cqe.insert("qpn".into(), json!(queue));
    }
    record.push("cqe", Value::Object(cqe));
    failed.explain(&mut record, "A work request", queue);
    if let Some((status, end)) = named
        && wc_of_syndrome(syndrome).number != status.number
    {
        let words = text[whole.end()..end].split_whitespace().collect::<Vec<_>>().join(" ");
        let right = syndrome.name().unwrap_or("unknown");
        let other = status.syndrome.map_or(String::new(), |other| format!(" (that is 0x{:02x})", other.0));
        let correction = format!("0x{:02x} is {right}; the quoted text calls it {words}{other}", syndrome.0);
        record.parts.insert("correction".into(), json!(correction));
        record.corrections.push(correction);
    }
    let (start, end) = (from + whole.start(), from + named.map_or(whole.end(), |(_, end)| end));
    Some(Hit { start, end, lines: view.lines_of(&(start..end)), record })
}
