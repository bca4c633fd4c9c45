//! Raw packets end to end: frames from one device to another, and which of them a queue pair gets. Cases F9 and F10.

use crate::support::*;
use mlx5_direct::{
    Context, Error,
    backend::{FrameMatch, QpModify},
    cqe::CqeSyndrome,
    mlx5::{context::QpState, ids::Lkey},
    queue::{Checksums, Flags, PostError, RawPacket},
};
use std::{num::NonZeroU16, sync::Arc};

/// An EtherType for experiments (IEEE 802).
const EXPERIMENT: u16 = 0x88b5;

/// Two queue pairs, cabled, and the MAC addresses of their ports.
struct Peers {
    card: Card,
    a: Side<RawPacket>,
    b: Side<RawPacket>,
    mac_a: [u8; 6],
    mac_b: [u8; 6],
}

fn activated(card: &Card, ctx: &Context) -> Side<RawPacket> {
    let mut side: Side<RawPacket> = Side::of(card, ctx, &Setup::default());
    side.qp.bring_up(1).expect("RTS");
    side
}

impl Peers {
    fn new(options: &str) -> Self {
        let card = card(options);
        let (here, there) = (open(&card, 0), open(&card, 1));
        let (a, b) = (activated(&card, &here), activated(&card, &there));
        let [mac_a, mac_b] = [&here, &there].map(|ctx| ctx.port(1).expect("a port").mac);
        Self { card, a, b, mac_a, mac_b }
    }

    /// Sends a frame with its head in the request, once as data in the request and once as memory.
    fn send(&mut self, frame: &[u8]) {
        let n_head = usize::from(self.a.qp.send_limits().min_header_bytes).max(14);
        let (head, data) = frame.split_at(n_head);
        let len = data.len() as u64;
        self.a.mr.write(0, data);
        self.a.post(|list, memory| {
            let request = list.send_with_header(1, head, Checksums::NONE, SIGNALED).unwrap();
            match data.len() <= 64 {
                true => request.inline(data).unwrap().finish(),
                false => {
                    request.local(memory, 0..len / 3).unwrap().local(memory, len / 3..len).unwrap().finish();
                }
            }
        });
        self.a.ok();
    }

    fn end(self) {
        let Self { card, a, b, .. } = self;
        drop((a, b));
        card.assert_clean();
    }
}

/// A frame of so many bytes from one address to another.
fn frame(to: [u8; 6], from: [u8; 6], tag: Option<u16>, ethertype: u16, len: usize) -> Vec<u8> {
    let mut frame = [to, from].concat();
    if let Some(tag) = tag {
        frame.extend([0x81, 0]);
        frame.extend(tag.to_be_bytes());
    }
    frame.extend(ethertype.to_be_bytes());
    let data = pattern(9, len - frame.len());
    frame.extend(data);
    frame
}

/// Case F9.
#[test]
fn f9_raw_eth_tx_rx() {
    needs!(Need::Prm);
    needs!(Need::Functions(2));
    let mut peers = Peers::new("ports=2");
    let (mac_a, mac_b) = (peers.mac_a, peers.mac_b);
    assert_ne!(mac_a, mac_b);
    peers.b.qp.steer(&FrameMatch { dmac: Some(mac_b), ..FrameMatch::default() }).expect("a rule");
    for (i, len) in [60, 61, 64, 82, 100, 300, 1000, 1514].into_iter().enumerate() {
        let sent = frame(mac_b, mac_a, None, EXPERIMENT, len);
        peers.b.recv(i as u64, 0..2048);
        peers.send(&sent);
        let got = peers.b.ok();
        assert_eq!((got.wr_id, got.byte_len as usize, got.is_send), (i as u64, len, false));
        assert_eq!(peers.b.bytes(0, len), sent);
    }
    // And back, through the same queue pairs.
    peers.a.qp.steer(&FrameMatch { ethertype: Some(EXPERIMENT), ..FrameMatch::default() }).expect("a rule");
    peers.a.recv(9, 0..100);
    let sent = frame(mac_a, mac_b, None, EXPERIMENT, 78);
    let (head, data) = sent.split_at(18);
    peers.b.post(|list, _| {
        let request = list.send_with_header(10, head, Checksums::NONE, SIGNALED).unwrap();
        request.inline(data).unwrap().finish();
    });
    assert_eq!(peers.b.ok().wr_id, 10);
    assert_eq!(peers.a.ok().byte_len, 78);
    assert_eq!(peers.a.bytes(0, 78), sent);
    peers.end();
}

