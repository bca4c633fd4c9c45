//! The runner on the software ConnectX.

use std::process::{Command, Output};

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

#[test]
fn the_list_tells_what_is_asserted() {
    let (code, list, _) = run(&["--list", "--filter", "rnr"]);
    assert_eq!(code, Some(0));
    assert!(list.lines().count() == 2 && list.contains("rnr_retry 1"), "{list}");
}
