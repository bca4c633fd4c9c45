//! Datagrams end to end: our driver, the model, packets between. Cases F2 to F5.

use crate::support::*;
use mlx5_direct::{
    Context, Error, QpAddress, QpInit,
    backend::{AddressVector, GidEntry, GidType, LinkLayer, QpModify, link_local_gid},
    cqe::{CqeOpcode, CqeSyndrome, RoceL3},
    mlx5::{
        context::QpState,
        ids::{Lkey, Qpn},
    },
    queue::{AddressHandle, Flags, Grh, PostError, Ud},
};

const QKEY: u32 = 0x1111_1111;
const GRH: u64 = Grh::BYTES as u64;

/// Two queue pairs that know each other's address.
struct Peers {
    card: Card,
    a: Side<Ud>,
    b: Side<Ud>,
    to_a: QpAddress,
    to_b: QpAddress,
}

/// Every function of a card, open.
fn contexts(card: &Card) -> Vec<Context> {
    (0..card.n_functions()).map(|function| open(card, function)).collect()
}

fn activated(card: &Card, ctx: &Context) -> Side<Ud> {
    let mut side = Side::of(card, ctx, &Setup::default());
    side.qp.activate(1, QKEY).expect("activate");
    side
}

impl Peers {
    fn new(options: &str) -> Self {
        let card = card(options);
        let contexts = contexts(&card);
        let [a, b] = [0, contexts.len() - 1].map(|function| activated(&card, &contexts[function]));
        let [to_a, to_b] = [&a, &b].map(|side| side.qp.address(1, None).unwrap());
        Self { card, a, b, to_a, to_b }
    }

    fn handle_to_b(&self) -> AddressHandle {
        self.a.qp.address_handle(&self.a.qp.address_to(&self.to_b).unwrap(), self.to_b.qpn, QKEY).unwrap()
    }

    fn end(self) {
        let Self { card, a, b, .. } = self;
        drop((a, b));
        card.assert_clean();
    }
}

/// The first 40 bytes of what arrived at `offset`.
fn grh(side: &Side<Ud>, offset: usize) -> [u8; Grh::BYTES] {
    side.bytes(offset, Grh::BYTES).try_into().unwrap()
}

/// Sends from `from` by `to`, and answers what arrives, by what arrived with it.
fn there_and_back(from: &mut Side<Ud>, to: &AddressHandle, at: &mut Side<Ud>) -> Grh {
    let data = pattern(5, 1000);
    from.mr.write(0, &data);
    at.mr.write(2000, &[0xee; 40]);
    at.recv(1, 2000..4000);
    from.recv(2, 4000..6000);
    from.post(|list, memory| {
        list.send_imm(3, to, 0xcafe, SIGNALED).unwrap().local(memory, 0..1000).unwrap().finish();
    });
    from.ok();
    let got = at.ok();
    assert_eq!((got.wr_id, got.opcode, got.imm), (1, CqeOpcode::RESP_SEND_IMM, Some(0xcafe)));
    assert_eq!(got.byte_len, 1040, "the header's 40 bytes count");
    assert_eq!(at.bytes(2040, 1000), data);
    let source = got.source.unwrap();
    assert_eq!(source.qpn, from.qp.qpn());
    let header = grh(at, 2000);
    let way = at.qp.address_from(&source, &header).unwrap();
    let back = at.qp.address_handle(&way, source.qpn, QKEY).unwrap();
    at.post(|list, _| list.send(4, &back, SIGNALED).unwrap().inline(b"back").unwrap().finish());
    at.ok();
    let answer = from.ok();
    assert_eq!((answer.opcode, answer.byte_len, answer.imm), (CqeOpcode::RESP_SEND, 44, None));
    assert_eq!(from.bytes(4040, 4), b"back");
    assert_eq!(answer.source.unwrap().qpn, at.qp.qpn());
    if !source.grh {
        assert_eq!(header, [0xee; 40], "nothing is written where there is no header");
    }
    Grh::parse(&header, if at.ctx.port(1).unwrap().mac == [0; 6] { RoceL3::GRH } else { source.roce_l3() })
}

