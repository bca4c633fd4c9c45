//! Errors on purpose: each syndrome, both ends, and what is left after it.

use super::{
    operations::fill,
    world::{BASE, KEY, OTHER_PD, READ_ONLY, Setup, World, qpn},
    wqe::{Cqe, Wr},
};
use mlx5_direct::{
    cqe::{CqeOpcode, CqeSyndrome},
    mlx5::ids::Psn,
    wqe::{CompletionMode, FenceMode, SendOpcode},
};
use mlx5_model::{
    exec::{QpConfig, QpEvent, QpState, Rule},
    wire::{Acknowledgement, Aeth, AtomicEth, Headers, Opcode, Packet},
};

const FLUSH: CqeSyndrome = CqeSyndrome::WR_FLUSH_ERR;

pub(crate) fn syndromes(cqes: &[Cqe]) -> Vec<(u16, CqeSyndrome)> {
    cqes.iter().map(|c| (c.counter, c.syndrome)).collect()
}

/// Posts a good WRITE, the bad request, and two more; receives are posted at both ends.
fn provoke(setup: &Setup, bad: &Wr, receives: &[(usize, u32, u32)]) -> (World, Vec<Cqe>, Vec<Cqe>) {
    let mut world = World::pair(setup);
    world.nodes[1].side.memory.fill(0x5a);
    world.post_recv_on(1, 0, receives);
    world.post_recv(1, 0x4000, 64);
    world.post_recv(0, 0x4000, 64);
    let good = Wr::new(SendOpcode::RDMA_WRITE).remote(0x700).local(0, 8);
    for wr in [&good, bad, &good, &good] {
        let counter = world.nodes[0].send_counters[&qpn(0, 0)];
        assert_eq!(world.place(0, 0, |index| wr.bytes(index, qpn(0, 0))), counter);
    }
    world.ring(0, 0);
    world.settle();
    let (sent, received) = (world.take_cqes(0), world.take_cqes(1));
    assert_eq!(world.state(0), QpState::Err);
    (world, sent, received)
}

/// What the requester gets: good, bad, two flushed, and its receive flushed.
fn assert_requester(sent: &[Cqe], syndrome: CqeSyndrome) {
    let of_send: Vec<Cqe> = sent.iter().filter(|c| c.opcode != CqeOpcode::RESP_ERR).copied().collect();
    assert_eq!(
        of_send.iter().map(|c| c.syndrome).collect::<Vec<_>>(),
        [CqeSyndrome(0), syndrome, FLUSH, FLUSH]
    );
    assert!(of_send.windows(2).all(|w| w[0].counter < w[1].counter), "in order");
    let of_receive: Vec<Cqe> = sent.iter().filter(|c| c.opcode == CqeOpcode::RESP_ERR).copied().collect();
    assert_eq!(syndromes(&of_receive), [(0, FLUSH)]);
}

#[test]
fn local_protection_error_at_the_requester() {
    for key in [0xbad_0000, OTHER_PD] {
        let bad = Wr::new(SendOpcode::RDMA_WRITE).remote(0x700).local_key(0, 8, key);
        let (world, sent, _) = provoke(&Setup::default(), &bad, &[]);
        assert_requester(&sent, CqeSyndrome::LOCAL_PROT_ERR);
        assert_eq!(world.state(1), QpState::Rts, "the peer heard nothing of it");
    }
    // READ and atomics write local memory.
    let (world, sent, _) =
        provoke(&Setup::default(), &Wr::new(SendOpcode::RDMA_READ).remote(0).local_key(0, 8, READ_ONLY), &[]);
    assert_requester(&sent, CqeSyndrome::LOCAL_PROT_ERR);
    assert_eq!(world.nodes[0].side.bytes(0, 8), [0; 8]);
    // One byte past the end.
    let end = Setup::default().memory_bytes;
    let bad = Wr::new(SendOpcode::SEND).local(end - 7, 8);
    let (_, sent, _) = provoke(&Setup::default(), &bad, &[]);
    assert_requester(&sent, CqeSyndrome::LOCAL_PROT_ERR);
}

