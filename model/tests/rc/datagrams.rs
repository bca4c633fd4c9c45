//! UD: one packet a message, with its network header in front (`ud_send_grh`, `ud_many_destinations`,
//! `ud_over_mtu_refused`).

use super::{
    operations::fill,
    world::{Setup, World, qpn},
    wqe::Wr,
};
use mlx5_direct::{
    cqe::{CqeOpcode, CqeSyndrome},
    mlx5::ids::Qpn,
    wqe::{AvSeg, SendOpcode},
};
use mlx5_model::{
    exec::{Counter, QpConfig, QpState, RoceKind, Rule, Service},
    wire::Packet,
};

const QKEY: u32 = 0x1111_1111;
/// Asks for the queue pair's own key.
const PRIVILEGED: u32 = 0x8000_0000;

fn setup(kind: RoceKind) -> Setup {
    let base = Setup::default();
    Setup { kind, qp: QpConfig { service: Service::Datagram, qkey: QKEY, ..base.qp }, ..base }
}

/// An address vector as libmlx5 writes it for RoCE: no GRH bit, the service level one bit up.
fn to(world: &World, node: usize, number: Qpn) -> AvSeg {
    let own = &world.nodes[1 - node].qps[&qpn(1 - node, 0)];
    let path = &own.config().path;
    AvSeg::new()
        .with_qkey(QKEY)
        .with_ext(true)
        .with_dqpn_dctn(number)
        .with_sl(5 << 1)
        .with_rlid_or_udp_sport(0xc123)
        .with_rmac(path.dest_mac)
        .with_hop_limit(9)
        .with_tclass(0x28)
        .with_flow_label(0x1_2345)
        .with_rgid(path.dest_gid)
}

#[test]
fn ud_send_grh() {
    for kind in [RoceKind::V1, RoceKind::V2Ipv4, RoceKind::V2Ipv6] {
        let mut world = World::pair(&Setup { vlan_id: Some(7), ..setup(kind) });
        world.trace = Some(Vec::new());
        let data = fill(&mut world, 0, 0, 100);
        world.post_recv(1, 0x8000, 140);
        let av = to(&world, 1, qpn(1, 0));
        world.post(0, &Wr::new(SendOpcode::SEND_IMM).imm(0xcafe).by(av).local(0, 100));
        world.settle();
        assert_eq!(world.take_cqes(0)[0].opcode, CqeOpcode::REQ);
        let [got] = world.take_cqes(1)[..] else { panic!("one CQE") };
        assert_eq!((got.opcode, got.len, got.imm), (CqeOpcode::RESP_SEND_IMM, 140, 0xcafe));
        let memory = &world.nodes[1].side;
        assert_eq!(memory.bytes(0x8000 + 40, 100), data);
        let head = memory.bytes(0x8000, 40);
        let (source, dest) = (world.nodes[0].side.source.gid, memory.source.gid);
        match kind {
            // The IPv4 header is the last 20 of the 40 bytes.
            RoceKind::V2Ipv4 => {
                assert_eq!((head[20], head[21], head[28], head[29]), (0x45, 0x28, 9, 17));
                assert_eq!((&head[32..36], &head[36..40]), (&source[12..], &dest[12..]));
            }
            _ => {
                assert_eq!(head[..4], [0x62, 0x81, 0x23, 0x45]);
                assert_eq!((head[6], head[7]), (if kind == RoceKind::V1 { 0x1b } else { 17 }, 9));
                assert_eq!((&head[8..24], &head[24..40]), (&source[..], &dest[..]));
            }
        }
        let headers = Packet::parse(&world.trace.take().unwrap()[0].2).map(|packet| packet.headers).unwrap();
        let deth = headers.deth.unwrap();
        assert_eq!((deth.qkey, deth.source_qpn, headers.bth.ack_req), (QKEY, qpn(0, 0), false));
        // Bytes 14 and 15 are the VLAN tag: priority 5, VLAN 7.
        let frame = headers.frame(&data);
        assert_eq!(frame[12..16], [0x81, 0x00, 5 << 5, 7]);
        world.assert_clean();
    }
}

