//! A line without what carried it here: a terminal's colours, a web page's marks, mail's encoding.

use regex::Regex;
use std::sync::LazyLock;

/// Characters of a mail's line at least, if it is one that its encoding has broken: mail programs break at 76.
const LEAST_BROKEN: usize = 60;

/// Tags that pages set text with. Others may be a program's own angle brackets.
static TAG: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"(?i)</?(?:a|b|blockquote|br|code|div|em|font|i|li|p|pre|span|strong|td|tr|tt)(?:\s[^<>]*)?/?>",
    )
    .expect("a regular expression")
});

/// The head of a dump with its first row on the same line.
static GLUED: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(got completion with error:|dump error cqe)\s*(?:[0-9a-f]{8} ){3}")
        .expect("a regular expression")
});

/// Entities that stand for what error lines are made of, `&` last: it may have been one of another.
const ENTITIES: &[(&str, &str)] = &[
    ("&gt;", ">"),
    ("&lt;", "<"),
    ("&quot;", "\""),
    ("&apos;", "'"),
    ("&#39;", "'"),
    ("&#x27;", "'"),
    ("&nbsp;", " "),
    ("&#160;", " "),
    ("&amp;", "&"),
];

/// A line's text, and whether mail's encoding broke it off: the next one goes on with it.
pub(super) fn clean(bytes: &[u8]) -> (String, bool) {
    let mut text = printed(bytes);
    if text.contains('<') {
        text = TAG.replace_all(&text, "").into_owned();
    }
    if text.contains('&') {
        for (entity, stands_for) in ENTITIES {
            text = text.replace(entity, stands_for);
        }
    }
    let is_broken = is_broken(text.as_bytes());
    if is_broken || text.ends_with("=0A") || text.ends_with("=0A=") || text.ends_with("=20") {
        text = unquoted(text.strip_suffix('=').unwrap_or(&text));
    }
    if !is_broken {
        text.truncate(text.trim_end().len());
    }
    (text, is_broken)
}

/// The lines that are in one: a log in JSON writes line ends as `\\n`, and what is copied out of a chat loses them.
pub(super) fn lines_in(text: &str) -> Vec<&str> {
    if !text.contains("\\n") && !GLUED.is_match(text) {
        return vec![text];
    }
    let mut lines = Vec::new();
    for line in text.split("\\n") {
        match GLUED.captures(line).and_then(|found| found.get(1)) {
            Some(head) => lines.extend([&line[..head.end()], &line[head.end()..]]),
            None => lines.push(line),
        }
    }
    lines
}

/// Whether mail's encoding (quoted-printable) broke a line off. Cheap: most lines end otherwise.
pub(super) fn is_broken(line: &[u8]) -> bool {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    match line {
        [.., b'0', b'A', b'='] => false,
        [.., before, b'='] => line.len() >= LEAST_BROKEN && !matches!(before, b'=' | b' '),
        _ => false,
    }
}

/// `=3D` and the like, of ASCII alone.
fn unquoted(text: &str) -> String {
    let mut parts = text.split('=');
    let mut plain = parts.next().unwrap_or("").to_owned();
    for part in parts {
        let code = part.get(..2).filter(|code| !code.contains(|digit: char| digit.is_ascii_lowercase()));
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()).filter(u8::is_ascii) {
            Some(b'\n' | b'\r') => plain.push_str(&part[2..]),
            Some(byte) => {
                plain.push(char::from(byte));
                plain.push_str(&part[2..]);
            }
            None => {
                plain.push('=');
                plain.push_str(part);
            }
        }
    }
    plain
}

/// Without colours, and blanks for what would end or hide it.
fn printed(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut clean = String::with_capacity(bytes.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\0' | '\r' => clean.push(' '),
            // One byte for what may have been one.
            char::REPLACEMENT_CHARACTER => clean.push('?'),
            '\x1b' => {
                // `ESC [ … letter`: what a terminal was told about colours.
                if chars.clone().next() == Some('[') {
                    chars.by_ref().find(char::is_ascii_alphabetic);
                }
            }
            c => clean.push(c),
        }
    }
    clean.truncate(clean.trim_end().len());
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_and_terminals_leave_nothing() {
        for (line, plain) in [
            ("\x1b[31mmlx5\x1b[0m: x \r", "mlx5: x"),
            ("<span class=\"q\">&gt; &gt; to: b error polling</span><br>", "> > to: b error polling"),
            ("opcode 2&#160; vendor&nbsp;error 0", "opcode 2  vendor error 0"),
            ("peer 10.0.0.1<4711> &amp;lt;", "peer 10.0.0.1<4711> &lt;"),
            ("<stderr>:[h:1:0:1] a <b>mlx5</b>", "<stderr>:[h:1:0:1] a mlx5"),
            ("status=3D12 of 10", "status=3D12 of 10"),
        ] {
            assert_eq!(clean(line.as_bytes()), (plain.to_owned(), false), "{line}");
        }
    }

    #[test]
    fn lines_in_a_line_are_found() {
        let zeros = "00000000 00000000 00000000 00000000";
        let head = "mlx5: h: got completion with error:";
        assert_eq!(lines_in(&format!("{head} {zeros} {zeros}")), [head, &format!(" {zeros} {zeros}")]);
        assert_eq!(
            lines_in(&format!("{{\"log\":\"{head}\\n{zeros}\\n\"}}")),
            [&format!("{{\"log\":\"{head}"), zeros, "\"}"]
        );
        assert_eq!(lines_in(head), [head]);
    }

    #[test]
    fn mail_breaks_lines_off_and_hides_signs() {
        assert_eq!(clean(b"domain=3D0x2f flags=3D0=0A="), ("domain=0x2f flags=0".to_owned(), false));
        let broken = "[  408.372201] infiniband mlx5_0: mlx5_handle_error_cqe:332: WC err=";
        assert_eq!(clean(broken.as_bytes()), (broken.trim_end_matches('=').to_owned(), true));
        let rule = "=".repeat(76);
        assert_eq!(clean(rule.as_bytes()), (rule, false));
    }
}
