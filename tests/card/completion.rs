//! Completion queues: sizes, wraps, credit, overruns, sleep and wake. Cases of group C.

use crate::support::*;
use mlx5_direct::{
    Context, Cq, CqAttr, Error, Events, Qp, QpInit,
    backend::{AsyncEvent, CqParams, QpModify},
    mlx5::{context::QpState, eqe::CqErrorSyndrome},
    queue::{CqeSize, Flags, Taken},
};
use mlx5_model::Rule;
use std::{
    collections::HashMap,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

fn cq(n_cqes: u32) -> CqAttr<'static> {
    CqAttr { n_cqes, ..CqAttr::default() }
}

/// A pair whose first side has a completion queue of this make.
fn pair(options: &str, attr: CqAttr<'static>, max_send_wr: u32) -> Pair {
    let init = QpInit { max_send_wr, ..QpInit::default() };
    Pair::with(options, &Setup { cq: attr, init, ..Setup::default() }, &Setup::default())
}

/// Posts `n` signaled RDMA WRITEs of one number each, `wr_id` counting from `first`.
fn write_numbers(pair: &mut Pair, first: u64, n: u64) {
    let remote = pair.b.remote(0);
    pair.a.post(|list, _| {
        for wr_id in first..first + n {
            list.rdma_write(wr_id, remote, SIGNALED).unwrap().inline(&wr_id.to_be_bytes()).unwrap().finish();
        }
    });
}