/// The rule with most fields has a frame; what none matches comes to nobody.
#[test]
fn f9_rules_tell_whose_a_frame_is() {
    needs!(Need::Prm);
    needs!(Need::Functions(2));
    let mut peers = Peers::new("ports=2");
    let (mac_a, mac_b) = (peers.mac_a, peers.mac_b);
    let mut other = activated(&peers.card, &peers.b.ctx);
    let to_b = FrameMatch { dmac: Some(mac_b), ..FrameMatch::default() };
    let to_b_in_vlan = FrameMatch { vlan: Some(7), ..to_b };
    let flow = peers.b.qp.steer(&to_b).expect("a rule");
    let other_flow = other.qp.steer(&to_b_in_vlan).expect("a rule");
    for side in [&mut peers.b, &mut other] {
        (0..8).for_each(|i| side.recv(i, 0..2048));
    }
    let plain = frame(mac_b, mac_a, None, EXPERIMENT, 100);
    let in_7 = frame(mac_b, mac_a, Some(7 | 5 << 13), EXPERIMENT, 104);
    let in_8 = frame(mac_b, mac_a, Some(8), EXPERIMENT, 108);
    let to_nobody = frame([2, 0, 0, 0, 0, 0x77], mac_a, None, EXPERIMENT, 112);
    for sent in [&to_nobody, &plain, &in_7, &in_8] {
        peers.send(sent);
    }
    assert_eq!(peers.b.ok().byte_len, 100);
    assert_eq!(peers.b.ok().byte_len, 108);
    assert_eq!(other.ok().byte_len, 104);
    assert_eq!(other.bytes(0, 104), in_7, "the tag is not stripped");

    // Without its rule, the frame is the next one's.
    other.qp.unsteer(other_flow).expect("the rule");
    let refused = other.qp.unsteer(other_flow).unwrap_err();
    assert!(refused.to_string().contains("has no rule"), "{refused}");
    peers.send(&in_7);
    assert_eq!(peers.b.ok().byte_len, 104);

    // By what is left: a source, a type, everything.
    for (frames, len) in [
        (FrameMatch { smac: Some(mac_a), ..FrameMatch::default() }, 120),
        (FrameMatch { ethertype: Some(EXPERIMENT + 1), ..FrameMatch::default() }, 124),
        (FrameMatch::default(), 128),
    ] {
        let flow = other.qp.steer(&frames).expect("a rule");
        peers.send(&frame([2, 0, 0, 0, 0, 0x77], mac_a, None, EXPERIMENT + 1, len));
        assert_eq!(other.ok().byte_len as usize, len, "{frames:?}");
        other.qp.unsteer(flow).expect("the rule");
    }

    // What cannot be.
    let refused = other.qp.steer(&to_b).unwrap_err();
    assert!(refused.to_string().contains("already go to queue pair"), "{refused}");
    let refused = other.qp.steer(&FrameMatch { vlan: Some(4096), ..to_b }).unwrap_err();
    assert!(refused.to_string().contains("12 bits"), "{refused}");
    assert!(other.qp.unsteer(flow).is_err(), "the rule of another queue pair");
    drop(other);
    peers.end();
}

