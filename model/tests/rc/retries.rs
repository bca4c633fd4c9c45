//! Timers and counts: how often, how long, and when it ends.

use super::{
    operations::fill,
    world::{Setup, World, qpn},
    wqe::Wr,
};
use mlx5_direct::{
    cqe::{CqeOpcode, CqeSyndrome},
    mlx5::ids::Psn,
    wqe::SendOpcode,
};
use mlx5_model::{
    exec::{Path, QpConfig, QpState},
    wire::{Acknowledgement, Fate, Opcode, Packet, Port},
};

fn with(change: impl FnOnce(&mut QpConfig)) -> Setup {
    let mut setup = Setup::default();
    change(&mut setup.qp);
    setup
}

/// Times at which packets with `opcode` were sent.
fn times(world: &mut World, opcode: Opcode) -> Vec<u64> {
    let trace = world.trace.take().unwrap();
    let of = |frame: &[u8]| Packet::parse(frame).unwrap().headers.bth.opcode;
    trace.iter().filter(|(_, _, frame)| of(frame) == opcode).map(|t| t.0).collect()
}

#[test]
fn rnr_counts_are_exact() {
    for rnr_retry in 0..7 {
        // Timer code 14: 1.28 ms.
        let mut world = World::pair(&with(|qp| (qp.rnr_retry, qp.min_rnr_nak) = (rnr_retry, 14)));
        world.trace = Some(Vec::new());
        world.post(0, &Wr::new(SendOpcode::SEND).local(0, 8));
        world.settle();
        let sent = times(&mut world, Opcode::SEND_ONLY);
        assert_eq!(sent.len(), usize::from(rnr_retry) + 1);
        assert!(sent.windows(2).all(|w| w[1] - w[0] == 1_280_000), "{sent:?}");
        let [failed] = world.take_cqes(0)[..] else { panic!("one CQE") };
        assert_eq!(failed.brief(), (CqeOpcode::REQ_ERR, 0, CqeSyndrome::RNR_RETRY_EXC_ERR));
        assert!(world.take_cqes(1).is_empty());
    }
}

#[test]
fn rnr_then_post_and_rnr_without_end() {
    for write in [false, true] {
        let mut world = World::pair(&with(|qp| (qp.rnr_retry, qp.min_rnr_nak) = (7, 1)));
        let data = fill(&mut world, 0, 0, 5000);
        let opcode = if write { SendOpcode::RDMA_WRITE_IMM } else { SendOpcode::SEND };
        let mut wr = Wr::new(opcode).local(0, 5000);
        if write {
            wr = wr.remote(0x8000);
        }
        world.post(0, &wr);
        world.post(0, &Wr::new(SendOpcode::RDMA_WRITE).remote(0x100).local(0, 8));
        while world.now < 1_000_000_000 {
            if !world.turn() {
                world.now = world.nodes[0].qps[&qpn(0, 0)].next_deadline().unwrap();
            }
        }
        assert!(world.take_cqes(0).is_empty() && world.take_cqes(1).is_empty());
        assert_eq!(world.nodes[1].side.bytes(0x100, 8), [0; 8], "nothing overtakes it");
        world.post_recv(1, 0x8000, 5000);
        world.settle();
        assert_eq!(world.nodes[1].side.bytes(0x8000, 5000), data);
        assert_eq!((world.take_cqes(0).len(), world.take_cqes(1).len()), (2, 1));
        world.assert_clean();
    }
}

#[test]
fn retry_counts_are_exact() {
    for retry_count in 0..=7 {
        let setup = with(|qp| (qp.retry_count, qp.path) = (retry_count, Path { ack_timeout: 10, ..qp.path }));
        for opcode in [SendOpcode::SEND, SendOpcode::RDMA_READ, SendOpcode::ATOMIC_FA] {
            let mut world = World::pair(&setup);
            world.trace = Some(Vec::new());
            world.wire.interfere(Some(Box::new(|_, _, _: &mut Vec<u8>| Fate::Drop)));
            let mut wr = Wr::new(opcode).local(0, 8);
            if opcode != SendOpcode::SEND {
                wr = wr.remote(0);
            }
            if opcode == SendOpcode::ATOMIC_FA {
                wr = wr.operands(1, 0);
            }
            world.post(0, &wr);
            world.settle();
            let sent: Vec<u64> = world.trace.take().unwrap().iter().map(|t| t.0).collect();
            assert_eq!(sent.len(), usize::from(retry_count) + 1, "7 is a number here, not for ever");
            assert!(sent.windows(2).all(|w| w[1] - w[0] == 4096 << 10));
            assert_eq!(world.now, u64::from(retry_count + 1) * (4096 << 10));
            let [failed] = world.take_cqes(0)[..] else { panic!("one CQE") };
            assert_eq!(failed.brief(), (CqeOpcode::REQ_ERR, 0, CqeSyndrome::TRANSPORT_RETRY_EXC_ERR));
        }
    }
}

