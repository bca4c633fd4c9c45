//! Every operation, on a wire that loses nothing.

use super::{
    world::{KEY, Setup, WINDOW, World, qpn},
    wqe::Wr,
};
use mlx5_direct::{
    cqe::{CqeOpcode, CqeSyndrome},
    wqe::{CompletionMode, FenceMode, SendOpcode},
};
use mlx5_model::{
    exec::{QpConfig, QpEvent, QpState, RoceKind, Wake},
    wire::{Opcode, Packet},
};

pub(crate) fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|n| ((n + seed).wrapping_mul(0x9e37_79b1) >> 13) as u8).collect()
}

pub(crate) fn fill(world: &mut World, node: usize, offset: usize, len: usize) -> Vec<u8> {
    let data = pattern(offset + node, len);
    world.nodes[node].side.memory[offset..offset + len].copy_from_slice(&data);
    data
}

const MTU_EDGES: [u32; 13] = [0, 1, 3, 4, 255, 1023, 1024, 1025, 2047, 2048, 2049, 10_000, 100_003];

#[test]
fn send_recv_in_every_packet_format() {
    for kind in [RoceKind::V1, RoceKind::V2Ipv4, RoceKind::V2Ipv6] {
        for vlan_id in [None, Some(5)] {
            let mut world = World::pair(&Setup { kind, vlan_id, ..Setup::default() });
            let data = fill(&mut world, 0, 0, 5000);
            world.post_recv(1, 0x8000, 5000);
            world.post(0, &Wr::new(SendOpcode::SEND).local(0, 5000));
            world.settle();
            assert_eq!(world.nodes[1].side.bytes(0x8000, 5000), data);
            let [done] = world.take_cqes(0)[..] else { panic!("one CQE") };
            assert_eq!((done.opcode, done.send_opcode, done.qpn), (CqeOpcode::REQ, SendOpcode::SEND, 0x100));
            let [got] = world.take_cqes(1)[..] else { panic!("one CQE") };
            assert_eq!((got.opcode, got.len, got.qpn), (CqeOpcode::RESP_SEND, 5000, 0x200));
            world.assert_clean();
        }
    }
}

#[test]
fn sizes_at_mtu_edges() {
    for len in MTU_EDGES {
        let mut world = World::pair(&Setup::default());
        let data = fill(&mut world, 0, 0, len as usize);
        let far = fill(&mut world, 1, 0x40000, len as usize);
        world.post_recv(1, 0x80000, len);
        world.post(0, &Wr::new(SendOpcode::SEND).local(0, len));
        world.post(0, &Wr::new(SendOpcode::RDMA_WRITE).remote(0x20000).local(0, len));
        world.post(0, &Wr::new(SendOpcode::RDMA_READ).remote(0x40000).local(0x80000, len));
        world.settle();
        let n = len as usize;
        assert_eq!(world.nodes[1].side.bytes(0x80000, n), data, "send of {len}");
        assert_eq!(world.nodes[1].side.bytes(0x20000, n), data, "write of {len}");
        assert_eq!(world.nodes[0].side.bytes(0x80000, n), far, "read of {len}");
        let done = world.take_cqes(0);
        assert_eq!(done.iter().map(|c| c.opcode).collect::<Vec<_>>(), [CqeOpcode::REQ; 3]);
        assert_eq!(done[2].len, len);
        assert_eq!(world.take_cqes(1)[0].len, len);
        world.assert_clean();
    }
}

#[test]
fn send_imm_write_imm_and_solicited() {
    let mut world = World::pair(&Setup::default());
    let data = fill(&mut world, 0, 0, 3000);
    for offset in [0x1000, 0x2000] {
        world.post_recv(1, offset, 4096);
    }
    world.post(0, &Wr::new(SendOpcode::SEND_IMM).imm(0x0102_0304).local(0, 3000).solicited());
    world.post(0, &Wr::new(SendOpcode::RDMA_WRITE_IMM).imm(0xcafe).remote(0x8000).local(0, 3000));
    world.settle();
    let got = world.take_cqes(1);
    assert_eq!((got[0].opcode, got[0].imm, got[0].len), (CqeOpcode::RESP_SEND_IMM, 0x0102_0304, 3000));
    assert_eq!((got[1].opcode, got[1].imm, got[1].len), (CqeOpcode::RESP_WR_IMM, 0xcafe, 3000));
    assert_eq!((got[0].wake, got[1].wake), (Wake::Solicited, Wake::Any));
    assert_eq!(world.nodes[1].side.bytes(0x8000, 3000), data);
    assert_eq!(world.nodes[1].side.bytes(0x2000, 16), [0; 16], "WRITE_IMM leaves the receive's memory alone");
    world.assert_clean();
}

