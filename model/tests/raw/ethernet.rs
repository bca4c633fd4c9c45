//! Ethernet frames between two functions: send queue, wire, flow tables, TIR, receive queue, CQE.

use super::{
    port::{Port, cable, ipv4, tcp, udp},
    rig::Raw,
    rules,
};
use mlx5_model::{Rule, fw::Refusal};

/// Bits of the CQE's layer 2 to 4 byte.
const ALL_OK: u8 = 7;

#[test]
fn a_frame_arrives_with_its_description() {
    let (mut near, mut far) = cable();
    far.take_all();
    let frame = near.to(&far, &ipv4(17, &udp(b"hello, other end of it")));
    far.post(1500);
    near.send(&frame, 0xc0);
    let cqe = far.receive();
    assert_eq!(cqe[63] >> 4, 2, "RESP_SEND");
    assert_eq!(u32::from_be_bytes(cqe[0x2c..0x30].try_into().unwrap()) as usize, frame.len());
    assert_eq!(cqe[0x1c] & ALL_OK, ALL_OK);
    assert_eq!(cqe[0x1d], 2 << 4 | 2 << 2, "UDP over IPv4, no tag");
    assert_eq!(cqe[0x3c..0x3e], [0, 0], "first WQE");
    assert_eq!(cqe[0x38..0x3c], [0, 0, 0, 0], "no flow tag");
    let mut expected = frame.clone();
    expected[24..26].copy_from_slice(&far.buffer(0)[24..26]);
    expected[40..42].copy_from_slice(&far.buffer(0)[40..42]);
    assert_ne!(expected, frame, "the device filled the checksums in");
    assert_eq!(far.buffer(0)[..frame.len()], expected);
    let sum: u32 = far.buffer(0)[14..frame.len()]
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    assert_eq!(u32::from(u16::from_be_bytes([cqe[0x14], cqe[0x15]])), (folded & 0xffff) + (folded >> 16));
    near.rig.model.assert_clean();
}

#[test]
fn a_wrong_checksum_is_reported_and_delivered() {
    let (mut near, mut far) = cable();
    far.take_all();
    far.post(1500);
    let frame = near.to(&far, &ipv4(17, &udp(b"hello")));
    near.send(&frame, 0);
    let cqe = far.receive();
    assert_eq!(cqe[0x1c] & ALL_OK, 5, "layer 3 is wrong; UDP without a checksum is not");
}

/// A tag goes in at one end and comes out at the other, as the queues ask.
#[test]
fn tags_are_inserted_and_stripped() {
    let (mut near, mut far) = cable();
    far.take_all();
    for (vsd, stripped) in [(0, true), (1, false)] {
        far.modify_rq(1 << 1, Raw::new(240).set(0, 28, 28, vsd));
        far.post(1500);
        let frame = near.to(&far, &ipv4(17, &udp(b"tagged, in one frame")));
        near.send_tagged(&frame, 0x2064);
        let cqe = far.receive();
        assert_eq!(cqe[0x1d] & 1 != 0, stripped);
        let n_bytes = frame.len() + if stripped { 0 } else { 4 };
        assert_eq!(u32::from_be_bytes(cqe[0x2c..0x30].try_into().unwrap()) as usize, n_bytes);
        if stripped {
            assert_eq!(cqe[0x1e..0x20], [0x20, 0x64]);
        } else {
            assert_eq!(far.buffer(1)[12..16], [0x81, 0, 0x20, 0x64]);
        }
    }
    near.rig.model.assert_clean();
}

#[test]
fn a_large_send_is_cut() {
    let (mut near, mut far) = cable();
    far.take_all();
    (0..3).for_each(|_| far.post(1500));
    let head = near.to(&far, &ipv4(6, &tcp(1000)));
    let payload: Vec<u8> = (0..2500u32).map(|n| n as u8).collect();
    near.send_large(&head, &payload, 1000);
    let mut whole = Vec::new();
    for n in 0..3 {
        let cqe = far.receive();
        assert_eq!(cqe[0x1c] & ALL_OK, ALL_OK);
        let n_bytes = u32::from_be_bytes(cqe[0x2c..0x30].try_into().unwrap()) as usize;
        let frame = far.buffer(n)[..n_bytes].to_vec();
        assert_eq!(frame[38..42], (1000 + 1000 * n as u32).to_be_bytes(), "sequence number");
        whole.extend_from_slice(&frame[54..]);
    }
    assert_eq!(whole, payload);
    near.rig.model.assert_clean();
}

