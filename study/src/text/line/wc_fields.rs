//! Statuses in words, and what stands around them on a line.

use super::view::{caught, hex, number, pattern};
use crate::facts::{WC, Wc, wc_by_text};
use regex::Regex;
use std::sync::LazyLock;

/// Texts that also mean other things: they count only where the line says that it is about a completion.
const AMBIGUOUS: &[&str] = &[
    "success",
    "fatal error",
    "general error",
    "aborted error",
    "operation aborted",
    "bad response",
    "bad response error",
    "local access",
    "remote access",
    "remote operation",
    "remote QP",
    "local length",
    "local protection",
    "local QP operation",
    "invalid request",
    "invalid request error",
    "response timeout error",
    "flushed error",
    "TM error",
    "memory window bind",
];

/// Every text, the longest first.
static ALL: LazyLock<Regex> = LazyLock::new(|| texts(|_| true, r"(?i)^(?:{})\b"));
/// Those that mean nothing else.
static PLAIN: LazyLock<Regex> = LazyLock::new(|| texts(|text| !AMBIGUOUS.contains(&text), r"(?i)\b(?:{})\b"));

fn texts(wanted: fn(&str) -> bool, form: &str) -> Regex {
    let mut texts: Vec<&str> = WC
        .iter()
        .flat_map(|wc| wc.also.iter().copied().chain([wc.text]))
        .filter(|text| wanted(text))
        .collect();
    texts.sort_by_key(|text| std::cmp::Reverse(text.len()));
    let texts: Vec<String> = texts.iter().map(|text| regex::escape(text).replace(r"\ ", " ")).collect();
    super::view::regex_of(&form.replace("{}", &texts.join("|")))
}

/// The status that a text begins with, and its length.
pub(super) fn status_at(text: &str) -> Option<(&'static Wc, usize)> {
    let found = ALL.find(text)?;
    Some((by_words(found.as_str())?, found.len()))
}

/// The first status in words that mean nothing else: where, and which.
pub(super) fn status_in(text: &str) -> Option<(std::ops::Range<usize>, &'static Wc)> {
    let found = PLAIN.find(text)?;
    Some((found.range(), by_words(found.as_str())?))
}

fn by_words(words: &str) -> Option<&'static Wc> {
    wc_by_text(&words.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// A vendor syndrome on a line, and whether its base had to be guessed.
pub(super) fn vendor_in(line: &str) -> Option<(u8, bool)> {
    let named = pattern!(
        r"(?i)\bvend(?:or)?(?:[ _\-]?(?:err(?:or)?|synd(?:rome)?))?(?:[ _](?:synd(?:rome)?|code))*(?: byte)?(?: is)?\s*[=:]?\s*\(?(?P<v>0x[0-9a-f]+|[0-9a-f]{1,3})\b"
    );
    // Linux's rpcrdma: `(4/0x51)`.
    let pair = pattern!(r"\(\d{1,2}/(?P<v>0x[0-9a-f]{1,2})\)");
    let captures = named.captures(line).or_else(|| pair.captures(line))?;
    let value = caught(&captures, "v")?;
    if value.starts_with("0x") {
        return Some((u8::try_from(hex(value)?).ok()?, false));
    }
    // iSER and SRP print `vend_err %x`; others without 0x print decimals.
    let is_hex = captures.get(0)?.as_str().to_ascii_lowercase().starts_with("vend_err");
    let code = if is_hex { hex(value) } else { number(value) }?;
    Some((u8::try_from(code).ok()?, true))
}

/// The queue pair that a line names.
pub(super) fn queue_in(line: &str) -> Option<String> {
    let pattern = pattern!(
        r"(?i)\b(?:qpn?|qp_num|qp_id|qpid|qp_number|sqn)(?: num(?:ber)?)?\s*[=:#]?\s*(?P<v>0x[0-9a-f]+|\d+)\b"
    );
    let captures = pattern.captures(line)?;
    Some(format!("0x{:x}", number(caught(&captures, "v")?)?))
}