#[test]
fn send_inval_kills_the_key() {
    let mut world = World::pair(&Setup::default());
    world.post_recv(1, 0, 64);
    world.post(0, &Wr::new(SendOpcode::RDMA_WRITE).remote_key(0x100, WINDOW).local(0, 8));
    world.post(0, &Wr::new(SendOpcode::SEND_INVAL).imm(WINDOW).local(0, 8));
    world.post(0, &Wr::new(SendOpcode::RDMA_WRITE).remote_key(0x100, WINDOW).local(0, 8));
    world.settle();
    let got = world.take_cqes(1);
    assert_eq!((got[0].opcode, got[0].imm), (CqeOpcode::RESP_SEND_INV, WINDOW));
    let done = world.take_cqes(0);
    assert_eq!(done[2].brief(), (CqeOpcode::REQ_ERR, 2, CqeSyndrome::REMOTE_ACCESS_ERR));
    assert_eq!(done.len(), 3);
}

#[test]
fn zero_length_needs_no_key() {
    let mut world = World::pair(&Setup::default());
    world.post_recv(1, 0, 0);
    world.post(0, &Wr::new(SendOpcode::SEND));
    world.post(0, &Wr::new(SendOpcode::RDMA_WRITE).remote_key(0, 0xdead_0000));
    world.post(0, &Wr::new(SendOpcode::RDMA_READ).remote_key(0, 0xdead_0000));
    world.settle();
    assert!(world.take_cqes(0).iter().all(|c| c.opcode == CqeOpcode::REQ));
    assert_eq!(world.take_cqes(1).len(), 1);
    world.assert_clean();
}

#[test]
fn atomics_return_the_old_value_in_host_order() {
    let mut world = World::pair(&Setup::default());
    world.nodes[1].side.memory[0x100..0x108].copy_from_slice(&u64::MAX.to_ne_bytes());
    let cas =
        |swap, compare, at| Wr::new(SendOpcode::ATOMIC_CS).remote(0x100).operands(swap, compare).local(at, 8);
    world.post(0, &Wr::new(SendOpcode::ATOMIC_FA).remote(0x100).operands(3, 0).local(0, 8));
    world.post(0, &cas(0x1122_3344_5566_7788, 2, 8));
    world.post(0, &cas(5, 6, 16));
    world.settle();
    let read = |world: &World, node: usize, at| {
        u64::from_ne_bytes(world.nodes[node].side.bytes(at, 8).try_into().unwrap())
    };
    assert_eq!(read(&world, 0, 0), u64::MAX, "fetch and add wraps");
    assert_eq!(read(&world, 0, 8), 2);
    assert_eq!(read(&world, 0, 16), 0x1122_3344_5566_7788);
    assert_eq!(read(&world, 1, 0x100), 0x1122_3344_5566_7788, "no match, no change");
    assert!(world.take_cqes(0).iter().all(|c| c.len == 8 && c.opcode == CqeOpcode::REQ));
    world.assert_clean();
}

#[test]
fn inline_of_every_size_across_the_ring_end() {
    let setup = Setup { qp: QpConfig { n_send_wqebbs: 16, ..Setup::default().qp }, ..Setup::default() };
    let mut world = World::pair(&setup);
    for len in 0..=(63 * 16 - 32 - 4) {
        let data = pattern(len, len);
        world.post(0, &Wr::new(SendOpcode::RDMA_WRITE).remote(0x100).inline(&data));
        world.settle();
        assert_eq!(world.nodes[1].side.bytes(0x100, len), data);
        assert_eq!(world.take_cqes(0).len(), 1);
    }
    world.assert_clean();
}

#[test]
fn sge_lists_gather_and_scatter() {
    let setup = Setup {
        qp: QpConfig { receive_stride_bytes: 2048, n_receive_wqes: 2, ..Setup::default().qp },
        ..Setup::default()
    };
    let mut world = World::pair(&setup);
    let data = fill(&mut world, 0, 0, 0x8000);
    let mut wr = Wr::new(SendOpcode::SEND);
    let mut want = Vec::new();
    for n in 0..62usize {
        let len = (n * 37 + 1) % 331 + 1;
        wr = wr.local(n * 512, len as u32);
        want.extend_from_slice(&data[n * 512..n * 512 + len]);
    }
    let total = want.len() as u32;
    let receive: Vec<(usize, u32, u32)> =
        (0..128).map(|n| (0x10000 + n * 1000, total / 127 + (n % 2) as u32, KEY)).collect();
    world.post_recv_on(1, 0, &receive);
    world.post(0, &wr);
    world.settle();
    let mut got = Vec::new();
    for &(at, len, _) in &receive {
        got.extend_from_slice(world.nodes[1].side.bytes(at, len as usize));
    }
    assert_eq!(got[..want.len()], want);
    assert_eq!(world.take_cqes(1)[0].len, total);
    world.assert_clean();
}

