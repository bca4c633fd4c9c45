//! `mlx5 diff`: exit codes, what is told, and what is not understood.

use super::{Ended, mlx5, ok};
use serde_json::Value;
use std::{fs, path::PathBuf, process};

/// Two READs: of 64 and of 128 bytes.
const READ_64: &str =
    "00000010000100030000000800000000 00000000bbbb00000004000200000000 0000004000040001 00000000aaaa0000";
const READ_128: &str =
    "00000010000100030000000800000000 00000000bbbb00000004000200000000 0000008000040001 00000000aaaa0000";
/// A SEND of two pieces, and of the second of them.
const TWO_PIECES: &str =
    "0000000a000100030000000800000000000000100004000100000000aaaa0000000000200004000100000000aaaa1000";
const ONE_PIECE: &str = "0000000a000100020000000800000000000000200004000100000000aaaa1000";

/// A file of this test's own, with `text` in it.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str, text: impl AsRef<[u8]>) -> Self {
        let path = std::env::temp_dir().join(format!("mlx5-diff-{}-{name}", process::id()));
        fs::write(&path, text).expect("file");
        Self(path)
    }

    fn name(&self) -> String {
        self.0.display().to_string()
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn plain(hex: &str) -> String {
    hex.split_whitespace().collect()
}

fn differs(args: &str) -> String {
    let Ended { code, stdout, stderr } = mlx5(&format!("diff {args}"));
    assert_eq!((code, stderr.as_str()), (Some(1), ""), "{args}: {stdout}");
    stdout
}

#[test]
fn wqes_field_by_field() {
    let [a, b] = [READ_64, READ_128].map(plain);
    assert_eq!(ok(&format!("diff {a} {a}")), "equal\n");
    let text = differs(&format!("{a} {b}"));
    assert_eq!(
        text,
        "data segment (wqe_data_seg) at 0x20\n  +0x00 [30:0 ] byte_count               A 0x40 (64)   B 0x80 (128)\n"
    );
    assert_eq!(ok(&format!("diff {a} {b} --ignore byte_count")), "equal\n");
    assert!(differs(&format!("{a} {b} --all")).contains("control segment (wqe_ctrl_seg) at 0x00: equal\n"));
    let json: Value = serde_json::from_str(&differs(&format!("{a} {b} --json"))).expect("JSON");
    let field = &json["structures"][0]["fields"][0];
    assert_eq!(
        (&json["equal"], &field["name"], &field["bits"]),
        (&false.into(), &"byte_count".into(), &[30, 0].as_slice().into())
    );
}

#[test]
fn segments_are_aligned() {
    let text = differs(&format!("{TWO_PIECES} {ONE_PIECE}"));
    assert!(text.contains("data segment 1 (wqe_data_seg) at 0x10, only in A\n"), "{text}");
    assert!(
        text.contains("ds                       A 3   B 2\n")
            && !text.contains("byte_count               A 0x20"),
        "{text}"
    );
}

#[test]
fn dumps_in_files_and_other_structures() {
    let dump = "00000000: 00 00 00 10 00 01 00 03 00 00 00 08 00 00 00 00\n00000010: 00 00 00 00 bb bb 00 00 00 04 00 02 00 00 00 00\n\
                00000020: 00 00 00 40 00 04 00 01 00 00 00 00 aa aa 00 00\n";
    let (text, binary) = (Temporary::new("text", dump), Temporary::new("binary", [0xff; 64]));
    assert_eq!(ok(&format!("diff {} {}", text.name(), plain(READ_64))), "equal\n");
    assert_eq!(ok(&format!("diff {0} {0} --as cqe", binary.name())), "equal\n");
    let cqe = format!("{}0000004000000000 05f5e100100001000000 0000", "00".repeat(44));
    let other = cqe.replace("00000040", "00000080");
    let told = differs(&format!("{} {} --as cqe", plain(&cqe), plain(&other)));
    assert!(told.contains("byte_cnt                 A 0x40 (64)   B 0x80 (128)"), "{told}");
}

#[test]
fn traces_event_by_event() {
    let files: Vec<_> = ["a", "b", "pcap"].iter().map(|name| Temporary::new(name, "")).collect();
    let [a, b, pcap] = &files[..] else { unreachable!() };
    ok(&format!("pingpong --iters 2 --size 64 --trace {} --pcap {}", a.name(), pcap.name()));
    let text = fs::read_to_string(&a.0).expect("trace");
    // The same events, but for one field of the first WQE, and without the first event.
    let (_, rest) = text.split_at(text[1..].find("\n[").expect("a second event") + 2);
    let at =
        rest.find("SendWqe").and_then(|at| Some(at + rest[at..].find("00000000: ")? + 10)).expect("a WQE");
    let mut changed = rest.to_string();
    changed.replace_range(at + 24..at + 26, "ff");
    fs::write(&b.0, changed).expect("file");

    for same in [a, pcap] {
        let told = ok(&format!("diff {0} {0}", same.name()));
        assert!(told.ends_with(": 0 different, or on one side only\n"), "{told}");
    }
    let told = differs(&format!("{} {}", a.name(), b.name()));
    assert!(told.starts_with("the first difference:\nonly in A, event 0: "), "{told}");
    assert!(
        told.contains("SendWqe") && told.contains("signature                A 0   B 0xff (255)\n"),
        "{told}"
    );
    assert!(told.ends_with(": 2 different, or on one side only\n"), "{told}");
}

#[test]
fn what_is_not_understood_has_a_code_of_its_own() {
    for (args, why) in [
        ("/nowhere/at/all 00", "A: /nowhere/at/all: "),
        ("00 00", "look like no WQE"),
        ("000000 000000 --as cqe", "a CQE has 64 or 128 bytes, and 3 are there"),
        ("- -", "standard input is there once only"),
        ("zz zz", "no hexadecimal"),
    ] {
        let ended = mlx5(&format!("diff {args}"));
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{args}: {}", ended.stderr);
        assert!(ended.stderr.contains(why), "{args}: {}", ended.stderr);
    }
}
