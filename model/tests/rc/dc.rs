//! DC: an initiator's requests say each where they go; a target serves whoever has its key (`dc_send_write_atomic`).

use super::{
    operations::fill,
    world::{BASE, KEY, OTHER_PD, Setup, World, qpn},
    wqe::Wr,
};
use mlx5_direct::{
    cqe::{CqeOpcode, CqeSyndrome},
    mlx5::ids::{Psn, Qpn, UserIndex},
    wqe::{DcAvSeg, SendOpcode},
};
use mlx5_model::{
    exec::{DcStreams, DcTarget, Path, QpConfig, QpState, RoceKind, Rule, Service, SharedQueue},
    wire::{Fate, Opcode, Packet, Port, Transport},
};

const SRQN: u32 = 0x30;
const ACCESS_KEY: u64 = 0x1122_3344_5566_7788;

/// Number of the `k`-th target at node 1.
pub(crate) fn dctn(k: u32) -> Qpn {
    Qpn::new(0x4_0000 + k)
}

/// An initiator at node 0, and two targets at node 1 with one receive queue.
pub(crate) fn world_with(change: impl FnOnce(&mut QpConfig)) -> World {
    let base = Setup::default();
    let mut qp = QpConfig {
        service: Service::Dynamic,
        n_receive_wqes: 0,
        remote_qpn: Qpn::new(0),
        dc_session: 1,
        ..base.qp
    };
    change(&mut qp);
    let mut world = World::empty(&base);
    world.connect(&Setup { qp, ..base }, (0, 0), (1, 0));
    let queue = world.add_srq(SRQN, 0x71);
    let node = &mut world.nodes[1];
    for k in 0..2 {
        let shared = Some(SharedQueue { user_index: UserIndex::new(0x70 + k), ..queue });
        // Only its own side of the path: whom to answer, a target learns from each packet.
        let config = QpConfig { qpn: dctn(k), shared, path: Path::default(), ..qp };
        node.dcts.insert(dctn(k), DcTarget::new(config, ACCESS_KEY));
    }
    world
}

fn world() -> World {
    world_with(|_| ())
}

pub(crate) fn to(world: &World, target: Qpn) -> DcAvSeg {
    let side = &world.nodes[1].side;
    DcAvSeg::new()
        .with_dc_key(ACCESS_KEY)
        .with_ext(true)
        .with_dqpn_dctn(target)
        .with_rmac([2, 0, 0, 0, 0, 1])
        .with_rgid(side.source.gid)
}

#[test]
fn dc_send_write_atomic() {
    let mut world = world();
    world.trace = Some(Vec::new());
    let data = fill(&mut world, 0, 0, 3000);
    let far = fill(&mut world, 1, 0x40000, 3000);
    let old = fill(&mut world, 1, 0x50000, 8);
    world.post_srq(1, SRQN, 3, 0x8000, 4096);
    world.post_srq(1, SRQN, 1, 0x9000, 4096);
    let av = [to(&world, dctn(0)), to(&world, dctn(1))];
    let wr = |opcode, k: usize| Wr::new(opcode).at_target(av[k]);
    world.post(0, &wr(SendOpcode::SEND, 0).local(0, 3000));
    world.post(0, &wr(SendOpcode::RDMA_WRITE_IMM, 1).imm(0xcafe).remote(0x20000).local(0, 3000));
    world.post(0, &wr(SendOpcode::RDMA_READ, 0).remote(0x40000).local(0x80000, 3000));
    world.post(0, &wr(SendOpcode::ATOMIC_FA, 1).remote(0x50000).operands(1, 0).local(0x90000, 8));
    world.settle();
    assert_eq!(world.nodes[1].side.bytes(0x8000, 3000), data);
    assert_eq!(world.nodes[1].side.bytes(0x20000, 3000), data);
    assert_eq!(world.nodes[0].side.bytes(0x80000, 3000), far);
    assert_eq!(world.nodes[0].side.bytes(0x90000, 8), old);
    let got: Vec<_> = world.take_cqes(1).iter().map(|c| (c.opcode, c.counter, c.user_index, c.qpn)).collect();
    let want =
        [(CqeOpcode::RESP_SEND, 3, 0x70, dctn(0).get()), (CqeOpcode::RESP_WR_IMM, 1, 0x71, dctn(1).get())];
    assert_eq!(got, want, "each target's own number and user index");
    assert_eq!(world.take_cqes(0).iter().map(|c| c.opcode).collect::<Vec<_>>(), [CqeOpcode::REQ; 4]);
    // Requests carry key and initiator; a target answers by the operations of RC.
    for (_, from, frame) in world.trace.take().unwrap() {
        let headers = Packet::parse(&frame).unwrap().headers;
        assert_eq!(headers.bth.opcode.transport(), Some(Transport::Dc));
        let asked = headers.dc.map(|dc| (dc.access_key, dc.source_qpn));
        assert_eq!(asked, (from == 0).then_some((ACCESS_KEY, qpn(0, 0))), "{:?}", headers.bth.opcode);
    }
    world.assert_clean();
}

