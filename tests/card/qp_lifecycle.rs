//! Queue pairs in error, reset, used again, and destroyed. Cases D7 to D9.

use crate::support::*;
use mlx5_direct::{
    Connection, CqAttr, QpAddress, QpInit,
    backend::QpModify,
    mlx5::context::QpState,
    queue::{PostError, RetireError},
};
use std::{collections::HashSet, time::Instant};

/// A pair of which the first side's requests wait for the peer to receive, for ever.
fn stalled(options: &str) -> Pair {
    let mut pair = Pair::new(options);
    for wr_id in 0..20 {
        pair.a.recv(100 + wr_id, 0..64);
    }
    pair.a.post(|list, _| {
        for wr_id in 0..20 {
            // Some silent: they come back too.
            let flags = if wr_id % 3 == 0 { mlx5_direct::queue::Flags::NONE } else { SIGNALED };
            list.send(wr_id, flags).unwrap().inline(b"nobody receives").unwrap().finish();
        }
    });
    pair
}

/// Takes the completions of `n` sends and `n_recv` receives, all flushed, each once and in order.
#[track_caller]
fn assert_flushed(side: &mut Side, sends: std::ops::Range<u64>, recvs: std::ops::Range<u64>) {
    let (mut next_send, mut next_recv) = (sends.start, recvs.start);
    while (next_send, next_recv) != (sends.end, recvs.end) {
        let done = side.done();
        let error = done.error.unwrap_or_else(|| panic!("not flushed: {done:?}"));
        assert!(error.is_flush(), "{error}");
        assert_eq!(done.n_freed, 1, "each request has its own completion");
        let next = if done.is_send { &mut next_send } else { &mut next_recv };
        assert_eq!(done.wr_id, *next, "once, in order");
        *next += 1;
    }
    side.assert_quiet();
}

#[test]
fn d7_qp_to_err_flush() {
    for options in
        makes(&["ports=2", "ports=1", "ports=2,bar=trapped", "ports=2,drive=store", "ports=2,drive=step"])
    {
        let mut pair = stalled(options);
        pair.a.assert_quiet();
        pair.a.qp.modify(&QpModify::to(QpState::ERR)).unwrap();
        assert_flushed(&mut pair.a, 0..20, 100..120);
        // What is posted after, as a drain does, is flushed too; more than once round the ring.
        for round in 0..30 {
            for wr_id in 0..10 {
                pair.a.recv(round * 10 + wr_id, 0..64);
            }
            pair.a.post(|list, _| {
                for wr_id in 0..10 {
                    list.send(round * 10 + wr_id, SIGNALED).unwrap().inline(&[0; 20]).unwrap().finish();
                }
            });
            assert_flushed(&mut pair.a, round * 10..round * 10 + 10, round * 10..round * 10 + 10);
        }
        // The peer has seen nothing.
        assert_eq!(pair.b.device_state(), QpState::RTS);
        pair.b.assert_quiet();
    }
}

#[test]
fn d8_qp_reset_reuse() {
    for options in makes(&["ports=2", "ports=1,bar=trapped,drive=store", "ports=2,drive=step"]) {
        qp_reset_reuse(options);
    }
}

fn qp_reset_reuse(options: &str) {
    let mut pair = stalled(options);
    for round in 0..20u64 {
        pair.a.qp.modify(&QpModify::to(QpState::ERR)).unwrap();
        pair.b.qp.modify(&QpModify::to(QpState::ERR)).unwrap();
        assert_flushed(&mut pair.a, 0..20, 100..120);
        assert_flushed(&mut pair.b, 0..0, 0..0);
        for side in [&mut pair.a, &mut pair.b] {
            side.qp.modify(&QpModify::to(QpState::RST)).unwrap();
            assert_eq!(side.device_state(), QpState::RST);
            assert_eq!((side.qp.send_queue().n_outstanding(), side.qp.recv_queue().n_outstanding()), (0, 0));
            let lease = side.lease;
            assert_eq!(side.qp.post_recv(1, &[lease.slice(0..8)]), Err(PostError::WrongState));
            assert_eq!(side.qp.post_list().send(1, SIGNALED).unwrap_err(), PostError::WrongState);
        }
        connect(&mut pair.a.qp, &mut pair.b.qp, &Connection::default(), &Connection::default());
        // From index 0, on both sides.
        for i in 0..(round * 11 % 200) {
            pair.b.recv(i, 0..64);
            pair.a.post(|list, _| list.send(i, SIGNALED).unwrap().inline(b"again").unwrap().finish());
            let (sent, got) = (pair.a.ok(), pair.b.ok());
            assert_eq!((sent.wr_id, u64::from(sent.wqe_counter)), (i, i));
            assert_eq!((got.wr_id, got.byte_len), (i, 5));
        }
        // And stalled anew.
        for wr_id in 0..20 {
            pair.a.recv(100 + wr_id, 0..64);
        }
        pair.a.post(|list, _| {
            for wr_id in 0..20 {
                list.send(wr_id, SIGNALED).unwrap().inline(b"nobody receives").unwrap().finish();
            }
        });
    }
}