#[test]
fn remote_access_error_leaves_memory_alone() {
    let end = Setup::default().memory_bytes;
    let write = |offset, key| Wr::new(SendOpcode::RDMA_WRITE).remote_key(offset, key).local(0, 5000);
    let cases = [
        write(0, 0xbad_0000),
        write(0, OTHER_PD),
        write(0, READ_ONLY),
        write(end - 4999, KEY),
        Wr::new(SendOpcode::RDMA_READ).remote_key(0, READ_ONLY).local(0, 8),
        Wr::new(SendOpcode::ATOMIC_FA).remote_key(0, READ_ONLY).operands(1, 0).local(0, 8),
        Wr::new(SendOpcode::ATOMIC_FA).remote(end).operands(1, 0).local(0, 8),
    ];
    for bad in cases {
        let (world, sent, received) = provoke(&Setup::default(), &bad, &[]);
        assert_requester(&sent, CqeSyndrome::REMOTE_ACCESS_ERR);
        assert_eq!(world.state(1), QpState::Err);
        assert_eq!(world.nodes[1].side.events, [(qpn(1, 0), QpEvent::AccessViolation)]);
        assert_eq!(syndromes(&received), [(0, FLUSH), (1, FLUSH)]);
        assert_eq!(world.nodes[1].side.bytes(0, 0x700), [0x5a; 0x700]);
        assert_eq!(world.nodes[1].side.bytes(end - 5000, 5000), [0x5a; 5000]);
        assert_eq!(world.nodes[1].side.n_atomics, 0);
    }
}

#[test]
fn remote_invalid_request() {
    let qp = Setup::default().qp;
    let read = Wr::new(SendOpcode::RDMA_READ).remote(0).local(0, 8);
    let write = Wr::new(SendOpcode::RDMA_WRITE).remote(0).local(0, 8);
    let unaligned = Wr::new(SendOpcode::ATOMIC_FA).remote(0x101).operands(1, 0).local(0, 8);
    let atomic = Wr::new(SendOpcode::ATOMIC_CS).remote(0x100).operands(1, 0).local(0, 8);
    // The good requests are WRITEs, so a peer that refuses WRITE refuses the first.
    let cases = [
        (QpConfig { remote_read: false, ..qp }, read.clone(), 1),
        (QpConfig { remote_atomic: false, ..qp }, atomic, 1),
        (QpConfig { max_served_reads: 0, ..qp }, read, 1),
        (QpConfig { remote_write: false, ..qp }, write, 0),
        (qp, unaligned, 1),
    ];
    for (qp, bad, at) in cases {
        let (world, sent, _) = provoke(&Setup { qp, ..Setup::default() }, &bad, &[]);
        let failed = sent.iter().find(|c| c.opcode == CqeOpcode::REQ_ERR).unwrap();
        assert_eq!((failed.counter, failed.syndrome), (at, CqeSyndrome::REMOTE_INVAL_REQ_ERR));
        assert_eq!(world.nodes[1].side.events, [(qpn(1, 0), QpEvent::InvalidRequest)]);
        assert_eq!(world.nodes[1].side.n_atomics, 0);
    }
}

#[test]
fn short_recv_buffer() {
    for (len, room) in [(100, 99), (5000, 4999), (5000, 10)] {
        let bad = Wr::new(SendOpcode::SEND).local(0, len);
        let (world, sent, received) = provoke(&Setup::default(), &bad, &[(0x2000, room, KEY)]);
        assert_requester(&sent, CqeSyndrome::REMOTE_INVAL_REQ_ERR);
        assert_eq!(syndromes(&received), [(0, CqeSyndrome::LOCAL_LENGTH_ERR), (1, FLUSH)]);
        assert_eq!(world.nodes[1].side.bytes(0x2000 + room as usize, 16), [0x5a; 16], "nothing past the end");
    }
}

#[test]
fn receive_memory_out_of_reach() {
    let bad = Wr::new(SendOpcode::SEND).local(0, 100);
    let (_, sent, received) = provoke(&Setup::default(), &bad, &[(0x2000, 100, READ_ONLY)]);
    assert_requester(&sent, CqeSyndrome::REMOTE_OP_ERR);
    assert_eq!(syndromes(&received), [(0, CqeSyndrome::LOCAL_PROT_ERR), (1, FLUSH)]);
}

#[test]
fn write_imm_without_access_fails_the_receive() {
    let bad = Wr::new(SendOpcode::RDMA_WRITE_IMM).remote_key(0, READ_ONLY).local(0, 8);
    let (_, sent, received) = provoke(&Setup::default(), &bad, &[(0x2000, 100, KEY)]);
    assert_requester(&sent, CqeSyndrome::REMOTE_ACCESS_ERR);
    assert_eq!(syndromes(&received), [(0, CqeSyndrome::LOCAL_ACCESS_ERR), (1, FLUSH)]);
}

