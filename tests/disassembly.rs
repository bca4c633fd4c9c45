//! What post and poll are made of, in machine code: a release build of `examples/hot_path.rs`, disassembled, and
//! run step by step.
//!
//! No call, so no allocation, lock, formatter or panic; no locked instruction; fences exactly as
//! `docs/ordering.md` counts them. Calls are allowed in one place: once poll has seen that a
//! completion is no plain success. No operation executes more instructions than its bound.
#![cfg(target_arch = "x86_64")]

use std::{collections::BTreeMap, path::PathBuf, process::Command, sync::OnceLock};

/// Instructions by function.
type Listing = BTreeMap<String, Vec<String>>;

fn run(command: &mut Command) -> String {
    let output = command.output().expect("a program that runs");
    assert!(output.status.success(), "{command:?}:\n{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// The example, built as a release.
fn program() -> PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(build).clone()
}

/// The libraries by cargo, the example by rustc: cargo would build the model first, for the tests' sake.
fn build() -> PathBuf {
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).parent().expect("target").to_owned();
    let messages = run(Command::new(env!("CARGO"))
        .args(["build", "--release", "--quiet", "--message-format=json", "--package", "mlx5-direct", "--lib"])
        .arg("--target-dir")
        .arg(&target)
        .env_remove("RUSTFLAGS"));
    let libraries: Vec<serde_json::Value> =
        messages.lines().map(|line| serde_json::from_str(line).expect("a message")).collect();
    let library = |name: &str| {
        let files =
            libraries.iter().filter(|m| m["target"]["name"] == name).flat_map(|m| m["filenames"].as_array());
        let mut files = files.flatten().filter_map(|file| file.as_str());
        format!("--extern={name}={}", files.find(|file| file.ends_with(".rlib")).expect("a library"))
    };
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("hot_path");
    run(Command::new(std::env::var_os("RUSTC").unwrap_or("rustc".into()))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["--edition=2024", "-Copt-level=3", "--cap-lints=allow", "examples/hot_path.rs", "-o"])
        .arg(&program)
        .args([library("mlx5_direct"), library("libc")])
        .arg(format!("-Ldependency={}", target.join("release/deps").display())));
    program
}

fn disassemble() -> Option<Listing> {
    if Command::new("objdump").arg("--version").output().is_err() {
        println!("skipped: objdump is not installed (Debian package binutils)");
        return None;
    }
    let output = run(Command::new("objdump")
        .args(["--disassemble", "--no-show-raw-insn", "--demangle"])
        .arg(program()));
    let mut listing = Listing::new();
    let mut current = None;
    for line in output.lines() {
        if let Some(name) = line.strip_suffix(">:").and_then(|l| l.split_once('<')).map(|(_, name)| name) {
            current = (name.starts_with("hot_") || is_cold(name)).then(|| name.to_owned());
        } else if let (Some(name), Some((_, instruction))) = (&current, line.split_once(":\t")) {
            listing.entry(name.clone()).or_default().push(instruction.trim().to_owned());
        }
    }
    Some(listing)
}

/// What is called once a completion is seen to be no plain success.
fn is_cold(name: &str) -> bool {
    ["::read_error", "::retire_unusual", "::other_queue", "::failed_send", "::failed_recv"]
        .iter()
        .any(|cold| name.contains(cold))
}

fn mnemonic(instruction: &str) -> &str {
    instruction.split_whitespace().next().unwrap_or("")
}

/// Places that run code elsewhere: calls, and jumps out of the function or through a register.
fn leaves(name: &str, instructions: &[String]) -> Vec<String> {
    let inside = format!("<{name}");
    instructions
        .iter()
        .filter(|i| {
            let op = mnemonic(i);
            op.starts_with("call") || op.starts_with('j') && !i.contains(&inside)
        })
        .cloned()
        .collect()
}

