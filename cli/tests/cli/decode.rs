//! `mlx5 decode`: text in, records out.

use crate::{DEADLINE, Ended, command, mlx5, wait};
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    path::PathBuf,
    sync::mpsc,
    thread,
};

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

/// A file for the time of a test.
struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("mlx5-decode-{}-{name}", std::process::id()));
        fs::write(&path, text).expect("a file");
        Self(path)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn of_several_files_each_record_is_told_with_its_own() {
    let (a, b) = (File::new("a", LIBMLX5), File::new("b", &format!("hello\n{LIBMLX5}")));
    let (a, b) = (a.0.display(), b.0.display());
    let one = mlx5(&format!("decode {a}"));
    assert_eq!((one.code, one.stdout.lines().next()), (Some(0), Some("lines 1-5: libmlx5 dump")));
    let both = mlx5(&format!("decode {a} {b}"));
    assert_eq!(both.code, Some(0));
    for told in [format!("{a} lines 1-5: libmlx5 dump"), format!("{b} lines 2-6: libmlx5 dump")] {
        assert!(both.stdout.lines().any(|line| line == told), "{told}: {}", both.stdout);
    }
    assert!(both.stdout.contains("\n2 records:\n"), "{}", both.stdout);
    let json = mlx5(&format!("decode --json {b} {a}"));
    let files: Vec<serde_json::Value> = json
        .stdout
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON")["file"].take())
        .collect();
    assert_eq!(files, [b.to_string(), a.to_string()]);
    let mixed = decode(&format!("- {a}"), LIBMLX5.as_bytes());
    assert!(mixed.stdout.starts_with("- lines 1-5: libmlx5 dump\n"), "{}", mixed.stdout);
    assert!(mixed.stdout.contains(&format!("\n{a} lines 1-5: libmlx5 dump\n")), "{}", mixed.stdout);
}

#[test]
fn whoever_reads_only_the_first_line_gets_it() {
    let args = "decode -";
    let mut child = command(args).stdin(std::process::Stdio::piped()).spawn().expect("mlx5");
    let mut stdin = child.stdin.take().expect("a pipe");
    let feeder = thread::spawn(move || {
        // More than the pipes hold; it stops when the command has ended.
        let text = LIBMLX5.repeat(100);
        while stdin.write_all(text.as_bytes()).is_ok() {}
    });
    let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut first = String::new();
    stdout.read_line(&mut first).expect("a line");
    assert_eq!(first, "lines 1-5: libmlx5 dump\n");
    drop(stdout);
    let ended = wait(child, args);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    feeder.join().expect("the feeder");
}

#[test]
fn a_record_appears_while_the_log_is_still_open() {
    let mut child = command("decode").stdin(std::process::Stdio::piped()).spawn().expect("mlx5");
    let mut stdin = child.stdin.take().expect("a pipe");
    let mut stdout = child.stdout.take().expect("a pipe");
    let (sender, pieces) = mpsc::channel();
    let reader = thread::spawn(move || {
        let mut piece = [0; 4096];
        while let Ok(n @ 1..) = stdout.read(&mut piece) {
            let _ = sender.send(String::from_utf8_lossy(&piece[..n]).into_owned());
        }
    });
    for first in ["lines 1-5: libmlx5 dump", "lines 6-10: libmlx5 dump"] {
        stdin.write_all(LIBMLX5.as_bytes()).expect("a reader");
        let mut seen = String::new();
        while !seen.contains(first) {
            seen += &pieces.recv_timeout(DEADLINE).expect("a record before the end of the text");
        }
    }
    drop(stdin);
    assert_eq!(wait(child, "decode").code, Some(0));
    reader.join().expect("the reader");
}

#[test]
fn a_receive_request_is_read_as_what_it_is_said_to_be() {
    let own = "00001000 0000ab12 00007f12 34567000\n";
    let ended = decode("--as recv", own.as_bytes());
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stdout.contains("receive request of 4,096 bytes"), "{}", ended.stdout);
    let shared = format!("00000007 00000000 00000000 00000000\n{own}00000000 00000100 00000000 00000000\n");
    let ended = decode("--as srq --json", shared.as_bytes());
    let record: serde_json::Value = serde_json::from_str(&ended.stdout).expect("a record");
    let wqe = &record["wqe"][0];
    assert_eq!(wqe["data"][0]["lkey"], "0x0000ab12", "{wqe}");
    assert!(wqe["srq_next"].is_object(), "{wqe}");
}