#[test]
fn inline_segment_in_a_receive_wqe() {
    let mut world = World::pair(&Setup::default());
    world.post_recv(1, 0x2000, 100);
    world.nodes[1].side.rings.get_mut(&(qpn(1, 0), false)).unwrap()[0] |= 0x80;
    world.post(0, &Wr::new(SendOpcode::SEND).local(0, 8));
    world.settle();
    assert_eq!(syndromes(&world.take_cqes(0)), [(0, CqeSyndrome::REMOTE_OP_ERR)]);
    assert_eq!(syndromes(&world.take_cqes(1)), [(0, CqeSyndrome::LOCAL_QP_OP_ERR)]);
    assert_eq!(world.nodes[1].side.violations[0].0, Rule::WqeReserved);
    assert_eq!(world.nodes[1].side.events, [(qpn(1, 0), QpEvent::WqCatastrophic)]);
}

#[test]
fn message_longer_than_log_msg_max() {
    let setup = Setup { qp: QpConfig { log_msg_max: 12, ..Setup::default().qp }, ..Setup::default() };
    let (world, sent, _) = provoke(&setup, &Wr::new(SendOpcode::RDMA_WRITE).remote(0).local(0, 4097), &[]);
    assert_requester(&sent, CqeSyndrome::LOCAL_LENGTH_ERR);
    assert_eq!(world.nodes[0].side.violations[0].0, Rule::MessageTooLong);
    // byte_count 0 is 2 GiB.
    let bad = Wr::new(SendOpcode::RDMA_WRITE).remote(0).local_key(0, 0, KEY);
    let (_, sent, _) = provoke(&Setup::default(), &bad, &[]);
    assert_requester(&sent, CqeSyndrome::LOCAL_LENGTH_ERR);
}

/// Answers of a peer that breaks the rules, to a READ of two packets.
#[test]
fn bad_response() {
    let answers: [fn(&mut Headers) -> usize; 4] = [
        |h| {
            h.bth.opcode = Opcode::ATOMIC_ACKNOWLEDGE;
            h.atomic_ack = Some(1);
            0
        },
        |h| {
            h.bth.opcode = Opcode::READ_RESPONSE_FIRST;
            1000
        },
        |h| {
            h.bth.opcode = Opcode::READ_RESPONSE_ONLY;
            1024
        },
        |h| {
            h.bth.opcode = Opcode::ACKNOWLEDGE;
            0
        },
    ];
    for answer in answers {
        let mut world = World::pair(&Setup::default());
        world.trace = Some(Vec::new());
        world.wire.interfere(Some(Box::new(|_, _, _: &mut Vec<u8>| mlx5_model::wire::Fate::Drop)));
        world.post(0, &Wr::new(SendOpcode::RDMA_READ).remote(0).local(0, 2000));
        world.turn();
        let request = world.trace.take().unwrap()[0].2.clone();
        let mut headers = Packet::parse(&request).unwrap().headers;
        let net = headers.network.as_mut().unwrap();
        (net.source_gid, net.dest_gid) = (net.dest_gid, net.source_gid);
        headers.bth.dest_qpn = qpn(0, 0);
        headers.aeth = Some(Aeth::new(Acknowledgement::Ack, 1));
        let len = answer(&mut headers);
        let frame = headers.frame(&vec![0; len]);
        let node = &mut world.nodes[0];
        let packet = Packet::parse(&frame).unwrap();
        node.qps.get_mut(&qpn(0, 0)).unwrap().receive(&mut node.side, &packet);
        assert_eq!(syndromes(&world.take_cqes(0)), [(0, CqeSyndrome::BAD_RESP_ERR)]);
    }
}