#[test]
fn f2_ud_send_grh() {
    needs!(Need::Prm);
    for options in ["ports=2", "ports=1"] {
        let mut peers = Peers::new(options);
        let [ip_a, ip_b] = [[10, 0, 0, 1], [10, 0, 0, 2]];
        let index_a = peers.a.ctx.add_address(1, ip_a.into()).unwrap();
        let index_b = peers.b.ctx.add_address(1, ip_b.into()).unwrap();
        let link_local = peers.a.qp.address_to(&peers.to_b).unwrap();
        // RoCE v1, v2 over IPv6, v2 over IPv4.
        for (index, peer_index, l3) in
            [(0, 0, RoceL3::GRH), (1, 1, RoceL3::IPV6), (index_a, index_b, RoceL3::IPV4)]
        {
            let own = peers.a.ctx.gid(1, index.into()).unwrap();
            let peer = peers.b.ctx.gid(1, peer_index.into()).unwrap();
            let way = AddressVector {
                sgid_index: index,
                dgid: peer.gid,
                traffic_class: 0x28,
                hop_limit: 9,
                flow_label: 0x1_2345,
                ..link_local
            };
            let to = peers.a.qp.address_handle(&way, peers.to_b.qpn, QKEY).unwrap();
            // Over IPv4 the sender's MAC does not follow from what arrived.
            if l3 == RoceL3::IPV4 {
                peers.b.recv(1, 0..2000);
                peers.a.post(|list, _| list.send(1, &to, SIGNALED).unwrap().inline(b"x").unwrap().finish());
                peers.a.ok();
                let source = peers.b.ok().source.unwrap();
                let header = grh(&peers.b, 0);
                let way = peers.b.qp.address_from(&source, &header).unwrap();
                assert_eq!((way.dmac, way.sgid_index, way.dgid), ([0; 6], index_b, own.gid));
                let refused = peers.b.qp.address_handle(&way, source.qpn, QKEY).unwrap_err().to_string();
                assert!(refused.contains("dmac") && refused.contains("give the peer's"), "{refused}");
                let way = AddressVector { dmac: peers.to_a.mac, ..way };
                let back = peers.b.qp.address_handle(&way, source.qpn, QKEY).unwrap();
                peers.a.recv(2, 0..100);
                peers.b.post(|list, _| list.send(2, &back, SIGNALED).unwrap().finish());
                peers.b.ok();
                assert_eq!(peers.a.ok().byte_len, 40);
                assert_eq!(source.roce_l3(), l3);
                let header = Grh::parse(&header, l3);
                assert_eq!((header.sgid, header.dgid), (own.gid, peer.gid));
                assert_eq!((header.traffic_class, header.hop_limit), (0x28, 9));
                continue;
            }
            let header = there_and_back(&mut peers.a, &to, &mut peers.b);
            assert_eq!((header.sgid, header.dgid), (own.gid, peer.gid));
            assert_eq!(
                (header.traffic_class, header.hop_limit, header.flow_label),
                (0x28, 9, 0x1_2345),
                "{l3}"
            );
        }
        peers.end();
    }
}

#[test]
fn f2_ud_send_grh_wrong_qkey_is_dropped_in_silence() {
    let mut peers = Peers::new("ports=2");
    let to_b = peers.handle_to_b();
    peers.b.recv(1, 0..200);
    let violations = |peers: &Peers| peers.b.ctx.port(1).unwrap().qkey_viol_cntr;
    let before = violations(&peers);
    let wrong = to_b.with_peer(peers.to_b.qpn, QKEY ^ 1);
    peers.a.post(|list, _| list.send(1, &wrong, SIGNALED).unwrap().inline(b"lost").unwrap().finish());
    peers.a.ok();
    peers.b.assert_quiet();
    assert_eq!(violations(&peers), before + 1);
    // With its uppermost bit set, the own Q_Key goes instead.
    let own = to_b.with_peer(peers.to_b.qpn, 0x8000_0000);
    peers.a.post(|list, _| list.send(2, &own, SIGNALED).unwrap().inline(b"comes").unwrap().finish());
    peers.a.ok();
    assert_eq!(peers.b.ok().byte_len, 45);
    // A queue pair that wants to see another from now on.
    let other = QpModify { qkey: Some(QKEY ^ 1), ..QpModify::to(QpState::RTS) };
    peers.b.qp.modify(&other).unwrap();
    assert_eq!(peers.b.qp.query().unwrap().qkey, QKEY ^ 1);
    peers.b.recv(2, 0..200);
    peers.a.post(|list, _| list.send(3, &wrong, SIGNALED).unwrap().inline(b"now it does").unwrap().finish());
    peers.a.ok();
    assert_eq!(peers.b.ok().byte_len, 51);
    peers.end();
}

