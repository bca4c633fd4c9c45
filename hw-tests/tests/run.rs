//! The runner on the software ConnectX.

use serde_json::Value;
use std::{
    fs,
    io::{BufRead, BufReader, Read},
    path::PathBuf,
    process::{Command, Output, Stdio},
};

fn run(args: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } =
        Command::new(env!("CARGO_BIN_EXE_hw-tests")).args(args).output().expect("hw-tests");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn every_scenario_passes_on_two_ports() {
    for device in ["model:ports=2", "model:ports=2,bar=trapped,mtu=1024"] {
        let (code, table, errors) = run(&["--device", device]);
        assert_eq!((code, errors.as_str()), (Some(0), ""), "{table}");
        assert!(table.ends_with(" passed, 0 failed, 0 skipped\n"), "{table}");
    }
}

#[test]
fn what_one_port_cannot_do_is_skipped_with_its_reason() {
    let (code, table, _) = run(&["--device", "model", "--filter", "link", "--filter", "send_imm"]);
    assert_eq!(code, Some(0), "{table}");
    assert!(table.contains("skip") && table.contains("needs two functions"), "{table}");
    assert!(table.ends_with("1 passed, 0 failed, 1 skipped\n"), "{table}");
}

#[test]
fn a_device_or_scenario_that_is_missing_is_an_error() {
    for (args, message) in [
        (["--device", "vfio:0000:01:00"], "lspci -D"),
        (["--device", "model:ports=9"], "1 or 2"),
        (["--device", "model:drive=step"], "drive=thread"),
        (["--filter", "nothing_like_it"], "no scenario has"),
    ] {
        let (code, table, errors) = run(&args);
        assert_eq!((code, table.as_str()), (Some(2), ""), "{args:?}");
        assert!(errors.contains(message), "{args:?}: {errors}");
    }
}

/// A path for a result, and nothing there.
fn result(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("hw-tests-{}-{name}", std::process::id()));
    let _ = fs::remove_file(&path);
    path
}

#[test]
fn results_are_kept_drawn_and_compared() {
    let [json, html] = ["run.json", "run.html"].map(result);
    let [json_text, html_text] = [&json, &html].map(|path| path.to_str().expect("UTF-8").to_owned());
    let what = ["--filter", "send_imm", "--filter", "link", "--filter", "read_latency"];
    let (code, table, errors) =
        run(&[&["--device", "model", "--json", &json_text, "--html", &html_text], &what[..]].concat());
    assert_eq!((code, errors.as_str()), (Some(0), ""), "{table}");
    assert!(table.contains("p99.9"), "{table}");

    let mut kept: Value = serde_json::from_str(&fs::read_to_string(&json).expect("JSON")).expect("JSON");
    assert_eq!(kept["environment"]["devices"][0]["name"], "model:0");
    let rows = kept["scenarios"].as_array().expect("rows");
    let verdicts: Vec<_> = rows.iter().map(|row| (&row["name"], &row["verdict"])).collect();
    assert_eq!(verdicts.len(), 3);
    assert_eq!((verdicts[0].1.as_str(), verdicts[1].1.as_str()), (Some("skip"), Some("pass")));
    assert_eq!(rows[2]["latency"]["samples"], 2000);
    let quantiles = rows[2]["latency"]["quantiles"].as_array().expect("quantiles");
    let us: Vec<_> = quantiles.iter().map(|pair| pair[1].as_f64().expect("us")).collect();
    assert!(us.is_sorted() && us[0] > 0.0, "{us:?}");

    let page = fs::read_to_string(&html).expect("HTML");
    assert!(
        page.contains("<polyline") && page.contains("read_latency") && page.contains("needs two functions")
    );
    // It needs nothing from elsewhere.
    assert!(!page.contains("http") && !page.contains("<script"), "{page}");

    // The same run, and one in which a scenario failed.
    let (code, table, errors) = run(&["compare", &json_text, &json_text]);
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    assert!(table.contains("| `send_imm` | pass | pass |") && table.contains("(× 1.00)"), "{table}");
    kept["scenarios"][1]["verdict"] = "fail".into();
    kept["scenarios"][1]["why"] = "a reason | with a bar".into();
    let other = result("other.json");
    fs::write(&other, kept.to_string()).expect("write");
    let (code, table, _) = run(&["compare", &json_text, other.to_str().expect("UTF-8")]);
    assert_eq!(code, Some(1), "{table}");
    assert!(table.contains("| `send_imm` (differs) | pass | FAIL: a reason / with a bar |"), "{table}");

    fs::write(&other, "{}").expect("write");
    let (code, _, errors) = run(&["compare", &json_text, other.to_str().expect("UTF-8")]);
    assert_eq!(code, Some(2));
    assert!(errors.contains("not the results of a run: missing field"), "{errors}");
    for path in [json, html, other] {
        fs::remove_file(path).expect("remove");
    }
}

#[test]
fn two_cards_are_two_ends() {
    let (code, _, errors) = run(&["--device", "vfio:fffe:00:00.0", "--peer", "vfio:fffe:00:00.1"]);
    assert_eq!(code, Some(1));
    assert!(errors.contains("no PCI function fffe:00:00.0"), "{errors}");
}

#[test]
fn an_interrupted_run_ends_in_order() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_hw-tests"))
        .args(["--device", "model:ports=2", "--filter", "link", "--filter", "latency"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("hw-tests");
    let mut table = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    while !line.contains("link_down_and_up") {
        line.clear();
        assert_ne!(table.read_line(&mut line).expect("UTF-8"), 0, "no scenario ended");
    }
    let interrupt = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill");
    assert!(interrupt.success());
    let mut rest = String::new();
    table.read_to_string(&mut rest).expect("UTF-8");
    assert_eq!(child.wait().expect("wait").code(), Some(130), "{rest}");
    assert!(rest.contains("interrupted") && rest.contains(" skipped\n"), "{rest}");
}

#[test]
fn the_list_tells_what_is_asserted() {
    let (code, list, _) = run(&["--list", "--filter", "rnr"]);
    assert_eq!(code, Some(0));
    assert!(list.lines().count() == 2 && list.contains("rnr_retry 1"), "{list}");
}