/// Requests of a peer that breaks the rules.
#[test]
fn invalid_sequences_at_the_responder() {
    let mut template = World::pair(&Setup::default());
    template.trace = Some(Vec::new());
    template.post(0, &Wr::new(SendOpcode::RDMA_WRITE).remote(0).local(0, 8));
    template.turn();
    let headers = Packet::parse(&template.trace.take().unwrap()[0].2).unwrap().headers;
    let cases: [(&[Opcode], usize); 7] = [
        (&[Opcode::SEND_MIDDLE], 1024),
        (&[Opcode::WRITE_LAST], 8),
        (&[Opcode::SEND_FIRST, Opcode::SEND_FIRST], 1024),
        (&[Opcode::SEND_FIRST, Opcode::WRITE_MIDDLE], 1024),
        (&[Opcode::SEND_FIRST, Opcode::READ_REQUEST], 1024),
        (&[Opcode::SEND_FIRST], 1000),
        (&[Opcode::SEND_ONLY], 1025),
    ];
    for (opcodes, len) in cases {
        let mut world = World::pair(&Setup::default());
        world.post_recv(1, 0, 0x4000);
        for (n, opcode) in opcodes.iter().enumerate() {
            let mut headers = headers;
            headers.bth.opcode = *opcode;
            headers.bth.psn = Psn::new(0xff_fff0 + n as u32);
            headers.atomic = Some(AtomicEth { addr: BASE, rkey: KEY, swap_or_add: 0, compare: 0 });
            let len = if *opcode == Opcode::READ_REQUEST { 0 } else { len };
            let frame = headers.frame(&vec![0; len]);
            let node = &mut world.nodes[1];
            let packet = Packet::parse(&frame).unwrap();
            node.qps.get_mut(&qpn(1, 0)).unwrap().receive(&mut node.side, &packet);
        }
        assert_eq!(world.state(1), QpState::Err, "{opcodes:?}");
        assert_eq!(world.nodes[1].side.events, [(qpn(1, 0), QpEvent::InvalidRequest)]);
        assert_eq!(syndromes(&world.take_cqes(1)), [(0, FLUSH)]);
    }
}

#[test]
fn error_isolates_qp() {
    let setup = Setup::default();
    let mut world = World::empty(&setup);
    for k in 0..3 {
        world.connect(&setup, (0, k), (1, k));
    }
    fill(&mut world, 0, 0, 64);
    for n in 0..10 {
        for k in 0..3 {
            let key = if n == 5 && k == 1 { 0xbad_0000 } else { KEY };
            world.post_on(0, k, &Wr::new(SendOpcode::RDMA_WRITE).remote_key(0x100, key).local(0, 64));
        }
    }
    world.settle();
    let cqes = world.take_cqes(0);
    for k in 0..3u32 {
        let of_qp: Vec<CqeSyndrome> =
            cqes.iter().filter(|c| c.qpn == qpn(0, k).get()).map(|c| c.syndrome).collect();
        let mut want = vec![CqeSyndrome(0); 10];
        if k == 1 {
            want[5] = CqeSyndrome::REMOTE_ACCESS_ERR;
            want[6..].fill(FLUSH);
        }
        assert_eq!(of_qp, want);
    }
}

#[test]
fn in_err_what_is_posted_later_is_flushed_too() {
    let mut world = World::pair(&Setup::default());
    let config = *world.nodes[0].qps[&qpn(0, 0)].config();
    world.post(0, &Wr::new(SendOpcode::RDMA_WRITE).remote(0).local(0, 8));
    world.post(0, &Wr::new(SendOpcode::RDMA_WRITE).remote(0).inline(&[0; 100]).ce(CompletionMode::ONLY_ERR));
    let node = &mut world.nodes[0];
    node.qps.get_mut(&qpn(0, 0)).unwrap().set_state(&mut node.side, QpState::Err, config);
    assert_eq!(syndromes(&world.take_cqes(0)), [(0, FLUSH), (1, FLUSH)]);
    world.post(0, &Wr::new(SendOpcode::SEND));
    world.post_recv(0, 0, 8);
    world.settle();
    let drained = world.take_cqes(0);
    assert_eq!(
        drained.iter().map(Cqe::brief).collect::<Vec<_>>(),
        [(CqeOpcode::REQ_ERR, 4, FLUSH), (CqeOpcode::RESP_ERR, 0, FLUSH)]
    );
    assert_eq!(drained[0].send_opcode, SendOpcode::SEND);
    world.assert_clean();
}

#[test]
fn flush_count_with_unsignaled() {
    let mut world = World::pair(&Setup::default());
    let modes = [
        CompletionMode::ONLY_ERR,
        CompletionMode::ONLY_FIRST_ERR,
        CompletionMode::ALWAYS,
        CompletionMode::ONLY_FIRST_ERR,
        CompletionMode::ONLY_ERR,
    ];
    world.post(
        0,
        &Wr::new(SendOpcode::RDMA_WRITE).remote_key(0, 1).local(0, 8).ce(CompletionMode::ONLY_FIRST_ERR),
    );
    for mode in modes {
        world.post(0, &Wr::new(SendOpcode::RDMA_WRITE).remote(0).local(0, 8).ce(mode));
    }
    world.settle();
    let cqes = world.take_cqes(0);
    let want = [(0, CqeSyndrome::REMOTE_ACCESS_ERR), (1, FLUSH), (3, FLUSH), (5, FLUSH)];
    assert_eq!(syndromes(&cqes), want);
}

