//! Text as users paste it: out of web pages and mails, out of logs in JSON, a dump together with the program's own words.

use mlx5_study::{
    record::Record,
    text::{Finder, Options},
};
use serde_json::{Value, json};

const ZEROS: &str = "00000000 00000000 00000000 00000000";
/// Remote access error, vendor syndrome 0x88, of an RDMA_READ on QP 0x4711.
const ERROR: &str = "00000000 00008813 10004711 0a0b32d3";

fn records(text: &str) -> Vec<Record> {
    let mut records = Vec::new();
    let mut finder = Finder::new(Options::default());
    finder.feed(text.as_bytes(), &mut |record| records.push(record));
    finder.end(&mut |record| records.push(record));
    records
}

/// libmlx5's dump.
fn dump() -> String {
    format!("mlx5: host01: got completion with error:\n{ZEROS}\n{ZEROS}\n{ZEROS}\n{ERROR}\n")
}

fn roles(records: &[Record]) -> Vec<&Value> {
    records.iter().map(|record| &record.parts["order"]["role"]).collect()
}

#[test]
fn a_dump_and_the_programs_words_are_one_error() {
    for words in [
        "prov: fi_cq_readerr: err: 5, prov_err: remote access error (10)",
        "completion was found in CQ with status 0xa\ngot bad completion with status: 0xa, vendor syndrome: 0x88",
        "[h:9:0] rc_verbs_iface.c:109  send completion with error: remote access error qpn 0x4711 wrid 0x1 vendor_err 0x88",
        "DTO completion ERR: status 10, op Invalid DTO OP?, vendor_err 0x88 - 0.0.0.0",
    ] {
        let found = records(&format!("{}{words}\n", dump()));
        assert_eq!(found.len(), 1 + words.lines().count(), "{words}");
        assert_eq!(roles(&found)[0], "first", "{words}");
        for again in &found[1..] {
            assert_eq!(again.parts["order"], json!({ "role": "same", "first_error_line": 1 }), "{words}");
            assert!(again.says.ends_with("The same completion as at line 1, in the program's words."));
        }
    }
    let before = "ERROR Send completion with error on qp 0x4711: remote access error syndrome 0x88\n";
    let found = records(&format!("{before}{}", dump()));
    assert_eq!(roles(&found), ["first", "same"]);
}

#[test]
fn another_completion_is_another_error() {
    for words in [
        "rdma: wc status 4: local protection error",
        "rdma: wc status 10 qpn 0x4712: remote access error",
        "rdma: wc status 10: remote access error vendor_err 0x89",
    ] {
        let found = records(&format!("{}{words}\n", dump()));
        assert_eq!(found.len(), 2, "{words}");
        assert_ne!(found[1].parts["order"]["role"], "same", "{words}");
    }
    let far =
        format!("{}{}rdma: wc status 10: remote access error\n", dump(), "a line of others\n".repeat(20));
    assert_ne!(records(&far)[1].parts["order"]["role"], "same");
}

#[test]
fn pages_lose_nothing() {
    let page: String =
        dump().lines().map(|line| format!("<span class=\"q\">&gt; &gt; {line}</span><br>\n")).collect();
    let found = records(&page);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].parts["cqe"][0]["qpn"], "0x4711");
    let message = "<p>&nbsp;&nbsp;[[194,1],5][btl_openib_component.c:3320:handle_wc] from c3-07\n</span><br>\n&gt; to: c3-01 error polling LP CQ with status RECEIVER NOT READY<br>\n&gt; RETRY EXCEEDED ERROR status\n<br>\n&gt; number 13 for wr_id 2a25c200 opcode 128&#160; vendor error 135 qp_idx 2\n";
    let found = records(message);
    assert_eq!(found.len(), 1);
    let completion = &found[0].parts["completion"][0];
    assert_eq!(completion["ibv_wc_status_num"], 13);
    assert_eq!((&completion["vendor_err"], &completion["qp_idx"]), (&json!("0x87"), &json!(2)));
    assert_eq!((&completion["host"], &completion["peer"]), (&json!("c3-07"), &json!("c3-01")));
}

