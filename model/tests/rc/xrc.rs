//! XRC: requests name the shared receive queue that serves them (`xrc_send_write_atomic`).

use super::{
    operations::fill,
    world::{BASE, KEY, OTHER_PD, PD, Setup, Srq, World, qpn},
    wqe::Wr,
};
use mlx5_direct::{
    cqe::{CqeOpcode, CqeSyndrome},
    mlx5::ids::{Cqn, Pdn, UserIndex},
    wqe::SendOpcode,
};
use mlx5_model::{
    exec::{QpConfig, QpState, Rule, Service, SharedQueue},
    wire::{Opcode, Packet, Transport},
};
use std::collections::VecDeque;

const XRCD: u32 = 5;

/// An initiator at node 0, a target at node 1 in a protection domain of nobody's, and three queues there: two in the
/// target's XRC domain, the second of another protection domain, and one in another XRC domain.
fn world() -> World {
    let base = Setup::default();
    let qp = QpConfig { service: Service::Extended, n_receive_wqes: 0, xrcd: XRCD, ..base.qp };
    let mut world = World::pair(&Setup { qp, ..base });
    let node = &mut world.nodes[1];
    for (number, pd, xrcd) in [(0x30, PD, XRCD), (0x31, Pdn::new(8), XRCD), (0x32, PD, 6)] {
        let (cqn, user_index) = (Cqn::new(number), UserIndex::new(0x700 + number));
        let queue = SharedQueue { number, pd, cqn, user_index, tag_matching: false };
        node.side.srqs.insert(number, Srq { queue, xrcd, wqes: VecDeque::new() });
    }
    let target = node.qps.get_mut(&qpn(1, 0)).unwrap();
    let config = QpConfig { pd: Pdn::new(99), n_send_wqebbs: 0, ..*target.config() };
    target.set_state(&mut node.side, QpState::Rts, config);
    world
}

#[test]
fn xrc_send_write_atomic() {
    let mut world = world();
    world.trace = Some(Vec::new());
    let data = fill(&mut world, 0, 0, 3000);
    let far = fill(&mut world, 1, 0x40000, 3000);
    let old = fill(&mut world, 1, 0x50000, 8);
    world.post_srq(1, 0x30, 3, 0x8000, 4096);
    world.post_srq(1, 0x30, 1, 0x9000, 4096);
    let to = |opcode| Wr::new(opcode).for_srq(0x30);
    world.post(0, &to(SendOpcode::SEND).local(0, 3000));
    world.post(0, &to(SendOpcode::RDMA_WRITE_IMM).imm(0xcafe).remote(0x20000).local(0, 3000));
    world.post(0, &to(SendOpcode::RDMA_READ).remote(0x40000).local(0x80000, 3000));
    world.post(0, &to(SendOpcode::ATOMIC_FA).remote(0x50000).operands(1, 0).local(0x90000, 8));
    world.settle();
    assert_eq!(world.nodes[1].side.bytes(0x8000, 3000), data);
    assert_eq!(world.nodes[1].side.bytes(0x20000, 3000), data);
    assert_eq!(world.nodes[0].side.bytes(0x80000, 3000), far);
    assert_eq!(world.nodes[0].side.bytes(0x90000, 8), old);
    let got: Vec<_> =
        world.take_cqes(1).iter().map(|c| (c.cqn, c.opcode, c.counter, c.user_index, c.qpn)).collect();
    let cqn = Cqn::new(0x30);
    let want = [(CqeOpcode::RESP_SEND, 3), (CqeOpcode::RESP_WR_IMM, 1)];
    assert_eq!(
        got,
        want.map(|(opcode, index)| (cqn, opcode, index, 0x730, 0x200)),
        "the queue's CQ and user index"
    );
    assert_eq!(world.take_cqes(0).iter().map(|c| c.opcode).collect::<Vec<_>>(), [CqeOpcode::REQ; 4]);
    // Every request names the queue, also those in the middle of a message; no response does.
    for (_, from, frame) in world.trace.take().unwrap() {
        let headers = Packet::parse(&frame).unwrap().headers;
        assert_eq!(headers.bth.opcode.transport(), Some(Transport::Xrc));
        assert_eq!(headers.xrc_srqn, (from == 0).then_some(0x30), "{:?}", headers.bth.opcode);
    }
    world.assert_clean();
}