#[test]
fn timeout_0_waits_for_ever() {
    let mut world = World::pair(&with(|qp| qp.path.ack_timeout = 0));
    world.wire.interfere(Some(Box::new(|_, _, _: &mut Vec<u8>| Fate::Drop)));
    world.post(0, &Wr::new(SendOpcode::SEND).local(0, 8));
    world.settle();
    assert!(world.take_cqes(0).is_empty());
    assert_eq!(world.nodes[0].qps[&qpn(0, 0)].next_deadline(), None);
}

#[test]
fn progress_restores_patience() {
    // Every other packet of the request is lost at first: 20 losses, with one retry each.
    let mut world = World::pair(&with(|qp| (qp.retry_count, qp.log_ack_req_freq) = (1, 0)));
    let data = fill(&mut world, 0, 0, 40 * 1024);
    let mut seen = std::collections::HashSet::new();
    world.wire.interfere(Some(Box::new(move |_: Port, _: Port, frame: &mut Vec<u8>| {
        let psn = Packet::parse(frame).unwrap().headers.bth.psn.get();
        if psn.is_multiple_of(2) && seen.insert(psn) { Fate::Drop } else { Fate::Deliver }
    })));
    world.post(0, &Wr::new(SendOpcode::RDMA_WRITE).remote(0).local(0, 40 * 1024));
    world.settle();
    assert_eq!(world.nodes[1].side.bytes(0, 40 * 1024), data);
    assert_eq!(world.take_cqes(0)[0].opcode, CqeOpcode::REQ);
}

#[test]
fn one_nak_for_one_gap() {
    let mut world = World::pair(&Setup::default());
    world.trace = Some(Vec::new());
    let mut n = 0;
    world.wire.interfere(Some(Box::new(move |_, _, _: &mut Vec<u8>| {
        n += 1;
        if n == 3 { Fate::Drop } else { Fate::Deliver }
    })));
    let data = fill(&mut world, 0, 0, 20 * 1024);
    world.post(0, &Wr::new(SendOpcode::RDMA_WRITE).remote(0).local(0, 20 * 1024));
    world.settle();
    assert_eq!(world.nodes[1].side.bytes(0, 20 * 1024), data);
    assert_eq!(world.now, 0, "no timer was needed");
    let naks = world.trace.take().unwrap().into_iter().filter(|(_, _, frame)| {
        let aeth = Packet::parse(frame).unwrap().headers.aeth;
        aeth.is_some_and(|aeth| aeth.what() == Acknowledgement::SequenceError)
    });
    assert_eq!(naks.count(), 1);
}

/// Drops the `n`-th packet that `which` chooses.
fn lose(world: &mut World, n: usize, which: impl Fn(Opcode) -> bool + Send + 'static) {
    let mut seen = 0;
    world.wire.interfere(Some(Box::new(move |_: Port, _: Port, frame: &mut Vec<u8>| {
        seen += usize::from(which(Packet::parse(frame).unwrap().headers.bth.opcode));
        if seen == n {
            seen += 1;
            return Fate::Drop;
        }
        Fate::Deliver
    })));
}

#[test]
fn lost_read_responses_are_asked_for_again() {
    for lost in 1..=12 {
        let mut world = World::pair(&Setup::default());
        let far = fill(&mut world, 1, 0, 12_000);
        lose(&mut world, lost, Opcode::is_read_response);
        for n in 0..3 {
            world.post(0, &Wr::new(SendOpcode::RDMA_READ).remote(n * 4000).local(n * 4000, 4000));
        }
        world.post(0, &Wr::new(SendOpcode::RDMA_WRITE).remote(0x8000).local(0x8000, 8));
        world.settle();
        assert_eq!(world.nodes[0].side.bytes(0, 12_000), far, "response {lost} lost");
        assert_eq!(world.take_cqes(0).len(), 4);
        assert_eq!(world.now, 0, "what came after it told of the loss");
        world.assert_clean();
    }
}

#[test]
fn after_a_timeout_a_loss_is_noticed_anew() {
    let mut world = World::pair(&Setup::default());
    let far = fill(&mut world, 1, 0, 64);
    let (mut requests, mut responses) = (0, 0);
    world.wire.interfere(Some(Box::new(move |_: Port, _: Port, frame: &mut Vec<u8>| {
        let opcode = Packet::parse(frame).unwrap().headers.bth.opcode;
        requests += usize::from(opcode == Opcode::READ_REQUEST);
        responses += usize::from(opcode.is_read_response());
        let lost =
            opcode == Opcode::READ_REQUEST && requests == 2 || opcode.is_read_response() && responses <= 2;
        if lost { Fate::Drop } else { Fate::Deliver }
    })));
    world.post(0, &Wr::new(SendOpcode::RDMA_READ).remote(0).local(0, 64));
    world.post(0, &Wr::new(SendOpcode::RDMA_WRITE).remote(0x100).local(0x100, 8));
    world.settle();
    assert_eq!(world.nodes[0].side.bytes(0, 64), far);
    assert_eq!(world.now, 4096 << 8, "one timeout");
}