#[test]
fn mails_own_encoding_loses_nothing() {
    let mail = "[  408.372201] infiniband mlx5_0: mlx5_handle_error_cqe:332:(pid 0): WC err=\nor: 10, Message: remote access error=0A=\n[  408.380181] infiniband mlx5_0: dump_cqe:272:(pid 0): dump error cqe=0A=\n";
    let rows: String =
        [ZEROS, ZEROS, ZEROS, ERROR].iter().map(|row| format!("[  408.380187] {row}=0A=\n")).collect();
    let words = "[  408.380230] nvme nvme15: RECV for CQE 0x00000000ce392ed9 failed with sta=\ntus remote access error (10)=0A=\n";
    let found = records(&format!("{mail}{rows}{words}"));
    assert_eq!(roles(&found), ["first", "same"]);
    assert_eq!(found[0].form, "kernel dump");
    assert_eq!(found[0].parts["cqe"][0]["vendor_err_synd"], "0x88");
}

#[test]
fn logs_in_json_and_lost_line_ends_lose_nothing() {
    let escaped = format!("{{\"log\":\"{}\",\"stream\":\"stderr\"}}", dump().replace('\n', "\\n"));
    for text in [escaped, dump().replace('\n', " ")] {
        let found = records(&text);
        assert_eq!(found.len(), 1, "{text}");
        assert_eq!(found[0].parts["cqe"][0]["qpn"], "0x4711", "{text}");
    }
}

#[test]
fn a_receive_queues_cqe_has_the_name_of_the_line_above() {
    let text = "mlx5_core 0000:00:08.0 eth2: Error cqe on cqn 0x4c9, ci 0x0, qn 0x1133, opcode 0xe, syndrome 0x4, vendor syndrome 0x32\n00000000: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00\n00000010: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00\n00000020: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00\n00000030: 00 00 3b c7 93 01 32 04 00 00 00 00 00 07 bf e0\n";
    let found = records(text);
    assert!(found[0].says.starts_with("queue 0x1133: receive WQE 0x0007 failed"), "{}", found[0].says);
    assert_eq!(found[0].failure.as_ref().unwrap().queue.as_deref(), Some("0x1133"));
}

#[test]
fn what_only_stands_near_an_error_is_none() {
    for text in [
        "systemd[1]: x.service: Main process exited, code=exited, status=12/n/a\nrdma: wc is fine",
        "proxy: upstream status 12 again\nrdma link show: no wc",
        "[  24.8] virtio_net virtio0 enp0s1: TX timeout on queue: 0, sq: output.0, vq: 0x1, name: output.0, 56 usecs ago",
        "app: Fatal error detected\nhealth check of the service failed",
        "kiblnd_check_conns()) Timed out tx for 172.31.126.87@o2ib: 403055 seconds",
    ] {
        assert!(records(text).is_empty(), "{text}");
    }
}

#[test]
fn other_devices_are_refused_in_these_forms_too() {
    let solaris = "genunix: [ID 204426 kern.warning] WARNING: mcxnex0: CQE ERR: cqe ffffa100fbff5fa0 QPN 0x40064 indx 0x1d81 status 0x13 vendor syndrome 0x88";
    let mthca = "> local QP operation err (QPN 0014bc, WQE @ 00009005, CQN 000097, index\n> 22)  [ 0] 000014bc  [ 4] 00000000  [ 8] 00000000  [ c] 00000000\n> [10] 026f3410  [14] 00000000  [18] 00009005  [1c] ff100000";
    for text in [solaris, mthca] {
        let found = records(text);
        assert_eq!(found.len(), 1, "{text}");
        assert!(found[0].refused.is_some(), "{text}");
    }
    let found = records(mthca);
    assert_eq!((&found[0].parts["vendor_err"], &found[0].parts["opcode"]), (&json!("0x6f"), &json!("0xff")));
}
