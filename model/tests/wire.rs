//! Frames and the wire that carries them.

use mlx5_direct::mlx5::ids::{Psn, Qpn};
use mlx5_model::{
    exec::RoceKind,
    wire::{
        Acknowledgement, Address, Aeth, AtomicEth, Bth, Deth, Ethernet, Fate, Headers, LinkHeader, Lrh,
        MaskEth, Network, Opcode, Packet, PacketError, Port, Reth, Wire,
        link::{QUEUE_LIMIT_FRAMES, REORDER_LIMIT_NS},
    },
};

const KINDS: [RoceKind; 3] = [RoceKind::V1, RoceKind::V2Ipv4, RoceKind::V2Ipv6];

/// Everything set; an opcode takes what it has.
fn headers(kind: RoceKind, vlan_tci: Option<u16>, opcode: Opcode) -> Headers {
    let gid = |last| match kind {
        RoceKind::V2Ipv4 => [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, last],
        _ => [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, last],
    };
    let v1 = kind == RoceKind::V1;
    Headers {
        link: LinkHeader::Ethernet(Ethernet {
            dest: [2, 0, 0, 0, 0, 1],
            source: [2, 0, 0, 0, 0, 2],
            vlan_tci,
        }),
        network: Some(Network {
            kind,
            source_gid: gid(1),
            dest_gid: gid(2),
            traffic_class: 0x68,
            hop_limit: 64,
            flow_label: if kind == RoceKind::V2Ipv4 { 0 } else { 0x12345 },
            udp_source_port: if v1 { 0 } else { 0xc123 },
        }),
        bth: Bth {
            opcode,
            solicited: true,
            pkey: 0xffff,
            dest_qpn: Qpn::new(0x123456),
            ack_req: true,
            psn: Psn::new(0xfedcba),
        },
        reth: Some(Reth { addr: 0x1122_3344_5566_7788, rkey: 0x99aa_bbcc, len_bytes: 0x0d0e_0f10 }),
        atomic: Some(AtomicEth {
            addr: 0x1020_3040_5060_7080,
            rkey: 0x90a0,
            swap_or_add: 1,
            compare: u64::MAX,
        }),
        masks: Some(MaskEth { len_bytes: 4, swap_or_boundary: 0xff00, compare: 0xf0f0 }),
        aeth: Some(Aeth::new(Acknowledgement::RnrNak(12), 0x654321)),
        atomic_ack: Some(0x0102_0304_0506_0708),
        imm: Some(0xdead_beef),
        xrc_srqn: None,
        dc: None,
        deth: Some(Deth { qkey: 0x1111_2222, source_qpn: Qpn::new(0x33_4455) }),
        invalidate: Some(0x1234_5600),
    }
}

/// The same on InfiniBand, with a GRH or without.
fn infiniband(grh: bool, opcode: Opcode) -> Headers {
    let headers = headers(RoceKind::V1, None, opcode);
    Headers {
        link: LinkHeader::InfiniBand(Lrh { vl: 3, sl: 5, dest_lid: 0x1234, source_lid: 0x4321 }),
        network: headers.network.filter(|_| grh),
        ..headers
    }
}

fn opcodes() -> impl Iterator<Item = Opcode> {
    (0..=0x17).filter(|&code| code != 0x15).chain([0x1e, 0x1f]).map(Opcode)
}

fn may_carry(opcode: Opcode) -> bool {
    opcode.is_send() || opcode.is_write() || opcode.is_read_response()
}

#[test]
fn every_opcode_comes_back_as_it_went() {
    for kind in KINDS {
        for vlan_tci in [None, Some(0x6005)] {
            for opcode in opcodes() {
                for len in [0usize, 1, 2, 3, 4, 4096] {
                    if len > 0 && !may_carry(opcode) {
                        continue;
                    }
                    let payload: Vec<u8> = (0..len).map(|n| n as u8).collect();
                    let sent = headers(kind, vlan_tci, opcode);
                    let frame = sent.frame(&payload);
                    let packet = Packet::parse(&frame).unwrap();
                    assert_eq!(packet.payload, payload);
                    let got = packet.headers;
                    assert_eq!(
                        (got.link, got.network, got.bth),
                        (sent.link, sent.network, sent.bth),
                        "{kind:?} {opcode:?}"
                    );
                    let same = |name: &str, got: bool, equal: bool| {
                        assert!(!got || equal, "{name} of {opcode:?}");
                    };
                    same("RETH", got.reth.is_some(), got.reth == sent.reth);
                    same("AtomicETH", got.atomic.is_some(), got.atomic == sent.atomic);
                    same("masks", got.masks.is_some(), got.masks == sent.masks);
                    same("AETH", got.aeth.is_some(), got.aeth == sent.aeth);
                    same("AtomicAckETH", got.atomic_ack.is_some(), got.atomic_ack == sent.atomic_ack);
                    same("ImmDt", got.imm.is_some(), got.imm == sent.imm);
                    same("IETH", got.invalidate.is_some(), got.invalidate == sent.invalidate);
                    // A minimal Ethernet frame is padded.
                    let mut padded = frame.clone();
                    padded.resize(frame.len() + 20, 0);
                    assert_eq!(Packet::parse(&padded).unwrap(), packet);
                }
            }
        }
    }
}

