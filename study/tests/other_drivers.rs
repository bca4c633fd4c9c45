//! Requests that other drivers of mlx5 write, and what dumps of them say. No verb posts these.
#![forbid(unsafe_code)]

use mlx5_study::structure::{self, Transport, Wqe};

fn bytes(hex: &str) -> Vec<u8> {
    let hex: String = hex.chars().filter(|c| !c.is_whitespace()).collect();
    (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).expect("hex")).collect()
}

fn explained(hex: &str) -> Wqe {
    structure::wqe(&bytes(hex), None).expect("a control segment")
}

/// A frame of mlx5e, from a public dump; its transport is told by its second segment.
#[test]
fn a_netdev_sends_a_frame() {
    let wqe = explained(
        "00000f0a 001dbb03 00000008 00000000 00000000 00000000 00000000 00000000
         0000002b 00080000 00000005 9ee30800 00000000 00000000 00000000 00000000",
    );
    assert_eq!(wqe.transport, Transport::Raw);
    assert_eq!(wqe.says, "raw packet (by its looks) SEND of 43 bytes; signaled");
    assert_eq!(wqe.json["eth_seg"]["cs_flags"], "0x00");
    assert_eq!(wqe.json["data"][0]["addr"], "0x000000059ee30800");
    assert_eq!(wqe.structures[2].title, "data segment");
    assert_eq!(wqe.structures[2].offset_bytes, 32);
}

/// Head of the frame inline: 18 bytes, two of them in the segment.
#[test]
fn a_netdev_sends_a_frame_with_its_head() {
    let wqe = explained(
        "0003e80a 001dbb04 00000008 00000000 00000000 c0000000 00000000 00120011
         22334455 66778899 aabb8100 00640800 00000556 00080000 00000005 9ee30800",
    );
    assert_eq!(wqe.transport, Transport::Raw);
    assert_eq!(wqe.json["eth_seg"]["inline_hdr"], "00112233445566778899aabb810000640800");
    assert_eq!(wqe.says, "raw packet (by its looks) SEND of 1,384 bytes; signaled");
}

/// mlx5e's WQE for several packets, one of memory and one inline.
#[test]
fn several_packets_are_in_one_request() {
    let wqe = explained(
        "00001229 001dbb05 00000008 00000000 00000000 c0000000 00000000 00000000
         00000040 00080000 00000005 9ee30800 8000000e 01020304 05060708 090a0b0c 0d0e0000 00000000 00000000 00000000",
    );
    assert_eq!(wqe.transport, Transport::Raw);
    assert_eq!(wqe.says, "2 Ethernet packets in one WQE; signaled");
    assert_eq!(wqe.json["inline"][0]["data"], "0102030405060708090a0b0c0d0e");
}

/// mlx5e's ICOSQ: the pages of a striding receive WQE.
#[test]
fn a_netdev_maps_pages() {
    let head = "00003425 0008f40c 00000008 00012300 90000000 00040000 00000000 20000000";
    let zeros = "00".repeat(16 + 80);
    let pages = "00000001d9ed8003 00000001d9ed9003 00000001d9eda003 00000001d9edb003
                 00000001d9edc003 00000001d9edd003 0000000000000000 0000000000000000";
    let wqe = explained(&format!("{head}{zeros}{pages}"));
    assert_eq!(wqe.json["mtt"].as_array().unwrap().len(), 6);
    assert_eq!(wqe.says, "UMR that sets key 0x12300: 6 pages; signaled");
    assert_eq!(wqe.structures.last().unwrap().offset_bytes, 128 + 40);
}

/// Two threads on one ring: where a WQE should be, are entries of another one. From a public report.
#[test]
fn translation_entries_are_no_wqe() {
    let wqe = explained(
        "00000001d9ed8002 00000001d9ed9002 00000001d9eda002 00000001d9edb002
         00000001d9edc002 00000001d9edd002 00000001d9ede002 00000001d9edf002",
    );
    assert!(wqe.corrections.iter().any(|c| c.starts_with("not a WQE: 8 8-byte")), "{:?}", wqe.corrections);
}

#[test]
fn tls_has_requests_of_its_own() {
    let wqe = explained("01000120 00012302 00000000 00000000 00000007 00001000 00000000 40000000");
    assert_eq!(wqe.says, "sets where the TLS connection of object 0x7 is; unsignaled");
    assert_eq!(wqe.json["tls_progress_params"]["record_tracker_state"], "0x1");
    let wqe = explained("00000223 00012302 00000008 00000700 00000100 00001000 00007f00 12340000");
    assert_eq!(wqe.json["data"][0]["byte_count"], 256);
}

#[test]
fn queues_wait_for_each_other() {
    let wqe = explained("0000010f 00011102 00000008 00000000 00000000 00000000 00000007 00000042");
    assert_eq!(wqe.says, "WAIT until completion queue 0x42 has got to 7; signaled");
    let wqe = explained(
        "0200020f 00011103 00000008 00000000 00000004 00000000 00000000 00000000 11223344 55667788 ffffffff ffffffff",
    );
    assert_eq!(wqe.says, "WAIT for the clock: CYCLIC_BIGGER (0x4) 0x1122334455667788; signaled");
    let wqe = explained("00000117 00011102 00000000 00000000 00000000 00000000 00000020 00000043");
    assert_eq!(wqe.says, "SEND_EN: queue 0x43 may go on up to 32; unsignaled");
}

