//! Cards that are joined by sockets: two cards with one process each, and what comes in that no card sent.

use crate::support::{DEADLINE, Setup, Side, card, connect, open, pattern};
use mlx5_direct::{
    Connection,
    cqe::CqeSyndrome,
    queue::{Flags, Uc},
};
use mlx5_model::Model;
use std::{
    io::ErrorKind,
    net::{Ipv4Addr, UdpSocket},
    os::unix::net::UnixDatagram,
    path::PathBuf,
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

const SIGNALED: Flags = Flags::SIGNALED;

/// Two ports of loopback that nobody has, as far as one can know.
fn two_ports() -> [u16; 2] {
    let sockets = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").expect("a port"));
    sockets.map(|socket| socket.local_addr().expect("its number").port())
}

/// Options of the two ends of a wire.
fn udp_ends() -> [String; 2] {
    let [a, b] = two_ports();
    [format!("wire=udp:127.0.0.1:{a}/127.0.0.1:{b}"), format!("wire=udp:127.0.0.1:{b}/127.0.0.1:{a}")]
}

fn unix_ends() -> [String; 2] {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = |end: &str| -> PathBuf {
        std::env::temp_dir().join(format!("mlx5-wire-{}-{number}-{end}", std::process::id()))
    };
    let [a, b] = ["a", "b"].map(|end| path(end).display().to_string());
    [format!("wire=unix:{a}:{b}"), format!("wire=unix:{b}:{a}")]
}

/// The end of a card that goes: one behind a vfio-user socket is gone when its server has seen that the client left.
fn end_that_gets_free(address: &str) -> UnixDatagram {
    let deadline = Instant::now() + DEADLINE;
    loop {
        match UnixDatagram::bind(address) {
            Err(error) if error.kind() == ErrorKind::AddrInUse && Instant::now() < deadline => {
                thread::yield_now()
            }
            end => return end.expect("the end of a card that is gone"),
        }
    }
}

/// Moves data in every way that RC has, between queue pairs of two cards.
fn all_operations(a: &mut Side, b: &mut Side) {
    let sent = pattern(7, 10_000);
    a.mr.write(0, &sent);
    b.recv(1, 0..10_000);
    a.post(|list, memory| list.send(10, SIGNALED).unwrap().local(memory, 0..10_000).unwrap().finish());
    assert_eq!(b.ok().byte_len, 10_000);
    a.ok();
    assert_eq!(b.bytes(0, 10_000), sent);

    let to = b.remote(20_000);
    a.post(|list, memory| {
        list.rdma_write(11, to, SIGNALED).unwrap().local(memory, 0..10_000).unwrap().finish()
    });
    a.ok();
    assert_eq!(b.bytes(20_000, 10_000), sent);

    let from = a.remote(1000);
    b.post(|list, memory| {
        list.rdma_read(12, from, SIGNALED).unwrap().local(memory, 40_000..49_000).unwrap().finish();
    });
    b.ok();
    assert_eq!(b.bytes(40_000, 9000), sent[1000..]);

    b.mr.store_u64(0, 5);
    let counter = b.remote(0);
    a.post(|list, memory| {
        list.fetch_add(13, counter, 3, SIGNALED).unwrap().local(memory, 0).unwrap().finish();
        list.compare_swap(14, counter, 8, 77, SIGNALED).unwrap().local(memory, 8).unwrap().finish();
    });
    a.ok();
    a.ok();
    assert_eq!([a.mr.load_u64(0), a.mr.load_u64(8), b.mr.load_u64(0)], [5, 8, 77]);
}

/// A side on a card of these options.
fn side(options: &str) -> Side {
    let card = card(options);
    let ctx = open(&card, 0);
    Side::new(&card, &ctx, &Setup::default())
}

/// A side on a card of its own at each end.
fn sides(ends: [String; 2]) -> [Side; 2] {
    let [mut a, mut b] = ends.map(|options| side(&options));
    let how = Setup::default().connection;
    connect(&mut a.qp, &mut b.qp, &how, &how);
    [a, b]
}

fn assert_clean(sides: &[Side; 2]) {
    for side in sides {
        side.card.assert_clean();
        let counters = side.card.model().uplink_counters().expect("a wire");
        assert_eq!(counters.n_malformed + counters.n_too_long + counters.n_failed, 0, "{counters}");
        assert!(counters.n_sent > 10 && counters.n_received > 10, "{counters}");
    }
}

#[test]
fn two_cards_joined_by_udp() {
    let [mut a, mut b] = sides(udp_ends());
    all_operations(&mut a, &mut b);
    all_operations(&mut b, &mut a);
    assert_clean(&[a, b]);
}

#[test]
fn two_cards_joined_by_unix_sockets() {
    // The kernel keeps ten datagrams of a Unix socket: frames wait in the card, none is lost.
    let [mut a, mut b] = sides(unix_ends());
    all_operations(&mut a, &mut b);
    all_operations(&mut b, &mut a);
    for side in [&a, &b] {
        assert_eq!(side.card.model().uplink_counters().map(|c| c.n_refused), Some(0));
    }
    assert_clean(&[a, b]);
}

/// Nobody sends a packet of UC again, and the sender has its completion.
#[test]
fn what_a_card_has_sent_arrives_though_it_is_gone() {
    let ends = unix_ends();
    let address =
        ends[1].trim_start_matches("wire=unix:").split(':').next().expect("its own end").to_string();
    let [mut a, mut b] = ends.map(|options| {
        let card = card(&options);
        let ctx = open(&card, 0);
        Side::<Uc>::of(&card, &ctx, &Setup::default())
    });
    let how = Setup::default().connection;
    connect(&mut a.qp, &mut b.qp, &how, &how);
    drop(b);
    let n_packets = 60_000_usize.div_ceil(4096);
    let slow = end_that_gets_free(&address);
    a.post(|list, memory| list.send(1, SIGNALED).unwrap().local(memory, 0..60_000).unwrap().finish());
    a.ok();
    let slow = thread::spawn(move || {
        thread::sleep(Duration::from_millis(50));
        slow.set_read_timeout(Some(Duration::from_secs(1))).expect("a time");
        let mut frame = [0; 8192];
        (0..n_packets).filter(|_| slow.recv(&mut frame).is_ok()).count()
    });
    drop(a);
    assert_eq!(slow.join().expect("a reader"), n_packets);
}

/// Two addresses of loopback that no other process of the tests uses: RoCE has one port.
fn two_addresses() -> [Ipv4Addr; 2] {
    let [a, b, ..] = std::process::id().to_le_bytes();
    [1, 2].map(|host| Ipv4Addr::new(127, a, b, host))
}

#[test]
fn two_cards_joined_by_roce_of_the_host() {
    let addresses = two_addresses();
    let [mut a, mut b] = addresses.map(|address| side(&format!("wire=roce:{address}")));
    let [how_a, how_b] = [(&a, addresses[0]), (&b, addresses[1])].map(|(side, address)| {
        let gid_index = side.ctx.add_address(1, address.into()).expect("an entry of the GID table");
        Connection { gid_index: Some(gid_index), ..Setup::default().connection }
    });
    connect(&mut a.qp, &mut b.qp, &how_a, &how_b);
    all_operations(&mut a, &mut b);
    all_operations(&mut b, &mut a);
    // What is not RoCE v2 over IPv4 is lost, and said to be: link-local GIDs are IPv6.
    let [mut c, mut d] = [&a, &b].map(|side| Side::new(&side.card, &side.ctx, &Setup::default()));
    let how = Setup::default().connection;
    connect(&mut c.qp, &mut d.qp, &how, &how);
    c.post(|list, memory| list.send(1, SIGNALED).unwrap().local(memory, 0..64).unwrap().finish());
    assert_eq!(c.fails().syndrome, CqeSyndrome::TRANSPORT_RETRY_EXC_ERR);
    assert!(c.card.model().uplink_counters().unwrap().n_not_roce > 0);
    assert_clean(&[a, b]);
}

#[test]
fn two_ports_have_no_roce_of_the_host() {
    let error = Model::new("ports=2,wire=roce:127.0.0.1".parse().unwrap()).map(drop).unwrap_err();
    assert!(error.to_string().contains("ports=1"), "{error}");
}

#[test]
fn datagrams_that_are_no_frames_are_counted() {
    let [port, mine] = two_ports();
    let peer = UdpSocket::bind(("127.0.0.1", mine)).unwrap();
    let card = card(&format!("drive=step,wire=udp:127.0.0.1:{port}/127.0.0.1:{mine}"));
    let mut noise = pattern(3, 20_000);
    noise[12..14].copy_from_slice(&[0x08, 0x00]);
    for len in [0, 1, 13, 14, 60, 1500, 9996, 9997, 20_000] {
        peer.send_to(&noise[..len], ("127.0.0.1", port)).unwrap();
    }
    let until = Instant::now() + Duration::from_secs(5);
    loop {
        card.step();
        let counters = card.model().uplink_counters().unwrap();
        if counters.n_received + counters.n_malformed == 9 {
            assert_eq!((counters.n_received, counters.n_malformed), (4, 5));
            break;
        }
        assert!(Instant::now() < until, "{counters}");
    }
}

#[test]
fn a_driver_without_an_ip_stack_is_found_by_its_neighbours() {
    let [port, mine] = two_ports();
    let peer = UdpSocket::bind(("127.0.0.1", mine)).unwrap();
    peer.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let card = card(&format!("mac=02:00:00:00:00:10,wire=udp:127.0.0.1:{port}/127.0.0.1:{mine}"));
    let ctx = open(&card, 0);
    // Who has the link-local address of that MAC, fe80::ff:fe00:10?
    let own = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xfe, 0, 0, 0x10];
    let all = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let asker = [2, 0, 0, 0, 0, 7];
    let head = [0x60, 0, 0, 0, 0, 32, 58, 255];
    let question = [&[135, 0, 0, 0, 0, 0, 0, 0][..], &own, &[1, 1], &asker].concat();
    let frame =
        [&[0x33, 0x33, 0, 0, 0, 1][..], &asker, &[0x86, 0xdd], &head, &[9; 16], &all, &question].concat();
    peer.send_to(&frame, ("127.0.0.1", port)).unwrap();
    let mut answer = [0; 200];
    let len = peer.recv(&mut answer).unwrap();
    assert_eq!((len, &answer[6..12]), (86, &[2, 0, 0, 0, 0, 0x10][..]));
    assert_eq!((answer[54], &answer[62..78]), (136, &own[..]));
    drop(ctx);
    card.assert_clean();
}

