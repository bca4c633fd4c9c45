//! Paging on demand: an access meets a page that is not there, its queue waits for the driver and goes on
//! (`odp_explicit_implicit`).

use super::{
    operations::fill,
    world::{BASE, KEY, PAGE_BYTES, Setup, World, qpn},
    wqe::Wr,
};
use mlx5_direct::{
    cqe::{CqeOpcode, CqeSyndrome},
    mlx5::{eqe::PageFaultType, ids::Qpn},
    wqe::{AvSeg, DcAvSeg, SendOpcode},
};
use mlx5_model::exec::{Counter, DcTarget, FaultedMemory, PageFault, Path, QpConfig, QpState, Ring, Service};

/// How long a driver takes for a page.
const DRIVER_NS: u64 = 300_000;
const SRQN: u32 = 0x30;

/// Makes pages absent: those that `len` bytes from `offset` on are in.
fn take_away(world: &mut World, node: usize, offset: usize, len: usize) {
    let pages = (offset / PAGE_BYTES..(offset + len).div_ceil(PAGE_BYTES)).map(|page| page * PAGE_BYTES);
    world.nodes[node].side.absent.extend(pages);
}

/// Lets things happen until there is a fault, or nothing left to happen before `deadline`.
fn run_until(world: &mut World, deadline: u64) {
    while world.turn() {}
    while world.now < deadline {
        let timers = world
            .nodes
            .iter()
            .flat_map(|n| n.qps.values())
            .filter_map(mlx5_model::exec::Engine::next_deadline);
        world.now = timers.chain(world.wire.next_deadline()).min().unwrap_or(deadline).min(deadline);
        while world.turn() {}
    }
}

/// Answers a fault.
fn answer(world: &mut World, node: usize, fault: &PageFault, error: bool) {
    let node = &mut world.nodes[node];
    node.side.faults.retain(|other| other != fault);
    if let Some(qp) = node.qps.get_mut(&fault.qpn) {
        qp.resume(fault.side(), error);
    } else if let Some(dct) = node.dcts.get_mut(&fault.qpn) {
        dct.resume(error);
    }
}

/// A driver that brings one page for each fault, late. Returns the faults, in their order.
fn page(world: &mut World) -> Vec<PageFault> {
    let mut faults = Vec::new();
    loop {
        let then = world.now + DRIVER_NS;
        run_until(world, then);
        let waiting = [0, 1].map(|node| world.nodes[node].side.faults.clone());
        if waiting.iter().all(Vec::is_empty) {
            world.settle();
            return faults;
        }
        for (node, fault) in [0, 1].into_iter().flat_map(|node| waiting[node].iter().map(move |f| (node, *f)))
        {
            world.nodes[node].side.absent.pop_first();
            answer(world, node, &fault, false);
            faults.push(fault);
        }
    }
}

/// What a fault says of a WQE: kind, queue, index, and bytes done.
fn of_wqe(fault: &PageFault) -> Option<(PageFaultType, u32, u16, u64)> {
    match fault.memory {
        FaultedMemory::Wqe { kind, queue, index } => Some((kind, queue, index, fault.bytes_committed)),
        FaultedMemory::Remote { .. } => None,
    }
}

/// What it says of memory that a peer named: offset, length, whether it is written, and bytes done.
fn of_peer(fault: &PageFault) -> Option<(u64, u32, bool, u64)> {
    match fault.memory {
        FaultedMemory::Remote { rkey: KEY, addr, len_bytes, is_written } => {
            Some((addr - BASE, len_bytes, is_written, fault.bytes_committed))
        }
        _ => None,
    }
}