#[test]
fn every_network_header_leads_there_and_back() {
    for kind in [RoceKind::V1, RoceKind::V2Ipv4, RoceKind::V2Ipv6] {
        let mut world = world();
        for node in &mut world.nodes {
            node.side.source.kind = kind;
        }
        let av = to(&world, dctn(0));
        world.post(0, &Wr::new(SendOpcode::RDMA_WRITE).at_target(av).remote(0x100).inline(&[7; 8]));
        world.settle();
        assert_eq!(world.nodes[1].side.bytes(0x100, 8), [7; 8], "{kind:?}");
        assert_eq!(world.take_cqes(0)[0].opcode, CqeOpcode::REQ);
    }
}

#[test]
fn a_wrong_key_is_refused_and_counted() {
    let mut world = world();
    let av = to(&world, dctn(0)).with_dc_key(ACCESS_KEY ^ 1 << 40);
    world.post_srq(1, SRQN, 0, 0x8000, 64);
    world.post(0, &Wr::new(SendOpcode::SEND).at_target(av).inline(&[7; 8]));
    world.settle();
    assert_eq!(world.take_cqes(0)[0].syndrome, CqeSyndrome::REMOTE_ACCESS_ERR);
    assert_eq!(world.state(0), QpState::Err);
    assert_eq!((world.take_cqes(1), world.nodes[1].dcts[&dctn(0)].n_key_violations()), (vec![], 1));
}

#[test]
fn a_refused_request_harms_no_other_initiator() {
    let base = Setup::default();
    let mut world = world();
    let qp = QpConfig { service: Service::Dynamic, n_receive_wqes: 0, dc_session: 2, ..base.qp };
    world.connect(&Setup { qp, ..base }, (0, 1), (1, 1));
    let av = to(&world, dctn(0));
    let write = || Wr::new(SendOpcode::RDMA_WRITE).at_target(av);
    world.post(0, &write().remote_key(0x100, OTHER_PD).inline(&[1; 8]));
    world.post_on(0, 1, &write().remote(0x200).inline(&[2; 8]));
    world.settle();
    let done = world.take_cqes(0);
    let of = |k| done.iter().find(|c| c.qpn == qpn(0, k).get()).map(|c| c.syndrome);
    assert_eq!((of(0), of(1)), (Some(CqeSyndrome::REMOTE_ACCESS_ERR), Some(CqeSyndrome(0))));
    assert_eq!(
        (world.nodes[1].side.bytes(0x100, 8), world.nodes[1].side.bytes(0x200, 8)),
        (&[0; 8][..], &[2; 8][..])
    );
}

#[test]
fn an_initiator_that_begins_again_is_heard_though_its_numbers_repeat() {
    let mut world = world();
    let av = to(&world, dctn(0));
    for (session, value) in [(1, 1), (2, 2), (3, 3)] {
        world.post(0, &Wr::new(SendOpcode::RDMA_WRITE).at_target(av).remote(0x100).inline(&[value; 8]));
        world.settle();
        assert_eq!(world.nodes[1].side.bytes(0x100, 8), [value; 8]);
        // From the same PSN on.
        let node = &mut world.nodes[0];
        let qp = node.qps.get_mut(&qpn(0, 0)).unwrap();
        let config = QpConfig { dc_session: session + 1, ..*qp.config() };
        for state in [QpState::Rst, QpState::Init, QpState::Rtr, QpState::Rts] {
            qp.set_state(&mut node.side, state, config);
        }
        node.send_counters.insert(qpn(0, 0), 0);
    }
}

