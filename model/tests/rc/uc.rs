//! UC: nothing is acknowledged, so what is lost is lost, and nothing else with it (`uc_write_send`).

use super::{
    operations::fill,
    world::{KEY, READ_ONLY, Setup, World, qpn},
    wqe::Wr,
};
use mlx5_direct::{
    cqe::{CqeOpcode, CqeSyndrome},
    wqe::{CompletionMode, SendOpcode},
};
use mlx5_model::{
    exec::{QpConfig, QpEvent, QpState, Rule, Service},
    wire::{Fate, Packet, Transport},
};

fn setup() -> Setup {
    let base = Setup::default();
    Setup { qp: QpConfig { service: Service::Unacknowledged, ..base.qp }, ..base }
}

/// Loses the `n`-th frames sent, from 0.
fn lose(world: &mut World, lost: &'static [usize]) {
    let mut n = 0;
    world.wire.interfere(Some(Box::new(move |_, _, _: &mut Vec<u8>| {
        n += 1;
        if lost.contains(&(n - 1)) { Fate::Drop } else { Fate::Deliver }
    })));
}

#[test]
fn uc_write_send() {
    for len in [0, 1, 1024, 1025, 5000] {
        let mut world = World::pair(&setup());
        world.trace = Some(Vec::new());
        let data = fill(&mut world, 0, 0, len as usize);
        world.post_recv(1, 0x8000, 5000);
        world.post_recv(1, 0x10000, 5000);
        world.post(0, &Wr::new(SendOpcode::SEND_IMM).imm(7).local(0, len).solicited());
        world.post(0, &Wr::new(SendOpcode::RDMA_WRITE).remote(0x20000).local(0, len));
        world.post(0, &Wr::new(SendOpcode::RDMA_WRITE_IMM).imm(8).remote(0x30000).local(0, len));
        world.settle();
        for at in [0x8000, 0x20000, 0x30000] {
            assert_eq!(world.nodes[1].side.bytes(at, len as usize), data, "{len} at 0x{at:x}");
        }
        let done = world.take_cqes(0);
        assert_eq!(
            done.iter().map(|c| (c.opcode, c.counter)).collect::<Vec<_>>(),
            [0, 1, 2].map(|n| (CqeOpcode::REQ, n))
        );
        let got = world.take_cqes(1);
        let brief: Vec<_> = got.iter().map(|c| (c.opcode, c.imm, c.len, c.counter)).collect();
        assert_eq!(brief, [(CqeOpcode::RESP_SEND_IMM, 7, len, 0), (CqeOpcode::RESP_WR_IMM, 8, len, 1)]);
        for (_, from, frame) in world.trace.take().unwrap() {
            let bth = Packet::parse(&frame).unwrap().headers.bth;
            assert_eq!((from, bth.opcode.transport(), bth.ack_req), (0, Some(Transport::Uc), false));
        }
        world.assert_clean();
    }
}

#[test]
fn inline_and_unsignaled() {
    let mut world = World::pair(&setup());
    world.post_recv(1, 0x8000, 64);
    world.post(
        0,
        &Wr::new(SendOpcode::RDMA_WRITE).remote(0x100).inline(&[9; 20]).ce(CompletionMode::ONLY_ERR),
    );
    world.post(0, &Wr::new(SendOpcode::SEND).inline(&[7; 33]));
    world.settle();
    assert_eq!(
        (world.nodes[1].side.bytes(0x100, 20), world.nodes[1].side.bytes(0x8000, 33)),
        (&[9; 20][..], &[7; 33][..])
    );
    assert_eq!((world.take_cqes(0).len(), world.take_cqes(1)[0].len), (1, 33));
}

