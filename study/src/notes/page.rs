//! The page: everything in one file, which asks the network for nothing.

use super::data;
use base64::{Engine, prelude::BASE64_STANDARD};
use sha2::{Digest, Sha256};

const HTML: &str = include_str!("page.html");
const CSS: &str = include_str!("page.css");
/// One script: hex and what it may be, the grid, and the page around them.
const SCRIPT: &str = concat!(include_str!("bytes.js"), include_str!("grid.js"), include_str!("page.js"));

/// The page: every declared structure as a grid of bits, with the notes. The same for the same source.
pub fn html() -> String {
    // `<` ends a script's text, and JSON can do without.
    let data = data::json().to_string().replace('<', "\\u003c");
    let policy = format!(
        "default-src 'none'; img-src data:; style-src '{}'; script-src '{}'; base-uri 'none'; form-action 'none'",
        hash(CSS),
        hash(SCRIPT)
    );
    let parts =
        [("{{policy}}", policy.as_str()), ("{{css}}", CSS), ("{{data}}", &data), ("{{script}}", SCRIPT)];
    parts.iter().fold(HTML.to_string(), |page, (place, part)| page.replacen(place, part, 1))
}

/// What a browser compares a script or style with before it takes it.
fn hash(text: &str) -> String {
    format!("sha256-{}", BASE64_STANDARD.encode(Sha256::digest(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_whole_and_the_same_again() {
        let page = html();
        assert_eq!(page, html());
        assert!(!page.contains("{{"), "a place is not filled");
        for outside in ["src=", "href=\"http", "@import", "url("] {
            assert!(!page.split("<script type").next().unwrap().contains(outside), "{outside}");
        }
        assert_eq!(page.matches("</script").count(), 2);
    }
}