#[test]
fn every_message_is_executed_once_whatever_is_lost() {
    for lost in 0..12 {
        let mut world = world();
        let mut n = 0;
        world.wire.interfere(Some(Box::new(move |_: Port, _: Port, _: &mut Vec<u8>| {
            n += 1;
            if n == lost + 1 { Fate::Drop } else { Fate::Deliver }
        })));
        let av = [to(&world, dctn(0)), to(&world, dctn(1))];
        for k in 0..6 {
            let wr = Wr::new(SendOpcode::ATOMIC_FA).at_target(av[k % 2]).remote(0x50000).operands(1, 0);
            world.post(0, &wr.local(0x90000 + 8 * k, 8));
        }
        world.settle();
        assert_eq!(world.take_cqes(0).iter().filter(|c| c.opcode == CqeOpcode::REQ).count(), 6, "{lost}");
        assert_eq!(world.nodes[1].side.bytes(0x50000, 8), 6u64.to_ne_bytes(), "packet {lost}");
    }
}

#[test]
fn an_empty_queue_is_not_ready() {
    let mut world = world();
    let av = to(&world, dctn(0));
    world.post(0, &Wr::new(SendOpcode::SEND).at_target(av).inline(&[7; 8]));
    for _ in 0..20 {
        world.turn();
    }
    assert_eq!(world.take_cqes(0), []);
    world.post_srq(1, SRQN, 0, 0x8000, 64);
    world.settle();
    assert_eq!((world.take_cqes(0).len(), world.take_cqes(1).len()), (1, 1));
}

#[test]
fn a_stream_in_error_leaves_the_others() {
    let streams = DcStreams { log_channels: 3, log_errored: 2 };
    let mut world = world_with(|qp| qp.dc_streams = Some(streams));
    let av = to(&world, dctn(0));
    let write = |stream, key| {
        Wr::new(SendOpcode::RDMA_WRITE).at_target(av).stream(stream).remote_key(0x100, key).inline(&[7; 8])
    };
    // Of one refused by the target, one refused at home, and what follows on their channels and on others.
    world.post(0, &write(1, OTHER_PD));
    world.post(0, &write(2, KEY));
    world.post(
        0,
        &Wr::new(SendOpcode::RDMA_WRITE).at_target(av).stream(3).remote(0).local_key(0, 8, OTHER_PD),
    );
    world.post(0, &write(1 + 8, KEY));
    world.post(0, &write(3, KEY));
    world.post(0, &write(4, KEY));
    world.settle();
    let got: Vec<_> = world.take_cqes(0).iter().map(|c| c.syndrome.0).collect();
    let (remote, local) = (CqeSyndrome::REMOTE_ACCESS_ERR.0, CqeSyndrome::LOCAL_PROT_ERR.0);
    let flushed = CqeSyndrome::WR_FLUSH_ERR.0;
    assert_eq!(got, [remote, 0, local, flushed, flushed, 0]);
    assert_eq!(world.state(0), QpState::Rts);
    let qp = world.nodes[0].qps.get_mut(&qpn(0, 0)).unwrap();
    assert_eq!([1, 1, 2, 3].map(|stream| qp.reset_stream(stream)), [true, false, false, true]);
    world.post(0, &write(1, KEY));
    world.settle();
    assert_eq!(world.take_cqes(0)[0].opcode, CqeOpcode::REQ);
    // The fourth is one too many: the queue pair is in error, with all that was posted.
    for stream in 0..4 {
        world.post(0, &write(stream, OTHER_PD));
    }
    world.post(0, &write(7, KEY));
    world.settle();
    let got: Vec<_> = world.take_cqes(0).iter().map(|c| c.syndrome.0).collect();
    assert_eq!((got, world.state(0)), (vec![remote, remote, remote, remote, flushed], QpState::Err));
}