#[test]
fn rights_are_those_of_the_queue() {
    // The key of one protection domain, through the queue of the other, and the other way round.
    for (srqn, key, syndrome) in [
        (0x30, KEY, None),
        (0x31, OTHER_PD, None),
        (0x31, KEY, Some(CqeSyndrome::REMOTE_ACCESS_ERR)),
        (0x30, OTHER_PD, Some(CqeSyndrome::REMOTE_ACCESS_ERR)),
        // Not of the target's XRC domain; no such queue.
        (0x32, KEY, Some(CqeSyndrome::REMOTE_INVAL_REQ_ERR)),
        (0x99, KEY, Some(CqeSyndrome::REMOTE_INVAL_REQ_ERR)),
    ] {
        for opcode in [SendOpcode::RDMA_WRITE, SendOpcode::RDMA_READ, SendOpcode::ATOMIC_CS] {
            let mut world = world();
            let wr = Wr::new(opcode).for_srq(srqn).remote_key(0x100, key).local(0, 8);
            world.post(0, &if opcode == SendOpcode::ATOMIC_CS { wr.operands(1, 0) } else { wr });
            world.settle();
            let [done] = world.take_cqes(0)[..] else { panic!("one CQE") };
            assert_eq!(done.syndrome, syndrome.unwrap_or(CqeSyndrome(0)), "0x{srqn:x}, 0x{key:x}, {opcode}");
        }
    }
}

#[test]
fn an_empty_queue_is_not_ready_and_others_are() {
    let mut world = world();
    world.post(0, &Wr::new(SendOpcode::SEND).for_srq(0x30).local(0, 8));
    for _ in 0..20 {
        world.turn();
    }
    assert_eq!(world.take_cqes(0), []);
    world.post_srq(1, 0x30, 0, 0x8000, 64);
    world.settle();
    assert_eq!((world.take_cqes(0).len(), world.take_cqes(1).len()), (1, 1));
}

#[test]
fn a_wqe_without_its_xrc_segment_is_named() {
    let mut world = world();
    world.post(0, &Wr::new(SendOpcode::SEND));
    world.settle();
    assert_eq!(world.nodes[0].side.violations[0].0, Rule::DsTooSmall);
    // A reserved bit: the number has 24.
    let mut world = self::world();
    world.place(0, 0, |index| {
        let mut bytes = Wr::new(SendOpcode::SEND).for_srq(0x30).bytes(index, qpn(0, 0));
        bytes[16] = 1;
        bytes
    });
    world.ring(0, 0);
    world.settle();
    assert_eq!(world.nodes[0].side.violations[0].0, Rule::WqeReserved);
}

#[test]
fn other_transports_are_not_heard() {
    let mut world = world();
    world.trace = Some(Vec::new());
    world.post(0, &Wr::new(SendOpcode::RDMA_WRITE).for_srq(0x30).remote(0x100).inline(&[7; 8]));
    world.nodes[1].qps.clear();
    world.turn();
    let headers = Packet::parse(&world.trace.take().unwrap()[0].2).unwrap().headers;
    for transport in [Transport::Rc, Transport::Uc, Transport::Ud, Transport::Xrc] {
        let mut world = self::world();
        let mut headers = headers;
        headers.bth.opcode = match transport {
            Transport::Ud => Opcode::UD_SEND_ONLY,
            _ => Opcode::WRITE_ONLY.on(transport),
        };
        let frame = headers.frame(&[7; 8]);
        let node = &mut world.nodes[1];
        node.qps.get_mut(&qpn(1, 0)).unwrap().receive(&mut node.side, &Packet::parse(&frame).unwrap());
        let written = node.side.bytes(0x100, 8) == [7; 8];
        assert_eq!(written, transport == Transport::Xrc, "{transport:?}");
    }
    assert_eq!(headers.reth.unwrap().addr, BASE + 0x100);
}
