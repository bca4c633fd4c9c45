//! The page in a real browser: Debian's Chromium, headless.

mod browser;
mod pasted;

use browser::Browser;
use mlx5_direct::{
    cqe,
    mlx5::{self, layout::Desc},
    wqe,
};
use mlx5_study::notes;
use serde_json::{Value, json};
use std::{
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// One browser at a time: two of them on two processors are slower than one after the other.
static ONE: Mutex<()> = Mutex::new(());

/// A browser with the page, which asks for nothing and complains of nothing.
struct Opened {
    browser: Browser,
    page: String,
    _one: MutexGuard<'static, ()>,
}

impl Opened {
    /// Nothing, and a line that says why, where there is no browser.
    fn new(test: &str) -> Option<Self> {
        let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        match Browser::start() {
            Ok(browser) => Some(Self { browser, page: notes::html(), _one: one }),
            Err(why) => {
                println!("skipped: {test}: {why}");
                None
            }
        }
    }

    /// Opens the page anew, at a place in it, on a desk.
    fn open(&mut self, place: &str) -> &mut Browser {
        self.browser.size(1400, 900, false);
        self.browser.prefer("light");
        self.browser.open(&self.page, place);
        &mut self.browser
    }

    fn end(mut self) {
        // What is on its way arrives before the answer.
        self.browser.eval("new Promise((done) => setTimeout(done, 50))");
        assert_eq!(self.browser.heard, Vec::<String>::new());
    }
}

fn vectors(file: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data").join(file);
    std::fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn vector(file: &str, id: &str) -> Value {
    vectors(file).into_iter().find(|v| v["id"] == id).unwrap_or_else(|| panic!("no {id}"))
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

/// Label of a field's cell: its name, place and value.
fn label(browser: &mut Browser, structure: &str, field: &str) -> String {
    let cell = format!(".grid[data-structure={structure}] [data-field={field}]");
    let label = browser.eval(&format!("document.querySelector({cell:?})?.getAttribute('aria-label')"));
    label.as_str().unwrap_or_else(|| panic!("no {cell}")).to_string()
}

fn declared() -> Vec<&'static Desc> {
    [wqe::layouts(), cqe::layouts(), mlx5::layouts()].concat()
}

#[test]
fn every_structure_has_a_cell_for_each_field() {
    let Some(mut opened) = Opened::new("every_structure_has_a_cell_for_each_field") else { return };
    let browser = opened.open("");
    for (width, phone) in [(1400, false), (360, true)] {
        browser.size(width, 800, phone);
        // Each bit is in one cell, and cells are drawn without gaps and overlaps: their bits add up in `pieces`.
        let found = browser.eval(
            "DATA.structures.map((s) => {
                const grid = drawGrid(s, undefined, () => {}, () => {});
                const names = new Set([...grid.querySelectorAll('[data-field]')].map((cell) => cell.dataset.field));
                const bits = [...pieces(s, rowBits())].reduce((sum, piece) => sum + piece.bits, 0);
                return [s.name, names.size, bits];
            })",
        );
        let expected: Vec<_> =
            declared().iter().map(|d| json!([d.name, d.fields.len(), d.size_bytes * 8])).collect();
        assert_eq!(found, Value::from(expected));
    }
    opened.end();
}

#[test]
fn a_field_is_told_to_pointer_finger_and_keys() {
    let Some(mut opened) = Opened::new("a_field_is_told_to_pointer_finger_and_keys") else { return };
    let browser = opened.open("CtrlSeg");
    browser.hover("[data-field=qpn]");
    let told = browser.text("#detail");
    for part in [
        "qpn",
        "3 bytes, bits 31:8 of the dword at 0x04",
        "The send queue's own number.",
        "wqe_ctrl_seg.qpn",
        "rdma-core",
    ] {
        assert!(told.contains(part), "{part:?} not in {told:?}");
    }
    browser.screenshot("light.png");
    // Of an enumeration, the values and what they mean.
    browser.hover("[data-field=opcode]");
    let told = browser.text("#detail");
    assert!(
        told.contains("0x10") && told.contains("RDMA_READ") && told.contains("Read remote memory."),
        "{told}"
    );

    // Keys: one cell is in the order of Tab, arrows go on from there.
    assert_eq!(browser.eval("document.querySelectorAll('[role=gridcell][tabindex=\"0\"]').length"), 1);
    browser.eval("document.querySelector('[role=gridcell][tabindex=\"0\"]').focus()");
    let mut at = |keys: &[&str]| {
        keys.iter().for_each(|key| browser.key(key));
        browser
            .eval("document.activeElement.dataset.field ?? document.activeElement.getAttribute('aria-label')")
    };
    assert_eq!(at(&[]), "opmod");
    assert_eq!(at(&["ArrowRight", "ArrowRight"]), "opcode");
    assert_eq!(at(&["ArrowDown"]), "ds");
    assert_eq!(at(&["ArrowLeft"]), "reserved, 2 bits");
    assert_eq!(at(&["End"]), "imm");
    assert_eq!(at(&["ArrowUp"]), "dci_stream_channel_id");
    assert_eq!(at(&["Home", "ArrowUp", "ArrowLeft"]), "opmod");
    assert!(browser.text("#detail").contains("Variant of the opcode"));
    browser.key("Escape");
    assert_eq!(browser.text("#detail"), "");
    // Enter opens the structure that a field is.
    browser.eval("location.hash = 'CreateQpIn/qpc'");
    browser.until("document.activeElement.dataset.field === 'qpc'");
    browser.key("Enter");
    browser.until("document.querySelector('.grid')?.dataset.structure === 'Qpc'");

    let browser = opened.open("");
    browser.size(360, 740, true);
    browser.eval("location.hash = 'CtrlSeg'");
    browser.until("document.querySelector('.grid') !== null");
    browser.tap("[data-field=ds]");
    browser.until("document.querySelector('#detail').innerText.includes('16-byte units')");
    let seen = browser.eval(
        "(() => { const d = document.querySelector('#detail').getBoundingClientRect(); return d.bottom <= innerHeight + 1 && d.top >= 0; })()",
    );
    assert_eq!(seen, true, "what is told is in sight");
    browser.screenshot("phone.png");
    opened.end();
}

