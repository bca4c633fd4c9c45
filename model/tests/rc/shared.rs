//! Shared receive queues: several QPs take from one, in the order in which they need it (`srq_traffic_limit_resize`).

use super::{
    operations::fill,
    world::{Setup, World, qpn},
    wqe::Wr,
};
use mlx5_direct::{
    cqe::{CqeOpcode, CqeSyndrome},
    wqe::SendOpcode,
};
use mlx5_model::exec::{QpConfig, QpEvent, QpState, SharedQueue};

const SRQN: u32 = 0x30;

/// Three connections, whose QPs at node 1 share a queue.
fn world() -> World {
    let setup = Setup::default();
    let mut world = World::empty(&setup);
    let queue = world.add_srq(SRQN, 0);
    for k in 0..3 {
        world.connect(&setup, (0, k), (1, k));
        let node = &mut world.nodes[1];
        let qp = node.qps.get_mut(&qpn(1, k)).unwrap();
        let queue = SharedQueue { user_index: qp.config().user_index, ..queue };
        let config = QpConfig { shared: Some(queue), n_receive_wqes: 0, ..*qp.config() };
        qp.set_state(&mut node.side, QpState::Rts, config);
    }
    world
}

#[test]
fn several_queue_pairs_take_from_one() {
    let mut world = world();
    for (n, index) in [4, 0, 2].into_iter().enumerate() {
        world.post_srq(1, SRQN, index, 0x8000 + n * 0x1000, 4096);
    }
    let data = fill(&mut world, 0, 0, 3000);
    for k in [2, 0, 1] {
        world.post_on(0, k, &Wr::new(SendOpcode::SEND).local(0, 3000));
        world.settle();
    }
    let got: Vec<_> = world.take_cqes(1).iter().map(|c| (c.opcode, c.counter, c.qpn, c.user_index)).collect();
    let want =
        [(4, 2), (0, 0), (2, 1)].map(|(index, k)| (CqeOpcode::RESP_SEND, index, 0x200 + k, 0x4000 + k));
    assert_eq!(got, want, "index of the WQE, number and user index of the QP");
    for n in 0..3 {
        assert_eq!(world.nodes[1].side.bytes(0x8000 + n * 0x1000, 3000), data);
    }
    world.assert_clean();
}

#[test]
fn an_empty_one_is_not_ready() {
    let mut world = world();
    world.post_on(0, 0, &Wr::new(SendOpcode::SEND).local(0, 8));
    world.post_on(0, 1, &Wr::new(SendOpcode::RDMA_WRITE_IMM).imm(9).remote(0x100).inline(&[7; 8]));
    for _ in 0..20 {
        world.turn();
    }
    assert_eq!((world.take_cqes(0), world.nodes[1].side.bytes(0x100, 1)), (vec![], &[0][..]));
    world.post_srq(1, SRQN, 0, 0x8000, 64);
    world.post_srq(1, SRQN, 1, 0x9000, 64);
    world.settle();
    assert_eq!((world.take_cqes(0).len(), world.take_cqes(1).len()), (2, 2), "RNR NAK, and again");
    world.assert_clean();
}

#[test]
fn an_error_takes_nothing_from_the_others() {
    let mut world = world();
    world.post_srq(1, SRQN, 0, 0x8000, 64);
    world.post_srq(1, SRQN, 1, 0x9000, 64);
    world.post_on(0, 0, &Wr::new(SendOpcode::SEND).local(0, 65));
    world.settle();
    let got: Vec<_> = world.take_cqes(1).iter().map(|c| (c.counter, c.syndrome, c.qpn)).collect();
    assert_eq!(got, [(0, CqeSyndrome::LOCAL_LENGTH_ERR, 0x200)]);
    assert_eq!(world.nodes[1].side.events, [(qpn(1, 0), QpEvent::LastWqeReached)]);
    world.take_cqes(0);
    world.post_on(0, 1, &Wr::new(SendOpcode::SEND).local(0, 64));
    world.settle();
    assert_eq!((world.take_cqes(0)[0].opcode, world.take_cqes(1)[0].counter), (CqeOpcode::REQ, 1));
}

#[test]
fn the_last_wqe_event_comes_once() {
    let mut world = world();
    world.post_srq(1, SRQN, 0, 0x8000, 64);
    for _ in 0..2 {
        let node = &mut world.nodes[1];
        let qp = node.qps.get_mut(&qpn(1, 1)).unwrap();
        let config = *qp.config();
        qp.set_state(&mut node.side, QpState::Err, config);
        world.settle();
    }
    assert_eq!(world.nodes[1].side.events, [(qpn(1, 1), QpEvent::LastWqeReached)]);
    assert_eq!(world.take_cqes(1), [], "what is posted is for other QPs");
}
