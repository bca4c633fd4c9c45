//! What the Q counters of a QP count.

use super::{
    world::{KEY, READ_ONLY, Setup, World, qpn},
    wqe::Wr,
};
use mlx5_direct::wqe::SendOpcode;
use mlx5_model::{
    exec::{Counter, QpConfig, QpState},
    wire::Fate,
};

/// The frame at which something happens, counted from 0, by sender.
fn at(world: &mut World, sender: usize, n: usize, fate: Fate) {
    let port = world.nodes[sender].port;
    let mut seen = 0;
    world.wire.interfere(Some(Box::new(move |from, _, _: &mut Vec<u8>| {
        if from != port {
            return Fate::Deliver;
        }
        seen += 1;
        if seen == n + 1 { fate } else { Fate::Deliver }
    })));
}

/// All that was counted at a node.
fn counts(world: &World, node: usize) -> Vec<(Counter, u32)> {
    world.nodes[node].side.counts.iter().map(|((_, counter), n)| (*counter, *n)).collect()
}

const READ: SendOpcode = SendOpcode::RDMA_READ;
const WRITE: SendOpcode = SendOpcode::RDMA_WRITE;

#[test]
fn requests_received() {
    let mut world = World::pair(&Setup::default());
    world.post_recv(1, 0x4000, 4096);
    world.post(0, &Wr::new(WRITE).remote(0).local(0, 3000));
    world.post(0, &Wr::new(WRITE).remote(0).local(0, 8));
    world.post(0, &Wr::new(READ).remote(0).local(0, 3000));
    world.post(0, &Wr::new(SendOpcode::ATOMIC_FA).remote(0).operands(1, 0).local(0, 8));
    world.post(0, &Wr::new(SendOpcode::SEND).local(0, 3000));
    world.settle();
    let want = [(Counter::RxWriteRequests, 2), (Counter::RxReadRequests, 1), (Counter::RxAtomicRequests, 1)];
    assert_eq!((counts(&world, 0), counts(&world, 1)), (vec![], want.to_vec()), "messages, not packets");
}

#[test]
fn losses() {
    // A request packet in the middle: those after it are out of sequence, and the NAK counts at the sender.
    let mut world = World::pair(&Setup::default());
    at(&mut world, 0, 1, Fate::Drop);
    world.post(0, &Wr::new(WRITE).remote(0).local(0, 3000));
    world.settle();
    assert_eq!(counts(&world, 0), [(Counter::PacketSeqErr, 1)]);
    assert_eq!(counts(&world, 1), [(Counter::RxWriteRequests, 1), (Counter::OutOfSequence, 1)]);

    // The last: only time tells.
    let mut world = World::pair(&Setup::default());
    at(&mut world, 0, 2, Fate::Drop);
    world.post(0, &Wr::new(WRITE).remote(0).local(0, 3000));
    world.settle();
    assert_eq!(counts(&world, 0), [(Counter::LocalAckTimeoutErr, 1)]);
    assert_eq!(counts(&world, 1), [(Counter::RxWriteRequests, 1), (Counter::DuplicateRequest, 2)]);

    // The acknowledgement: what was executed comes again.
    let mut world = World::pair(&Setup::default());
    at(&mut world, 1, 0, Fate::Drop);
    world.post(0, &Wr::new(WRITE).remote(0).local(0, 8));
    world.settle();
    assert_eq!(counts(&world, 0), [(Counter::LocalAckTimeoutErr, 1)]);
    assert_eq!(counts(&world, 1), [(Counter::RxWriteRequests, 1), (Counter::DuplicateRequest, 1)]);

    // A READ's response, which the acknowledgement of a later request shows to be lost.
    let mut world = World::pair(&Setup::default());
    at(&mut world, 1, 0, Fate::Drop);
    world.post(0, &Wr::new(READ).remote(0).local(0, 8));
    world.post(0, &Wr::new(WRITE).remote(0).local(0, 8));
    world.settle();
    assert_eq!(counts(&world, 0), [(Counter::ImpliedNakSeqErr, 1)]);

    // None left: that is the end, and not one more retry.
    let mut world =
        World::pair(&Setup { qp: QpConfig { retry_count: 2, ..Setup::default().qp }, ..Setup::default() });
    world.wire.interfere(Some(Box::new(|_, _, _: &mut Vec<u8>| Fate::Drop)));
    world.post(0, &Wr::new(WRITE).remote(0).local(0, 8));
    world.settle();
    let want = [
        (Counter::LocalAckTimeoutErr, 2),
        (Counter::ReqCqeError, 1),
        (Counter::ReqTransportRetriesExceeded, 1),
    ];
    assert_eq!(counts(&world, 0), want);
}