/// The first entry that matches decides; the miss table takes the rest; a mark comes back.
#[test]
fn entries_are_tried_in_order() {
    let (mut near, mut far) = cable();
    let (tir, other) = (far.tir(), far.create_table(1));
    let table = far.create_table(0);
    far.set_root(table);
    // UDP port 7 is dropped, UDP is marked, everything else misses.
    let mut port = Raw::new(512).set(0x10, 31, 24, 0xff).set(0x1c, 15, 0, 0xffff);
    let exact = far.create_group(table, 0, 0, 1, &port);
    port = port.set(0x10, 31, 24, 17).set(0x1c, 15, 0, 7);
    far.set_entry(table, exact, 0, &port, 2, 0, None);
    let protocol = Raw::new(512).set(0x10, 31, 24, 0xff);
    let group = far.create_group(table, 1, 1, 1, &protocol);
    far.set_entry(table, group, 1, &protocol.clone().set(0x10, 31, 24, 17), 4, 0xabcdef, Some((2, tir)));
    far.set_miss(table, other);
    let all = far.create_group(other, 0, 0, 0, &Raw::new(512));
    far.set_entry(other, all, 0, &Raw::new(512), 4, 0, Some((2, tir)));

    (0..2).for_each(|_| far.post(1500));
    for (protocol, payload) in
        [(17, udp(b"to port 7")), (17, Raw(udp(b"x")).set(0, 15, 0, 9).0), (1, vec![8, 0, 0, 0])]
    {
        near.send(&near.to(&far, &ipv4(protocol, &payload)), 0xc0);
    }
    let cqe = far.receive();
    assert_eq!((&cqe[0x39..0x3c], cqe[0x1d] >> 4), (&[0xab, 0xcd, 0xef][..], 2));
    let cqe = far.receive();
    assert_eq!((&cqe[0x39..0x3c], cqe[0x1d] >> 4), (&[0, 0, 0][..], 0));
    assert!(far.received().is_none(), "port 7 was dropped");
    near.rig.model.assert_clean();
}

#[test]
fn counters_of_entries_count() {
    let (mut near, far) = cable();
    let table = far.create_table(0);
    far.set_root(table);
    let counter = far.rig.run(Raw::cmd(0x939, 16)).ok().dword(8);
    let all = far.create_group(table, 0, 0, 0, &Raw::new(512));
    let context = Raw::new(768).set(4, 31, 0, all).set(0xc, 15, 0, 2 | 8).set(0x14, 23, 0, 1);
    far.set_flow_context(table, 0, &context.list(&[u64::from(counter) << 32]));
    let frame = near.to(&far, &ipv4(17, &udp(b"counted, three times")));
    (0..3).for_each(|_| near.send(&frame, 0));
    let query = |clear| {
        far.rig.exec(&Raw::cmd(0x93b, 32).set(0x18, 31, 31, clear).set(0x1c, 31, 0, counter), 32).ok()
    };
    far.rig.wait("three frames", |_| query(0).dword(0x14) == 3);
    assert_eq!(query(1).dword(0x1c) as usize, 3 * frame.len());
    assert_eq!(query(0).dword(0x14), 0);
    let dealloc = Raw::cmd(0x93a, 16).set(8, 31, 0, counter);
    assert_ne!(far.rig.run(dealloc.clone()).status(), (0, 0), "in use");
    assert_eq!(rules(&far.rig), [Rule::ObjectInUse]);
    far.rig.run(Raw::cmd(0x938, 64).set(0x14, 23, 0, table)).ok();
    far.rig.run(dealloc).ok();
}

/// What the device does not take out of packets cannot be matched, nor what it does not offer be done.
#[test]
fn criteria_and_actions_that_are_not_offered_are_refused() {
    let (_near, far) = cable();
    let table = far.create_table(0);
    let metadata = Raw::new(512).set(0xf0, 31, 0, u32::MAX);
    assert_eq!(far.group(table, 0, 0, 8, &metadata).syndrome(), 0x4d00f4);
    assert_eq!(far.group(table, 0, 0, 0, &metadata).status(), (0, 0), "not enabled, so not looked at");
    let push_vlan = Raw::new(768).set(0xc, 15, 0, 0x100);
    assert_eq!(far.flow_context(table, 0, &push_vlan).syndrome(), 0x4d00f5);
}

