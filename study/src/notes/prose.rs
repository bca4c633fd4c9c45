//! Markdown as plain lines and as HTML.

use super::{NOTES, Note, RULES};
use pulldown_cmark::{BrokenLink, CowStr, Event, Options, Parser, Tag, TagEnd, html};

/// One line of text: of links what they say, of code the text in backticks.
pub(super) fn plain(doc: &str) -> String {
    let mut text = String::new();
    for event in Parser::new_with_broken_link_callback(doc, Options::empty(), Some(rustdoc_link)) {
        match event {
            Event::Text(part) => text += &part,
            Event::Code(part) => text += &format!("`{part}`"),
            Event::SoftBreak | Event::HardBreak => text.push(' '),
            Event::Start(Tag::Paragraph | Tag::Item) if !text.is_empty() => text.push(' '),
            _ => (),
        }
    }
    text
}

/// Links of rustdoc have no target in the text.
fn rustdoc_link<'a>(_: BrokenLink<'a>) -> Option<(CowStr<'a>, CowStr<'a>)> {
    Some(("".into(), "".into()))
}

/// A note for the page: its drawings are links to the page's own, and links between notes are the page's.
pub(super) fn html_of(note: &Note) -> String {
    let text = undrawn(&linked(note.text));
    let mut dead = false;
    let events = Parser::new_ext(&text, Options::ENABLE_TABLES).filter_map(|event| match event {
        Event::Start(Tag::Link { link_type, dest_url, title, id }) => {
            let target = target(&dest_url);
            dead = target.is_none();
            let dest_url = target?.into();
            Some(Event::Start(Tag::Link { link_type, dest_url, title, id }))
        }
        Event::End(TagEnd::Link) if std::mem::take(&mut dead) => None,
        other => Some(other),
    });
    let mut out = String::new();
    html::push_html(&mut out, events);
    out
}

/// Where a link leads in the page; nowhere if it leads to what is not in the page.
fn target(link: &str) -> Option<String> {
    if link.starts_with("https://") || link.starts_with('#') {
        return Some(link.to_string());
    }
    let file = link.split('#').next().unwrap_or(link).trim_start_matches("../").strip_suffix(".md")?;
    let id = if file == RULES.id { file } else { NOTES.iter().find(|note| note.id == file)?.id };
    Some(format!("#note/{id}"))
}

/// The text with a link in the place of each drawn table.
fn undrawn(text: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once("<!-- drawn: ") {
        let (name, after) = after.split_once(" -->").unwrap_or((after, ""));
        out += &format!("{before}[`{name}`](#{name})\n");
        rest = after.split_once("<!-- /drawn -->").map_or("", |(_, rest)| rest);
    }
    out + rest
}

/// The text with a link behind each hexdump, which shows its bytes in the page's grids.
fn linked(text: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once("<!-- /hexdump -->") {
        let rows = before.rsplit("```text").next().unwrap_or_default().lines();
        let dwords = rows.filter_map(|row| row.get(4..39)).flat_map(str::split_whitespace);
        let hex: String = dwords.collect();
        out += &format!("{before}\n[Show these bytes in the grids](#hex/{hex})\n");
        rest = after;
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn docs_become_lines() {
        let doc = " Unit of [`value`](Self::value): 0 or 1.\n As [`Other`],\n  or [more].\n";
        assert_eq!(plain(doc), "Unit of `value`: 0 or 1. As `Other`, or more.");
        assert_eq!(plain(""), "");
    }

    #[test]
    fn hexdumps_lead_to_the_grids() {
        let row = |at, hex| format!("{at}  {hex:<35}  CtrlSeg: ds 2\n");
        let rows = row("00", "0000000a 00011102") + &row("10", "abcdef00");
        let text = format!("<!-- hexdump: a -->\n```text\n{rows}```\n<!-- /hexdump -->\n");
        let html = html_of(&Note { id: "a", text: text.leak() });
        assert!(html.contains(r##"href="#hex/0000000a00011102abcdef00""##), "{html}");
    }

    #[test]
    fn links_lead_within_the_page() {
        let note = Note {
            id: "a",
            text: "[b](cqe.md#x) [r](../rules.md) [t](../testing.md)\n\n<!-- drawn: Cqc -->\n| x |\n<!-- /drawn -->\n",
        };
        let html = html_of(&note);
        assert!(html.contains(r##"<a href="#note/cqe">b</a> <a href="#note/rules">r</a> t"##), "{html}");
        assert!(
            html.contains(r##"<a href="#Cqc"><code>Cqc</code></a>"##) && !html.contains("| x |"),
            "{html}"
        );
    }
}
