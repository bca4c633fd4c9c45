//! The driver on ports of InfiniBand.

use crate::support::*;
use mlx5_direct::{
    Connection, Error,
    backend::{AddressVector, GidType, LinkLayer, PortState, QpModify},
    cqe::CqeSyndrome,
    mlx5::context::{Mtu, QpState},
    queue::Flags,
};
use std::time::Instant;

/// SEND, WRITE, READ and an atomic from `a` to `b`, of more than one packet where there is data.
fn all_operations(a: &mut Side, b: &mut Side) {
    let data = pattern(7, 9000);
    a.mr.write(0, &data);
    b.recv(1, 0..16_384);
    a.post(|list, memory| list.send(2, SIGNALED).unwrap().local(memory, 0..9000).unwrap().finish());
    assert_eq!(b.ok().byte_len, 9000);
    a.ok();
    assert_eq!(b.bytes(0, 9000), data);
    let remote = b.remote(20_000);
    a.post(|list, memory| {
        list.rdma_write(3, remote, Flags::NONE).unwrap().local(memory, 0..9000).unwrap().finish();
        list.rdma_read(4, remote, SIGNALED).unwrap().local(memory, 30_000..39_000).unwrap().finish();
    });
    a.ok();
    assert_eq!(a.bytes(30_000, 9000), data);
    b.mr.write(48_000, &5u64.to_ne_bytes());
    let remote = b.remote(48_000);
    a.post(|list, memory| {
        list.fetch_add(5, remote, 3, SIGNALED).unwrap().local(memory, 48_000).unwrap().finish();
    });
    a.ok();
    assert_eq!(a.bytes(48_000, 8), 5u64.to_ne_bytes());
    assert_eq!(b.bytes(48_000, 8), 8u64.to_ne_bytes());
}

#[test]
fn all_operations_by_lid() {
    for options in ["ports=2,link=ib", "link=ib", "ports=2,link=ib,lid=700"] {
        let mut pair = Pair::new(options);
        all_operations(&mut pair.a, &mut pair.b);
        all_operations(&mut pair.b, &mut pair.a);
    }
}

#[test]
fn all_operations_with_a_grh() {
    let card = card("ports=2,link=ib");
    let contexts = [open(&card, 0), open(&card, 1)];
    let [mut a, mut b] = contexts.map(|ctx| Side::new(&card, &ctx, &Setup::default()));
    let addresses = [&a, &b].map(|side| side.qp.address(1, None).unwrap());
    let how = Connection::default();
    for (side, own, peer) in [(&mut a, addresses[0], addresses[1]), (&mut b, addresses[1], addresses[0])] {
        // What `connect` does between subnets.
        let ah = AddressVector {
            port: 1,
            sgid_index: 0,
            dgid: peer.gid,
            dmac: [0; 6],
            dlid: peer.lid,
            sl: 3,
            hop_limit: 64,
            traffic_class: 0,
            flow_label: 0x12345,
            udp_sport: None,
            force_loopback: false,
        };
        let init = QpModify {
            pkey_index: Some(0),
            port: Some(1),
            access: Some(how.access),
            ..QpModify::to(QpState::INIT)
        };
        let rtr = QpModify {
            ah: Some(ah),
            path_mtu: Some(Mtu::MTU_1024),
            dest_qp_num: Some(peer.qpn),
            rq_psn: Some(peer.psn),
            max_dest_rd_atomic: Some(4),
            min_rnr_timer: Some(12),
            ..QpModify::to(QpState::RTR)
        };
        let rts = QpModify {
            timeout: Some(14),
            retry_cnt: Some(7),
            rnr_retry: Some(7),
            sq_psn: Some(own.psn),
            max_rd_atomic: Some(4),
            ..QpModify::to(QpState::RTS)
        };
        for modify in [init, rtr, rts] {
            side.qp.modify(&modify).unwrap();
        }
        let told = side.qp.query().unwrap().ah;
        assert_eq!((told.dlid, told.sl, told.dgid), (peer.lid, 3, peer.gid));
    }
    all_operations(&mut a, &mut b);
    all_operations(&mut b, &mut a);
    card.assert_clean();
}

#[test]
fn what_a_port_says_of_itself() {
    let card = card("ports=2,link=ib,mtu=2048");
    let ctx = open(&card, 1);
    let port = ctx.port(1).unwrap();
    assert_eq!((port.link_layer, port.state, port.lid), (LinkLayer::InfiniBand, PortState::Active, 2));
    assert_eq!((port.max_mtu, port.active_mtu), (Mtu::MTU_2048, Mtu::MTU_2048));
    assert_eq!((port.active_speed_mbps, port.active_width), (100_000, 4));
    assert_eq!((port.gid_tbl_len, port.pkey_tbl_len, port.mac), (8, 128, [0; 6]));
    let gid = ctx.gid(1, 0).unwrap();
    assert_eq!((gid.gid_type, &gid.gid[..8]), (GidType::Ib, &[0xfe, 0x80, 0, 0, 0, 0, 0, 0][..]));
    let error = ctx.gid(1, 1).unwrap_err().to_string();
    assert!(error.contains("GID index 1") && error.contains("empty"), "{error}");
    assert!(matches!(ctx.set_gid(1, 0, None), Err(Error::Unsupported { .. })), "a subnet manager's to fill");
}

#[test]
fn without_a_subnet_manager_nothing_passes() {
    let card = card("ports=2,link=ib,sm=off");
    let contexts = [open(&card, 0), open(&card, 1)];
    let port = contexts[0].port(1).unwrap();
    assert_eq!((port.state, port.lid), (PortState::Init, 0));
    let [mut a, mut b] = contexts.map(|ctx| Side::new(&card, &ctx, &Setup::default()));
    let how = Connection { timeout: 8, retry_cnt: 1, ..Connection::default() };
    connect(&mut a.qp, &mut b.qp, &how, &how);
    a.post(|list, _| list.send(1, SIGNALED).unwrap().inline(b"x").unwrap().finish());
    assert_eq!(a.fails().syndrome, CqeSyndrome::TRANSPORT_RETRY_EXC_ERR);
    card.assert_clean();
}

#[test]
fn a_cable_that_is_pulled_and_plugged_in_again() {
    let mut pair = Pair::new("ports=2,link=ib");
    let state = |pair: &Pair| pair.a.ctx.port(1).unwrap().state;
    pair.card.model().set_port(0, false);
    assert_eq!(state(&pair), PortState::Down);
    pair.card.model().set_port(0, true);
    let deadline = Instant::now() + DEADLINE;
    while state(&pair) != PortState::Active {
        assert!(Instant::now() < deadline, "the card's own subnet manager configures the port again");
    }
    all_operations(&mut pair.a, &mut pair.b);
}