#[test]
fn no_receive_posted() {
    let mut world =
        World::pair(&Setup { qp: QpConfig { rnr_retry: 3, ..Setup::default().qp }, ..Setup::default() });
    world.post(0, &Wr::new(SendOpcode::SEND).local(0, 8));
    world.settle();
    assert_eq!(counts(&world, 1), [(Counter::OutOfBuffer, 4)]);
    assert_eq!(counts(&world, 0), [(Counter::RnrNakRetryErr, 3), (Counter::ReqCqeError, 1)]);
}

#[test]
fn errors_at_both_ends() {
    let own = |key| Wr::new(WRITE).remote(0).local_key(0, 8, key);
    let far = |key| Wr::new(WRITE).remote_key(0, key).local(0, 8);
    let cases: [(Wr, &[Counter], &[Counter]); 4] = [
        (own(0xbad_0000), &[Counter::ReqLocalProtection, Counter::ReqCqeError], &[]),
        (
            far(READ_ONLY),
            &[Counter::ReqCqeError, Counter::ReqRemoteAccessErrors],
            &[
                Counter::RxWriteRequests,
                Counter::RespCqeError,
                Counter::RespRemoteAccessErrors,
                Counter::RespCqeFlushError,
            ],
        ),
        (
            Wr::new(SendOpcode::SEND).local(0, 65),
            &[Counter::ReqCqeError, Counter::ReqRemoteInvalidRequest],
            &[Counter::RespLocalLengthError, Counter::RespCqeError, Counter::RespRemoteInvalidRequest],
        ),
        (Wr::new(WRITE).remote(0).local(0, 4097), &[Counter::ReqLocalLengthError, Counter::ReqCqeError], &[]),
    ];
    let setup = Setup { qp: QpConfig { log_msg_max: 12, ..Setup::default().qp }, ..Setup::default() };
    for (wr, requester, responder) in cases {
        let mut world = World::pair(&setup);
        world.post_recv(1, 0x4000, 64);
        world.post(0, &wr);
        world.settle();
        let names = |node| counts(&world, node).into_iter().map(|(counter, _)| counter).collect::<Vec<_>>();
        assert_eq!((names(0), names(1)), (requester.to_vec(), responder.to_vec()), "{wr:?}");
    }
}

#[test]
fn flushed_requests_count_as_errors_too() {
    let mut world = World::pair(&Setup::default());
    world.post_recv(0, 0, 8);
    world.place(0, 0, |index| Wr::new(WRITE).remote(0).local_key(0, 8, KEY).bytes(index, qpn(0, 0)));
    let node = &mut world.nodes[0];
    let qp = node.qps.get_mut(&qpn(0, 0)).unwrap();
    let config = *qp.config();
    qp.set_state(&mut node.side, QpState::Err, config);
    world.ring(0, 0);
    world.settle();
    let want =
        [Counter::RespCqeError, Counter::ReqCqeError, Counter::RespCqeFlushError, Counter::ReqCqeFlushError];
    assert_eq!(counts(&world, 0), want.map(|counter| (counter, 1)));
}
