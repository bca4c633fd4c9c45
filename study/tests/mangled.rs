//! Lines as they reach us: prefixed, quoted, indented, wrapped, with other line ends, glued together, or torn to bits.

mod common;

use common::{check, load, records};
use serde_json::{Map, Value};

/// Cases whose records are made of lines alone: name, text and what it says.
fn lines() -> Vec<(String, String, Map<String, Value>)> {
    let text_parts = [
        "completion",
        "commands",
        "health",
        "event",
        "request",
        "counters",
        "correction",
        "accepted_as_mlx5",
    ];
    let cases = load("cases.jsonl")
        .into_iter()
        .map(|case| (case["id"].clone(), case["raw"].clone(), case["decode"].clone()));
    let public = load("public.jsonl")
        .into_iter()
        .map(|case| (case["id"].clone(), case["text"].clone(), case["expect"].clone()));
    cases
        .chain(public)
        .filter(|(id, ..)| id != "wc-monarch-3759")
        .map(|(id, text, decode)| {
            (
                id.as_str().unwrap().to_owned(),
                text.as_str().unwrap().to_owned(),
                decode.as_object().unwrap().clone(),
            )
        })
        .filter(|(.., decode)| decode.keys().any(|part| text_parts.contains(&part.as_str())))
        .collect()
}

/// Every case mangled line by line says what it said.
fn all_survive(mangle: impl Fn(&str) -> String) {
    survive(lines(), mangle);
}

fn survive(cases: Vec<(String, String, Map<String, Value>)>, mangle: impl Fn(&str) -> String) {
    let mut problems = Vec::new();
    assert!(cases.len() > 80);
    for (id, text, expected) in cases {
        let mangled: Vec<String> = text.split('\n').map(&mangle).collect();
        problems.extend(check(&id, &records(&mangled.join("\n")), &expected));
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// Messages that mail has wrapped: whoever keeps a log has no hand in that.
const WRAPPED: [&str; 6] = [
    "cmd-set-roce-63c66",
    "ompi-btl-wrapped",
    "ompi-btl-length",
    "health-aborted-wrapped",
    "tx-timeout-wrapped",
    "cmd-timeout-wrapped",
];

#[test]
fn prefixes_of_logs_change_nothing() {
    for prefix in [
        "Nov 30 12:00:00 host01 kernel: ",
        "2026-10-03T05:56:38.123456-0400 host01 kernel: ",
        "[1,3]<stderr>:",
        "kern  :err   : [Mon Nov 30 14:35:44 2026] ",
        "node-7: | ",
    ] {
        let cases = lines().into_iter().filter(|(id, ..)| !WRAPPED.contains(&id.as_str())).collect();
        survive(cases, |line| format!("{prefix}{line}"));
    }
}

#[test]
fn quoting_indenting_and_line_ends_change_nothing() {
    all_survive(|line| format!("> {line}"));
    all_survive(|line| format!("> >> > {line}"));
    all_survive(|line| format!("\t    {line}"));
    all_survive(|line| format!("{line}\r"));
    all_survive(|line| format!("{line}   "));
}

/// A line folded at blanks, as mail does it.
fn folded(line: &str, width: usize, quote: &str) -> String {
    let (mut lines, mut last) = (Vec::new(), String::new());
    for word in line.split_inclusive(' ') {
        if !last.is_empty() && last.len() + word.trim_end().len() > width {
            lines.push(std::mem::take(&mut last).trim_end().to_owned());
        }
        last += word;
    }
    lines.push(last);
    lines.iter().map(|line| format!("{quote}{line}")).collect::<Vec<_>>().join("\n")
}

#[test]
fn wrapped_commands_and_completions_say_what_they_said() {
    let mut problems = Vec::new();
    for (id, text, expected) in lines() {
        // One message of the exact families: what is wrapped in others goes by their own rules.
        if text.contains('\n') || !expected.contains_key("commands") && !text.contains("Got completion") {
            continue;
        }
        for (width, quote) in [(100, ""), (76, ""), (72, "> "), (60, "> > ")] {
            let wrapped = folded(&text, width, quote);
            problems.extend(check(&format!("{id} at {width}"), &records(&wrapped), &expected));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn commands_cut_by_a_terminal_say_what_they_said() {
    let line = "mlx5_core 0000:d2:00.0: mlx5_cmd_out_err:838:(pid 1441871): ACCESS_REG(0x805) op_mod(0x1) failed, status bad operation(0x2), syndrome (0x305684), err(-22)";
    // The word by which the family is known has to be whole on the first line.
    for width in line.find("op_mod(").unwrap() + "op_mod(".len()..line.len() {
        let found = records(&format!("{}\n{}", &line[..width], &line[width..]));
        assert_eq!(found.len(), 1, "{width}");
        assert_eq!(found[0].parts["commands"][0]["fw_syndrome"], "0x305684", "{width}");
    }
}

#[test]
fn messages_glued_together_are_two() {
    let single: Vec<_> = lines().into_iter().filter(|(_, text, _)| !text.contains('\n')).collect();
    let commands = single.iter().filter(|(.., expected)| expected.contains_key("commands"));
    let mut n_pairs = 0;
    for (id, text, expected) in commands.clone() {
        for (other, next, next_expected) in commands.clone() {
            let found = records(&format!("{text}[145291.90] {next}"));
            let both: Vec<Value> = [expected, next_expected]
                .iter()
                .flat_map(|expected| expected["commands"].as_array().unwrap().clone())
                .collect();
            let mut wanted = Map::new();
            wanted.insert("commands".into(), Value::Array(both));
            let problems = check(&format!("{id} + {other}"), &found, &wanted);
            assert!(problems.is_empty(), "{}", problems.join("\n"));
            n_pairs += 1;
        }
    }
    assert!(n_pairs > 100);
}

#[test]
fn torn_text_is_no_reason_to_panic() {
    let mut random = fastrand::Rng::with_seed(7);
    let all: Vec<String> = lines().into_iter().map(|(_, text, _)| text).collect();
    for _ in 0..2000 {
        let mut bytes: Vec<u8> = all[random.usize(..all.len())].clone().into_bytes();
        for _ in 0..random.usize(1..8) {
            let at = random.usize(..bytes.len());
            match random.u8(..4) {
                0 => bytes[at] = random.u8(..),
                1 => bytes.truncate(at.max(1)),
                2 => bytes.insert(at, b'\n'),
                _ => {
                    let other = all[random.usize(..all.len())].as_bytes();
                    bytes.extend_from_slice(&other[..random.usize(..other.len())]);
                }
            }
        }
        records(&String::from_utf8_lossy(&bytes));
    }
}
