//! `--faults`: what goes wrong on purpose, and how it is told.

use super::*;
use std::{fs, path::PathBuf};

/// A file with a script.
fn script(name: &str, text: &str) -> String {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, text).expect("script");
    path.display().to_string()
}

#[test]
fn what_the_wire_does_is_repaired() {
    let script = script("weather.faults", "seed 3\npacket 2% drop # and repaired\npacket 2% duplicate 2\n");
    let run = mlx5(&format!("lat --op write --iters 200 --device model:ports=2 --faults {}", script));
    assert_eq!(run.code, Some(0), "{}", run.stderr);
}

#[test]
fn a_failure_tells_the_faults_that_happened() {
    let script = script("unplugged.faults", "time 400ms gone\n");
    let run = mlx5(&format!("bw --op write --iters 4000000 --timeout 2 --device model --faults {}", script));
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    assert!(run.stderr.ends_with("faults that happened:\ntime 400ms gone\n"), "{}", run.stderr);
}

#[test]
fn a_device_that_cannot_be_brought_up_tells_them_too() {
    let script = script("bring_up.faults", "command INIT_HCA 1 fail 0x1 0xabc\n");
    let run = mlx5(&format!("pingpong --device model --faults {script}"));
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    assert!(
        run.stderr.contains("INIT_HCA") && run.stderr.contains("faults that happened:"),
        "{}",
        run.stderr
    );
}

#[test]
fn a_failed_request_is_explained() {
    let script = script("failed.faults", "completion 5 fail REMOTE_ACCESS_ERR 0x88\n");
    let run = mlx5(&format!("lat --op write --iters 100 --device model --faults {}", script));
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    for part in ["REMOTE_ACCESS_ERR", "rkey", "RaddrSeg", "faults that happened:\ncompletion 5 fail"] {
        assert!(run.stderr.contains(part), "`{part}` in {}", run.stderr);
    }
}

#[test]
fn scripts_that_cannot_be_read_are_refused() {
    let script = script("broken.faults", "packet 1 drop\npacket 2 explode\n");
    for (faults, part) in [
        (script, "line 2"),
        ("seed:x".into(), "`x` is no seed"),
        ("/no/such/script".into(), "/no/such/script"),
    ] {
        for args in [format!("--device model --faults {faults}"), format!("--device model:faults={faults}")] {
            let run = mlx5(&format!("pingpong {args}"));
            assert_eq!(run.code, Some(2), "{}", run.stderr);
            assert!(run.stderr.contains(part), "{}", run.stderr);
        }
    }
    let run = mlx5("pingpong --device verbs:mlx5_0 --faults seed:1");
    assert!(run.code == Some(2) && run.stderr.contains("--faults"), "{}", run.stderr);
}
