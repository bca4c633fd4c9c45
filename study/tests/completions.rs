//! CQEs that libmlx5 read, and what it said of them: the same is said here.

use mlx5_study::{
    record::Record,
    structure::As,
    text::{Finder, Options},
};
use serde_json::Value;

/// The records in `text`, read as CQEs.
fn decode(text: &str) -> Vec<Record> {
    let mut found = Vec::new();
    let mut finder = Finder::new(Options { read_as: As::Cqe, transport: None });
    finder.feed(text.as_bytes(), &mut |record| found.push(record));
    finder.end(&mut |record| found.push(record));
    found
}

#[test]
fn every_vector_as_a_line_of_json() {
    let text = include_str!("../../tests/data/cqe-vectors.jsonl");
    let records = decode(text);
    assert_eq!(records.len(), text.lines().count());
    for (line, record) in text.lines().zip(records) {
        let vector: Value = serde_json::from_str(line).unwrap();
        for (name, wanted) in vector.as_object().unwrap() {
            if !["transport", "case", "cqe_size", "cqe"].contains(&name.as_str()) {
                assert_eq!(record.parts.get(name), Some(wanted), "{name} of {}", vector["id"]);
            }
        }
    }
}

#[test]
fn every_vector_as_bare_hexadecimal() {
    for line in include_str!("../../tests/data/cqe-vectors.jsonl").lines() {
        let vector: Value = serde_json::from_str(line).unwrap();
        let records = decode(vector["cqe"].as_str().unwrap());
        assert_eq!(records.len(), 1, "{}", vector["id"]);
        for name in ["status", "opcode", "vendor_err", "byte_len", "imm", "src_qp"] {
            assert_eq!(records[0].parts.get(name), vector.get(name), "{name} of {}", vector["id"]);
        }
    }
}

#[test]
fn every_wide_vector() {
    let text = include_str!("data/cqe-wide.jsonl");
    let records = decode(text);
    assert_eq!(records.len(), text.lines().count());
    for (line, record) in text.lines().zip(records) {
        let vector: Value = serde_json::from_str(line).unwrap();
        let result = vector["result"].as_object().unwrap();
        // 0 and ENOENT where nothing is to be polled; `ibv_start_poll` says 0 where something is.
        let is_polled = result.contains_key("status");
        assert_eq!(record.parts["polled"], u8::from(is_polled), "{}", vector["id"]);
        for (name, wanted) in result {
            // A VLAN and a mark are where other queues have other things: libmlx5 gives them of any.
            if !["returned", "cvlan", "flow_tag"].contains(&name.as_str()) {
                assert_eq!(record.parts.get(name), Some(wanted), "{name} of {}", vector["id"]);
            }
        }
    }
}

/// What libmlx5 copied from CQEs to the memory that was posted is the data that the decoder shows.
#[test]
fn every_wide_vector_with_data_in_it() {
    let text = include_str!("data/cqe-wide.jsonl");
    let mut n_seen = 0;
    for (line, record) in text.lines().zip(decode(text)) {
        let vector: Value = serde_json::from_str(line).unwrap();
        // Before a request's own there may be one of a signature.
        let cqe = record.parts["cqe"].as_array().unwrap().last().unwrap();
        match vector["scattered"].as_str() {
            // Where memory was too short, it has the first of them.
            Some(copied) => {
                let shown = cqe["inline_data"].as_str().unwrap();
                assert!(shown.starts_with(copied), "{}: {shown}", vector["id"]);
                let is_all = vector["result"]["status"] == 0;
                assert!(!is_all || shown == copied, "{}: {shown}", vector["id"]);
                n_seen += 1;
            }
            None => assert!(cqe.get("inline_data").is_none_or(|data| data == ""), "{}", vector["id"]),
        }
    }
    assert_eq!(n_seen, 76);
}

