//! `mlx5 tour`: what it tells is what happened, and the same each time.

use super::{mlx5, ok};
use serde_json::Value;

/// The tours that are told in docs/prm-notes, and more.
const TOURS: [&str; 9] = [
    "read",
    "write",
    "send",
    "atomic",
    "error",
    "write --posts 3 --unsignaled",
    "write --inline --imm 0x12345678",
    "send --posts 2 --inline --imm 7 --unsignaled",
    "read --size 3000 --mtu 1024 --posts 2",
];

fn tour(args: &str) -> Value {
    serde_json::from_str(&ok(&format!("tour {args} --json"))).expect("JSON")
}

/// All dumps whose title contains `name`, as their structures and their bytes.
fn dumps<'a>(page: &'a Value, name: &str) -> Vec<&'a Value> {
    let list = |value: &'a Value| value.as_array().map(Vec::as_slice).unwrap_or_default();
    let parts = list(&page["steps"]).iter().flat_map(|step| list(&step["parts"]));
    parts.filter(|part| part["bytes"].as_str().is_some_and(|title| title.contains(name))).collect()
}

/// A field's value, as it is told.
fn field<'a>(dump: &'a Value, name: &str) -> &'a str {
    let structures = dump["structures"].as_array().expect("structures");
    let fields = structures.iter().flat_map(|one| one["fields"].as_array().expect("fields"));
    let mut named = fields.filter(|field| field["name"] == name);
    named.next().and_then(|field| field["value"].as_str()).unwrap_or_else(|| panic!("no {name} in {dump}"))
}

#[test]
fn the_same_each_time() {
    for args in TOURS {
        let args = format!("tour {args}");
        let text = ok(&args);
        assert_eq!(text, ok(&args), "{args}");
        let longest = text.lines().map(|line| line.chars().count()).max();
        assert!(longest < Some(130) && text.lines().all(|line| line.trim_end() == line), "{args}");
    }
}

#[test]
fn a_read_is_for_the_asker_alone() {
    let page = tour("read");
    let [wqe] = dumps(&page, "WQE")[..] else { panic!("{page}") };
    assert_eq!(field(wqe, "opcode"), "RDMA_READ (0x10)");
    let ring = dumps(&page, "BlueFlame register");
    assert_eq!(ring[0]["hex"], wqe["hex"]);
    assert_eq!(dumps(&page, "send counter")[0]["hex"], "00000001");
    let packets: Vec<_> = dumps(&page, "packet ").iter().map(|packet| field(packet, "opcode")).collect();
    assert_eq!(packets, ["RC RDMA READ request (0x0c)", "RC RDMA READ response only (0x10)"]);
    assert_eq!(dumps(&page, "CQE 0 of A").len(), 1);
    assert_eq!(dumps(&page, " of B").len(), 0);
    let [before, after] = dumps(&page, "the same, after")
        .iter()
        .chain(&dumps(&page, "before"))
        .map(|dump| &dump["hex"])
        .collect::<Vec<_>>()[..]
    else {
        panic!("{page}")
    };
    assert_ne!(before, after);
}

#[test]
fn unsignalled_requests_make_no_cqe() {
    let page = tour("write --posts 3 --unsignaled");
    let cqes = dumps(&page, "CQE ");
    assert_eq!((cqes.len(), field(cqes[0], "wqe_counter")), (1, "2"));
    // One doorbell of 8 bytes, which are the last WQE's first.
    let ring = dumps(&page, "doorbell register")[0]["hex"].as_str().expect("hex");
    assert!(
        ring.len() == 16 && dumps(&page, "WQE 2")[0]["hex"].as_str().is_some_and(|wqe| wqe.starts_with(ring))
    );
    assert_eq!(dumps(&page, "send counter")[0]["hex"], "00000003");
    assert_eq!(dumps(&tour("write --unsignaled"), "CQE ").len(), 0);
    assert_eq!(dumps(&tour("write --posts 3"), "CQE ").len(), 3);
}

#[test]
fn an_immediate_makes_a_cqe_at_the_other_end() {
    let page = tour("write --inline --imm 0x12345678");
    let [cqe] = dumps(&page, "CQE 0 of B")[..] else { panic!("{page}") };
    assert!(field(cqe, "imm_inval_pkey").starts_with("0x12345678"), "{cqe}");
    assert_eq!(field(cqe, "opcode"), "RESP_WR_IMM (0x1)");
    assert_eq!(field(dumps(&page, "packet 1")[0], "imm"), "0x12345678");
    assert_eq!(dumps(&tour("write"), "of B").len(), 0);
}

#[test]
fn a_send_uses_up_a_receive() {
    let page = tour("send --posts 2");
    assert_eq!(dumps(&page, "receive counter")[0]["hex"], "00000002");
    let counters: Vec<_> = dumps(&page, "of B").iter().map(|cqe| field(cqe, "wqe_counter")).collect();
    assert_eq!(counters, ["0", "1"]);
    assert!(field(dumps(&page, "took up last")[0], "addr").starts_with("0xbbbb0100"));
}

#[test]
fn a_long_read_is_answered_in_packets() {
    let page = tour("read --size 3000 --mtu 1024 --posts 2");
    let names: Vec<_> = dumps(&page, "packet ").iter().map(|packet| field(packet, "opcode")).collect();
    assert_eq!(names[0], "RC RDMA READ request (0x0c)");
    let drawn = page.to_string();
    for name in
        ["response first", "response middle", "response last, PSN 0x1002, 952 bytes", "request, PSN 0x1003"]
    {
        assert!(drawn.contains(name), "{name}: {drawn}");
    }
}

#[test]
fn an_error_is_told_with_what_follows() {
    let page = tour("error");
    let cqes = dumps(&page, "CQE ");
    let syndromes: Vec<_> = cqes.iter().map(|cqe| field(cqe, "syndrome")).collect();
    assert_eq!(syndromes, ["REMOTE_ACCESS_ERR (0x13)", "WR_FLUSH_ERR (0x5)"]);
    assert_eq!(field(dumps(&page, "packet 3")[0], "syndrome"), "NAK, remote access error (0x62)");
}

#[test]
fn what_an_operation_lacks_is_refused() {
    for (args, why) in [
        ("read --inline", "memory to go to"),
        ("atomic --imm 1", "only SEND and WRITE"),
        ("atomic --size 8", "are for read, write and send"),
        ("error --posts 2", "are for read, write and send"),
        ("write --imm x", "is no number of 32 bits"),
        ("read --mtu 1500", "mtu"),
        ("send --inline --size 16000", "inline"),
        ("send --size 0", "1..=16384"),
    ] {
        let ended = mlx5(&format!("tour {args}"));
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{args}: {}", ended.stderr);
        assert!(ended.stderr.contains(why), "{args}: {}", ended.stderr);
    }
}