#[test]
fn a_message_with_a_hole_is_dropped_and_the_next_one_works() {
    // Of three messages of three packets the second loses one: first, middle or last.
    for lost in [&[3], &[4], &[5]] {
        let mut world = World::pair(&setup());
        lose(&mut world, lost);
        for n in 0..3 {
            world.post_recv(1, 0x8000 + n * 0x1000, 3000);
        }
        let mut data = Vec::new();
        for n in 0..3 {
            data.push(fill(&mut world, 0, n * 0x1000, 3000));
            world.post(0, &Wr::new(SendOpcode::SEND_IMM).imm(n as u32).local(n * 0x1000, 3000));
        }
        world.settle();
        assert_eq!(world.take_cqes(0).len(), 3, "the sender does not know");
        let got: Vec<_> = world.take_cqes(1).iter().map(|c| (c.counter, c.imm, c.len)).collect();
        // The receive WQE of the lost message takes the next one.
        assert_eq!(got, [(0, 0, 3000), (1, 2, 3000)], "{lost:?}");
        assert_eq!(world.nodes[1].side.bytes(0x8000, 3000), data[0]);
        assert_eq!(world.nodes[1].side.bytes(0x9000, 3000), data[2]);
        assert_eq!((world.state(0), world.state(1)), (QpState::Rts, QpState::Rts));
        world.assert_clean();
    }
    // A WRITE with a hole completes nothing; what came before the hole is written.
    let mut world = World::pair(&setup());
    lose(&mut world, &[1]);
    world.post_recv(1, 0x8000, 64);
    let data = fill(&mut world, 0, 0, 3000);
    world.post(0, &Wr::new(SendOpcode::RDMA_WRITE_IMM).remote(0x20000).local(0, 3000));
    world.post(0, &Wr::new(SendOpcode::RDMA_WRITE_IMM).imm(5).remote(0x30000).local(0, 3000));
    world.settle();
    assert_eq!(world.take_cqes(1).iter().map(|c| c.imm).collect::<Vec<_>>(), [5]);
    assert_eq!(world.nodes[1].side.bytes(0x20000, 1024), &data[..1024]);
    assert_eq!(world.nodes[1].side.bytes(0x20000 + 2048, 952), [0; 952]);
}

#[test]
fn what_the_receiver_refuses_it_drops() {
    let good = Wr::new(SendOpcode::SEND_IMM).imm(0x600d).local(0, 8);
    let bad = [
        // Nobody listens yet; too long; no such key, no such right; past the end.
        Wr::new(SendOpcode::SEND).local(0, 65),
        Wr::new(SendOpcode::SEND).local(0, 4000),
        Wr::new(SendOpcode::RDMA_WRITE_IMM).remote_key(0, 0xbad_0000).local(0, 8),
        Wr::new(SendOpcode::RDMA_WRITE_IMM).remote_key(0, READ_ONLY).local(0, 8),
        Wr::new(SendOpcode::RDMA_WRITE).remote(setup().memory_bytes - 7).local(0, 8),
    ];
    for bad in bad {
        let mut world = World::pair(&setup());
        world.post(0, &good);
        world.settle();
        world.post_recv(1, 0x8000, 64);
        world.post(0, &bad);
        world.post(0, &good);
        world.settle();
        assert!(world.take_cqes(0).iter().all(|c| c.opcode == CqeOpcode::REQ), "{bad:?}");
        let got: Vec<_> = world.take_cqes(1).iter().map(|c| (c.opcode, c.counter, c.imm)).collect();
        assert_eq!(got, [(CqeOpcode::RESP_SEND_IMM, 0, 0x600d)], "{bad:?}");
        assert_eq!(world.state(1), QpState::Rts);
        world.assert_clean();
    }
    let mut world = World::pair(&Setup { qp: QpConfig { remote_write: false, ..setup().qp }, ..setup() });
    world.post(0, &Wr::new(SendOpcode::RDMA_WRITE).remote(0x100).inline(&[7; 8]));
    world.settle();
    assert_eq!((world.nodes[1].side.bytes(0x100, 8), world.state(1)), (&[0; 8][..], QpState::Rts));
}