#[test]
fn a_tag_is_appended() {
    let wqe = explained(
        "00000128 00011104 00000008 00000000 10c00003 00000000 00000000 00000000
         11223344 55667788 ffffffff 00000000 00000100 00001000 00007f00 12340000",
    );
    assert_eq!(
        wqe.says,
        "tag matching: adds tag 0x1122334455667788 under mask 0xffffffff00000000, and the next becomes entry 3, \
         0 unexpected messages are known, with a CQE of the list; signaled"
    );
    assert_eq!(wqe.json["data"][0]["byte_count"], 256);
}

#[test]
fn a_tag_is_removed_and_messages_are_counted() {
    let says = |segment: &str| {
        explained(&format!(
            "00000128 00011103 00000000 00000000 {segment} 00000000 00000000 00000000 00000000"
        ))
        .says
    };
    assert_eq!(
        says("20800005 00000000 00000000 00000000"),
        "tag matching: removes the tag in entry 5, with a CQE of the list; unsignaled"
    );
    assert_eq!(
        says("00400000 00000102 00000000 00000000"),
        "tag matching: changes nothing, 258 unexpected messages are known; unsignaled"
    );
    assert_eq!(
        says("30000000 00000000 00000000 00000000"),
        "tag matching: operation unknown (0x3); unsignaled"
    );
}

/// UCX: atomics under masks, of 4 and of 8 bytes.
#[test]
fn atomics_have_masks() {
    let raddr = "00001122 33445566 000a0b0c 00000000";
    let wqe = explained(&format!(
        "08000114 00011104 00000008 00000000 {raddr} 11111111 22222222 ffff0000 0000ffff 00000004 00001000 00007f00 12340000"
    ));
    assert_eq!(wqe.json["masked_cas"]["swap_mask"], "0xffff0000");
    assert!(
        wqe.says.contains("compare-and-swap of 4 bytes: what is 0x22222222 under mask 0xffff"),
        "{}",
        wqe.says
    );
    let wqe = explained(&format!(
        "09000114 00011105 00000008 00000000 {raddr}
         00000000 00000001 00000000 00000002 ffffffff ffffffff 00000000 0000000f
         00000008 00001000 00007f00 12340000"
    ));
    assert_eq!(wqe.json["masked_cas"]["compare_mask"], "0x000000000000000f");
    assert_eq!(wqe.corrections.len(), 1, "only that the transport is guessed: {:?}", wqe.corrections);
    let wqe = explained(&format!(
        "09000115 00011104 00000008 00000000 {raddr} 00000001 00000002 80000000 80000000 00000008 00001000 00007f00 12340000"
    ));
    assert_eq!(wqe.json["masked_fa"]["field_boundary"], "0x8000000080000000");
}

/// A dump may be shorter than its WQE, as mlx5e's of one WQEBB are: what is there is told.
#[test]
fn what_is_there_of_a_long_request_is_told() {
    let wqe = structure::wqe(
        &bytes(
            "00002808 00011106 00000088 00000000 00001122 33445566 a1b2c303 00000000
             00000020 00c0de00 00007f00 12340000 00000023 00c0df01 00007f00 12350101",
        ),
        Some(Transport::Rc),
    )
    .unwrap();
    assert_eq!(wqe.structures.len(), 4);
    assert!(wqe.corrections[0].contains("ds says 96 bytes, but only 64 are there"), "{:?}", wqe.corrections);
    assert_eq!(
        wqe.says,
        "RC RDMA WRITE of 2 pieces, 67 bytes in all, to 0x112233445566 with rkey 0xa1b2c303; signaled, fenced"
    );
}

/// Whatever the bytes are, with whatever transport or none.
#[test]
fn any_bytes_are_explained() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let opcodes =
        [0u8, 1, 8, 9, 10, 11, 14, 15, 16, 17, 18, 20, 21, 23, 32, 33, 34, 35, 37, 40, 41, 44, 45, 47];
    let transports = [Transport::Rc, Transport::Ud, Transport::Xrc, Transport::Dc, Transport::Raw];
    for round in 0..20_000 {
        let len = next() as usize % 400;
        let mut input: Vec<u8> = (0..len).map(|_| if next() % 3 == 0 { next() as u8 } else { 0 }).collect();
        if len > 8 && round % 2 == 0 {
            input[3] = opcodes[next() as usize % opcodes.len()];
            input[0] = (next() % 10) as u8;
            input[7] = (next() % 32) as u8;
        }
        let transport = transports.get(next() as usize % (transports.len() + 1)).copied();
        let explained = structure::wqe(&input, transport);
        assert_eq!(explained.is_some(), len >= 16);
        if let Some(wqe) = explained {
            assert!(
                wqe.structures.iter().all(|s| s.bytes.len() == s.desc.size_bytes && !wqe.says.is_empty())
            );
        }
        for head in
            [structure::ReceiveHead::None, structure::ReceiveHead::Next, structure::ReceiveHead::Signature]
        {
            assert_eq!(structure::receive(&input, head).is_some(), len >= 16);
        }
    }
}
