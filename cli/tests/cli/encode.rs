//! `mlx5 encode`: requests in, bytes out.

use crate::{Ended, command, wait};
use serde_json::Value;
use std::io::Write;

/// Runs `mlx5 encode` with arguments split at spaces and `text` on standard input.
fn encode(args: &str, text: &str) -> Ended {
    let args = format!("encode {args}");
    let mut child = command(&args).stdin(std::process::Stdio::piped()).spawn().expect("mlx5");
    let mut stdin = child.stdin.take().expect("a pipe");
    let text = text.to_owned();
    // Apart: the answers fill their pipe meanwhile.
    let writer = std::thread::spawn(move || _ = stdin.write_all(text.as_bytes()));
    let ended = wait(child, &args);
    writer.join().expect("the writer");
    ended
}

#[test]
fn a_request_is_shown_beside_its_bytes() {
    let ended = encode(
        "rdma-write --qpn 0x111 --wqe-index 5 --remote-addr 0x7f0000001000 --rkey 0x1234 --sge 0x7f0012340000:4096:0xc0de00 --signaled",
        "",
    );
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    for part in [
        "RC RDMA WRITE of 4,096 bytes, to 0x7f0000001000 with rkey 0x1234; signaled\n",
        "0x00  00000508 00011103 00000008 00000000",
        "0x20  00001000 00c0de00 00007f00 12340000",
        "[23:8 ] wqe_index                5",
        "3 segments (ds), 1 WQEBBs",
        "doorbell record: 00000006",
        "register: 64 bytes by BlueFlame",
    ] {
        assert!(ended.stdout.contains(part), "{part} in\n{}", ended.stdout);
    }
    let ended = encode("recv --sge 0x1000:64:7", "");
    assert!(ended.stdout.contains("receive word"), "{}", ended.stdout);
    let ended = encode("send --transport ud --ud remote_qpn=0x42,qkey=5,dlid=7,sl=0 --inline hello", "");
    assert!(
        ended.stdout.contains("UD SEND of 5 bytes, inline in the WQE, for QP 0x42 at LID 7"),
        "{}",
        ended.stdout
    );
    let ended = encode("rdma-write --rkey 1", "");
    assert_eq!(
        (ended.code, ended.stderr.contains("--remote-addr is missing")),
        (Some(2), true),
        "{}",
        ended.stderr
    );
}

#[test]
fn all_vectors_pass_through_the_command() {
    let vectors = include_str!("../../../tests/data/wqe-vectors.jsonl");
    let ended = encode("--json -", vectors);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    let mut ours = ended.stdout.lines();
    for theirs in vectors.lines() {
        let theirs: Value = serde_json::from_str(theirs).unwrap();
        let ours: Value = serde_json::from_str(ours.next().expect("a line for each")).unwrap();
        for name in ["id", "ds", "wqebbs", "record", "index", "stride"] {
            assert_eq!(ours.get(name), theirs.get(name), "{}", theirs["id"]);
        }
        for name in ["wqe", "register"] {
            let len = |line: &Value| line.get(name).and_then(Value::as_str).map(str::len);
            assert_eq!(len(&ours), len(&theirs), "{}", theirs["id"]);
        }
    }
    assert!(ours.next().is_none());
}

#[test]
fn a_refused_line_is_named_and_the_others_are_done() {
    let good = "{\"id\":7,\"kind\":\"recv\",\"qpn\":1,\"index\":0,\"stride\":16,\"sges\":[]}";
    let ended =
        encode("--json", &format!("{good}\nnonsense\n\n{{\"id\":\"b\",\"kind\":\"send\"}}\n{good}\n"));
    assert_eq!(ended.code, Some(1));
    let answer = "{\"id\":7,\"index\":0,\"stride\":16,\"wqe\":\"00000000000001000000000000000000\",\"record\":\"00000001\"}\n";
    assert_eq!(ended.stdout, answer.repeat(2));
    let mut lines = ended.stderr.lines();
    assert!(lines.next().unwrap().starts_with("line 2: is no JSON"));
    assert_eq!(lines.next(), Some("line 4 (id \"b\"): transport is missing: a text"));
}