#[test]
fn post_and_poll_call_nothing_and_fence_as_designed() {
    let Some(listing) = disassemble() else { return };
    // Fences that stand in the code. A post with a known single WQE has both forms of the doorbell:
    // BlueFlame (one sfence) and the 8-byte store (one before and one after, on write-combining memory).
    let designed = [
        ("hot_write_inline_8", 3),
        ("hot_send_inline_64", 3),
        ("hot_send_inline_any", 3),
        ("hot_send_datagram_64", 3),
        ("hot_send_sge", 3),
        ("hot_read", 3),
        ("hot_fetch_add", 3),
        ("hot_send_batch_16", 3),
        ("hot_send_batch_64", 3),
        ("hot_send_message", 3),
        ("hot_write_batch_16", 3),
        ("hot_write_batch_64", 3),
        ("hot_recv", 0),
        ("hot_recv_batch_16", 0),
        ("hot_poll_one", 0),
        ("hot_poll_recv_one", 0),
        ("hot_poll", 0),
        ("hot_poll_recv", 0),
        ("hot_poll_empty", 0),
    ];
    for (name, n_fences) in designed {
        let code = listing.get(name).unwrap_or_else(|| panic!("{name} is not in the program"));
        let count = |what: &str| code.iter().filter(|i| mnemonic(i) == what).count();
        for serializing in ["lfence", "mfence", "lock", "cpuid", "serialize"] {
            assert_eq!(count(serializing), 0, "{name}: {serializing}\n{}", code.join("\n"));
        }
        assert!(!code.iter().any(|i| mnemonic(i) == "xchg" && i.contains('(')), "{name}: an implicit lock");
        assert_eq!(count("sfence"), n_fences, "{name}:\n{}", code.join("\n"));
        let leaves = leaves(name, code);
        let allowed = |i: &String| name.starts_with("hot_poll") && is_cold(i);
        let forbidden: Vec<_> = leaves.iter().filter(|i| !allowed(i)).collect();
        assert!(forbidden.is_empty(), "{name} calls: {forbidden:#?}");
        println!(
            "{name:<22} {:>4} instructions, {n_fences} sfence, {} cold call(s)",
            code.len(),
            leaves.len()
        );
    }
    for (name, code) in listing.iter().filter(|(name, _)| is_cold(name)) {
        let leaves = leaves(name, code);
        assert!(leaves.iter().all(|i| is_cold(i)), "{name} calls {leaves:#?}");
    }
}

/// Most instructions that an operation may execute, per request or completion, and its store fences per call; and
/// what is aimed at, where it is not reached yet. With some room above what is counted today, for compilers differ.
const BOUNDS: [(&str, f64, u32, Option<f64>); 21] = [
    ("post 8 B inline write", 72.0, 1, None),
    ("post 64 B inline send", 100.0, 1, None),
    ("post 64 B, length unknown", 155.0, 1, None),
    ("post SEND", 85.0, 1, None),
    ("post READ", 85.0, 1, None),
    ("post FAA", 85.0, 1, None),
    ("post 8 B inline write x16", 44.0, 2, Some(40.0)),
    ("post 8 B inline write x64", 40.0, 2, None),
    ("post SEND x16", 57.0, 2, Some(40.0)),
    ("post SEND x64", 54.0, 2, Some(40.0)),
    ("post 17 B message", 80.0, 1, None),
    ("post_recv", 46.0, 0, None),
    ("post_recv x16", 37.0, 0, None),
    ("poll 1", 45.0, 0, None),
    ("poll 1 receive", 45.0, 0, None),
    ("poll 1 in a list", 82.0, 0, None),
    ("poll 16", 45.0, 0, None),
    ("poll 16 receives", 45.0, 0, None),
    ("poll empty", 12.0, 0, None),
    ("poll 16 of 16 QPs", 55.0, 0, None),
    ("poll 16 of 10000 QPs", 55.0, 0, None),
];

#[test]
fn no_operation_passes_its_bound() {
    let counted = run(&mut Command::new(program()));
    let counted: BTreeMap<&str, &str> = counted.lines().filter_map(|line| line.split_once(": ")).collect();
    assert_eq!(counted.len(), BOUNDS.len(), "{counted:?}");
    // How many queue pairs there are costs nothing.
    assert_eq!(counted.get("poll 16 of 16 QPs"), counted.get("poll 16 of 10000 QPs"));
    for (name, most, sfences, target) in BOUNDS {
        let numbers = counted.get(name).unwrap_or_else(|| panic!("{name} is not in the program"));
        let numbers: Result<Vec<u32>, _> = numbers.split(' ').map(str::parse).collect();
        let Ok(numbers) = numbers else { return println!("skipped: the system does not allow tracing") };
        let [n, instructions, their_sfences, load_fences, locks] = numbers[..] else { panic!("{numbers:?}") };
        let instructions = f64::from(instructions) / f64::from(n);
        assert!(instructions <= most, "{name}: {instructions} instructions a request, no more than {most}");
        assert_eq!(
            (their_sfences, load_fences, locks),
            (sfences, 0, 0),
            "{name}: sfence, lfence and mfence, locks"
        );
        let aim = target.map_or(String::new(), |target| format!(", aimed at {target}"));
        println!("{name:<26} {instructions:>6.1} instructions, no more than {most}{aim}");
    }
}