#[test]
fn unsignaled_then_signaled_and_nop() {
    let mut world = World::pair(&Setup::default());
    for _ in 0..5 {
        world.post(0, &Wr::new(SendOpcode::RDMA_WRITE).remote(0).local(0, 8).ce(CompletionMode::ONLY_ERR));
    }
    world.post(0, &Wr::new(SendOpcode::NOP));
    world
        .post(0, &Wr::new(SendOpcode::NOP).fence(FenceMode::STRONG_ORDERING).ce(CompletionMode::CQE_AND_EQE));
    world.settle();
    let done = world.take_cqes(0);
    assert_eq!(done.iter().map(|c| c.counter).collect::<Vec<_>>(), [5, 6]);
    assert_eq!((done[0].wake, done[1].wake), (Wake::Any, Wake::Solicited));
    world.assert_clean();
}

#[test]
fn more_reads_than_allowed_wait_their_turn() {
    let mut world = World::pair(&Setup::default());
    let data = fill(&mut world, 1, 0, 0x10000);
    for n in 0..20 {
        world.post(0, &Wr::new(SendOpcode::RDMA_READ).remote(n * 3000).local(n * 3000, 3000));
    }
    world.trace = Some(Vec::new());
    world.settle();
    assert_eq!(world.nodes[0].side.bytes(0, 60_000), &data[..60_000]);
    let counters: Vec<u16> = world.take_cqes(0).iter().map(|c| c.counter).collect();
    assert_eq!(counters, (0..20).collect::<Vec<u16>>());
    let (mut open, mut most) = (0i32, 0);
    for (_, _, frame) in world.trace.take().unwrap() {
        match Packet::parse(&frame).unwrap().headers.bth.opcode {
            Opcode::READ_REQUEST => open += 1,
            Opcode::READ_RESPONSE_LAST => open -= 1,
            _ => {}
        }
        most = most.max(open);
    }
    assert_eq!((open, most), (0, 4), "max_outstanding_reads");
    world.assert_clean();
}

#[test]
fn fence_read_then_send() {
    let mut world = World::pair(&Setup::default());
    let far = fill(&mut world, 1, 0, 20_000);
    world.post_recv(1, 0x10000, 20_000);
    world.post(0, &Wr::new(SendOpcode::RDMA_READ).remote(0).local(0x8000, 20_000));
    world.post(0, &Wr::new(SendOpcode::SEND).local(0x8000, 20_000).fence(FenceMode::FENCE));
    world.settle();
    assert_eq!(world.nodes[1].side.bytes(0x10000, 20_000), far, "the SEND has what the READ brought");
    world.assert_clean();
}

#[test]
fn loopback_and_a_qp_that_talks_to_itself() {
    let setup = Setup::default();
    let mut world = World::empty(&setup);
    world.connect(&setup, (0, 0), (0, 1));
    world.connect(&setup, (0, 2), (0, 2));
    let data = fill(&mut world, 0, 0, 4000);
    for (from, to) in [(0, 1), (1, 0), (2, 2)] {
        world.post_recv_on(0, to, &[(0x2000 + 0x1000 * to as usize, 4000, KEY)]);
        world.post_on(0, from, &Wr::new(SendOpcode::SEND).local(0, 4000));
        world.post_on(0, from, &Wr::new(SendOpcode::RDMA_READ).remote(0).local(0x8000, 4000));
        world.settle();
        assert_eq!(world.nodes[0].side.bytes(0x2000 + 0x1000 * to as usize, 4000), data);
        assert_eq!(world.take_cqes(0).len(), 3);
    }
    world.assert_clean();
}

#[test]
fn bidirectional_duplex_with_small_rings() {
    let setup = Setup {
        qp: QpConfig { n_send_wqebbs: 8, n_receive_wqes: 8, ..Setup::default().qp },
        ..Setup::default()
    };
    let mut world = World::pair(&setup);
    let mut done = [0, 0];
    let mut posted = [0, 0];
    for node in 0..2 {
        for _ in 0..8 {
            world.post_recv(node, 0x4000, 2048);
        }
    }
    // 70,000 WQEs each way: the 16-bit counters wrap.
    while done[0] < 70_000 || done[1] < 70_000 {
        for node in 0..2 {
            while posted[node] < 70_000 && posted[node] - done[node] < 8 {
                world.post(node, &Wr::new(SendOpcode::SEND).local(0, 16));
                posted[node] += 1;
            }
        }
        world.turn();
        for (node, done) in done.iter_mut().enumerate() {
            for cqe in world.take_cqes(node) {
                match cqe.opcode {
                    CqeOpcode::REQ => *done += 1,
                    CqeOpcode::RESP_SEND => world.post_recv(node, 0x4000, 2048),
                    other => panic!("{other}"),
                }
            }
        }
    }
    world.assert_clean();
}