#[test]
fn d8_qp_reset_sweeps_old_completions() {
    needs!(Need::Options("drive=step"));
    // Two queue pairs with one completion queue of 32: completions of both lie in it, in turn, also across its end.
    // One is reset before they are taken.
    let setup = Setup { cq: CqAttr { n_cqes: 32, ..CqAttr::default() }, ..Setup::default() };
    let mut pair = Pair::with("ports=2,drive=step", &setup, &Setup::default());
    let how = Connection::default();
    let mut other = pair.a.pd.create_qp(&QpInit::default(), &pair.a.cq, &pair.a.cq).unwrap();
    let mut peer = pair.b.pd.create_qp(&QpInit::default(), &pair.b.cq, &pair.b.cq).unwrap();
    connect(&mut other, &mut peer, &how, &how);
    let remote = pair.b.remote(0);
    let write = |qp: &mut mlx5_direct::Qp, wr_id: u64| {
        let mut list = qp.post_list();
        list.rdma_write(wr_id, remote, SIGNALED).unwrap().inline(&wr_id.to_be_bytes()).unwrap().finish();
        list.ring();
    };
    for round in 0..40u64 {
        let (n_old, n_kept) = (round % 8, round * 5 % 11);
        for i in 0..n_old.max(n_kept) {
            if i < n_old {
                write(&mut pair.a.qp, 1000 + i);
            }
            if i < n_kept {
                write(&mut other, round * 100 + i);
            }
        }
        pair.settle();
        pair.a.qp.modify(&QpModify::to(QpState::RST)).unwrap();
        pair.b.qp.modify(&QpModify::to(QpState::RST)).unwrap();
        assert_eq!(u64::from(pair.a.cq.sweep(&pair.a.qp)), n_old, "round {round}");
        assert_eq!(pair.a.cq.sweep(&pair.a.qp), 0);
        connect(&mut pair.a.qp, &mut pair.b.qp, &how, &how);
        write(&mut pair.a.qp, 1);
        pair.settle();
        let (mut kept, mut new) = (0, 0);
        let mut poll = pair.a.cq.poll();
        while let Some(wc) = poll.next() {
            assert_eq!(wc.error(), None);
            if Some(wc.user_index()) == other.user_index() {
                assert_eq!(other.retire(&wc).unwrap().wr_id, round * 100 + kept, "in order, each once");
                kept += 1;
            } else {
                assert_eq!(pair.a.qp.retire(&wc).unwrap().wr_id, 1);
                new += 1;
            }
        }
        assert_eq!((kept, new), (n_kept, 1), "round {round}");
    }
}

#[test]
fn d8_qp_reset_forgets_what_was_outstanding() {
    // Without ERR, and without taking completions: none comes after.
    let mut pair = stalled("ports=2");
    pair.a.qp.modify(&QpModify::to(QpState::RST)).unwrap();
    pair.a.assert_quiet();
    assert_eq!((pair.a.qp.send_queue().n_outstanding(), pair.a.qp.recv_queue().n_outstanding()), (0, 0));
}

#[test]
fn d9_qp_destroy_outstanding() {
    for options in makes(&["ports=2", "ports=2,bar=trapped"]) {
        qp_destroy_outstanding(options);
    }
}

