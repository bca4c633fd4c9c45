//! Bytes that are pasted into the page: its script is a second decoder, held against the driver's.

use crate::{Opened, declared, label, unhex, vector, vectors};
use mlx5_direct::{
    mlx5::{
        self,
        layout::{Desc, Kind},
    },
    wqe::{self, DecodedWqe, Peer},
};
use serde_json::{Value, json};

/// The same bytes in the ways in which people have them.
fn groupings(hex: &str) -> Vec<String> {
    let bytes: Vec<String> = unhex(hex).iter().map(|byte| format!("{byte:02x}")).collect();
    let dwords: Vec<String> = bytes.chunks(4).map(|d| d.concat()).collect();
    let rows = |offset: fn(usize) -> String| {
        let row = |(i, row): (usize, &[String])| format!("{}{}\n", offset(i * 16), row.join(" "));
        bytes.chunks(16).enumerate().map(row).collect::<String>()
    };
    vec![
        hex.to_string(),
        hex.to_uppercase(),
        bytes.join(" "),
        dwords.join(" "),
        dwords.chunks(4).map(|row| row.join(" ") + "\n").collect(),
        dwords.iter().map(|d| format!("0x{d}, ")).collect(),
        bytes.iter().map(|b| format!("\\x{b}")).collect(),
        bytes.join(":"),
        rows(|at| format!("{at:08x}  ")),
        rows(|at| format!("{at:08x}: ")),
        rows(|at| format!("[ 12.345678] mlx5_core 0000:08:00.0: cqe_dump: {at:08x}: ")),
        rows(|at| format!("> 0x{at:04x}: ")),
        rows(|at| format!("{at:04x}   ")).replace('\n', "  |................|\n"),
    ]
}

#[test]
fn pasted_bytes_are_seen_in_the_grids() {
    let Some(mut opened) = Opened::new("pasted_bytes_are_seen_in_the_grids") else { return };
    let write = vector("wqe-vectors.jsonl", "RC-0000");
    let error =
        vectors("cqe-vectors.jsonl").into_iter().find(|v| v["status"] == 10).expect("an access error");
    let browser = opened.open("");
    browser.eval("document.getElementById('hex').focus()");
    browser.insert(write["wqe"].as_str().unwrap());
    browser.until("document.querySelectorAll('.grid').length === 2");
    assert!(
        browser.text("#verdict").contains("32 bytes. Likely send WQE, RC or UC"),
        "{}",
        browser.text("#verdict")
    );
    for (structure, field, value) in [
        ("CtrlSeg", "opcode", "SEND (0xa)"),
        ("CtrlSeg", "qpn", "0x111 (273)"),
        ("CtrlSeg", "ds", "2"),
        ("CtrlSeg", "ce", "ALWAYS (0x2)"),
        ("CtrlSeg", "se", "1"),
        ("DataSeg", "byte_count", "0x12b3 (4787)"),
        ("DataSeg", "lkey", "0x6b7d438f (1803371407)"),
        ("DataSeg", "addr", "0x6f42219630a2 "),
    ] {
        let label = label(browser, structure, field);
        assert!(label.contains(&format!(", {value}")), "{structure}.{field}: {label}");
    }
    browser.screenshot("wqe.png");
    // A link to these bytes is the page's address, and the structure's own page shows them too.
    let place = browser.eval("location.hash").as_str().unwrap().to_string();
    assert_eq!(place, format!("#hex/{}", write["wqe"].as_str().unwrap()));
    let browser = opened.open(&place[1..]);
    assert!(label(browser, "DataSeg", "byte_count").contains("4787"));
    browser.eval("location.hash = 'CtrlSeg'");
    browser.until("document.querySelectorAll('.grid').length === 1");
    assert!(label(browser, "CtrlSeg", "qpn").contains("0x111"));

    let browser = opened.open("");
    let hex = error["cqe"].as_str().unwrap();
    for text in groupings(hex) {
        browser.eval("document.getElementById('hex').value = ''; document.getElementById('hex').focus()");
        browser.insert(&text);
        browser.until(&format!("toHex(pasted.bytes) === '{hex}'"));
        assert!(browser.text("#verdict").contains("Likely CQE"), "{text}: {}", browser.text("#verdict"));
    }
    assert!(browser.text("#view h2").contains("error CQE"));
    let bytes = unhex(hex);
    for (field, value) in [
        ("syndrome", "REMOTE_ACCESS_ERR (0x13)".to_string()),
        ("vendor_err_synd", format!("0x{:x}", bytes[54])),
        ("opcode", "REQ_ERR (0xd)".to_string()),
        ("qpn", format!("0x{:x}", u32::from_be_bytes([0, bytes[57], bytes[58], bytes[59]]))),
    ] {
        let label = label(browser, "ErrorCqe", field);
        assert!(label.contains(&value), "{field}: {label}");
    }
    // Read as something else, on request; and what does not fit says so.
    browser.eval("(() => { const as = document.getElementById('as'); as.value = 'Mkc'; as.dispatchEvent(new Event('change')); })()");
    browser.until("document.querySelector('.grid').dataset.structure === 'Mkc'");
    browser.eval("document.getElementById('hex').value = ''; document.getElementById('hex').focus()");
    browser.insert("00000010 000111 03 00000008 00000000");
    browser.eval("(() => { const as = document.getElementById('as'); as.value = 'send'; as.dispatchEvent(new Event('change')); })()");
    assert!(
        browser.text("#verdict").contains("ds says 48 bytes, and here are 16"),
        "{}",
        browser.text("#verdict")
    );
    browser.eval("document.getElementById('hex').value = ''; document.getElementById('hex').focus()");
    browser.insert("no bytes at all");
    assert!(browser.text("#verdict").contains("No hex"), "{}", browser.text("#verdict"));
    opened.end();
}