#[test]
fn a_drained_target_has_acknowledged_and_given_up() {
    let mut world = world();
    let av = to(&world, dctn(0));
    world.post_srq(1, SRQN, 5, 0x8000, 4096);
    world.wire.interfere(Some(Box::new(|_: Port, _: Port, frame: &mut Vec<u8>| {
        let opcode = Packet::parse(frame).unwrap().headers.bth.opcode;
        if opcode == Opcode::SEND_LAST.on(Transport::Dc) { Fate::Drop } else { Fate::Deliver }
    })));
    world.post(0, &Wr::new(SendOpcode::RDMA_WRITE).at_target(av).remote(0x100).inline(&[7; 8]));
    world.post(0, &Wr::new(SendOpcode::SEND).at_target(av).local(0, 3000));
    world.turn();
    let node = &mut world.nodes[1];
    node.dcts.get_mut(&dctn(0)).unwrap().drain(&mut node.side);
    let [given_up] = world.take_cqes(1)[..] else { panic!("one CQE") };
    assert_eq!((given_up.syndrome, given_up.counter), (CqeSyndrome::WR_FLUSH_ERR, 5));
    assert_eq!(world.nodes[1].side.bytes(0x100, 8), [7; 8]);
}

#[test]
fn what_an_initiator_must_write() {
    let broken = |wr: Wr| {
        let mut world = world();
        world.post(0, &wr);
        world.settle();
        world.nodes[0].side.violations.first().map(|(rule, _)| *rule)
    };
    let av = to(&world(), dctn(0));
    let send = || Wr::new(SendOpcode::SEND);
    assert_eq!(broken(send()), Some(Rule::DsTooSmall), "no address vector");
    assert_eq!(broken(send().at_target(av.with_ext(false)).inline(&[1])), Some(Rule::AddressVector));
    let write = Wr::new(SendOpcode::RDMA_WRITE).at_target(av).stream(1).remote(0x100).inline(&[1]);
    assert_eq!(broken(write), None, "a stream means nothing without streams");
    assert_eq!(broken(Wr::new(SendOpcode::LSO).at_target(av)), Some(Rule::WqeOpcode));
}

#[test]
fn others_are_not_heard() {
    let mut world = world();
    world.trace = Some(Vec::new());
    let av = to(&world, dctn(0));
    world.post(0, &Wr::new(SendOpcode::RDMA_WRITE).at_target(av).remote(0x100).inline(&[7; 8]));
    let (qps, dcts) = (std::mem::take(&mut world.nodes[1].qps), std::mem::take(&mut world.nodes[1].dcts));
    world.turn();
    let headers = Packet::parse(&world.trace.take().unwrap()[0].2).unwrap().headers;
    assert_eq!(headers.reth.unwrap().addr, BASE + 0x100);
    let node = &mut world.nodes[1];
    (node.qps, node.dcts) = (qps, dcts);
    for (opcode, pkey, heard) in [
        (Opcode::WRITE_ONLY, 0xffff, false),
        (Opcode::WRITE_ONLY.on(Transport::Xrc), 0xffff, false),
        (Opcode::WRITE_ONLY.on(Transport::Dc), 0x7fff, false),
        (Opcode::WRITE_ONLY.on(Transport::Dc), 0xffff, true),
    ] {
        let mut headers = headers;
        (headers.bth.opcode, headers.bth.pkey) = (opcode, pkey);
        let frame = headers.frame(&[7; 8]);
        node.dcts.get_mut(&dctn(0)).unwrap().receive(&mut node.side, &Packet::parse(&frame).unwrap());
        assert_eq!(node.side.bytes(0x100, 8) == [7; 8], heard, "{opcode:?}");
    }
    // Nor is an initiator asked for anything.
    headers_to_initiator(&mut world, headers);
}

fn headers_to_initiator(world: &mut World, mut headers: mlx5_model::wire::Headers) {
    let source = world.nodes[1].side.source.gid;
    headers.bth.dest_qpn = qpn(0, 0);
    headers.bth.psn = Psn::new(0xff_fff0);
    headers.network.as_mut().unwrap().source_gid = source;
    let frame = headers.frame(&[7; 8]);
    let node = &mut world.nodes[0];
    node.qps.get_mut(&qpn(0, 0)).unwrap().receive(&mut node.side, &Packet::parse(&frame).unwrap());
    assert_eq!(node.side.bytes(0x100, 8), [0; 8]);
}
