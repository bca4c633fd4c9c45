//! What post and poll are made of, in machine code: a release build of `examples/hot_path.rs`, disassembled.
//!
//! No call, so no allocation, lock, formatter or panic; no locked instruction; fences exactly as
//! `docs/ordering.md` counts them. Calls are allowed in one place: to read an error completion, once poll has
//! seen that it is one.
#![cfg(target_arch = "x86_64")]

use std::{collections::BTreeMap, path::PathBuf, process::Command};

/// Instructions by function.
type Listing = BTreeMap<String, Vec<String>>;

fn run(command: &mut Command) {
    let output = command.output().expect("a compiler");
    assert!(output.status.success(), "{command:?}:\n{}", String::from_utf8_lossy(&output.stderr));
}

fn disassemble() -> Option<Listing> {
    if Command::new("objdump").arg("--version").output().is_err() {
        println!("skipped: objdump is not installed (Debian package binutils)");
        return None;
    }
    // The library by cargo, the example by rustc: cargo would build the model first, for the tests' sake.
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).parent().expect("target").to_owned();
    let release = target.join("release");
    run(Command::new(env!("CARGO"))
        .args(["build", "--release", "--quiet", "--package", "mlx5-direct", "--lib", "--target-dir"])
        .arg(&target)
        .env_remove("RUSTFLAGS"));
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("hot_path");
    run(Command::new(std::env::var_os("RUSTC").unwrap_or("rustc".into()))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["--edition=2024", "-Copt-level=3", "--cap-lints=allow", "examples/hot_path.rs", "-o"])
        .arg(&program)
        .arg(format!("--extern=mlx5_direct={}", release.join("libmlx5_direct.rlib").display()))
        .arg(format!("-Ldependency={}", release.join("deps").display())));
    let output = Command::new("objdump")
        .args(["--disassemble", "--no-show-raw-insn", "--demangle"])
        .arg(program)
        .output()
        .expect("objdump");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut listing = Listing::new();
    let mut current = None;
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        if let Some(name) = line.strip_suffix(">:").and_then(|l| l.split_once('<')).map(|(_, name)| name) {
            current = (name.starts_with("hot_") || name.contains("::read_error")).then(|| name.to_owned());
        } else if let (Some(name), Some((_, instruction))) = (&current, line.split_once(":\t")) {
            listing.entry(name.clone()).or_default().push(instruction.trim().to_owned());
        }
    }
    Some(listing)
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
        ("hot_send_sge", 3),
        ("hot_read", 3),
        ("hot_fetch_add", 3),
        ("hot_send_batch_16", 3),
        ("hot_recv", 0),
        ("hot_recv_batch_16", 0),
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
        let allowed = |i: &String| name.starts_with("hot_poll") && i.contains("read_error");
        let forbidden: Vec<_> = leaves.iter().filter(|i| !allowed(i)).collect();
        assert!(forbidden.is_empty(), "{name} calls: {forbidden:#?}");
        println!(
            "{name:<22} {:>4} instructions, {n_fences} sfence, {} cold call(s)",
            code.len(),
            leaves.len()
        );
    }
    for (name, code) in listing.iter().filter(|(name, _)| name.contains("::read_error")) {
        assert!(leaves(name, code).is_empty(), "{name} calls something");
    }
}
