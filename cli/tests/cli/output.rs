//! What is printed beside results: `info`, `--explain`, and what happens when nobody reads it.

use crate::{command, mlx5, ok, wait};
use serde_json::Value;
use std::{fs::OpenOptions, process::Stdio};

#[test]
fn info_as_ibv_devinfo_names_it() {
    let text = ok("info --device model:ports=2,mtu=1024");
    let names = [
        "hca_id:",
        "transport:",
        "fw_ver:",
        "node_guid:",
        "sys_image_guid:",
        "vendor_id:",
        "vendor_part_id:",
        "hw_ver:",
        "board_id:",
        "phys_port_cnt:",
        "max_mr_size:",
        "page_size_cap:",
        "max_qp:",
        "max_qp_wr:",
        "max_sge:",
        "max_sge_rd:",
        "max_cq:",
        "max_cqe:",
        "max_mr:",
        "max_pd:",
        "max_qp_rd_atom:",
        "max_qp_init_rd_atom:",
        "atomic_cap:",
        "max_pkeys:",
        "local_ca_ack_delay:",
        "hca_core_clock:",
        "num_comp_vectors:",
        "port:",
        "state:",
        "max_mtu:",
        "active_mtu:",
        "port_lid:",
        "link_layer:",
        "max_msg_sz:",
        "pkey_tbl_len:",
        "gid_tbl_len:",
        "active_width:",
        "active_speed:",
        "phys_state:",
        "GID[  0]:",
        "GID[  1]:",
    ];
    // In this order, for each of the two functions.
    let mut rest = text.as_str();
    for name in names.iter().chain(&names) {
        let at = rest.find(name).unwrap_or_else(|| panic!("no {name} in its place:\n{text}"));
        rest = &rest[at + name.len()..];
    }
    assert!(
        text.contains("PORT_ACTIVE (4)") && text.contains("1024 (3)") && text.contains("RoCE v2"),
        "{text}"
    );
}

#[test]
fn info_as_json() {
    let json: Value = serde_json::from_str(&ok("info --json --device model:ports=2,part=cx6")).expect("JSON");
    assert_eq!(json.as_array().map(Vec::len), Some(2));
    for hca in json.as_array().expect("an array") {
        assert_eq!(hca["attr"]["vendor_part_id"], 0x101b);
        assert_eq!(hca["ports"][0]["attr"]["state"], "PORT_ACTIVE (4)");
        assert_eq!(hca["ports"][0]["gids"][1]["gid_type"], "RoCE v2");
    }
}

/// Checks that each of `parts` is in `text`, one after another.
fn in_order(text: &str, parts: &[&str]) {
    let mut rest = text;
    for part in parts {
        let at = rest.find(part).unwrap_or_else(|| panic!("no `{part}` in its place:\n{text}"));
        rest = &rest[at + part.len()..];
    }
}

#[test]
fn explain_shows_wqe_doorbell_and_cqes() {
    in_order(
        &ok("pingpong --iters 10 --explain"),
        &[
            "first WQE of a, 64 bytes:",
            "00000000: 00 00 00 0a ",
            "control segment, wqe_ctrl_seg",
            "+0x00 [ 7:0 ] opcode                   SEND (0xa)",
            "+0x04 [ 5:0 ] ds                       2",
            "data segment, wqe_data_seg",
            "byte_count               0x40 (64)",
            "record    0x00000001",
            "register  0x0000000a",
            "rung by BlueFlame: all 64 bytes",
            "first CQE of a send request, at a, cqe64_requester:",
            "send_wqe_opcode          SEND (0xa)",
            "first CQE of a receive request, at b, cqe64_responder_rdma:",
            "byte_cnt                 0x40 (64)",
            "opcode                   RESP_SEND (0x2)",
            "model: 0 violations",
        ],
    );
}

#[test]
fn explain_walks_the_segments_of_each_operation() {
    let cases: [(&str, &[&str]); 5] = [
        (
            "write --inline --size 9",
            &["RDMA_WRITE (0x8)", "wqe_raddr_seg", "wqe_inline_seg", "byte_count               9"],
        ),
        ("write-imm", &["RDMA_WRITE_IMM (0x9)", "wqe_raddr_seg", "wqe_data_seg", "RESP_WR_IMM (0x1)"]),
        (
            "read",
            &["RDMA_READ (0x10)", "wqe_raddr_seg", "wqe_data_seg", "at a, cqe64_requester", "RDMA_READ"],
        ),
        (
            "cas",
            &["ATOMIC_CS (0x11)", "wqe_raddr_seg", "wqe_atomic_seg", "swap_add", "compare", "wqe_data_seg"],
        ),
        ("faa", &["ATOMIC_FA (0x12)", "wqe_raddr_seg", "wqe_atomic_seg", "swap_add", "wqe_data_seg"]),
    ];
    for (op, parts) in cases {
        in_order(&ok(&format!("lat --iters 5 --explain --op {op}")), parts);
    }
    // A list of several: the doorbell names the last of them.
    in_order(
        &ok("bw --iters 8 --batch 4 --size 64 --explain"),
        &["record    0x00000004", "register  0x0000030a", "first 8 bytes of the last of 4 WQEs"],
    );
}

#[test]
fn a_seed_gives_the_same_bytes_again() {
    let wqe = |seed: u32| {
        let text = ok(&format!("lat --iters 2 --op send --inline --size 40 --explain --seed {seed}"));
        text.lines().filter(|line| line.starts_with("000000")).take(4).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(wqe(1), wqe(1));
    assert_ne!(wqe(1), wqe(2));
}

#[test]
fn a_reader_that_went_away_is_no_failure() {
    for args in [
        "info",
        "pingpong --iters 10 --explain",
        "lat --iters 10 --size 1..64",
        "bw --json --iters 10",
        "--help",
    ] {
        let mut child = command(args).spawn().expect("spawn");
        drop(child.stdout.take());
        let ended = wait(child, args);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "mlx5 {args}");
    }
}

#[test]
fn output_that_cannot_be_written_is_a_failure() {
    let full = OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
    let args = "lat --iters 10";
    let ended = wait(command(args).stdout(Stdio::from(full)).spawn().expect("spawn"), args);
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.starts_with("error: cannot write to standard output: "), "{}", ended.stderr);
}

#[test]
fn nobody_need_read_the_errors() {
    let args = "lat --op read --inline";
    let mut child = command(args).spawn().expect("spawn");
    drop(child.stderr.take());
    assert_eq!(wait(child, args).code, Some(2));
}

#[test]
fn help_and_version() {
    for args in ["--help", "help", "lat --help", "bw -h", "info --help", "pingpong --help"] {
        assert!(ok(args).contains("Usage: mlx5"), "{args}");
    }
    assert!(ok("--version").starts_with("mlx5 "));
    let bare = mlx5("");
    assert_eq!(bare.code, Some(2));
    assert!(bare.stderr.contains("pingpong"), "{bare:?}");
}

/// The doctor opens the device, and tells how its queue pairs ring.
#[test]
fn doctor_of_the_software_card() {
    let with = ok("doctor --device model");
    assert!(with.contains("is active: 100 Gb/s") && with.contains("with BlueFlame for requests"), "{with}");
    let without = ok("doctor --device model:bf=off");
    assert!(without.contains("no BlueFlame registers of their own"), "{without}");
}