#[test]
fn a_send_waits_for_the_pages_that_it_reads() {
    let mut world = World::pair(&Setup::default());
    let data = fill(&mut world, 0, 0, 0x3000);
    take_away(&mut world, 0, PAGE_BYTES, 0x2000);
    world.post_recv(1, 0x8000, 0x3000);
    world.post(0, &Wr::new(SendOpcode::SEND).local(0, 0x3000));
    world.post(0, &Wr::new(SendOpcode::RDMA_WRITE).remote(0x20000).local(0, 8));
    run_until(&mut world, DRIVER_NS);
    assert_eq!(world.nodes[1].side.bytes(0x8000, 0x1000), &data[..0x1000], "what could be sent was");
    assert_eq!(world.nodes[1].side.bytes(0x20000, 8), [0; 8], "what comes behind it waits too");
    let faults: Vec<_> = page(&mut world).iter().map(|f| (of_wqe(f), f.packet_bytes)).collect();
    let of = |done| (Some((PageFaultType::REQ_SEND_OR_WRITE, qpn(0, 0).get(), 0, done)), 1024);
    assert_eq!(faults, [of(0x1000), of(0x2000)], "one fault a page, with what was sent before");
    assert_eq!(world.nodes[1].side.bytes(0x8000, 0x3000), data);
    assert_eq!((world.take_cqes(0).len(), world.take_cqes(1).len()), (2, 1));
    world.assert_clean();
}

#[test]
fn a_receive_waits_and_the_sender_tries_again() {
    let mut world = World::pair(&Setup::default());
    let data = fill(&mut world, 0, 0, 0x2000);
    take_away(&mut world, 1, 0x8000, 0x2000);
    world.post_recv(1, 0x10000, 0);
    world.post_recv(1, 0x8000, 0x2000);
    world.post(0, &Wr::new(SendOpcode::SEND));
    world.post(0, &Wr::new(SendOpcode::SEND).local(0, 0x2000));
    let faults: Vec<_> = page(&mut world).iter().filter_map(of_wqe).collect();
    let of = |done| (PageFaultType::RESP, qpn(1, 0).get(), 1, done);
    assert_eq!(faults, [of(0), of(0x1000)], "the WQE stays that of the message");
    assert_eq!(world.nodes[1].side.bytes(0x8000, 0x2000), data);
    assert_eq!(
        world.take_cqes(1).iter().map(|c| (c.counter, c.len)).collect::<Vec<_>>(),
        [(0, 0), (1, 0x2000)]
    );
    let counts = &world.nodes[1].side.counts;
    assert!(!counts.contains_key(&(qpn(1, 0), Counter::OutOfBuffer)), "receives were posted");
    assert!(world.nodes[0].side.counts[&(qpn(0, 0), Counter::RnrNakRetryErr)] >= 2);
    world.assert_clean();
}

#[test]
fn shared_receive_queues_are_named_in_place_of_the_queue_pair() {
    let setup = Setup::default();
    let mut world = World::pair(&setup);
    let queue = world.add_srq(SRQN, 0);
    let node = &mut world.nodes[1];
    let qp = node.qps.get_mut(&qpn(1, 0)).unwrap();
    let config = QpConfig { shared: Some(queue), n_receive_wqes: 0, ..*qp.config() };
    qp.set_state(&mut node.side, QpState::Rts, config);
    world.post_srq(1, SRQN, 5, 0x8000, 4096);
    world.post_srq(1, SRQN, 2, 0x9000, 4096);
    take_away(&mut world, 1, 0x8000, 8);
    let data = fill(&mut world, 0, 0, 4000);
    for _ in 0..2 {
        world.post(0, &Wr::new(SendOpcode::SEND).local(0, 4000));
    }
    let faults = page(&mut world);
    assert_eq!(faults.iter().map(of_wqe).collect::<Vec<_>>(), [Some((PageFaultType::RMP, SRQN, 5, 0))]);
    assert_eq!(faults[0].qpn, qpn(1, 0), "and the one that waits is named beside it");
    for at in [0x8000, 0x9000] {
        assert_eq!(world.nodes[1].side.bytes(at, 4000), data);
    }
    assert_eq!(world.take_cqes(1).iter().map(|c| c.counter).collect::<Vec<_>>(), [5, 2]);
    world.assert_clean();
}