#[test]
fn errors_are_the_own_sides_alone() {
    // A send that fails stops the send queue (SQER); what is behind it is flushed, and receiving goes on.
    let mut world = World::pair(&setup());
    world.post_recv(0, 0x4000, 64);
    world.post_recv(1, 0x4000, 64);
    for wr in [
        Wr::new(SendOpcode::SEND).local(0, 8),
        Wr::new(SendOpcode::SEND).local_key(0, 8, 0xbad_0000),
        Wr::new(SendOpcode::SEND).local(0, 8),
    ] {
        world.post(0, &wr);
    }
    world.settle();
    let done: Vec<_> = world.take_cqes(0).iter().map(|c| c.brief()).collect();
    let want = [
        (CqeOpcode::REQ, 0, CqeSyndrome(0)),
        (CqeOpcode::REQ_ERR, 1, CqeSyndrome::LOCAL_PROT_ERR),
        (CqeOpcode::REQ_ERR, 2, CqeSyndrome::WR_FLUSH_ERR),
    ];
    assert_eq!((done, world.state(0), world.state(1)), (want.to_vec(), QpState::Sqer, QpState::Rts));
    world.post(1, &Wr::new(SendOpcode::SEND).local(0, 8));
    world.settle();
    assert_eq!(world.take_cqes(0)[0].brief(), (CqeOpcode::RESP_SEND, 0, CqeSyndrome(0)));
    // Back to RTS it sends again, from where it was.
    let node = &mut world.nodes[0];
    let qp = node.qps.get_mut(&qpn(0, 0)).unwrap();
    let config = *qp.config();
    qp.set_state(&mut node.side, QpState::Rts, config);
    world.take_cqes(1);
    world.post_recv(1, 0x5000, 64);
    world.post(0, &Wr::new(SendOpcode::SEND).local(0, 8));
    world.settle();
    assert_eq!(world.take_cqes(1).len(), 1);

    // A receive WQE that cannot be written ends the receiver, and the sender never hears of it.
    let mut world = World::pair(&setup());
    world.post_recv_on(1, 0, &[(0x4000, 64, READ_ONLY)]);
    world.post_recv(1, 0x4000, 64);
    world.post(0, &Wr::new(SendOpcode::SEND).local(0, 8));
    world.settle();
    assert_eq!(world.take_cqes(0)[0].opcode, CqeOpcode::REQ);
    let got: Vec<_> = world.take_cqes(1).iter().map(|c| (c.counter, c.syndrome)).collect();
    assert_eq!(got, [(0, CqeSyndrome::LOCAL_PROT_ERR), (1, CqeSyndrome::WR_FLUSH_ERR)]);
    assert_eq!((world.state(0), world.state(1)), (QpState::Rts, QpState::Err));
}

#[test]
fn uc_has_no_reads_and_no_invalidation() {
    for opcode in [SendOpcode::RDMA_READ, SendOpcode::ATOMIC_FA, SendOpcode::SEND_INVAL] {
        let mut world = World::pair(&setup());
        world.post(0, &Wr::new(opcode).remote(0).operands(0, 0).local(0, 8));
        world.settle();
        assert_eq!(world.nodes[0].side.violations[0].0, Rule::WqeOpcode);
        assert_eq!(world.take_cqes(0)[0].syndrome, CqeSyndrome::LOCAL_QP_OP_ERR);
    }
}

#[test]
fn a_held_receive_is_flushed() {
    let mut world = World::pair(&setup());
    let queue = world.add_srq(0x30, 0x77);
    let node = &mut world.nodes[1];
    let qp = node.qps.get_mut(&qpn(1, 0)).unwrap();
    let config = QpConfig { shared: Some(queue), n_receive_wqes: 0, ..*qp.config() };
    qp.set_state(&mut node.side, QpState::Rts, config);
    world.post_srq(1, 0x30, 5, 0x4000, 4000);
    world.post_srq(1, 0x30, 2, 0x6000, 4000);
    lose(&mut world, &[2]);
    world.post(0, &Wr::new(SendOpcode::SEND).local_key(0, 3000, KEY));
    world.settle();
    assert_eq!(world.take_cqes(1), []);
    let node = &mut world.nodes[1];
    node.qps.get_mut(&qpn(1, 0)).unwrap().set_state(&mut node.side, QpState::Err, config);
    let got: Vec<_> = world.take_cqes(1).iter().map(|c| (c.counter, c.syndrome, c.user_index)).collect();
    assert_eq!(got, [(5, CqeSyndrome::WR_FLUSH_ERR, 0x77)], "the other one is for other QPs");
    assert_eq!(world.nodes[1].side.events, [(qpn(1, 0), QpEvent::LastWqeReached)]);
}