fn sum(bytes: &[u8]) -> u16 {
    let mut sum: u32 =
        bytes.chunks(2).map(|c| u32::from(c[0]) << 8 | u32::from(*c.get(1).unwrap_or(&0))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Case F10.
#[test]
fn f10_raw_eth_tso_csum() {
    needs!(Need::Prm);
    needs!(Need::Functions(2));
    let mut peers = Peers::new("ports=2");
    peers.b.qp.steer(&FrameMatch { dmac: Some(peers.mac_b), ..FrameMatch::default() }).expect("a rule");
    let payload = pattern(3, 4000);
    let mut head = frame(peers.mac_b, peers.mac_a, None, 0x0800, 14);
    head.extend([0x45, 0, 0, 40, 0x12, 0x34, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    head.extend([0x12, 0x34, 0, 80, 0, 0, 0x10, 0, 0, 0, 0, 0, 0x50, 0x18, 0xff, 0xff, 0, 0, 0, 0]);
    assert_eq!(head.len(), 54);
    for i in 0..4 {
        peers.b.recv(i, i * 2048..(i + 1) * 2048);
    }
    peers.a.mr.write(0, &payload);
    peers.a.post(|list, memory| {
        let mss = NonZeroU16::new(1448).unwrap();
        let request = list.lso(1, &head, mss, Checksums::IP | Checksums::L4, SIGNALED).unwrap();
        request.local(memory, 0..1000).unwrap().local(memory, 1000..4000).unwrap().finish();
    });
    peers.a.ok();
    let mut received = Vec::<u8>::new();
    for (i, n) in [1448, 1448, 1104].into_iter().enumerate() {
        assert_eq!(peers.b.ok().byte_len as usize, 54 + n);
        let frame = peers.b.bytes(i * 2048, 54 + n);
        assert_eq!(frame[..14], head[..14]);
        let (ip, tcp) = (&frame[14..34], &frame[34..]);
        assert_eq!((sum(ip), ip[2..4].to_vec()), (0xffff, ((40 + n) as u16).to_be_bytes().to_vec()));
        let length = (tcp.len() as u16).to_be_bytes();
        let pseudo = [&ip[12..20], &[0, 6], &length, tcp].concat();
        assert_eq!(sum(&pseudo), 0xffff, "TCP's checksum of segment {i}");
        assert_eq!(tcp[4..8], (0x1000 + received.len() as u32).to_be_bytes(), "sequence number");
        received.extend(&tcp[20..]);
    }
    assert_eq!(received, payload);
    peers.end();
}

#[test]
fn a_queue_pair_that_fails_can_be_used_again() {
    needs!(Need::Model);
    let mut peers = Peers::new("ports=2");
    let (mac_a, mac_b) = (peers.mac_a, peers.mac_b);
    peers.b.qp.steer(&FrameMatch { dmac: Some(mac_b), ..FrameMatch::default() }).expect("a rule");
    let sent = frame(mac_b, mac_a, None, EXPERIMENT, 100);
    let n_head = usize::from(peers.a.qp.send_limits().min_header_bytes);
    assert_eq!(n_head, 18, "the model's ports want heads in requests");

    let mut list = peers.a.qp.post_list();
    let refused = list.send(1, Checksums::NONE, SIGNALED).unwrap_err();
    assert_eq!(refused, PostError::HeaderLength);
    let request = list.send_with_header(2, &sent[..18], Checksums::NONE, Flags::NONE).unwrap();
    // SAFETY: there is no such key, so the device reads nothing.
    unsafe { request.sge(Lkey::new(0x00de_ad00), 0x1000, 82) }.unwrap().finish();
    list.nop(3, SIGNALED).unwrap().finish();
    list.ring();
    assert_eq!(peers.a.fails().syndrome, CqeSyndrome::LOCAL_PROT_ERR);
    assert_eq!(peers.a.fails().syndrome, CqeSyndrome::WR_FLUSH_ERR);
    assert_eq!(peers.a.qp.query().unwrap().state, QpState::ERR);

    peers.a.qp.modify(&QpModify::to(QpState::RST)).expect("RST");
    peers.a.qp.bring_up(1).expect("RTS again");
    peers.b.recv(4, 0..2048);
    peers.send(&sent);
    assert_eq!(peers.b.ok().byte_len, 100);
    assert_eq!(peers.b.bytes(0, 100), sent);

    // Receives come back flushed.
    peers.b.recv(5, 0..2048);
    peers.b.qp.modify(&QpModify::to(QpState::ERR)).expect("ERR");
    assert_eq!(peers.b.fails().syndrome, CqeSyndrome::WR_FLUSH_ERR);
    peers.end();
}

#[test]
fn a_port_of_infiniband_has_no_frames() {
    needs!(Need::Model);
    let card = card("link=ib");
    let ctx = open(&card, 0);
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(&Default::default()).unwrap());
    let refused = pd.create_raw_packet_qp(&Default::default(), &cq, &cq).unwrap_err();
    assert!(matches!(refused, Error::Unsupported { capability: "eth_net_offloads", .. }), "{refused}");
    drop((cq, pd, ctx));
    card.assert_clean();
}

/// What a device still has when it is closed ends with it: queues, rules, the table.
#[test]
fn closing_takes_queue_pairs_and_rules_down() {
    needs!(Need::Model);
    let card = card("");
    let control = card.control(0);
    let side = activated(&card, &Context::on(Arc::clone(&control)));
    side.qp.steer(&FrameMatch::default()).expect("a rule");
    control.close().expect("all of it has ended");
    drop((side, control));
    card.assert_clean();
}
