//! `--trace` and `--pcap`: what the card saw, and what others read in it.

use super::{mlx5, ok};
use std::{
    fs,
    path::PathBuf,
    process::{self, Command},
};

fn scratch(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("mlx5-{}-{name}", process::id()))
}

#[test]
fn the_trace_has_all_that_the_card_saw() {
    let path = scratch("trace.txt");
    ok(&format!("lat --op cas --iters 3 --trace {}", path.display()));
    let text = fs::read_to_string(&path).expect("trace");
    fs::remove_file(&path).expect("trace");
    for part in
        ["ENABLE_HCA", "CREATE_QP", "Doorbell:", "Wqe:", "Cqe:", "Packet:", "TEARDOWN_HCA", "00000000: "]
    {
        assert!(text.contains(part), "the trace has no `{part}`");
    }
}

#[test]
fn tshark_reads_the_packets_and_finds_none_malformed() {
    let path = scratch("packets.pcap");
    let roce = ["--op send --size 10000", "--op read --size 5000", "--op faa", "--op write-imm --size 0"]
        .map(|options| (options, "ports=2", "eth:ethertype:ipv6:udp:infiniband"));
    let infiniband =
        ["--op send --size 10000", "--op cas"].map(|options| (options, "ports=2,link=ib", "erf:infiniband"));
    for (options, card, protocols) in roce.into_iter().chain(infiniband) {
        let args = format!("lat {options} --iters 10 --device model:{card} --pcap {}", path.display());
        ok(&args);
        let bytes = fs::read(&path).expect("pcap");
        assert_eq!(bytes[..4], 0xa1b2_3c4d_u32.to_le_bytes(), "pcap with nanoseconds");
        let mut tshark = Command::new("tshark");
        tshark.arg("-r").arg(&path).args(["-T", "fields", "-e", "frame.protocols", "-e", "_ws.malformed"]);
        let Ok(read) = tshark.output() else {
            println!("skipped: tshark_reads_the_packets: tshark is not installed");
            break;
        };
        let text = String::from_utf8(read.stdout).expect("UTF-8");
        assert!(text.lines().count() >= 20, "{args}: {text}");
        for line in text.lines() {
            assert!(line.starts_with(protocols), "{args}: {line}");
            assert!(!line.to_lowercase().contains("malformed"), "{args}: {line}");
        }
    }
    fs::remove_file(&path).expect("pcap");
}

#[test]
fn a_file_that_cannot_be_written_is_named() {
    let ended = mlx5("pingpong --iters 1 --pcap /nowhere/x.pcap");
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("/nowhere/x.pcap: No such file"), "{}", ended.stderr);
}