#[test]
fn search_finds_and_links_lead() {
    let Some(mut opened) = Opened::new("search_finds_and_links_lead") else { return };
    let browser = opened.open("");
    let mut first = |query: &str| {
        browser.eval("document.activeElement.blur()");
        browser.key("/");
        browser.eval("document.getElementById('search').value = ''");
        browser.insert(query);
        browser.text("#hits [aria-selected=true]")
    };
    assert!(first("CtrlSeg").contains("structure"));
    assert!(first("wqe_counter").contains("wqe_counter"));
    assert!(first("REMOTE_ACCESS_ERR").contains("REMOTE_ACCESS_ERR = 0x13"));
    assert!(first("0x500").contains("CREATE_QP"));
    assert!(first("16-byte units, this").contains("CtrlSeg.ds"));
    assert!(first("completion queue entry").contains("note"));
    browser.screenshot("search.png");
    // Arrows choose, Enter goes, Escape ends it.
    browser.key("ArrowDown");
    browser.key("ArrowUp");
    browser.key("Enter");
    browser.until("location.hash === '#note/cqe'");
    assert_eq!(browser.eval("document.getElementById('hits').hidden"), true);
    browser.key("/");
    browser.insert("nothing has this");
    assert!(browser.text("#hits").contains("Nothing"));
    browser.key("Escape");
    assert_eq!(
        browser.eval("[document.getElementById('search').value, document.getElementById('hits').hidden]"),
        json!(["", true])
    );

    // A link to a field shows it.
    let browser = opened.open("ErrorCqe/syndrome");
    let told = browser.text("#detail");
    assert!(told.contains("syndrome") && told.contains("TRANSPORT_RETRY_EXC_ERR"), "{told}");
    assert!(browser.text("#note").contains("Error CQE"), "the note stands beside it");
    assert_eq!(browser.eval("document.querySelector('nav [aria-current]').innerText"), "ErrorCqe");
    // Every link within the page leads to something, in all notes.
    let dead = browser.eval(
        "[...Object.values(DATA.notes.map((note) => note.html)), DATA.index].flatMap((html) => {
            const box = document.createElement('div'); box.innerHTML = html;
            return [...box.querySelectorAll('a')].map((a) => a.getAttribute('href'));
        }).filter((href) => {
            if (!href.startsWith('#')) return !href.startsWith('https://');
            const [first, ...rest] = href.slice(1).split('/');
            return !(STRUCTURES.has(first) || first === 'note' && NOTES.has(rest.join('/')) || first === 'hex');
        })",
    );
    assert_eq!(dead, json!([]));
    opened.end();
}

#[test]
fn a_phone_shows_all_without_sideways_scrolling() {
    let Some(mut opened) = Opened::new("a_phone_shows_all_without_sideways_scrolling") else { return };
    opened.open("");
    let browser = &mut opened.browser;
    browser.size(360, 740, true);
    let wide = browser.eval(
        "(() => {
            const wide = [];
            const look = (what, shown) => { shown(); if (document.documentElement.scrollWidth > innerWidth) wide.push(what); };
            for (const s of DATA.structures) look(s.name, () => showStructure(s, ''));
            for (const note of DATA.notes) look(note.id, () => showNote(note));
            for (const name of Object.keys(DATA.enums)) look(name, () => showEnum(name));
            look('home', showHome);
            return wide;
        })()",
    );
    assert_eq!(wide, json!([]));
    // A grid's letters can be read, and a finger hits a cell.
    let least = browser.eval(
        "(() => {
            showStructure(STRUCTURES.get('Mkc'), '');
            const cells = [...document.querySelectorAll('[data-field]')];
            const font = Math.min(...cells.map((c) => parseFloat(getComputedStyle(c.firstElementChild).fontSize)));
            return [font, Math.min(...cells.map((c) => c.getBoundingClientRect().width)), Math.min(...cells.map((c) => c.getBoundingClientRect().height))];
        })()",
    );
    let [font, width, height] = [0, 1, 2].map(|i| least[i].as_f64().unwrap());
    assert!(font >= 11.0 && width >= 16.0 && height >= 40.0, "{least}");
    browser.screenshot("phone-mkc.png");
    // The list opens over the page, and closes when something is chosen.
    browser.eval("document.getElementById('menu').click()");
    assert_eq!(browser.eval("getComputedStyle(document.getElementById('nav')).display"), "block");
    browser.screenshot("phone-menu.png");
    browser.tap("nav a[href='#CtrlSeg']");
    browser.until(
        "location.hash === '#CtrlSeg' && getComputedStyle(document.getElementById('nav')).display === 'none'",
    );
    opened.end();
}