#[test]
fn a_key_that_dies_in_mid_message() {
    // The requester's: packets went out, then memory is out of reach; a fenced WQE after it is flushed.
    let mut world = World::pair(&Setup::default());
    world.post(0, &Wr::new(SendOpcode::RDMA_WRITE).remote(0).local(0, 900_000));
    world.post(0, &Wr::new(SendOpcode::NOP).fence(FenceMode::STRONG_ORDERING));
    world.turn();
    world.nodes[0].side.keys.get_mut(&KEY).unwrap().free = true;
    world.settle();
    let want = [(0, CqeSyndrome::LOCAL_PROT_ERR), (1, FLUSH)];
    assert_eq!(syndromes(&world.take_cqes(0)), want);

    // The responder's, while it answers a READ.
    let mut world = World::pair(&Setup::default());
    world.post(0, &Wr::new(SendOpcode::RDMA_READ).remote(0).local(0, 900_000));
    world.turn();
    world.nodes[1].side.keys.get_mut(&KEY).unwrap().free = true;
    world.settle();
    assert_eq!(syndromes(&world.take_cqes(0)), [(0, CqeSyndrome::REMOTE_ACCESS_ERR)]);
    assert_eq!(world.nodes[1].side.events, [(qpn(1, 0), QpEvent::AccessViolation)]);
}

#[test]
fn reset_and_reuse() {
    let bad = Wr::new(SendOpcode::RDMA_WRITE).remote_key(0, 1).local(0, 8);
    let (mut world, ..) = provoke(&Setup::default(), &bad, &[]);
    for node in 0..2 {
        let number = qpn(node, 0);
        let config = *world.nodes[node].qps[&number].config();
        let n = &mut world.nodes[node];
        for state in [QpState::Rst, QpState::Init, QpState::Rtr, QpState::Rts] {
            n.qps.get_mut(&number).unwrap().set_state(&mut n.side, state, config);
        }
        n.send_counters.insert(number, 0);
        n.side.receive_counters.insert(number, 0);
    }
    let data = fill(&mut world, 0, 0, 3000);
    world.post_recv(1, 0x1000, 3000);
    assert_eq!(world.post(0, &Wr::new(SendOpcode::SEND).local(0, 3000)), 0);
    world.settle();
    assert_eq!(world.nodes[1].side.bytes(0x1000, 3000), data);
    assert_eq!((world.take_cqes(0).len(), world.take_cqes(1).len()), (1, 1));
}

#[test]
fn more_reads_than_the_responder_serves() {
    let mut world = World::pair(&Setup::default());
    let node = &mut world.nodes[1];
    let qp = node.qps.get_mut(&qpn(1, 0)).unwrap();
    let config = QpConfig { max_served_reads: 2, ..*qp.config() };
    qp.set_state(&mut node.side, QpState::Rts, config);
    for n in 0..4 {
        world.post(0, &Wr::new(SendOpcode::RDMA_READ).remote(0).local(n * 8, 8));
    }
    world.settle();
    let failed = world.take_cqes(0);
    assert_eq!(syndromes(&failed)[2], (2, CqeSyndrome::REMOTE_INVAL_REQ_ERR));
    assert_eq!(failed.len(), 4);
}

#[test]
fn strangers_are_not_heard() {
    let mut world = World::pair(&Setup::default());
    world.trace = Some(Vec::new());
    world.wire.interfere(Some(Box::new(|_, _, _: &mut Vec<u8>| mlx5_model::wire::Fate::Drop)));
    world.post(0, &Wr::new(SendOpcode::RDMA_WRITE).remote(0x100).inline(&[7; 8]));
    world.turn();
    let good = Packet::parse(&world.trace.take().unwrap()[0].2).unwrap().headers;
    let mut deliver = |change: fn(&mut Headers)| {
        let mut headers = good;
        change(&mut headers);
        let frame = headers.frame(&[7; 8]);
        let node = &mut world.nodes[1];
        let qp = node.qps.get_mut(&qpn(1, 0)).unwrap();
        qp.receive(&mut node.side, &Packet::parse(&frame).unwrap());
        node.side.memory[0x100] == 7
    };
    assert!(!deliver(|h| h.network.as_mut().unwrap().source_gid[15] ^= 0xff), "another host");
    assert!(!deliver(|h| h.bth.pkey = 0x7fff), "another partition");
    assert!(deliver(|_| ()));
}