/// A title with its first array, of messages and of requests; 128 bytes whose second half is a CQE are a slot.
#[test]
fn a_compressed_session() {
    let title = |opcode: u8, n: u32| {
        let mut title = [0u8; 64];
        title[0x2c..0x30].copy_from_slice(&n.to_be_bytes());
        title[0x39..0x3e].copy_from_slice(&[0, 1, 0x17, 0xff, 0xff]);
        title[63] = opcode << 4 | 3 << 2;
        title
    };
    let text = |head: [u8; 64], tail: [u8; 64]| {
        [head, tail].concat().iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    let mut array = [0; 64];
    array[..16].copy_from_slice(&[0xab, 0xcd, 0, 0, 0, 0, 0, 60, 0x12, 0x34, 0, 0, 0, 0, 5, 0xdc]);
    let record = decode(&text(title(2, 11), array)).remove(0);
    let minis = record.parts["cqe"][0]["mini_cqes"].as_array().unwrap();
    assert_eq!(minis.len(), 8);
    assert_eq!(minis[1]["byte_cnt"], 1500);
    assert_eq!((&minis[0]["wqe_counter"], &minis[1]["wqe_counter"]), (&"0xffff".into(), &"0x0".into()));
    assert_eq!(minis[0]["hash_or_checksum"], "0xabcd0000");
    assert!(record.says.contains("8 of 11"), "{}", record.says);

    array[..8].copy_from_slice(&[0xff, 0xff, 0x10, 0, 0, 0, 0, 64]);
    let record = decode(&text(title(0, 2), array)).remove(0);
    let minis = record.parts["cqe"][0]["mini_cqes"].as_array().unwrap();
    assert_eq!((minis.len(), &minis[0]["send_wqe_opcode"]), (2, &"0x10".into()));

    let mut slot = [0; 64];
    (slot[0x2f], slot[63]) = (64, 2 << 4 | 2 << 2);
    let record = decode(&text(title(2, 3), slot)).remove(0);
    assert!(record.parts["cqe"][0].get("mini_cqes").is_none());
    assert_eq!(record.parts["cqe"][0]["inline_data_bytes"], 64);
}

#[test]
fn what_was_posted_tells_what_a_umr_was_for() {
    let umr = "\
        00000000000000000000000000000000000000000000000000000000000000000000000600000000000000000000000000\
        00000000000000250001170001000000";
    let umr = format!("{}0000", &umr[..124]);
    let unknown = decode(&umr).remove(0);
    assert!(unknown.parts.get("opcode").is_none());
    assert!(unknown.parts["opcode_why"].as_str().unwrap().contains("UMR"));
    let known = decode(&format!(r#"{{"cqe":"{umr}","posted":"LOCAL_INV"}}"#)).remove(0);
    assert_eq!(known.parts["opcode"], 6);
}

#[test]
fn hexadecimal_that_is_no_cqe_is_told() {
    for text in
        [r#"{"id":1,"cqe":"00"}"#, r#"{"id":1,"cqe":"zz"}"#, r#"{"id":1,"cqe":"é"}"#, r#"{"id":1,"cqe":""}"#]
    {
        let records = decode(text);
        assert!(records[0].parts["error"].as_str().unwrap().contains("64 or 128 bytes"), "{text}");
    }
    assert!(decode("{}\n{\"cqe\":5}\n[]\n").is_empty());
}

/// CQEs of an XRQ: user index 0x99, QP 0x200; `head` is the first 16 bytes, `app` from +0x28 on, `tail` the last 4.
fn of_xrq(head: &str, app: &str, tail: &str) -> Record {
    let text = format!(
        "{head} 00000000 00000000 00000100 00000000 00000099 00000000 {app} 00000000 000003e8 00000200 {tail}"
    );
    let [record] = &decode(&text)[..] else { panic!("one record") };
    record.clone()
}

#[test]
fn tag_matching_says_what_became_of_a_message() {
    let header = "03000000 00000a11 00000000 00000005";
    let none = "00000000 00000000 00000000 00000000";
    let took = "the tag in entry 2, with tag 0x5 from QP 0x200's peer";
    for (head, app, tail, says) in [
        (header, "010a0002 0000000a", "00000020", format!("a message of 10 bytes took {took}")),
        (header, "01010002 00000000", "00000060", format!("a message took {took}; its data are still to come")),
        (none, "01020002 00001000", "00000020", "the 4096 bytes for the tag in entry 2 are there".into()),
        (header, "01090002 00000000", "00000060", format!("a rendezvous took {took}; software has to read its data")),
        (
            header,
            "010b0002 00000020",
            "00000020",
            format!(
                "a rendezvous took {took}; software has to read its data, and the tag's memory has its headers (32 bytes)"
            ),
        ),
        (none, "010c0002 00000000", "00000060", "a message took the tag in entry 2, and its data will not come".into()),
        (
            none,
            "01030000 0000001c",
            "00070020",
            "a message of 28 bytes, header included, has arrived on QP 0x200 and took no tag: it is in WQE 0x0007 of the XRQ"
                .into(),
        ),
        (
            none,
            "01040000 00000011",
            "00080020",
            "a message of 17 bytes, header included, has arrived on QP 0x200 and has no tag: it is in WQE 0x0008 of the XRQ"
                .into(),
        ),
    ] {
        assert_eq!(of_xrq(head, app, tail).says, says + ".");
    }
    assert_eq!(of_xrq(header, "010a0002 0000000a", "00000020").parts["cqe"][0]["tmh"]["tag"], 5);
}

#[test]
fn operations_on_a_list_of_tags_say_what_came_of_them() {
    let outcome = "80000000 00030000 00000000 00000000";
    let at = "at WQE 0x0005 of QP 0x200 is done";
    for (head, app_op, says) in [
        (outcome, 5, format!("APPEND {at}: the tag is in the list (3 messages were unexpected so far)")),
        (outcome, 6, format!("REMOVE {at}: the tag is not in the list any more")),
        (
            "00000000 00030000 00000000 00000000",
            6,
            format!("REMOVE {at}, in vain: a message was faster, or no tag was there"),
        ),
        (outcome, 7, format!("NOP of a list of tags {at} (3 messages were unexpected so far)")),
    ] {
        let record = of_xrq(head, &format!("010{app_op}0000 00000000"), "00050060");
        assert_eq!(record.says, says + ".");
        assert_eq!(record.parts["cqe"][0]["outcome"]["hw_phase_cnt"], 3);
    }
}