#[test]
fn bytes_of_a_write_with_immediate() {
    let frame = headers(RoceKind::V2Ipv4, None, Opcode::WRITE_ONLY_IMM).frame(&[0xa1, 0xa2, 0xa3]);
    let before_icrc = [
        0x02, 0, 0, 0, 0, 1, 0x02, 0, 0, 0, 0, 2, 0x08, 0x00, // Ethernet
        0x45, 0x68, 0, 68, 0, 0, 0x40, 0, 64, 17, 0x26, 0x3f, 10, 0, 0, 1, 10, 0, 0, 2, // IPv4
        0xc1, 0x23, 0x12, 0xb7, 0, 48, 0, 0, // UDP
        0x0b, 0xd0, 0xff, 0xff, 0, 0x12, 0x34, 0x56, 0x80, 0xfe, 0xdc, 0xba, // BTH: SE, MigReq, pad 1
        0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0x0d, 0x0e, 0x0f,
        0x10, // RETH
        0xde, 0xad, 0xbe, 0xef, // ImmDt
        0xa1, 0xa2, 0xa3, 0x00,
    ];
    assert_eq!(frame[..frame.len() - 4], before_icrc);
}

#[test]
fn infiniband_packets_come_back_as_they_went() {
    for grh in [false, true] {
        for opcode in opcodes() {
            for len in [0usize, 3, 4096] {
                if len > 0 && !may_carry(opcode) {
                    continue;
                }
                let sent = infiniband(grh, opcode);
                let packet = sent.frame(&vec![0x5a; len]);
                let got = Packet::parse_infiniband(&packet).unwrap();
                assert_eq!(got.payload.len(), len);
                assert_eq!(
                    (got.headers.link, got.headers.network, got.headers.bth),
                    (sent.link, sent.network, sent.bth),
                    "GRH {grh}, {opcode:?}"
                );
            }
        }
    }
}

#[test]
fn bytes_of_an_infiniband_send() {
    let packet = infiniband(false, Opcode::SEND_ONLY).frame(&[0xa1, 0xa2, 0xa3]);
    let before_icrc = [
        0x30, 0x52, 0x12, 0x34, 0, 7, 0x43, 0x21, // LRH: VL 3, SL 5, a BTH next, 28 bytes with the ICRC
        0x04, 0xd0, 0xff, 0xff, 0, 0x12, 0x34, 0x56, 0x80, 0xfe, 0xdc, 0xba, // BTH: SE, MigReq, pad 1
        0xa1, 0xa2, 0xa3, 0x00,
    ];
    assert_eq!(packet[..packet.len() - 6], before_icrc);
    assert_eq!(infiniband(true, Opcode::SEND_ONLY).frame(&[])[..6], [0x30, 0x53, 0x12, 0x34, 0, 16]);
}

#[test]
fn every_changed_bit_of_an_infiniband_packet_is_found() {
    for grh in [false, true] {
        let good = infiniband(grh, Opcode::SEND_ONLY).frame(&[7; 100]);
        for len in 0..good.len() {
            assert!(Packet::parse_infiniband(&good[..len]).is_err(), "cut to {len}");
        }
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 0x80 >> (bit % 8);
            // Bits of the LRH that are reserved before the length, and so ignored, are under the VCRC too.
            assert!(Packet::parse_infiniband(&bad).is_err(), "GRH {grh}: bit {bit}");
        }
    }
    let raw = infiniband(false, Opcode::SEND_ONLY).frame(&[]);
    let with_lrh = |at: usize, value: u8| {
        let mut packet = raw.clone();
        packet[at] = value;
        Packet::parse_infiniband(&packet).unwrap_err()
    };
    assert_eq!(with_lrh(0, 0x31), PacketError::Lrh, "link version 1");
    assert_eq!(with_lrh(1, 0x50), PacketError::Lrh, "a raw packet");
}