#[test]
fn f3_ud_many_destinations() {
    let card = card("ports=2");
    let contexts = contexts(&card);
    let mut sender = activated(&card, &contexts[0]);
    let mut receivers: Vec<_> = (0..8).map(|n| activated(&card, &contexts[n % 2])).collect();
    let handles: Vec<_> = receivers
        .iter()
        .map(|receiver| {
            let peer = receiver.qp.address(1, None).unwrap();
            sender.qp.address_handle(&sender.qp.address_to(&peer).unwrap(), peer.qpn, QKEY).unwrap()
        })
        .collect();
    for round in 0..100u64 {
        for receiver in &mut receivers {
            receiver.recv(round, 0..100);
        }
        sender.post(|list, _| {
            for (n, to) in handles.iter().enumerate() {
                let text = [n as u8; 8];
                let flags = if n == 7 { SIGNALED } else { Flags::NONE };
                list.send(n as u64, to, flags).unwrap().inline(&text).unwrap().finish();
            }
            // To nobody: lost, and nobody is told.
            let nobody = handles[0].with_peer(Qpn::new(0xff_fff0), QKEY);
            list.send(8, &nobody, SIGNALED).unwrap().inline(b"lost").unwrap().finish();
        });
        assert_eq!((sender.ok().wr_id, sender.ok().wr_id), (7, 8));
        for (n, receiver) in receivers.iter_mut().enumerate() {
            let got = receiver.ok();
            assert_eq!((got.wr_id, got.byte_len), (round, 48));
            assert_eq!(receiver.bytes(40, 8), [n as u8; 8]);
        }
    }
    drop((sender, receivers));
    card.assert_clean();
}

#[test]
fn f4_ud_over_mtu_refused() {
    for options in makes(&["ports=2,mtu=256", "ports=2,mtu=1024", "ports=2"]) {
        let card = card(options);
        let init = QpInit { max_send_sge: 2, max_inline_data: 600, ..QpInit::default() };
        let setup = Setup { init, ..Setup::default() };
        let [mut a, mut b] = [0, 1].map(|function| Side::<Ud>::of(&card, &open(&card, function), &setup));
        let mtu = a.ctx.port(1).unwrap().active_mtu.bytes().unwrap() as usize;
        a.qp.activate(1, QKEY).unwrap();
        b.qp.activate(1, QKEY).unwrap();
        let peer = b.qp.address(1, None).unwrap();
        let to = a.qp.address_handle(&a.qp.address_to(&peer).unwrap(), peer.qpn, QKEY).unwrap();
        let limits = a.qp.send_limits();
        assert_eq!(limits.max_message_bytes, mtu as u32);
        assert!(usize::from(limits.max_inline_bytes) <= mtu);
        let (lease, long) = (a.lease, mtu as u64 + 1);
        let mut list = a.qp.post_list();
        let request = list.send(1, &to, SIGNALED).unwrap();
        assert_eq!(request.local(lease, 0..long).unwrap_err(), PostError::MessageTooLong);
        let request = list.send(1, &to, SIGNALED).unwrap().local(lease, 0..long - 1).unwrap();
        assert_eq!(request.local(lease, 0..1).unwrap_err(), PostError::MessageTooLong, "in two pieces");
        let inline = vec![0; usize::from(limits.max_inline_bytes) + 1];
        let request = list.send(1, &to, SIGNALED).unwrap();
        assert_eq!(request.inline(&inline).unwrap_err(), PostError::InlineTooLong);
        assert_eq!(list.n_wqebbs(), 0, "nothing was written");
        list.ring();
        // As long as it may be.
        b.recv(1, 0..GRH + mtu as u64);
        let data = pattern(1, mtu);
        a.mr.write(0, &data);
        a.post(|list, memory| {
            list.send(1, &to, SIGNALED).unwrap().local(memory, 0..mtu as u64).unwrap().finish();
        });
        a.ok();
        assert_eq!(b.ok().byte_len, mtu as u32 + 40);
        assert_eq!(b.bytes(40, mtu), data);
        drop((a, b));
        card.assert_clean();
    }
}