#[test]
fn established_once_and_drained() {
    let setup = Setup::default();
    let mut world = World::pair(&setup);
    let config = *world.nodes[1].qps[&qpn(1, 0)].config();
    let node = &mut world.nodes[1];
    let qp = node.qps.get_mut(&qpn(1, 0)).unwrap();
    for state in [QpState::Rst, QpState::Init, QpState::Rtr] {
        qp.set_state(&mut node.side, state, config);
    }
    world.post(0, &Wr::new(SendOpcode::RDMA_WRITE).remote(0).local(0, 8));
    world.settle();
    assert_eq!(world.nodes[1].side.events, [(qpn(1, 0), QpEvent::CommEst)]);
    world.post(0, &Wr::new(SendOpcode::RDMA_WRITE).remote(0).local(0, 8));
    let config = *world.nodes[0].qps[&qpn(0, 0)].config();
    let node = &mut world.nodes[0];
    node.qps.get_mut(&qpn(0, 0)).unwrap().set_state(&mut node.side, QpState::Sqd, config);
    world.settle();
    assert_eq!(world.take_cqes(0).len(), 1, "in SQD nothing new is started");
    assert_eq!(world.nodes[0].side.events, [(qpn(0, 0), QpEvent::SqDrained)]);
    let node = &mut world.nodes[0];
    node.qps.get_mut(&qpn(0, 0)).unwrap().set_state(&mut node.side, QpState::Rts, config);
    world.settle();
    assert_eq!(world.take_cqes(0).len(), 1);
    assert_eq!(world.nodes[1].side.events.len(), 1);
}

#[test]
fn drained_only_when_the_last_message_is_acknowledged() {
    let mut world = World::pair(&Setup::default());
    world.post(0, &Wr::new(SendOpcode::RDMA_WRITE).remote(0).local(0, 500_000));
    world.turn();
    let config = *world.nodes[0].qps[&qpn(0, 0)].config();
    let node = &mut world.nodes[0];
    node.qps.get_mut(&qpn(0, 0)).unwrap().set_state(&mut node.side, QpState::Sqd, config);
    world.turn();
    assert_eq!((world.nodes[0].side.events.len(), world.nodes[0].side.cqes.len()), (0, 0));
    world.settle();
    assert_eq!((world.nodes[0].side.events.len(), world.nodes[0].side.cqes.len()), (1, 1));
}

#[test]
fn the_window_bounds_what_is_on_the_wire() {
    let setup = Setup {
        qp: QpConfig { retry_count: 0, log_ack_req_freq: 31, ..Setup::default().qp },
        ..Setup::default()
    };
    let mut world = World::pair(&setup);
    world.trace = Some(Vec::new());
    world.wire.interfere(Some(Box::new(|_, _, _: &mut Vec<u8>| mlx5_model::wire::Fate::Drop)));
    world.post(0, &Wr::new(SendOpcode::RDMA_WRITE).remote(0).local(0, 1 << 20));
    world.settle();
    let sent = world.trace.take().unwrap();
    assert_eq!(sent.len(), 128, "of 1024 packets, without an acknowledgement");
    let asks = |frame: &[u8]| Packet::parse(frame).unwrap().headers.bth.ack_req;
    assert!(asks(&sent[127].2), "a window must not close without asking");
    assert_eq!(sent.iter().filter(|(_, _, frame)| asks(frame)).count(), 4);
}

#[test]
fn a_long_message_in_the_smallest_packets() {
    let len = 8 << 20;
    let setup = Setup {
        memory_bytes: len,
        qp: QpConfig { mtu_bytes: 256, log_ack_req_freq: 8, ..Setup::default().qp },
        ..Setup::default()
    };
    let mut world = World::pair(&setup);
    let data = fill(&mut world, 1, 0, len);
    world.post(0, &Wr::new(SendOpcode::RDMA_READ).remote(0).local(0, len as u32));
    world.settle();
    assert!(world.nodes[0].side.memory == data);
    assert_eq!(world.take_cqes(0)[0].len, len as u32);
    world.assert_clean();
}
