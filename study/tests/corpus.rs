//! Real text, decoded: the cases that the product was asked for, and other public lines of all families and versions.
//!
//! `data/cases.jsonl` are 50 public cases with the right decode. `data/public.jsonl` are others, each with its source and
//! with what it has to say worked out from the code that prints it.

mod common;

use common::{check, load, records};

/// Fields of cases that no text says.
const NOT_IN_TEXT: [(&str, &str); 1] = [
    // The status is in the title; the lines tell of the request only.
    ("wc-monarch-3759", "completion"),
];

#[test]
fn every_case_decodes_to_its_fields() {
    let cases = load("cases.jsonl");
    assert_eq!(cases.len(), 50);
    let mut problems = Vec::new();
    for case in &cases {
        let id = case["id"].as_str().unwrap();
        let mut expected = case["decode"].as_object().unwrap().clone();
        expected.retain(|part, _| !NOT_IN_TEXT.contains(&(id, part)));
        problems.extend(check(id, &records(case["raw"].as_str().unwrap()), &expected));
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn what_stands_in_the_title_is_read_too() {
    let case = load("cases.jsonl").into_iter().find(|case| case["id"] == "wc-monarch-3759").unwrap();
    let text = format!("{}\n{}", case["title"].as_str().unwrap(), case["raw"].as_str().unwrap());
    let problems = check("wc-monarch-3759", &records(&text), case["decode"].as_object().unwrap());
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn other_public_lines_decode_to_what_their_printer_means() {
    let cases = load("public.jsonl");
    assert!(cases.len() >= 40);
    let mut problems = Vec::new();
    for case in &cases {
        let id = case["id"].as_str().unwrap();
        assert!(!case["source"].as_str().unwrap().is_empty());
        problems.extend(check(
            id,
            &records(case["text"].as_str().unwrap()),
            case["expect"].as_object().unwrap(),
        ));
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn every_record_explains_itself() {
    let texts = load("cases.jsonl").into_iter().map(|case| case["raw"].clone());
    for text in texts.chain(load("public.jsonl").into_iter().map(|case| case["text"].clone())) {
        for record in records(text.as_str().unwrap()) {
            assert!(record.says.ends_with('.') && record.says.len() > 10, "{record:?}");
            assert!(record.causes.iter().all(|cause| !cause.source.is_empty()), "{record:?}");
            assert!(*record.lines.start() >= 1 && record.lines.end() >= record.lines.start(), "{record:?}");
        }
    }
}

#[test]
fn ordinary_logs_have_no_records() {
    let text = "\
Nov 30 12:00:00 host01 systemd[1]: foo.service: Main process exited, code=exited, status=1/FAILURE
Nov 30 12:00:01 host01 sshd[77]: Connection closed by authenticating user root, status 12
GET /index.html HTTP/1.1 status 404
mlx5_core 0000:03:00.0: firmware version: 16.35.2000
mlx5_core 0000:03:00.0: 126.016 Gb/s available PCIe bandwidth (8.0 GT/s PCIe x16 link)
usb 1-1: device descriptor read/64, error -110
        case IBV_WC_RETRY_EXC_ERR:
        if (wc.status != IBV_WC_SUCCESS) {
exit status 3, completion time 12 s
";
    let found = records(text);
    assert!(found.is_empty(), "{found:?}");
}