#[test]
fn memory_that_a_peer_names() {
    let mut world = World::pair(&Setup::default());
    let data = fill(&mut world, 0, 0, 0x2000);
    let far = fill(&mut world, 1, 0x40000, 0x3000);
    for (offset, len) in [(0x20000, 0x2000), (0x41000, 0x2000), (0x50000, 8)] {
        take_away(&mut world, 1, offset, len);
    }
    let of = |world: &mut World, wr: &Wr| {
        world.post(0, wr);
        page(world).iter().filter_map(of_peer).collect::<Vec<_>>()
    };
    let write = of(&mut world, &Wr::new(SendOpcode::RDMA_WRITE).remote(0x20000).local(0, 0x2000));
    assert_eq!(write, [0, 0x1000].map(|done| (0x20000, 0x2000, true, done)));
    let read = of(&mut world, &Wr::new(SendOpcode::RDMA_READ).remote(0x40000).local(0x80000, 0x3000));
    assert_eq!(read, [0x1000, 0x2000].map(|done| (0x40000, 0x3000, false, done)));
    let atomic = Wr::new(SendOpcode::ATOMIC_FA).remote(0x50000).operands(3, 0).local(0x90000, 8);
    assert_eq!(of(&mut world, &atomic), [(0x50000, 8, true, 0)]);
    assert_eq!(world.nodes[1].side.bytes(0x20000, 0x2000), data);
    assert_eq!(world.nodes[0].side.bytes(0x80000, 0x3000), far);
    assert_eq!(world.nodes[1].side.bytes(0x50000, 8), 3u64.to_ne_bytes());
    assert_eq!(world.nodes[1].side.n_atomics, 1);
    assert_eq!(world.take_cqes(0).iter().map(|c| c.opcode).collect::<Vec<_>>(), [CqeOpcode::REQ; 3]);
    world.assert_clean();
}

/// Of a READ and what comes behind it only one fault is told at a time.
#[test]
fn a_response_and_the_next_request_wait_at_once() {
    let mut world = World::pair(&Setup::default());
    let far = fill(&mut world, 1, 0x40000, 0x1000);
    take_away(&mut world, 1, 0x40000, 8);
    take_away(&mut world, 1, 0x50000, 8);
    world.post(0, &Wr::new(SendOpcode::RDMA_READ).remote(0x40000).local(0x80000, 0x1000));
    world.post(0, &Wr::new(SendOpcode::ATOMIC_FA).remote(0x50000).operands(3, 0).local(0x90000, 8));
    run_until(&mut world, DRIVER_NS);
    assert_eq!(world.nodes[1].side.faults.len(), 1);
    world.nodes[1].side.absent.clear();
    page(&mut world);
    assert_eq!(world.nodes[0].side.bytes(0x80000, 0x1000), far);
    assert_eq!((world.nodes[1].side.bytes(0x50000, 1), world.nodes[1].side.n_atomics), (&[3][..], 1));
    assert_eq!(world.take_cqes(0).len(), 2);
    world.assert_clean();
}

#[test]
fn responses_are_asked_for_again() {
    let mut world = World::pair(&Setup::default());
    let far = fill(&mut world, 1, 0x40000, 0x3000);
    take_away(&mut world, 0, 0x81000, 0x2000);
    take_away(&mut world, 0, 0x90000, 8);
    let read = world.post(0, &Wr::new(SendOpcode::RDMA_READ).remote(0x40000).local(0x80000, 0x3000));
    let atomic = Wr::new(SendOpcode::ATOMIC_FA).remote(0x50000).operands(3, 0).local(0x90000, 8);
    let atomic = world.post(0, &atomic);
    let faults: Vec<_> = page(&mut world).iter().filter_map(of_wqe).collect();
    let of = |index, done| (PageFaultType::REQ_READ_OR_ATOMIC, qpn(0, 0).get(), index, done);
    assert_eq!(faults, [of(read, 0x1000), of(read, 0x2000), of(atomic, 0)]);
    assert_eq!(world.nodes[0].side.bytes(0x80000, 0x3000), far);
    assert_eq!(world.nodes[1].side.n_atomics, 1, "its result was kept");
    assert_eq!(world.take_cqes(0).len(), 2);
    world.assert_clean();
}