/// Contrast of each text with what is behind it, the least first, by WCAG 2.
const CONTRASTS: &str = "(() => {
    const rgb = (text) => [...text.matchAll(/rgba?\\(([^)]*)\\)/g)].map((m) => m[1].split(/[ ,/]+/).map(Number));
    const light = ([r, g, b]) => [r, g, b].map((c) => c / 255).map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
        .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
    const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
    const behind = (e) => {
        for (; e; e = e.parentElement) {
            const style = getComputedStyle(e);
            const found = [...rgb(style.backgroundImage), ...rgb(style.backgroundColor)].filter((c) => c[3] !== 0);
            if (found.length) return found;
        }
        return [[255, 255, 255]];
    };
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const seen = new Map();
    while (walker.nextNode()) {
        const e = walker.currentNode.parentElement;
        if (!walker.currentNode.data.trim() || !e.checkVisibility() || e.closest('script, option')) continue;
        const [ink] = rgb(getComputedStyle(e).color);
        const worst = Math.min(...behind(e).map((ground) => ratio(ink, ground)));
        const key = `${e.tagName}.${e.className} ${getComputedStyle(e).color}`;
        if (!(seen.get(key) <= worst)) seen.set(key, worst);
    }
    for (const e of document.querySelectorAll('[placeholder]')) {
        seen.set(e.id, Math.min(...behind(e).map((ground) => ratio(rgb(getComputedStyle(e, '::placeholder').color)[0], ground))));
    }
    return [...seen].sort((a, b) => a[1] - b[1]);
})()";

#[test]
fn text_has_contrast_in_light_and_dark() {
    let Some(mut opened) = Opened::new("text_has_contrast_in_light_and_dark") else { return };
    let error = vectors("cqe-vectors.jsonl").into_iter().find(|v| v["status"] == 10).unwrap();
    let bytes = format!("hex/{}", error["cqe"].as_str().unwrap());
    let browser = opened.open("");
    let mut grounds = Vec::new();
    // What the user prefers, and what the button chooses against that: it goes from auto to light to dark.
    for (prefers, clicks) in [("light", 0), ("dark", 0), ("dark", 1), ("light", 1)] {
        browser.prefer(prefers);
        for _ in 0..clicks {
            browser.eval("document.getElementById('theme').click()");
        }
        for place in ["", "Mkc/rr", "note/eqe", "enum/CqeSyndrome", "CreateQpIn/qpc", &bytes] {
            browser.eval(&format!("history.replaceState(null, '', '#{place}'); route()"));
            if place == bytes {
                browser.hover("[data-field=syndrome]");
                browser.screenshot(&format!("{prefers}-{clicks}-error.png"));
            }
            let found = browser.eval(CONTRASTS);
            let found = found.as_array().unwrap();
            let least = found[0][1].as_f64().unwrap();
            assert!(found.len() > 5 && least >= 4.5, "{prefers} {clicks} {place}: {:?}", &found[..3]);
        }
        grounds.push(browser.eval("getComputedStyle(document.body).backgroundColor"));
    }
    let [light, dark, chosen_light, chosen_dark] = &grounds[..] else { panic!("{grounds:?}") };
    assert!(light != dark && chosen_dark == dark && chosen_light == light, "{grounds:?}");
    opened.end();
}

/// On paper there is the structure, and nothing to click.
#[test]
fn print_has_the_structure_alone() {
    let Some(mut opened) = Opened::new("print_has_the_structure_alone") else { return };
    let browser = opened.open("Qpc");
    browser.prefer("dark");
    browser.call("Emulation.setEmulatedMedia", json!({ "media": "print" }));
    let shown = browser.eval(
        "['.top', 'nav', '#paste', '.grid', '.fields', '#note'].map((what) => document.querySelector(what).checkVisibility())",
    );
    assert_eq!(shown, json!([false, false, false, true, true, true]));
    assert_eq!(browser.eval("getComputedStyle(document.body).backgroundColor"), "rgb(255, 255, 255)");
    browser.screenshot("print.png");
    opened.end();
}