/// What the driver's decoder finds: each structure with its bytes, and bytes that are none.
fn taken_apart(wqe: DecodedWqe<'_>) -> Vec<(&'static str, Vec<u8>)> {
    let mut parts = Vec::new();
    for placed in wqe.placed() {
        let payload = placed.segment.payload();
        if let Some(desc) = placed.segment.desc() {
            parts.push((desc.name, wqe.bytes()[placed.at_bytes..][..desc.size_bytes].to_vec()));
        }
        if !payload.is_empty() {
            parts.push(("", payload.to_vec()));
        }
    }
    parts
}

/// Every field as the page prints it.
fn printed(desc: &Desc, bytes: &[u8]) -> Vec<String> {
    let one = |field: &mlx5::layout::Field| match field.kind {
        Kind::Bits { enumeration, .. } => {
            let value = desc.read(field, bytes);
            match enumeration {
                Some(e) => {
                    let name = e.values.iter().find(|v| v.bits == value).map_or("unknown", |v| v.name);
                    format!("{name} (0x{value:x})")
                }
                None if value < 10 => value.to_string(),
                None => format!("0x{value:x} ({value})"),
            }
        }
        Kind::Bytes | Kind::Struct(_) => {
            let at = field.bit_offset / 8;
            bytes[at..at + field.bit_width / 8].iter().map(|byte| format!("{byte:02x}")).collect()
        }
    };
    desc.fields.iter().map(one).collect()
}

/// The page's script is a second decoder: it must say what the first one says of libmlx5's bytes.
#[test]
fn the_page_takes_apart_what_the_driver_does() {
    let Some(mut opened) = Opened::new("the_page_takes_apart_what_the_driver_does") else { return };
    let browser = opened.open("");
    let mut requests: Vec<(String, String)> = Vec::new();
    for v in vectors("wqe-vectors.jsonl").iter().filter(|v| v["kind"] == "send") {
        let form = if v["transport"] == "UD" { "ud" } else { "send" };
        requests.push((form.into(), v["wqe"].as_str().unwrap().into()));
    }
    for (file, form) in [("raw-packet-vectors.jsonl", "raw"), ("umr-vectors.jsonl", "send")] {
        for v in vectors(file) {
            let wqes = v["wqes"].as_array().expect("wqes");
            // Some hold a receive WQE beside, which is a list of pieces.
            let sends = wqes.iter().filter(|w| w["ds"].is_u64()).map(|w| w["hex"].as_str().unwrap());
            requests.extend(sends.map(|hex| (form.to_string(), hex.to_string())));
        }
    }
    assert!(requests.len() > 1300, "{}", requests.len());
    let found = browser.eval(&format!(
        "{}.map(([form, hex]) => {{
            const bytes = parseHex(hex);
            const {{ parts, fault }} = FORMS.get(form)[1](bytes);
            const fields = (p) => p.name && STRUCTURES.get(p.name).fields.map((f) => valueText(f, p.bytes));
            const told = parts.filter((p) => p.title !== 'filling of the list');
            return {{ form: likely(bytes)[0]?.form, fault, parts: told.map((p) => [p.name ?? '', toHex(p.bytes), fields(p)]) }};
        }})",
        json!(requests)
    ));
    let declared = declared();
    let mut guessed = 0;
    for ((form, hex), found) in requests.iter().zip(found.as_array().unwrap()) {
        let bytes = unhex(hex);
        let peer = match form.as_str() {
            "ud" => Peer::Av,
            "raw" => Peer::Eth,
            _ => Peer::None,
        };
        let wqe = wqe::decode_as(&bytes, peer).unwrap_or_else(|error| panic!("{hex}: {error}"));
        let expected: Vec<_> = taken_apart(wqe)
            .into_iter()
            .map(|(name, bytes)| {
                let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                let fields = declared.iter().find(|d| d.name == name).map(|d| printed(d, &bytes));
                json!([name, hex, fields])
            })
            .collect();
        assert_eq!(found["parts"], Value::from(expected), "{hex}");
        assert!(found["fault"].is_null(), "{hex}: {}", found["fault"]);
        guessed += usize::from(found["form"] == form.as_str());
    }
    // RC and raw packets can look alike, and what is less likely is one click away.
    assert!(guessed * 100 > requests.len() * 80, "of {} WQEs, {guessed} are guessed right", requests.len());

    let cqes: Vec<String> =
        vectors("cqe-vectors.jsonl").iter().map(|v| v["cqe"].as_str().unwrap().into()).collect();
    let found = browser.eval(&format!("{}.map((hex) => likely(parseHex(hex))[0]?.form)", json!(cqes)));
    let wrong: Vec<_> =
        cqes.iter().zip(found.as_array().unwrap()).filter(|(_, form)| *form != "cqe").collect();
    assert!(wrong.is_empty(), "of {} CQEs: {wrong:?}", cqes.len());
    opened.end();
}