#[test]
fn f5_ah_create_rules() {
    needs!(Need::Prm);
    let peers = Peers::new("ports=2");
    let good = peers.a.qp.address_to(&peers.to_b).unwrap();
    for (way, says) in [
        (AddressVector { dmac: [0; 6], ..good }, "ah.dmac"),
        (AddressVector { dmac: [0xff; 6], ..good }, "ah.dmac"),
        (AddressVector { sgid_index: 7, ..good }, "GID index 7"),
        (AddressVector { sl: 8, ..good }, "ah.sl is 8"),
        (AddressVector { flow_label: 1 << 20, ..good }, "ah.flow_label"),
        (AddressVector { port: 2, ..good }, "port 2"),
    ] {
        let refused = peers.a.qp.address_handle(&way, peers.to_b.qpn, QKEY).unwrap_err();
        assert!(matches!(refused, Error::InvalidArgument(_)), "{refused}");
        assert!(refused.to_string().contains(says), "{says}: {refused}");
    }
    // An answer to an address that the port has not.
    let source = mlx5_direct::queue::Source { qpn: Qpn::new(1), slid: 0, sl: 9, path_bits: 0, grh: true };
    let refused = peers.a.qp.address_from(&source, &[0x60; 40]).unwrap_err().to_string();
    assert!(refused.contains("no address of port 1"), "{refused}");
    peers.end();
}