/// The driver has no page: what becomes of the request, at both ends.
#[test]
fn what_cannot_be_brought_is_an_error() {
    let (send, write, read) = (SendOpcode::SEND, SendOpcode::RDMA_WRITE, SendOpcode::RDMA_READ);
    for (node, offset, opcode, here, there) in [
        (0, 0, send, CqeSyndrome::LOCAL_PROT_ERR, None),
        (0, 0, read, CqeSyndrome::LOCAL_PROT_ERR, None),
        (1, 0x8000, send, CqeSyndrome::REMOTE_OP_ERR, Some(CqeSyndrome::LOCAL_PROT_ERR)),
        (1, 0x20000, write, CqeSyndrome::REMOTE_ACCESS_ERR, None),
        (1, 0x20000, read, CqeSyndrome::REMOTE_ACCESS_ERR, None),
        (1, 0x20000, SendOpcode::ATOMIC_FA, CqeSyndrome::REMOTE_ACCESS_ERR, None),
    ] {
        let mut world = World::pair(&Setup::default());
        take_away(&mut world, node, offset, 8);
        world.post_recv(1, 0x8000, 8);
        let wr = Wr::new(opcode);
        let wr = if opcode == send { wr } else { wr.remote(0x20000) };
        let wr = if opcode == SendOpcode::ATOMIC_FA { wr.operands(1, 0) } else { wr };
        world.post(0, &wr.local(0, 8));
        run_until(&mut world, DRIVER_NS);
        let [fault] = world.nodes[node].side.faults[..] else { panic!("{opcode}: one fault") };
        answer(&mut world, node, &fault, true);
        world.settle();
        assert_eq!(world.take_cqes(0)[0].brief(), (CqeOpcode::REQ_ERR, 0, here), "{opcode}");
        let failed = world.take_cqes(1).first().map(|cqe| cqe.syndrome);
        assert_eq!(failed, there.or((node == 1).then_some(CqeSyndrome::WR_FLUSH_ERR)), "{opcode}");
        world.assert_clean();
    }
}

/// A driver answers for a queue pair that was reset meanwhile, and used again.
#[test]
fn an_answer_from_before_a_reset_ends_nothing() {
    let mut world = World::pair(&Setup::default());
    take_away(&mut world, 0, 0, 8);
    world.post(0, &Wr::new(SendOpcode::SEND).local(0, 8));
    run_until(&mut world, DRIVER_NS);
    let [old] = world.nodes[0].side.faults[..] else { panic!("one fault") };
    let again = World::pair(&Setup::default());
    let node = &mut world.nodes[0];
    let qp = node.qps.get_mut(&qpn(0, 0)).unwrap();
    let config = *qp.config();
    for state in [QpState::Err, QpState::Rst, QpState::Init, QpState::Rtr, QpState::Rts] {
        qp.set_state(&mut node.side, state, config);
    }
    node.send_counters.insert(qpn(0, 0), 0);
    world.nodes[1] = again.nodes.into_iter().nth(1).unwrap();
    world.take_cqes(0);
    world.post_recv(1, 0x8000, 8);
    world.post(0, &Wr::new(SendOpcode::SEND).local(0, 8));
    let then = world.now + DRIVER_NS;
    run_until(&mut world, then);
    assert_eq!(world.nodes[0].side.faults, [old], "the driver has yet to answer for the other");
    answer(&mut world, 0, &old, true);
    let faults = page(&mut world);
    assert_eq!(faults.len(), 1, "the error was not its own: it asked again");
    assert_eq!(world.take_cqes(0)[0].opcode, CqeOpcode::REQ);
}