#[test]
fn a_hash_chooses_the_queue_and_is_told() {
    let (mut near, mut far) = cable();
    let queues: Vec<u32> = (0..3).map(|_| far.add_rq()).collect();
    let rqt = far.create_rqt(&[far.rq.number, queues[0], queues[1], queues[2]]);
    // Toeplitz over addresses and ports of UDP over IPv4.
    let context = Raw::new(240)
        .set(0x04, 31, 28, 1)
        .set(0x20, 23, 0, rqt)
        .set(0x24, 31, 28, 2)
        .set(0x24, 23, 0, far.domain)
        .put(0x28, &(1..41).collect::<Vec<u8>>())
        .set(0x50, 30, 30, 1)
        .set(0x50, 29, 0, 0xf);
    let tir = far.create_tir(&context);
    far.take_all_to(tir);
    let mut seen = [0; 4];
    (0..4).for_each(|queue| far.post_on(queue, 1500));
    for n in 0..64u16 {
        let mut datagram = udp(b"spread");
        datagram[..2].copy_from_slice(&n.to_be_bytes());
        near.send(&near.to(&far, &ipv4(17, &datagram)), 0xc0);
        let cqe = far.receive();
        let hash = u32::from_be_bytes(cqe[0xc..0x10].try_into().unwrap());
        assert_eq!(cqe[0x10], 2 << 6 | 1 << 2, "UDP and IPv4");
        let queue = u32::from_be_bytes(cqe[0x20..0x24].try_into().unwrap()) & 0xff_ffff;
        assert_eq!(queue, Port::FIRST_USER_INDEX + hash % 4);
        seen[(hash % 4) as usize] += 1;
        far.post_on((hash % 4) as usize, 1500);
    }
    assert!(seen.iter().all(|n| *n > 4), "{seen:?}");
    near.rig.model.assert_clean();
}

/// Without a WQE a frame is lost, and counted; later ones arrive.
#[test]
fn an_empty_queue_drops_and_counts() {
    let (mut near, mut far) = cable();
    far.take_all();
    let set = far.rig.run(Raw::cmd(0x771, 16)).ok().dword(8) & 0xff;
    far.modify_rq(1 << 3, Raw::new(240).set(0x0c, 31, 24, set));
    let out_of_buffer =
        |far: &Port| far.rig.exec(&Raw::cmd(0x773, 32).set(0x1c, 7, 0, set), 256).ok().dword(0x30);
    let frame = near.to(&far, &ipv4(17, &udp(b"lost")));
    near.send(&frame, 0);
    far.rig.wait("a lost frame", |_| out_of_buffer(&far) == 1);
    far.post(1500);
    near.send(&frame, 0);
    far.receive();
    assert_eq!(out_of_buffer(&far), 1);
    near.rig.model.assert_clean();
}

#[test]
fn a_frame_longer_than_the_buffers_stops_the_queue() {
    let (mut near, mut far) = cable();
    far.take_all();
    far.post(40);
    far.post(1500);
    near.send(&near.to(&far, &ipv4(17, &udp(&[0; 100]))), 0);
    let cqe = far.receive();
    assert_eq!((cqe[63] >> 4, cqe[0x37]), (0xe, 0x01), "RESP_ERR, LOCAL_LENGTH_ERR");
    let cqe = far.receive();
    assert_eq!((cqe[63] >> 4, cqe[0x37]), (0xe, 0x05), "the other WQE is flushed");
    assert_eq!(far.query_rq_state(), 3);
}

#[test]
fn a_key_that_does_not_open_the_buffer_stops_the_queue() {
    let (mut near, mut far) = cable();
    far.take_all();
    far.post_with_key(1500, 0x123_4500);
    near.send(&near.to(&far, &ipv4(17, &udp(&[0; 100]))), 0);
    let cqe = far.receive();
    assert_eq!((cqe[63] >> 4, cqe[0x37]), (0xe, 0x04), "RESP_ERR, LOCAL_PROT_ERR");
}

/// Own frames come back to TIRs of other transport domains, and to those that ask for them.
#[test]
fn loopback_is_by_transport_domain() {
    let (mut near, far) = cable();
    let frame = near.to(&near, &ipv4(17, &udp(b"to myself")));
    near.take_all();
    near.post(1500);
    near.send(&frame, 0xc0);
    assert!(near.received().is_none(), "a domain does not hear itself");
    for (bits, multicast, heard) in [(1, false, true), (1, true, false), (2, true, true), (3, false, true)] {
        let tir = near.tir();
        near.rig
            .run(Raw::cmd(0x901, 272).set(8, 23, 0, tir).set(0x14, 4, 4, 1).set(0x20 + 0x24, 25, 24, bits))
            .ok();
        let mut frame = frame.clone();
        if multicast {
            frame[..6].copy_from_slice(&[0xff; 6]);
        }
        near.post(1500);
        near.send(&frame, 0xc0);
        assert_eq!(near.received().is_some(), heard, "self_lb_block {bits}, multicast {multicast}");
    }
    far.rig.model.assert_clean();
}