/// An address vector as libmlx5 writes it.
#[test]
fn f5_ah_create_rules_bytes_of_libmlx5() {
    needs!(Need::Options("link=ib"));
    let [roce, infiniband] = ["ports=1", "ports=1,link=ib"].map(card);
    let sides = [&roce, &infiniband].map(|card| activated(card, &open(card, 0)));
    for index in [1, 3] {
        let entry = GidEntry::roce_v2([120, 130, 140, index].into(), [2, 0, 0, 0, 0, 1]);
        sides[0].ctx.set_gid(1, index.into(), Some(&entry)).unwrap();
    }
    let mut n_equal = 0;
    for line in include_str!("../data/av-vectors.jsonl").lines() {
        let vector: serde_json::Value = serde_json::from_str(line).unwrap();
        let (id, av) = (vector["id"].as_str().unwrap(), &vector["av"]);
        let hex = |text: &serde_json::Value| {
            let text = text.as_str().unwrap().as_bytes();
            let digits = text.chunks(2).map(|two| std::str::from_utf8(two).unwrap());
            digits.map(|two| u8::from_str_radix(two, 16).unwrap()).collect::<Vec<_>>()
        };
        let word = |text: &serde_json::Value| {
            u32::from_str_radix(text.as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
        };
        let number = |name: &str| av[name].as_u64().unwrap_or(0);
        let side = &sides[usize::from(av["net"] == "IB")];
        let way = AddressVector {
            port: 1,
            sgid_index: number("sgid_index") as u8,
            dgid: av.get("dgid").map_or([0; 16], |gid| hex(gid).try_into().unwrap()),
            dmac: av.get("dmac").map_or([0; 6], |mac| hex(mac).try_into().unwrap()),
            dlid: number("dlid") as u16,
            sl: number("sl") as u8,
            hop_limit: number("hop_limit") as u8,
            traffic_class: number("tclass") as u8,
            flow_label: number("flow_label") as u32,
            // RoCE v1 has none, and libmlx5 writes none.
            udp_sport: (av["net"] == "RoCEv1").then_some(0),
            force_loopback: false,
        };
        let qpn = Qpn::new(word(&vector["remote_qpn"]));
        let handle = side.qp.address_handle(&way, qpn, word(&vector["remote_qkey"])).unwrap();
        assert_eq!(handle.av().to_bytes().to_vec(), hex(&vector["hex"]), "{id}");
        n_equal += 1;
    }
    assert_eq!(n_equal, 7);
}

#[test]
fn ud_on_infiniband_by_lid_and_with_a_grh() {
    needs!(Need::Options("link=ib"));
    let mut peers = Peers::new("ports=2,link=ib");
    assert_eq!(peers.a.ctx.port(1).unwrap().link_layer, LinkLayer::InfiniBand);
    let by_lid = peers.a.qp.address_to(&peers.to_b).unwrap();
    assert_eq!((by_lid.dgid, by_lid.dlid), ([0; 16], peers.to_b.lid));
    for with_grh in [false, true] {
        let dgid = if with_grh { peers.to_b.gid } else { [0; 16] };
        let way = AddressVector { dgid, sl: 3, traffic_class: 7, ..by_lid };
        let to = peers.a.qp.address_handle(&way, peers.to_b.qpn, QKEY).unwrap();
        assert_eq!(to.av().grh(), with_grh);
        let header = there_and_back(&mut peers.a, &to, &mut peers.b);
        if with_grh {
            assert_eq!((header.sgid, header.dgid), (peers.to_a.gid, peers.to_b.gid));
            assert_eq!(header.traffic_class, 7);
        }
    }
    peers.end();
}

/// What nobody waits for is lost, what does not fit ends the receiver: the sender is told of neither.
#[test]
fn ud_receives_that_fail() {
    let mut peers = Peers::new("ports=2");
    let to = peers.handle_to_b();
    let send = |peers: &mut Peers| {
        peers.a.post(|list, _| list.send(1, &to, SIGNALED).unwrap().inline(b"8 bytes.").unwrap().finish());
        peers.a.ok();
    };
    send(&mut peers);
    peers.b.assert_quiet();
    // Just enough, with the header.
    peers.b.recv(1, 0..48);
    send(&mut peers);
    assert_eq!(peers.b.ok().byte_len, 48);
    peers.b.recv(2, 0..47);
    peers.b.recv(3, 0..100);
    send(&mut peers);
    assert_eq!(peers.b.fails().syndrome, CqeSyndrome::LOCAL_LENGTH_ERR);
    assert!(peers.b.fails().is_flush());
    assert_eq!(peers.b.qp.refresh().unwrap(), QpState::ERR);
    // From the start again.
    peers.b.qp.modify(&QpModify::to(QpState::RST)).unwrap();
    peers.b.qp.activate(1, QKEY).unwrap();
    peers.b.recv(4, 0..100);
    send(&mut peers);
    assert_eq!(peers.b.ok().wr_id, 4);
    peers.end();
}

/// A send that fails stops the send queue alone, and it can be started again.
#[test]
fn ud_send_queue_error() {
    let mut peers = Peers::new("ports=2");
    let to = peers.handle_to_b();
    for _ in 0..3 {
        peers.a.post(|list, _| {
            // SAFETY: the key is no region's.
            unsafe { list.send(1, &to, SIGNALED).unwrap().sge(Lkey::new(0xdead_be00), 0, 8).unwrap() }
                .finish();
            list.send(2, &to, SIGNALED).unwrap().inline(b"behind").unwrap().finish();
        });
        assert_eq!(peers.a.fails().syndrome, CqeSyndrome::LOCAL_PROT_ERR);
        assert!(peers.a.fails().is_flush());
        assert_eq!(peers.a.device_state(), QpState::SQER);
        peers.a.qp.modify(&QpModify::to(QpState::RTS)).unwrap();
        peers.b.recv(3, 0..100);
        peers.a.post(|list, _| list.send(3, &to, SIGNALED).unwrap().inline(b"again").unwrap().finish());
        peers.a.ok();
        assert_eq!(peers.b.ok().byte_len, 45);
    }
    peers.end();
}

/// Requests of all lengths at every place of a ring, and the counter's wrap at 65536.
#[test]
fn ud_send_queue_wraps() {
    let card = card("ports=1");
    let init = QpInit { max_send_wr: 8, max_send_sge: 3, max_inline_data: 300, ..QpInit::default() };
    let setup = Setup { init, ..Setup::default() };
    let mut side = Side::<Ud>::of(&card, &open(&card, 0), &setup);
    side.qp.activate(1, QKEY).unwrap();
    let own = side.qp.address(1, None).unwrap();
    let to = side.qp.address_handle(&side.qp.address_to(&own).unwrap(), own.qpn, QKEY).unwrap();
    let n_wqebbs = side.qp.send_queue().n_wqebbs();
    let round_trip = |side: &mut Side<Ud>, n: u64, len: usize| {
        let data = pattern(n, len);
        side.recv(n, 8192..10_000);
        if n.is_multiple_of(2) {
            side.post(|list, _| list.send(n, &to, SIGNALED).unwrap().inline(&data).unwrap().finish());
        } else {
            side.mr.write(0, &data);
            let (first, second) = (len as u64 / 3, len as u64 / 2);
            side.post(|list, memory| {
                let request = list.send_imm(n, &to, n as u32, SIGNALED).unwrap();
                let request = request.local(memory, 0..first).unwrap().local(memory, first..second).unwrap();
                request.local(memory, second..len as u64).unwrap().finish();
            });
        }
        let mut done = [side.ok(), side.ok()];
        done.sort_by_key(|done| done.is_send);
        assert_eq!((done[0].byte_len as usize, done[1].wr_id), (len + 40, n));
        assert_eq!(side.bytes(8232, len), data, "{n}");
    };
    for n in 0..600 {
        round_trip(&mut side, n, (n * 7 % 301) as usize);
    }
    // On to the wrap, but for a little.
    let mut posted = 0;
    while posted < 65_000 {
        side.post(|list, _| {
            for n in 0..n_wqebbs {
                let flags = if n + 1 == n_wqebbs { SIGNALED } else { Flags::NONE };
                list.nop(0, flags).unwrap().finish();
            }
        });
        side.ok();
        posted += n_wqebbs;
    }
    for n in 0..600 {
        round_trip(&mut side, n, (n * 11 % 301) as usize);
    }
    drop(side);
    card.assert_clean();
}

/// The way to a peer is what the port says of it, and no connection is needed to know it.
#[test]
fn ud_states_and_attributes() {
    let card = card("ports=1");
    let ctx = open(&card, 0);
    let mut side = Side::<Ud>::of(&card, &ctx, &Setup::default());
    let refused =
        side.qp.modify(&QpModify { pkey_index: Some(0), port: Some(1), ..QpModify::to(QpState::INIT) });
    assert!(refused.unwrap_err().to_string().contains("give qkey"), "a Q_Key is needed");
    assert!(side.qp.activate(2, QKEY).unwrap_err().to_string().contains("port 2"));
    side.qp.activate(1, QKEY).unwrap();
    let attr = side.qp.query().unwrap();
    assert_eq!((attr.state, attr.qkey, attr.port), (QpState::RTS, QKEY, 1));
    assert!(side.qp.activate(1, QKEY).is_err(), "from RST alone");
    let peer = QpAddress {
        qpn: Qpn::new(7),
        gid: link_local_gid([2, 0, 0, 0, 0, 9]),
        mac: [2, 0, 0, 0, 0, 9],
        ..side.qp.address(1, None).unwrap()
    };
    let way = side.qp.address_to(&peer).unwrap();
    assert_eq!((way.dmac, way.dgid, way.sgid_index), (peer.mac, peer.gid, 1));
    assert_eq!(ctx.gid(1, way.sgid_index.into()).unwrap().gid_type, GidType::RoceV2);
    drop(side);
    card.assert_clean();
}