#[test]
fn a_stream_asked_for_again_replaces_the_old_one() {
    let mut world = World::pair(&Setup::default());
    let far = fill(&mut world, 1, 0, 200 * 1024);
    lose(&mut world, 1, Opcode::is_read_response);
    world.trace = Some(Vec::new());
    world.post(0, &Wr::new(SendOpcode::RDMA_READ).remote(0).local(0, 200 * 1024));
    world.settle();
    assert_eq!(world.nodes[0].side.bytes(0, 200 * 1024), far);
    let trace = world.trace.take().unwrap();
    let of_peer = trace.iter().filter(|(_, from, _)| *from == 1).count();
    assert!(of_peer < 300, "{of_peer} packets for a READ of 200");
}

#[test]
fn a_duplicate_that_differs_is_not_answered() {
    let mut world = World::pair(&Setup::default());
    world.trace = Some(Vec::new());
    world.post(0, &Wr::new(SendOpcode::RDMA_READ).remote(0).local(0, 2000));
    world.settle();
    let mut headers = Packet::parse(&world.trace.take().unwrap()[0].2).unwrap().headers;
    let node = &mut world.nodes[1];
    let qp = node.qps.get_mut(&qpn(1, 0)).unwrap();
    for (len_bytes, answered) in [(2000, true), (3000, false), (1000, false), (2048, true)] {
        headers.reth.as_mut().unwrap().len_bytes = len_bytes;
        let frame = headers.frame(&[]);
        qp.receive(&mut node.side, &Packet::parse(&frame).unwrap());
        let before = node.side.n_sent();
        qp.run(&mut node.side, 100);
        assert_eq!(node.side.n_sent() > before, answered, "{len_bytes} bytes in place of 2000");
    }
}

#[test]
fn a_duplicate_atomic_is_executed_once() {
    for lost in 1..=3 {
        let mut world = World::pair(&Setup::default());
        lose(&mut world, lost, |opcode| opcode == Opcode::ATOMIC_ACKNOWLEDGE);
        for n in 0..3 {
            let wr = Wr::new(SendOpcode::ATOMIC_FA).remote(0x100).operands(10, 0).local(n * 8, 8);
            world.post(0, &wr);
        }
        world.settle();
        assert_eq!(world.nodes[1].side.n_atomics, 3);
        let results: Vec<u64> = (0..3)
            .map(|n| u64::from_ne_bytes(world.nodes[0].side.bytes(n * 8, 8).try_into().unwrap()))
            .collect();
        assert_eq!(results, [0, 10, 20]);
        assert_eq!(world.take_cqes(0).len(), 3);
    }
}

#[test]
fn psns_wrap() {
    for first in [0, 0x7f_fffe, 0xff_fffe, 0xff_ffff] {
        let psn = Psn::new(first);
        let mut world = World::pair(&with(|qp| (qp.next_send_psn, qp.next_rcv_psn) = (psn, psn)));
        let data = fill(&mut world, 0, 0, 10_000);
        lose(&mut world, 3, |_| true);
        world.post_recv(1, 0x4000, 10_000);
        world.post(0, &Wr::new(SendOpcode::SEND).local(0, 10_000));
        world.post(0, &Wr::new(SendOpcode::RDMA_READ).remote(0x4000).local(0x4000, 10_000));
        world.settle();
        assert_eq!(world.nodes[1].side.bytes(0x4000, 10_000), data);
        assert_eq!(world.nodes[0].side.bytes(0x4000, 10_000), data);
        let progress = world.nodes[0].qps[&qpn(0, 0)].progress();
        assert_eq!(progress.next_send_psn, psn.plus(20));
        assert_eq!(progress.last_acked_psn, psn.plus(20));
        assert_eq!(world.nodes[1].qps[&qpn(1, 0)].progress().next_rcv_psn, psn.plus(20));
        assert_eq!(world.nodes[1].qps[&qpn(1, 0)].progress().rmsn, 2);
    }
}

/// A receiver whose program ends after its last message: the sender must not have to ask again.
#[test]
fn a_qp_that_goes_has_acknowledged_what_it_executed() {
    for destroyed in [true, false] {
        let mut world = World::pair(&with(|qp| qp.retry_count = 0));
        world.post_recv(1, 0, 4096);
        world.post(0, &Wr::new(SendOpcode::SEND).local(0, 4096));
        // The message arrives at the end of the turn, and its acknowledgement waits for the next one.
        world.turn();
        assert_eq!(world.take_cqes(1).len(), 1);
        let node = &mut world.nodes[1];
        let qp = node.qps.get_mut(&qpn(1, 0)).unwrap();
        if destroyed {
            qp.part(&mut node.side);
            node.qps.remove(&qpn(1, 0));
        } else {
            let config = *qp.config();
            qp.set_state(&mut node.side, QpState::Rst, config);
        }
        world.settle();
        let done = world.take_cqes(0);
        assert_eq!(done.iter().map(|cqe| cqe.opcode).collect::<Vec<_>>(), [CqeOpcode::REQ], "{done:?}");
    }
}