/// RoCE packets are the transport's while the port does RoCE: no flow entry sees them.
#[test]
fn roce_packets_are_not_steered() {
    let (mut near, mut far) = cable();
    far.take_all();
    far.post(1500);
    let mut datagram = udp(b"no BTH");
    datagram[2..4].copy_from_slice(&4791u16.to_be_bytes());
    let frame = near.to(&far, &ipv4(17, &datagram));
    near.send(&frame, 0xc0);
    assert!(far.received().is_none());
    far.rig.run(Raw::cmd(0x755, 512).set(12, 1, 1, 1).set(0x100, 0, 0, 0)).ok();
    near.send(&frame, 0xc0);
    assert!(far.received().is_some());
}

#[test]
fn what_the_receive_counter_says_is_checked() {
    let (mut near, far) = cable();
    far.take_all();
    far.rig.write(far.rq.record, &200u32.to_be_bytes());
    near.send(&near.to(&far, &ipv4(17, &udp(b"x"))), 0);
    near.settle();
    assert_eq!(rules(&far.rig), [Rule::ProducerWithinRing]);
}

/// A send queue that wants headers inline and does not get them.
#[test]
fn a_head_that_is_not_inline_is_a_violation() {
    let (mut near, far) = cable();
    let frame = near.to(&far, &ipv4(17, &udp(b"x")));
    let cqe = near.send_inline(&frame, 8);
    assert_eq!((cqe[63] >> 4, cqe[0x37]), (0xd, 0x02), "REQ_ERR, LOCAL_QP_OP_ERR");
    assert_eq!(rules(&near.rig), [Rule::MinInline]);
}

#[test]
fn a_large_send_without_a_segment_size_is_a_violation() {
    let (mut near, far) = cable();
    let head = near.to(&far, &ipv4(6, &tcp(0)));
    let cqe = near.try_large(&head, &[1; 100], 0);
    assert_eq!((cqe[63] >> 4, cqe[0x37]), (0xd, 0x02));
    assert_eq!(rules(&near.rig), [Rule::LsoSegments]);
    let (mut near, far) = cable();
    let icmp = near.to(&far, &ipv4(1, &[8, 0, 0, 0]));
    near.try_large(&icmp, &[1; 100], 50);
    assert_eq!(rules(&near.rig), [Rule::LsoSegments], "no transport's header to continue");
}

/// A send queue goes on at a rate that SET_PP_RATE_LIMIT made, and at no other.
#[test]
fn a_send_queue_names_a_rate() {
    let (near, _far) = cable();
    near.rig.run(Raw::cmd(0x780, 64).set(8, 15, 0, 5).set(0x10, 31, 0, 1000)).ok();
    assert_eq!((near.set_rate(5), near.rate()), (0, 5));
    assert_eq!(near.set_rate(4), Refusal::NO_SUCH_OBJECT.syndrome);
    assert_eq!(rules(&near.rig), [Rule::ObjectExists]);
    assert_eq!((near.rate(), near.set_rate(0), near.rate()), (5, 0, 0));
    near.rig.model.assert_clean();
}

/// DPDK learns the transport domain of the kernel's queues from the interface that they send through.
#[test]
fn an_interface_tells_its_transport_domain() {
    let (near, _far) = cable();
    let create = Raw::cmd(0x912, 192).set(0x20, 19, 16, 3).set(0x20 + 0x24, 23, 0, near.domain);
    let tis = near.rig.run(create).ok().dword(8);
    let query = |tis| near.rig.exec(&Raw::cmd(0x915, 16).set(8, 23, 0, tis), 176);
    let told = query(tis).ok();
    assert_eq!((told.dword(0x10), told.dword(0x10 + 0x24)), (3 << 16, near.domain));
    assert_eq!(query(tis + 1).syndrome(), Refusal::NO_SUCH_OBJECT.syndrome);
    assert_eq!(rules(&near.rig), [Rule::ObjectExists]);
}