fn qp_destroy_outstanding(options: &str) {
    let card = card(options);
    let (ctx_a, ctx_b) = (open(&card, 0), open(&card, 1));
    let mut peer = Side::new(&card, &ctx_b, &Setup::default());
    let pd = ctx_a.alloc_pd().unwrap();
    let mut cq = ctx_a.create_cq(&CqAttr { n_cqes: 1024, ..CqAttr::default() }).unwrap();
    let (mut former, mut numbers, mut is_chosen) = (0, HashSet::new(), false);
    for round in 0..300u64 {
        let mut qp = pd.create_qp(&QpInit::default(), &cq, &cq).unwrap();
        numbers.insert(qp.qpn());
        // Completions of a queue pair that is gone may still be in the queue. None is taken for one of this one,
        // which has requests outstanding at the same counters.
        let memory = pd.alloc_mr(4096, ALL).unwrap();
        let lease = qp.lease(&memory).unwrap();
        peer.qp.modify(&QpModify::to(QpState::RST)).unwrap();
        connect(&mut qp, &mut peer.qp, &Connection::default(), &Connection::default());
        for wr_id in 0..5 {
            qp.post_recv(round * 10 + wr_id, &[lease.slice(0..64)]).unwrap();
        }
        let remote = peer.remote(0);
        let mut list = qp.post_list();
        for wr_id in 0..3 {
            list.rdma_write(round * 10 + wr_id, remote, SIGNALED)
                .unwrap()
                .local(lease, 0..4096)
                .unwrap()
                .finish();
        }
        list.ring();
        let (deadline, mut done) = (Instant::now() + DEADLINE, 0);
        while done < 3 {
            let mut poll = cq.poll();
            while let Some(wc) = poll.next() {
                if wc.qpn() == qp.qpn() && qp.user_index().is_none_or(|index| index == wc.user_index()) {
                    assert_eq!((wc.error(), qp.retire(&wc).unwrap().wr_id), (None, round * 10 + done));
                    done += 1;
                } else {
                    let refused = qp.retire(&wc).unwrap_err();
                    let has_its_number = wc.qpn() == qp.qpn();
                    assert_eq!(
                        matches!(refused, RetireError::FormerQueue { .. }),
                        has_its_number,
                        "{refused}"
                    );
                    former += 1;
                }
            }
            assert!(Instant::now() < deadline, "{done} of 3");
        }
        // Three more that nobody takes, and receives that are outstanding; then it is gone, and its memory.
        let mut list = qp.post_list();
        for wr_id in 0..3 {
            list.rdma_write(wr_id, remote, SIGNALED).unwrap().local(lease, 0..4096).unwrap().finish();
        }
        list.ring();
        if round % 2 == 0 {
            card.advance(std::time::Duration::from_micros(300));
        }
        drop((memory, qp));
        is_chosen = card.restart_qp_numbers(0);
    }
    assert!(former > 0, "completions of former queue pairs were there");
    assert!(numbers.len() == 1 || !is_chosen, "{} numbers", numbers.len());
    drop((cq, pd, peer));
    card.assert_clean();
}

#[test]
fn d9_qp_destroy_keeps_leased_memory_until_then() {
    needs!(Need::Model);
    let mut pair = Pair::new("ports=2");
    let function = pair.card.model().function(0).unwrap();
    let mapped = function.dma().n_mappings();
    let memory = pair.a.pd.alloc_mr(8192, ALL).unwrap();
    memory.write(0, &pattern(9, 8192));
    let lease = pair.a.qp.lease(&memory).unwrap();
    drop(memory);
    assert_eq!(function.dma().n_mappings(), mapped + 1, "the queue pair may still name it");
    let remote = pair.b.remote(0);
    pair.a.post(|list, _| {
        list.rdma_write(1, remote, SIGNALED).unwrap().local(lease, 0..8192).unwrap().finish()
    });
    pair.a.ok();
    assert!(pair.b.bytes(0, 8192) == pattern(9, 8192));
    // A new queue pair in its place: the lease of the old one is worth nothing.
    let fresh = pair.a.pd.create_qp(&QpInit::default(), &pair.a.cq, &pair.a.cq).unwrap();
    let before = function.dma().n_mappings();
    drop(std::mem::replace(&mut pair.a.qp, fresh));
    assert!(function.dma().n_mappings() <= before - 2, "queues and leased memory are gone with it");
    let address = QpAddress { ..pair.b.qp.address(1, 1).unwrap() };
    pair.a.qp.connect(&address, &Connection::default()).unwrap();
    let mut list = pair.a.qp.post_list();
    let refused = list.rdma_write(1, remote, SIGNALED).unwrap().local(lease, 0..8).unwrap_err();
    assert_eq!(refused, PostError::NotLeased);
    list.ring();
}