#[test]
fn c1_cq_create_sizes() {
    let card = card("ports=1");
    let control = card.control(0);
    let ctx = Context::on(control.clone());
    for (asked, given) in
        [(1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (255, 256), (256, 256), (257, 512), (65_537, 1 << 17)]
    {
        let cq = ctx.create_cq(&cq(asked)).unwrap();
        // libmlx5 makes none smaller.
        let least = if card.is_verbs() { 2 } else { 1 };
        assert_eq!(cq.n_cqes(), given.max(least), "{asked} asked for");
    }
    let max = ctx.device().max_cqe;
    assert_eq!(ctx.create_cq(&cq(max)).unwrap().n_cqes(), max.next_power_of_two());
    for wrong in [0, max + 1, u32::MAX] {
        let refused = ctx.create_cq(&cq(wrong)).unwrap_err();
        assert!(matches!(refused, Error::InvalidArgument(_)), "{refused}");
        let text = refused.to_string();
        assert!(
            text.contains(&wrong.to_string()) && text.contains("max_cqe") && text.contains(&max.to_string()),
            "{text}"
        );
    }
    // A bad vector or CQE size has no name in the types. The control path refuses them too.
    let good = CqParams { n_cqes: 4, cqe_bytes: 64, channel: None, ignore_overrun: false };
    let channel = mlx5_direct::backend::ChannelId(77);
    for (bad, says) in [
        (CqParams { cqe_bytes: 32, ..good.clone() }, "32"),
        (CqParams { cqe_bytes: 256, ..good.clone() }, "256"),
        (CqParams { channel: Some(channel), ..good.clone() }, "77"),
    ] {
        let refused = control.create_cq(&bad).unwrap_err();
        assert!(
            matches!(refused, Error::InvalidArgument(_)) && refused.to_string().contains(says),
            "{refused}"
        );
    }
    let parts = control.create_cq(&good).unwrap();
    control.destroy_cq(parts.cqn).unwrap();
    control.destroy_cq(parts.cqn).unwrap_err();
    card.assert_clean();
}

#[test]
fn c2_cq_poll_owner_wrap() {
    for n_cqes in [1u32, 2, 4, 16, 64, 1024] {
        let all = makes(&["ports=2", "ports=2,bar=trapped", "ports=1,drive=step"]);
        for (options, cqe_size) in all.flat_map(|all| [(all, CqeSize::B64), (all, CqeSize::B128)]) {
            let attr = CqAttr { n_cqes, cqe_size, ..CqAttr::default() };
            let mut pair = pair(options, attr, n_cqes.min(128));
            let laps = if n_cqes >= 1024 { 4 } else { 20 };
            let batch = u64::from(n_cqes).min(128);
            let mut next = 0;
            while next < u64::from(n_cqes) * laps {
                write_numbers(&mut pair, next, batch);
                for wr_id in next..next + batch {
                    assert_eq!(pair.a.ok().wr_id, wr_id, "{n_cqes} CQEs of {cqe_size:?}, {options}");
                }
                assert_eq!(pair.a.poll(), None, "nothing of an older lap");
                next += batch;
            }
            assert_eq!(pair.b.bytes(0, 8), (next - 1).to_be_bytes());
        }
    }
}

#[test]
fn c4_cq_poll_batch_and_ci_update() {
    for options in makes(&["ports=2", "ports=2,bar=trapped"]) {
        // A queue that is just as large as what can be outstanding: the consumer index, published once a batch, is
        // what keeps the device from writing over CQEs.
        let mut pair = pair(options, cq(64), 64);
        let (mut posted, mut done, mut largest) = (0u64, 0u64, 0);
        let deadline = Instant::now() + DEADLINE;
        while done < 5000 {
            assert!(Instant::now() < deadline, "{done} done");
            let room = 64 - (posted - done);
            write_numbers(&mut pair, posted, room);
            posted += room;
            // All that are there, in one poll: given back together.
            let (mut batch, mut poll) = (0, pair.a.cq.poll());
            while let Some(wc) = poll.next() {
                assert_eq!(wc.error(), None);
                assert_eq!(pair.a.qp.retire(&wc).unwrap().wr_id, done + batch, "in order, each once");
                batch += 1;
            }
            drop(poll);
            done += batch;
            largest = largest.max(batch);
        }
        while done < posted {
            assert_eq!(pair.a.ok().wr_id, done);
            done += 1;
        }
        assert!(largest > 1, "batches came");
    }
}

#[test]
fn completions_are_taken_one_by_one() {
    for options in makes(&["ports=2", "ports=2,bar=trapped"]) {
        // As large as what can be outstanding, so that each completion has to be given back when it is taken.
        let mut pair = pair(options, cq(16), 16);
        write_numbers(&mut pair, 0, 16);
        let deadline = Instant::now() + DEADLINE;
        for done in 0..2000 {
            let wr_id = loop {
                assert!(Instant::now() < deadline, "{done} done");
                match pair.a.qp.take_sent(&mut pair.a.cq, |retired, _| retired.wr_id) {
                    Taken::Done(wr_id) => break wr_id,
                    Taken::Nothing => thread::yield_now(),
                    Taken::Other => panic!("{:?}", pair.a.cq.poll().next()),
                }
            };
            assert_eq!(wr_id, done);
            write_numbers(&mut pair, done + 16, 1);
        }
        for wr_id in 2000..2016 {
            assert_eq!(pair.a.ok().wr_id, wr_id);
        }
        // A message received is no success of the sends.
        pair.b.recv(1, 0..8);
        pair.a.post(|list, _| list.send(5000, SIGNALED).unwrap().inline(&[7; 8]).unwrap().finish());
        assert_eq!(pair.a.ok().wr_id, 5000);
        while !pair.b.cq.is_ready() {
            assert!(Instant::now() < deadline, "the message has not come");
        }
        assert_eq!(pair.b.qp.take_sent(&mut pair.b.cq, |retired, _| retired.wr_id), Taken::Other);
        let taken = pair.b.qp.take_received(&mut pair.b.cq, |retired, wc| (retired.wr_id, wc.byte_len()));
        assert_eq!(taken, Taken::Done((1, 8)));
        assert_eq!(pair.b.qp.take_received(&mut pair.b.cq, |retired, _| retired.wr_id), Taken::Nothing);
    }
}

#[test]
fn c5_cq_overrun_event() {
    let mut pair = pair("ports=2", cq(4), 64);
    let cqn = pair.a.cq.cqn();
    // Nobody takes completions: the fifth has no room.
    write_numbers(&mut pair, 0, 8);
    let event = pair.a.ctx.next_async_event(DEADLINE).unwrap();
    // Verbs pass the event on without its reason.
    let syndrome = if pair.card.is_verbs() { CqErrorSyndrome(0) } else { CqErrorSyndrome::CQ_OVERRUN };
    assert_eq!(event, Some(AsyncEvent::CqError { cqn, syndrome }));
    // What was delivered before is there.
    for wr_id in 0..4 {
        assert_eq!(pair.a.ok().wr_id, wr_id);
    }
    pair.a.assert_quiet();
    pair.card.assert_broken(Rule::CqOverrun);
}

#[test]
fn c5_cq_overrun_ignored_when_asked() {
    let mut pair = pair("ports=2", CqAttr { ignore_overrun: true, ..cq(4) }, 64);
    write_numbers(&mut pair, 0, 40);
    // Completions are lost in silence; the last that was written is of the last request.
    let deadline = Instant::now() + DEADLINE;
    while pair.b.bytes(0, 8) != 39u64.to_be_bytes() {
        assert!(Instant::now() < deadline);
        thread::yield_now();
    }
    assert_eq!(pair.a.ctx.next_async_event(Duration::from_millis(50)).unwrap(), None);
    assert_eq!(pair.a.device_state(), QpState::RTS);
}

/// CPU time of this thread.
fn thread_cpu() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writes.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    assert_eq!(result, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

const OWN: CqAttr<'static> =
    CqAttr { n_cqes: 256, cqe_size: CqeSize::B64, events: Events::Own, ignore_overrun: false };

#[test]
fn c8_cq_event_sleep_wake() {
    for options in makes(&["ports=2", "ports=1", "ports=2,bar=trapped"]) {
        let mut pair = Pair::with(options, &Setup::default(), &Setup { cq: OWN, ..Setup::default() });
        let mut idle = Duration::ZERO;
        for round in 0..20u64 {
            pair.b.recv(round, 0..64);
            let (b, a) = (&mut pair.b, &mut pair.a);
            thread::scope(|scope| {
                let sleeper = scope.spawn(|| {
                    let (start, cpu) = (Instant::now(), thread_cpu());
                    assert!(b.cq.wait(DEADLINE).unwrap(), "woken by a completion");
                    assert!(start.elapsed() < DEADLINE / 2, "woken, not timed out");
                    let cpu = thread_cpu() - cpu;
                    assert_eq!(b.ok().wr_id, round);
                    cpu
                });
                thread::sleep(Duration::from_millis(25));
                a.post(|list, _| list.send(round, SIGNALED).unwrap().inline(b"wake").unwrap().finish());
                a.ok();
                idle += sleeper.join().unwrap();
            });
        }
        // Half a second asleep.
        assert!(idle < Duration::from_millis(50), "{idle:?} of CPU time while asleep for 500 ms");
        // Nothing comes: the time is kept.
        let start = Instant::now();
        assert!(!pair.b.cq.wait(Duration::from_millis(60)).unwrap());
        assert!(start.elapsed() >= Duration::from_millis(60) && start.elapsed() < Duration::from_secs(5));
    }
}

#[test]
fn c8_cq_event_none_lost_in_races() {
    // The sender races the sleeper: completions come before the arm, between poll and arm, after it.
    let mut pair = Pair::with("ports=2", &Setup::default(), &Setup { cq: OWN, ..Setup::default() });
    let n_rounds = 5000u64;
    let taken = AtomicU64::new(0);
    for slot in 0..64 {
        pair.b.recv(slot, 0..0);
    }
    let (b, a, taken) = (&mut pair.b, &mut pair.a, &taken);
    thread::scope(|scope| {
        let sleeper = scope.spawn(move || {
            let mut next = 0;
            while next < n_rounds {
                assert!(b.cq.wait(DEADLINE).unwrap(), "message {next} woke nobody");
                while let Some(done) = b.poll() {
                    assert_eq!((done.error, done.imm), (None, Some(next as u32)));
                    next += 1;
                    taken.store(next, Ordering::Release);
                    b.recv(next, 0..0);
                }
            }
        });
        for round in 0..n_rounds {
            // Sometimes at once, sometimes when the sleeper is just about to sleep, sometimes when it sleeps.
            while round - taken.load(Ordering::Acquire).min(round) > round % 3 {
                if sleeper.is_finished() {
                    return;
                }
                thread::yield_now();
            }
            for _ in 0..round * 37 % 400 {
                std::hint::spin_loop();
            }
            a.post(|list, _| list.send_imm(round, round as u32, SIGNALED).unwrap().finish());
            a.ok();
        }
    });
}

#[test]
fn c8_cq_event_solicited_only() {
    let mut pair = Pair::with("ports=2", &Setup::default(), &Setup { cq: OWN, ..Setup::default() });
    let channel = pair.b.ctx.create_comp_channel().unwrap();
    let mut shared =
        pair.b.ctx.create_cq(&CqAttr { events: Events::Channel(&channel), ..CqAttr::default() }).unwrap();
    let mut qp = pair.b.pd.create_qp(&QpInit::default(), &shared, &shared).unwrap();
    let mut peer = pair.a.pd.create_qp(&QpInit::default(), &pair.a.cq, &pair.a.cq).unwrap();
    connect(&mut peer, &mut qp, &Setup::default().connection, &Setup::default().connection);
    let lease = qp.lease(&pair.b.mr).unwrap();
    let send = |peer: &mut Qp, cq: &mut Cq, flags: Flags| {
        let mut list = peer.post_list();
        list.send(1, SIGNALED | flags).unwrap().inline(b"x").unwrap().finish();
        list.ring();
        take(cq, peer, 1);
    };
    for round in 0..50 {
        for wr_id in 0..3 {
            qp.post_recv(wr_id, &[lease.slice(0..64)]).unwrap();
        }
        shared.arm(true);
        send(&mut peer, &mut pair.a.cq, Flags::NONE);
        take(&mut shared, &mut qp, 1);
        let early = if round < 3 { channel.wait(Duration::from_millis(20)) } else { channel.try_event() };
        assert_eq!(early.unwrap(), None, "one that is not solicited wakes nobody");
        send(&mut peer, &mut pair.a.cq, Flags::SOLICITED);
        assert_eq!(channel.wait(DEADLINE).unwrap(), Some(shared.cqn()), "a solicited one does");
        shared.event_received();
        take(&mut shared, &mut qp, 1);
        // Armed for any, any wakes.
        shared.arm(false);
        send(&mut peer, &mut pair.a.cq, Flags::NONE);
        assert_eq!(channel.wait(DEADLINE).unwrap(), Some(shared.cqn()));
        shared.event_received();
        take(&mut shared, &mut qp, 1);
        assert_eq!(channel.try_event().unwrap(), None, "one arm, one event");
    }
    // An error is solicited by nature.
    qp.post_recv(9, &[lease.slice(0..64)]).unwrap();
    shared.arm(true);
    qp.modify(&QpModify::to(QpState::ERR)).unwrap();
    assert_eq!(channel.wait(DEADLINE).unwrap(), Some(shared.cqn()));
    // A queue without a channel of its own cannot be slept on, and says so.
    let refused = shared.wait(Duration::ZERO).unwrap_err();
    assert!(refused.to_string().contains("Events::Own"), "{refused}");
}

/// Waits for `n` completions of `qp` and retires them.
#[track_caller]
fn take(cq: &mut Cq, qp: &mut Qp, n: usize) {
    let deadline = Instant::now() + DEADLINE;
    let mut taken = 0;
    while taken < n {
        let mut poll = cq.poll();
        while let Some(wc) = poll.next() {
            assert_eq!(wc.error(), None);
            qp.retire(&wc).unwrap();
            taken += 1;
        }
        assert!(Instant::now() < deadline, "{taken} of {n} completions");
    }
}

#[test]
fn c8_cq_event_one_channel_many_queues() {
    let card = card("ports=1");
    let ctx = open(&card, 0);
    let channel = ctx.create_comp_channel().unwrap();
    let pd = ctx.alloc_pd().unwrap();
    let attr = CqAttr { events: Events::Channel(&channel), ..CqAttr::default() };
    let mut cqs: Vec<_> = (0..10).map(|_| ctx.create_cq(&attr).unwrap()).collect();
    let mut qps: Vec<_> = cqs
        .iter()
        .map(|cq| {
            let mut qp = pd.create_qp(&QpInit::default(), cq, cq).unwrap();
            let to_self = qp.address(1, 0).unwrap();
            qp.connect(&to_self, &Setup::default().connection).unwrap();
            qp
        })
        .collect();
    for round in 0..100 {
        let chosen = [round % 10, (round * 7 + 3) % 10];
        cqs.iter_mut().for_each(|cq| cq.arm(false));
        for i in chosen {
            let mut list = qps[i].post_list();
            list.nop(1, SIGNALED).unwrap().finish();
            list.ring();
        }
        let mut expected: Vec<_> = chosen.iter().map(|i| cqs[*i].cqn()).collect();
        expected.sort_unstable();
        expected.dedup();
        let mut fired: Vec<_> =
            expected.iter().map(|_| channel.wait(DEADLINE).unwrap().expect("an event")).collect();
        fired.sort_unstable();
        assert_eq!(fired, expected);
        for cqn in fired {
            let i = cqs.iter().position(|cq| cq.cqn() == cqn).unwrap();
            cqs[i].event_received();
            take(&mut cqs[i], &mut qps[i], chosen.iter().filter(|chosen| **chosen == i).count());
        }
    }
    assert_eq!(channel.try_event().unwrap(), None);
    drop((qps, cqs));
    card.assert_clean();
}

#[test]
fn c15_cq_many_qps() {
    let card = card("ports=1");
    let ctx = open(&card, 0);
    let pd = ctx.alloc_pd().unwrap();
    let mut cq = ctx.create_cq(&cq(1024)).unwrap();
    let init = QpInit { max_send_wr: 4, max_recv_wr: 4, ..QpInit::default() };
    let mut qps: HashMap<_, _> = (0..200)
        .map(|_| {
            let mut qp = pd.create_qp(&init, &cq, &cq).unwrap();
            let to_self = qp.address(1, 0).unwrap();
            qp.connect(&to_self, &Setup::default().connection).unwrap();
            (qp.qpn(), qp)
        })
        .collect();
    assert_eq!(qps.len(), 200, "distinct numbers");
    for (qpn, qp) in &mut qps {
        let mut list = qp.post_list();
        for i in 0..3 {
            list.nop(u64::from(qpn.get()) << 8 | i, SIGNALED).unwrap().finish();
        }
        list.ring();
    }
    let mut seen: HashMap<_, u64> = HashMap::new();
    let deadline = Instant::now() + DEADLINE;
    while seen.values().sum::<u64>() < 600 {
        let mut poll = cq.poll();
        while let Some(wc) = poll.next() {
            let qpn = wc.qpn();
            let next = seen.entry(qpn).or_default();
            let retired = qps.get_mut(&qpn).expect("one of ours").retire(&wc).unwrap();
            assert_eq!(retired.wr_id, u64::from(qpn.get()) << 8 | *next, "each once, in order");
            *next += 1;
        }
        assert!(Instant::now() < deadline);
    }
    // A completion is refused by a queue pair that it is not of.
    let mut qps = qps.into_values();
    let (mut one, mut other) = (qps.next().unwrap(), qps.next().unwrap());
    let mut list = one.post_list();
    list.nop(1, SIGNALED).unwrap().finish();
    list.ring();
    loop {
        let mut poll = cq.poll();
        if let Some(wc) = poll.next() {
            let refused = other.retire(&wc).unwrap_err().to_string();
            assert!(
                refused.contains(&one.qpn().to_string()) && refused.contains(&other.qpn().to_string()),
                "{refused}"
            );
            assert_eq!(one.retire(&wc).unwrap().wr_id, 1);
            break;
        }
        assert!(Instant::now() < deadline);
    }
    drop((one, other, qps));
    card.assert_clean();
}