#[test]
fn what_is_broken_is_refused() {
    for kind in KINDS {
        let good = headers(kind, None, Opcode::SEND_ONLY).frame(&[7; 100]);
        for len in 0..good.len() {
            assert!(Packet::parse(&good[..len]).is_err(), "{kind:?} cut to {len}");
        }
        // All that the ICRC or the IP checksum covers; routers may change the rest.
        let variant: &[usize] = match kind {
            RoceKind::V1 => &[15, 16, 17, 21],
            RoceKind::V2Ipv4 => &[40, 41],
            RoceKind::V2Ipv6 => &[15, 16, 17, 21, 60, 61],
        };
        let bth = good.len() - 4 - 100 - 12;
        for at in (14..good.len()).filter(|at| !variant.contains(at) && *at != bth + 4) {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                let low_nibble_of_version = kind != RoceKind::V2Ipv4 && at == 14 && bit < 4;
                assert!(
                    Packet::parse(&bad).is_err() || low_nibble_of_version,
                    "{kind:?}: byte {at}, bit {bit}"
                );
            }
        }
    }
    let mut frame = headers(RoceKind::V2Ipv4, None, Opcode(0x15)).frame(&[]);
    assert_eq!(Packet::parse(&frame), Err(PacketError::Opcode(Opcode(0x15))));
    frame[12..14].copy_from_slice(&[8, 6]);
    assert_eq!(Packet::parse(&frame), Err(PacketError::NotRoce));
    let ack = headers(RoceKind::V1, None, Opcode::ACKNOWLEDGE).frame(&[0; 4]);
    assert_eq!(Packet::parse(&ack), Err(PacketError::Length), "an ACK has no payload");
}

#[test]
fn acknowledgements_keep_their_meaning() {
    for syndrome in 0..=255 {
        let aeth = Aeth { syndrome, msn: 1 };
        let again = Aeth::new(aeth.what(), 1);
        assert_eq!(again.what(), aeth.what());
        assert_eq!(again.syndrome, if syndrome < 0x20 { 0x1f } else { syndrome });
    }
}

const MACS: [[u8; 6]; 3] = [[2, 0, 0, 0, 0, 0], [2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];

fn wire() -> (Wire, [Port; 3]) {
    let mut wire = Wire::new();
    let ports = MACS.map(|mac| wire.add_port(Address::Mac(mac)));
    (wire, ports)
}

fn frame(to: usize, tag: u8) -> Vec<u8> {
    [&MACS[to][..], &[tag]].concat()
}

/// Tags of all that has arrived.
fn arrived(wire: &mut Wire, port: Port, now_ns: u64) -> Vec<u8> {
    std::iter::from_fn(|| wire.receive(port, now_ns)).map(|frame| frame[6]).collect()
}

#[test]
fn frames_go_by_mac_and_the_unknown_to_all_others() {
    let (mut wire, [a, b, c]) = wire();
    wire.send(a, &frame(1, 1), 0);
    wire.send(a, &frame(0, 2), 0);
    wire.send(a, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 3], 0);
    wire.send(a, &[1, 2, 3], 0);
    assert!(wire.has_arrivals());
    assert_eq!(arrived(&mut wire, a, 0), [2], "loopback");
    assert_eq!(arrived(&mut wire, b, 0), [1, 3]);
    assert_eq!(arrived(&mut wire, c, 0), [3]);
    assert!(!wire.has_arrivals());
    wire.set_address(b, Address::Mac([2, 9, 9, 9, 9, 9]));
    wire.send(a, &[2, 9, 9, 9, 9, 9, 4], 0);
    assert_eq!(arrived(&mut wire, b, 0), [4]);
}

#[test]
fn every_fate() {
    let (mut wire, [a, b, _]) = wire();
    wire.interfere(Some(Box::new(|_: Port, _: Port, frame: &mut Vec<u8>| match frame[6] {
        1 => Fate::Drop,
        2 => Fate::Duplicate { copies: 3 },
        3 => Fate::Reorder { frames: 2 },
        4 => Fate::Delay { ns: 500 },
        5 => {
            frame[6] = 0x55;
            Fate::Deliver
        }
        6 => Fate::Duplicate { copies: 0 },
        _ => Fate::Deliver,
    })));
    for tag in [1, 2, 3, 4, 5, 6, 7, 8] {
        wire.send(a, &frame(1, tag), 1000);
    }
    assert_eq!(wire.next_deadline(), Some(1500));
    assert_eq!(arrived(&mut wire, b, 1499), [2, 2, 2, 0x55, 7, 3, 8]);
    assert_eq!(arrived(&mut wire, b, 1500), [4]);
    // Nothing comes to overtake it.
    wire.send(a, &frame(1, 3), 2000);
    assert_eq!(arrived(&mut wire, b, 2000 + REORDER_LIMIT_NS - 1), []);
    assert_eq!(arrived(&mut wire, b, 2000 + REORDER_LIMIT_NS), [3]);
    assert_eq!(wire.next_deadline(), None);
}

#[test]
fn a_full_queue_loses_frames_and_counts_them() {
    let (mut wire, [a, b, _]) = wire();
    for n in 0..QUEUE_LIMIT_FRAMES + 5 {
        wire.send(a, &frame(1, n as u8), 0);
    }
    assert_eq!(wire.n_lost(b), 5);
    assert_eq!(arrived(&mut wire, b, 0).len(), QUEUE_LIMIT_FRAMES);
}