#[test]
fn a_peer_that_is_late_or_gone_is_no_error() {
    let [here, there] = udp_ends();
    let mut a = side(&here);
    let late = card(&there);
    let ctx = open(&late, 0);
    let mut b = Side::new(&late, &ctx, &Setup::default());
    let how = Setup::default().connection;
    // The peer's card goes before the first packet, and another comes in its place.
    connect(&mut a.qp, &mut b.qp, &how, &how);
    drop((b, ctx, late));
    a.post(|list, memory| list.send(1, SIGNALED).unwrap().local(memory, 0..64).unwrap().finish());
    assert_eq!(a.fails().syndrome, CqeSyndrome::TRANSPORT_RETRY_EXC_ERR);
    assert!(a.card.model().uplink_counters().unwrap().n_refused > 0);
    a.card.assert_clean();
    let late = card(&there);
    let ctx = open(&late, 0);
    let mut again = [&a.card, &late].map(|card| {
        let ctx = if card.model().config() == late.model().config() { ctx.clone() } else { a.ctx.clone() };
        Side::new(card, &ctx, &Setup::default())
    });
    let [c, d] = &mut again;
    connect(&mut c.qp, &mut d.qp, &how, &how);
    all_operations(c, d);
}

#[test]
fn an_end_that_is_taken_is_named() {
    let [here, _] = udp_ends();
    let _first = card(&here);
    let error = Model::new(here.parse().unwrap()).map(drop).unwrap_err().to_string();
    assert!(error.contains("wire=udp:127.0.0.1:") && error.contains("in use"), "{error}");
}
