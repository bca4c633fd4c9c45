//! Who is told when something fails or changes: queue pairs apart from each other, typed events. Cases K3, L2, L3.

use crate::support::*;
use mlx5_direct::{
    Qp, QpInit,
    backend::{AsyncEvent, PortState},
    cqe::CqeSyndrome,
    mlx5::context::QpState,
};
use std::{
    sync::{Arc, Barrier, mpsc},
    thread,
    time::{Duration, Instant},
};

/// CPU time of this thread.
fn thread_cpu() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writes.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    assert_eq!(result, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn l2_port_change_event() {
    needs!(Need::Model);
    let card = card("ports=2");
    let (a, b) = (open(&card, 0), open(&card, 1));
    for up in [false, true, false, true] {
        card.model().set_port(0, up);
        // One cable, two ends.
        assert_eq!(a.next_async_event(DEADLINE).unwrap(), Some(AsyncEvent::PortChange { port: 1, up }));
        let state = if up { PortState::Active } else { PortState::Down };
        assert_eq!(a.port(1).unwrap().state, state);
    }
    // The owner takes a port down and up by himself.
    for up in [false, true] {
        b.set_port(1, up).unwrap();
        assert_eq!(b.next_async_event(DEADLINE).unwrap(), Some(AsyncEvent::PortChange { port: 1, up }));
    }
    assert_eq!(b.next_async_event(Duration::ZERO).unwrap(), None);
    card.assert_clean();
}

#[test]
fn k3_error_isolates_qp() {
    // Two connections on shared completion queues. One fails; the other goes on, and every completion is told
    // apart.
    let mut pair = Pair::new("ports=2");
    let how = Setup::default().connection;
    let mut bad = pair.a.pd.create_qp(&QpInit::default(), &pair.a.cq, &pair.a.cq).unwrap();
    let mut bad_peer = pair.b.pd.create_qp(&QpInit::default(), &pair.b.cq, &pair.b.cq).unwrap();
    connect(&mut bad, &mut bad_peer, &how, &how);
    let (remote, nowhere) = (pair.b.remote(0), pair.b.remote(1 << 20));
    let (mut good_done, mut bad_errors) = (0u64, Vec::new());
    let deadline = Instant::now() + DEADLINE;
    for round in 0..200u64 {
        pair.a.post(|list, _| {
            list.rdma_write(round, remote, SIGNALED).unwrap().inline(&[1; 32]).unwrap().finish()
        });
        if (50..60).contains(&round) {
            let mut list = bad.post_list();
            let target = if round == 53 { nowhere } else { remote };
            list.rdma_write(round, target, SIGNALED).unwrap().inline(&[2; 8]).unwrap().finish();
            list.ring();
        }
        while round + 1 - good_done > 20 {
            drain(&mut pair.a, &mut bad, &mut good_done, &mut bad_errors);
            assert!(Instant::now() < deadline);
        }
    }
    while good_done < 200 || bad_errors.len() < 10 {
        drain(&mut pair.a, &mut bad, &mut good_done, &mut bad_errors);
        assert!(Instant::now() < deadline, "{good_done} good, {bad_errors:?}");
    }
    for (i, (wr_id, syndrome)) in bad_errors.iter().enumerate() {
        assert_eq!(*wr_id, 50 + i as u64);
        let expected = match i {
            0..=2 => None,
            3 => Some(CqeSyndrome::REMOTE_ACCESS_ERR),
            _ => Some(CqeSyndrome::WR_FLUSH_ERR),
        };
        assert_eq!(*syndrome, expected, "request {wr_id}");
    }
    assert_eq!(bad.query().unwrap().state, QpState::ERR);
    assert_eq!((pair.a.device_state(), pair.b.device_state()), (QpState::RTS, QpState::RTS));
    // The peer is told which of its queue pairs refused access.
    let event = pair.b.ctx.next_async_event(DEADLINE).unwrap();
    assert_eq!(event, Some(AsyncEvent::QpAccess { qpn: bad_peer.qpn() }));
}

fn drain(side: &mut Side, bad: &mut Qp, good_done: &mut u64, bad_done: &mut Vec<(u64, Option<CqeSyndrome>)>) {
    let mut poll = side.cq.poll();
    while let Some(wc) = poll.next() {
        if wc.qpn() == bad.qpn() {
            bad_done.push((bad.retire(&wc).unwrap().wr_id, wc.error().map(|error| error.syndrome)));
        } else {
            assert_eq!(wc.error(), None);
            assert_eq!(side.qp.retire(&wc).unwrap().wr_id, *good_done);
            *good_done += 1;
        }
    }
}

#[test]
fn l3_qp_async_events() {
    // Access and transport errors at the responder, each with its queue pair.
    {
        let mut pair = Pair::new("ports=2");
        let far = pair.b.remote(1 << 20);
        pair.a.post(|list, _| list.rdma_write(1, far, SIGNALED).unwrap().inline(b"x").unwrap().finish());
        pair.a.fails();
        let qpn = pair.b.qp.qpn();
        assert_eq!(pair.b.ctx.next_async_event(DEADLINE).unwrap(), Some(AsyncEvent::QpAccess { qpn }));
    }

    let mut pair = Pair::new("ports=2");
    let odd = pair.b.remote(4);
    pair.a
        .post(|list, memory| list.fetch_add(1, odd, 1, SIGNALED).unwrap().local(memory, 0).unwrap().finish());
    pair.a.fails();
    let qpn = pair.b.qp.qpn();
    assert_eq!(pair.b.ctx.next_async_event(DEADLINE).unwrap(), Some(AsyncEvent::QpInvalidRequest { qpn }));
    // Who sleeps on the descriptor is woken, as by the call.
    assert_eq!(pair.a.ctx.next_async_event(Duration::from_millis(20)).unwrap(), None);
}

#[test]
fn l3_async_event_wakes_a_sleeper() {
    needs!(Need::Model);
    let card = card("ports=2");
    let ctx = open(&card, 0);
    let ready = Arc::new(Barrier::new(2));
    let (told, heard) = mpsc::channel();
    let sleeper = {
        let (ctx, ready) = (ctx.clone(), Arc::clone(&ready));
        thread::spawn(move || {
            ready.wait();
            let cpu = thread_cpu();
            told.send(ctx.next_async_event(DEADLINE)).unwrap();
            thread_cpu() - cpu
        })
    };
    ready.wait();
    thread::sleep(Duration::from_millis(300));
    card.model().set_port(0, false);
    let event = heard.recv_timeout(DEADLINE).unwrap().unwrap();
    assert_eq!(event, Some(AsyncEvent::PortChange { port: 1, up: false }));
    let cpu = sleeper.join().unwrap();
    assert!(cpu < Duration::from_millis(30), "{cpu:?} of CPU time while asleep");
}
