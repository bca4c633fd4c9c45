//! Peers as data: IPv4 and IPv6 addresses of ports, MACs from link-local GIDs, addresses told as text.

use crate::support::*;
use mlx5_direct::{
    Connection, Error, QpAddress,
    backend::{GidEntry, GidType, gid_of},
    mlx5::context::Mtu,
};
use std::net::IpAddr;

/// Two unconnected sides on a card of two cabled ports.
fn sides() -> [Side; 2] {
    let card = card("ports=2");
    [0, 1].map(|index| Side::new(&card, &open(&card, index), &Setup::default()))
}

/// Connects both as two hosts do: each knows of the other what came as text.
fn connect([a, b]: &mut [Side; 2], how: [&Connection; 2]) {
    let tell = |side: &Side, how: &Connection| side.qp.address(how.port, how.gid_index).unwrap().to_string();
    let (to_a, to_b) = (tell(a, how[0]), tell(b, how[1]));
    a.qp.connect(&to_b.parse().unwrap(), how[0]).unwrap();
    b.qp.connect(&to_a.parse().unwrap(), how[1]).unwrap();
}

/// A message from the first to the second.
fn say([a, b]: &mut [Side; 2]) {
    b.recv(1, 0..64);
    a.post(|list, _| list.send(2, SIGNALED).unwrap().inline(b"over the wire").unwrap().finish());
    assert_eq!(b.ok().byte_len, 13);
    a.ok();
    assert_eq!(b.bytes(0, 13), b"over the wire");
}

/// Entries that are set by command, of both versions of RoCE and on a VLAN, carry traffic.
#[test]
fn l11_roce_address_set_and_use() {
    needs!(Need::Prm, Need::Model);
    let gid = |at: usize| [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1 + at as u8];
    for (gid_type, vlan) in [
        (GidType::RoceV1, None),
        (GidType::RoceV2, None),
        (GidType::RoceV1, Some(7)),
        (GidType::RoceV2, Some(4094)),
    ] {
        let mut sides = sides();
        for (at, side) in sides.iter().enumerate() {
            let mac = side.ctx.port(1).unwrap().mac;
            let entry = GidEntry { gid: gid(at), gid_type, mac, vlan };
            side.ctx.set_gid(1, 5, Some(&entry)).unwrap();
            assert_eq!(side.ctx.gid(1, 5).unwrap(), entry);
        }
        let how = Connection { gid_index: Some(5), ..Connection::default() };
        connect(&mut sides, [&how, &how]);
        say(&mut sides);
        sides[0].card.assert_clean();
    }
}

#[test]
fn traffic_between_ip_addresses_that_the_user_set() {
    needs!(Need::Prm);
    let addresses: [[IpAddr; 2]; 3] = [
        [[192, 0, 2, 1].into(), [192, 0, 2, 2].into()],
        ["2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap()],
        ["fe80::1".parse().unwrap(), "fe80::2".parse().unwrap()],
    ];
    for pair in addresses {
        let mut sides = sides();
        let index = [0, 1].map(|at: usize| sides[at].ctx.add_address(1, pair[at]).unwrap());
        assert_eq!(index, [2, 2], "after the link-local entries");
        for at in [0, 1] {
            let ctx = &sides[at].ctx;
            assert_eq!(ctx.gid(1, 2).unwrap(), GidEntry::roce_v2(pair[at], ctx.port(1).unwrap().mac));
            assert_eq!(ctx.add_address(1, pair[at]).unwrap(), 2, "it is there already");
        }
        let how = Connection { gid_index: Some(2), ..Connection::default() };
        connect(&mut sides, [&how, &how]);
        assert_eq!(sides[0].qp.query().unwrap().ah.dgid, gid_of(pair[1]));
        say(&mut sides);
        sides[0].card.assert_clean();
    }
}

#[test]
fn a_full_table_and_no_stations_are_refused() {
    needs!(Need::Prm);
    let sides = sides();
    let ctx = &sides[0].ctx;
    for bad in ["0.0.0.0", "::", "224.0.0.1", "ff02::1"] {
        let refused = ctx.add_address(1, bad.parse().unwrap()).unwrap_err();
        assert!(
            matches!(refused, Error::InvalidArgument(_)) && refused.to_string().contains(bad),
            "{refused}"
        );
    }
    let n = ctx.port(1).unwrap().gid_tbl_len;
    for index in 2..n {
        assert_eq!(ctx.add_address(1, [192, 0, 2, index as u8].into()).unwrap(), index as u8);
    }
    let refused = ctx.add_address(1, [192, 0, 2, 200].into()).unwrap_err().to_string();
    assert!(refused.contains("192.0.2.200") && refused.contains(&format!("all {n}")), "{refused}");
    // An entry in RoCE v1 is another address.
    ctx.set_gid(1, 3, None).unwrap();
    let v1 = GidEntry { gid_type: GidType::RoceV1, ..ctx.gid(1, 2).unwrap() };
    ctx.set_gid(1, 2, Some(&v1)).unwrap();
    assert_eq!(ctx.add_address(1, [192, 0, 2, 2].into()).unwrap(), 3);
    sides[0].card.assert_clean();
}

/// Peers that tell no MAC, as `ibv_rc_pingpong` does not.
#[test]
fn the_mac_of_a_peer_follows_from_its_link_local_gid() {
    let mut sides = sides();
    let how = Connection::default();
    for (near, far) in [(0, 1), (1, 0)] {
        let told = sides[far].qp.address(1, how.gid_index).unwrap();
        let found = QpAddress::from_gid(told.qpn, told.psn, told.gid).unwrap();
        assert_eq!(found, told);
        sides[near].qp.connect(&found, &how).unwrap();
    }
    say(&mut sides);
    sides[0].card.assert_clean();
}

#[test]
fn the_smaller_mtu_of_both_ends_is_taken() {
    let mut sides = sides();
    let how = Connection::default();
    let to = |side: &Side, mtu| QpAddress { mtu, ..side.qp.address(1, 1).unwrap() };
    let (to_a, to_b) = (to(&sides[0], Mtu::MTU_4096), to(&sides[1], Mtu::MTU_1024));
    sides[0].qp.connect(&to_b, &how).unwrap();
    sides[1].qp.connect(&to_a, &Connection { path_mtu: Some(Mtu::MTU_1024), ..how }).unwrap();
    for side in &sides {
        assert_eq!(side.qp.query().unwrap().path_mtu, Mtu::MTU_1024);
    }
    say(&mut sides);
    sides[0].card.assert_clean();
}

#[test]
fn an_address_of_no_station_is_refused_by_name() {
    needs!(Need::Prm);
    let mut sides = sides();
    let good = sides[1].qp.address(1, 1).unwrap();
    for mac in [[0; 6], [0xff; 6], [1, 0, 0x5e, 0, 0, 1]] {
        let refused = sides[0].qp.connect(&QpAddress { mac, ..good }, &Connection::default()).unwrap_err();
        assert!(refused.to_string().contains("is not the MAC address of one station"), "{refused}");
        sides[0]
            .qp
            .modify(&mlx5_direct::backend::QpModify::to(mlx5_direct::mlx5::context::QpState::RST))
            .unwrap();
    }
    sides[0].card.assert_clean();
}