#[test]
fn a_wrong_qkey_is_dropped_and_counted() {
    let mut world = World::pair(&setup(RoceKind::V2Ipv4));
    world.post_recv(1, 0x8000, 140);
    let av = to(&world, 1, qpn(1, 0));
    for (qkey, n_received, n_violations) in [(QKEY ^ 1, 0, 1), (PRIVILEGED | 7, 1, 1)] {
        world.post(0, &Wr::new(SendOpcode::SEND).by(av.with_qkey(qkey)).inline(&[7; 20]));
        world.settle();
        assert_eq!(world.take_cqes(0)[0].opcode, CqeOpcode::REQ, "the sender hears nothing");
        assert_eq!(world.take_cqes(1).len(), n_received);
        assert_eq!(world.nodes[1].side.n_qkey_violations, n_violations);
    }
    assert_eq!(world.nodes[1].side.bytes(0x8000 + 40, 20), [7; 20]);
    world.assert_clean();
}

#[test]
fn ud_many_destinations() {
    let setup = setup(RoceKind::V2Ipv6);
    let mut world = World::empty(&setup);
    for k in 0..4 {
        world.connect(&setup, (0, k), (1, k));
        world.post_recv_on(1, k, &[(0x8000 + k as usize * 0x100, 256, super::world::KEY)]);
    }
    for k in 0..4 {
        let av = to(&world, 1, qpn(1, k));
        world.post(0, &Wr::new(SendOpcode::SEND).by(av).inline(&[k as u8; 8]));
    }
    // Nobody has this number: lost.
    let av = to(&world, 1, Qpn::new(0x999));
    world.post(0, &Wr::new(SendOpcode::SEND).by(av).inline(&[9; 8]));
    world.settle();
    assert_eq!(world.take_cqes(0).len(), 5);
    let got: Vec<_> = world.take_cqes(1).iter().map(|c| (c.qpn, c.len)).collect();
    assert_eq!(got, [0, 1, 2, 3].map(|k| (qpn(1, k).get(), 48)));
    for k in 0..4 {
        assert_eq!(world.nodes[1].side.bytes(0x8000 + k * 0x100 + 40, 8), [k as u8; 8]);
    }
    world.assert_clean();
}

#[test]
fn ud_over_mtu_refused() {
    let mut world = World::pair(&setup(RoceKind::V2Ipv4));
    world.post_recv(1, 0x8000, 2000);
    let av = to(&world, 1, qpn(1, 0));
    for len in [1024, 1025, 8] {
        world.post(0, &Wr::new(SendOpcode::SEND).by(av).local(0, len));
    }
    world.settle();
    let done: Vec<_> = world.take_cqes(0).iter().map(|c| c.syndrome).collect();
    assert_eq!(done, [CqeSyndrome(0), CqeSyndrome::LOCAL_LENGTH_ERR, CqeSyndrome::WR_FLUSH_ERR]);
    assert_eq!((world.state(0), world.take_cqes(1).len()), (QpState::Sqer, 1), "only sending stops");
    assert_eq!(world.nodes[0].side.violations[0].0, Rule::MessageTooLong);
}

#[test]
fn without_a_receive_it_is_lost_and_counted() {
    let mut world = World::pair(&setup(RoceKind::V2Ipv4));
    let av = to(&world, 1, qpn(1, 0));
    world.post(0, &Wr::new(SendOpcode::SEND).by(av).inline(&[1; 8]));
    world.settle();
    assert_eq!(world.nodes[1].side.counts[&(qpn(1, 0), Counter::OutOfBuffer)], 1);
    // One that has no room for the 40 bytes too ends the receiver.
    world.post_recv(1, 0x8000, 47);
    world.post(0, &Wr::new(SendOpcode::SEND).by(av).inline(&[1; 8]));
    world.settle();
    assert_eq!(world.take_cqes(1)[0].syndrome, CqeSyndrome::LOCAL_LENGTH_ERR);
    assert_eq!((world.state(0), world.state(1)), (QpState::Rts, QpState::Err));
}