#[test]
fn two_initiators_of_one_target() {
    let base = Setup::default();
    let qp = QpConfig { service: Service::Dynamic, n_receive_wqes: 0, dc_session: 1, ..base.qp };
    let mut world = World::empty(&base);
    for k in 0..2 {
        world.connect(&Setup { qp: QpConfig { remote_qpn: Qpn::new(0), ..qp }, ..base }, (0, k), (1, k));
    }
    let queue = world.add_srq(SRQN, 0x71);
    let node = &mut world.nodes[1];
    let dctn = Qpn::new(0x4_0000);
    let config = QpConfig { qpn: dctn, shared: Some(queue), path: Path::default(), ..qp };
    node.dcts.insert(dctn, DcTarget::new(config, 7));
    for index in 0..2 {
        world.post_srq(1, SRQN, index, 0x8000 + usize::from(index) * PAGE_BYTES, 4096);
    }
    take_away(&mut world, 1, 0x8000, 0x2000);
    let gid = world.nodes[1].side.source.gid;
    let av = DcAvSeg::new().with_dc_key(7).with_ext(true).with_dqpn_dctn(dctn);
    let av = av.with_rmac([2, 0, 0, 0, 0, 1]).with_rgid(gid);
    for k in 0..2 {
        world.post_on(0, k, &Wr::new(SendOpcode::SEND).at_target(av).inline(&[7; 8]));
    }
    let faults: Vec<_> = page(&mut world).iter().map(|f| (f.qpn, of_wqe(f).unwrap().0, f.side())).collect();
    assert_eq!(faults, [(dctn, PageFaultType::RMP, Ring::Receive); 2], "one after the other");
    assert_eq!(world.take_cqes(1).iter().map(|c| c.opcode).collect::<Vec<_>>(), [CqeOpcode::RESP_SEND; 2]);
    world.assert_clean();
}

#[test]
fn a_datagram_is_read_again() {
    for error in [false, true] {
        let base = Setup::default();
        let qp = QpConfig { service: Service::Datagram, qkey: 0x11, ..base.qp };
        let mut world = World::pair(&Setup { qp, ..base });
        let path = world.nodes[0].qps[&qpn(0, 0)].config().path;
        let av = AvSeg::new().with_qkey(0x11).with_ext(true).with_dqpn_dctn(qpn(1, 0));
        let av = av.with_rmac(path.dest_mac).with_rgid(path.dest_gid);
        let data = fill(&mut world, 0, 0, 100);
        take_away(&mut world, 0, 0, 8);
        world.post_recv(1, 0x8000, 200);
        world.post(0, &Wr::new(SendOpcode::SEND).by(av).local(0, 100));
        run_until(&mut world, DRIVER_NS);
        let [fault] = world.nodes[0].side.faults[..] else { panic!("one fault") };
        assert_eq!(of_wqe(&fault), Some((PageFaultType::REQ_SEND_OR_WRITE, qpn(0, 0).get(), 0, 0)));
        assert!(world.take_cqes(0).is_empty());
        world.nodes[0].side.absent.clear();
        answer(&mut world, 0, &fault, error);
        world.settle();
        let sent = world.take_cqes(0)[0].brief();
        if error {
            assert_eq!(sent, (CqeOpcode::REQ_ERR, 0, CqeSyndrome::LOCAL_PROT_ERR));
        } else {
            assert_eq!(sent.0, CqeOpcode::REQ);
            assert_eq!(world.nodes[1].side.bytes(0x8000 + 40, 100), data);
        }
        world.assert_clean();
    }
}

/// What is neither acknowledged nor sent again cannot wait.
#[test]
fn uc_and_received_datagrams_fail() {
    let base = Setup::default();
    let mut world =
        World::pair(&Setup { qp: QpConfig { service: Service::Unacknowledged, ..base.qp }, ..base });
    take_away(&mut world, 0, 0, 8);
    world.post(0, &Wr::new(SendOpcode::RDMA_WRITE).remote(0x100).local(0, 8));
    world.settle();
    assert_eq!(world.take_cqes(0)[0].syndrome, CqeSyndrome::LOCAL_PROT_ERR);
    assert!(world.nodes[0].side.faults.is_empty());
}
