//! `mlx5 decode`: text in, records out.

use crate::{Ended, command, wait};
use std::io::Write;

/// Runs `mlx5 decode` with arguments split at spaces and `text` on standard input.
fn decode(args: &str, text: &[u8]) -> Ended {
    let args = format!("decode {args}");
    let mut child = command(&args).stdin(std::process::Stdio::piped()).spawn().expect("mlx5");
    let mut stdin = child.stdin.take().expect("a pipe");
    // The command may end before it has read everything.
    let _ = stdin.write_all(text);
    drop(stdin);
    wait(child, &args)
}

const LIBMLX5: &str = "\
mlx5: host01: got completion with error:
00000000 00000000 00000000 00000000
00000000 00000000 00000000 00000000
00000000 00000000 00000000 00000000
00000000 00008813 08006214 0000f6d2
";

#[test]
fn a_dump_is_told_in_a_sentence_and_field_by_field() {
    let ended = decode("", LIBMLX5.as_bytes());
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    let mut lines = ended.stdout.lines();
    assert_eq!(lines.next(), Some("lines 1-5: libmlx5 dump"));
    let sentence = lines.next().unwrap();
    assert!(sentence.contains("RDMA_WRITE") && sentence.contains("REMOTE_ACCESS_ERR"), "{sentence}");
    assert!(ended.stdout.contains("+0x38 [23:0 ] qpn                      0x6214"), "{}", ended.stdout);
    assert!(ended.stdout.contains("reported cause: "), "{}", ended.stdout);
}

#[test]
fn json_is_an_object_a_record() {
    let ended = decode("--json", LIBMLX5.repeat(2).as_bytes());
    let records: Vec<serde_json::Value> =
        ended.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(records.len(), 2);
    assert_eq!(records[1]["lines"], serde_json::json!([6, 10]));
    assert_eq!(records[1]["cqe"][0]["ibv_wc_status"], "IBV_WC_REM_ACCESS_ERR");
}

#[test]
fn nothing_recognised_is_exit_code_1_with_a_hint() {
    for text in [&b"hello\nworld\n"[..], b"", b"\0\0\xff\xfe\r\n"] {
        let ended = decode("", text);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""));
        assert!(ended.stderr.contains("--as wqe"), "{}", ended.stderr);
    }
    let ended = decode("/nowhere/at/all", b"");
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("cannot read /nowhere/at/all"), "{}", ended.stderr);
}
