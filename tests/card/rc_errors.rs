//! RC errors end to end: every one comes out of the protocol. Cases of groups B, E, G and K.

use crate::support::*;
use mlx5_direct::{
    Access, QpInit,
    cqe::CqeSyndrome,
    mlx5::{context::QpState, ids::Lkey, ids::Rkey},
    queue::{Flags, Remote},
};
use std::time::{Duration, Instant};

/// Polls the device until the queue pair is in ERR: it goes there by itself, soon after its completion.
#[track_caller]
fn assert_in_error(side: &Side) {
    let deadline = Instant::now() + DEADLINE;
    while side.device_state() != QpState::ERR {
        side.card.step();
        assert!(Instant::now() < deadline, "state is {}", side.device_state());
    }
}

#[test]
fn e11_short_recv_buffer() {
    for (posted, sent) in [(16, 17), (4096, 4097), (0, 1), (5000, 20_000)] {
        let mut pair = Pair::new("ports=2");
        pair.b.recv(1, 0..posted);
        pair.a.post(|list, memory| list.send(1, SIGNALED).unwrap().local(memory, 0..sent).unwrap().finish());
        assert_eq!(pair.a.fails().syndrome, CqeSyndrome::REMOTE_INVAL_REQ_ERR, "{sent} into {posted}");
        assert_eq!(pair.b.fails().syndrome, CqeSyndrome::LOCAL_LENGTH_ERR, "{sent} into {posted}");
        assert_in_error(&pair.a);
        assert_in_error(&pair.b);
    }
}

#[test]
fn e12_rnr_then_post() {
    // The receive comes late: the sender waits as it was told, and succeeds.
    let mut pair = Pair::new(stepped());
    pair.a.post(|list, _| list.send(1, SIGNALED).unwrap().inline(b"patience").unwrap().finish());
    for _ in 0..50 {
        pair.settle();
        pair.card.pass(Duration::from_millis(1));
        assert_eq!(pair.a.poll(), None);
    }
    pair.b.recv(2, 0..64);
    pair.a.ok();
    assert_eq!(pair.b.ok().byte_len, 8);
    assert_eq!(pair.b.bytes(0, 8), b"patience");
}

#[test]
fn e12_rnr_then_post_counts_are_exact() {
    // rnr_retry n: one attempt and n more, each after the responder's timer; 7 never ends.
    for rnr_retry in 0..=7 {
        let mut setup = Setup::default();
        setup.connection.rnr_retry = rnr_retry;
        setup.connection.min_rnr_timer = 14; // 1.28 ms
        let mut pair = Pair::with(stepped(), &setup, &setup);
        let start = pair.card.now();
        pair.a.post(|list, _| list.send(1, SIGNALED).unwrap().inline(b"x").unwrap().finish());
        pair.settle();
        let patience = Duration::from_millis(if rnr_retry == 7 { 100 } else { 2000 });
        let failed = loop {
            if let Some(done) = pair.a.poll() {
                break Some(done);
            }
            if pair.card.now() - start > patience {
                break None;
            }
            pair.card.pass(Duration::from_micros(10));
        };
        if rnr_retry == 7 {
            assert_eq!(failed, None, "7 retries for ever");
            continue;
        }
        let waited = pair.card.now() - start;
        assert_eq!(failed.unwrap().error.unwrap().syndrome, CqeSyndrome::RNR_RETRY_EXC_ERR);
        let expected = Duration::from_micros(1280) * u32::from(rnr_retry);
        // What is in real time may be late.
        let slack = Duration::from_micros(200) * (1 + u32::from(rnr_retry));
        assert!(
            waited >= expected && (!pair.card.is_stepped() || waited < expected + slack),
            "rnr_retry {rnr_retry}: gave up after {waited:?}, expected {expected:?}"
        );
    }
}

#[test]
fn e13_retry_timeout() {
    for retry_cnt in [0, 1, 3, 7] {
        let mut setup = Setup::default();
        setup.connection.retry_cnt = retry_cnt;
        setup.connection.timeout = 8; // 4.096 µs × 2^8 = 1.05 ms
        let mut pair = Pair::with(stepped(), &setup, &setup);
        // Gone is the peer's queue pair: nobody answers.
        pair.b.qp.modify(&mlx5_direct::backend::QpModify::to(QpState::RST)).unwrap();
        let start = pair.card.now();
        pair.a.post(|list, _| list.send(1, SIGNALED).unwrap().inline(b"x").unwrap().finish());
        let error = loop {
            if let Some(done) = pair.a.poll() {
                break done.error.unwrap();
            }
            assert!(pair.card.now() - start < Duration::from_secs(2), "retry_cnt {retry_cnt} does not end");
            pair.card.pass(Duration::from_micros(50));
        };
        assert_eq!(error.syndrome, CqeSyndrome::TRANSPORT_RETRY_EXC_ERR);
        // IBTA: the timer runs out between once and four times its nominal length.
        let (waited, nominal) = (pair.card.now() - start, Duration::from_nanos(4096 << 8));
        let attempts = u32::from(retry_cnt) + 1;
        assert!(
            waited >= nominal * attempts && (!pair.card.is_stepped() || waited <= nominal * attempts * 4),
            "retry_cnt {retry_cnt}: gave up after {waited:?}, nominal {nominal:?}"
        );
        assert_in_error(&pair.a);
    }
}

#[test]
fn g7_atomic_bad_lkey() {
    let mut pair = Pair::new("ports=2");
    let (remote, addr) = (pair.b.remote(0), pair.a.mr.addr());
    let mut list = pair.a.qp.post_list();
    let request = list.fetch_add(1, remote, 1, SIGNALED).unwrap();
    // SAFETY: no such key, so nothing is written.
    unsafe { request.sge(Lkey::new(0x00ab_cd00), addr) }.unwrap().finish();
    list.ring();
    assert_eq!(pair.a.fails().syndrome, CqeSyndrome::LOCAL_PROT_ERR);
}

#[test]
fn g7_atomic_bad_rkey() {
    let mut pair = Pair::new("ports=2");
    let remote = Remote { rkey: Rkey::new(0x00ab_cd00), ..pair.b.remote(0) };
    pair.a.post(|list, memory| {
        list.fetch_add(1, remote, 1, SIGNALED).unwrap().local(memory, 0).unwrap().finish();
    });
    assert_eq!(pair.a.fails().syndrome, CqeSyndrome::REMOTE_ACCESS_ERR);
    assert_eq!(pair.b.mr.load_u64(0), 0);
}

#[test]
fn g7_atomic_bad_mr() {
    let no_atomics = Setup {
        access: Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ,
        ..Setup::default()
    };
    let mut pair = Pair::with("ports=2", &Setup::default(), &no_atomics);
    let remote = pair.b.remote(0);
    pair.a.post(|list, memory| {
        list.fetch_add(1, remote, 1, SIGNALED).unwrap().local(memory, 0).unwrap().finish();
    });
    assert_eq!(pair.a.fails().syndrome, CqeSyndrome::REMOTE_ACCESS_ERR);
    assert_eq!(pair.b.mr.load_u64(0), 0);
}

#[test]
fn g7_atomic_bad_qp() {
    // The memory allows atomics, the queue pair does not.
    let mut no_atomics = Setup::default();
    no_atomics.connection.access = Access::REMOTE_WRITE | Access::REMOTE_READ;
    let mut pair = Pair::with("ports=2", &Setup::default(), &no_atomics);
    let remote = pair.b.remote(0);
    pair.a.post(|list, memory| {
        list.fetch_add(1, remote, 1, SIGNALED).unwrap().local(memory, 0).unwrap().finish();
    });
    assert_eq!(pair.a.fails().syndrome, CqeSyndrome::REMOTE_INVAL_REQ_ERR);
    assert_eq!(pair.b.mr.load_u64(0), 0);
}

#[test]
fn k3_error_isolates_qp() {
    // Two queue pairs on one completion queue: the failure of one is not the other's.
    let card = card("ports=2");
    let (ctx_a, ctx_b) = (open(&card, 0), open(&card, 1));
    let setup = Setup::default();
    let (mut a, mut b) = (Side::new(&card, &ctx_a, &setup), Side::new(&card, &ctx_b, &setup));
    connect(&mut a.qp, &mut b.qp, &setup.connection, &setup.connection);
    let mut other = a.pd.create_qp(&QpInit::default(), &a.cq, &a.cq).unwrap();
    let mut b2 = Side::new(&card, &ctx_b, &setup);
    connect(&mut other, &mut b2.qp, &setup.connection, &setup.connection);
    let (bad, good) = (b.remote(1 << 16), b2.remote(0));
    a.post(|list, _| list.rdma_write(1, bad, SIGNALED).unwrap().inline(b"x").unwrap().finish());
    assert_eq!(a.fails().syndrome, CqeSyndrome::REMOTE_ACCESS_ERR);
    for i in 0..100u64 {
        let mut list = other.post_list();
        list.rdma_write(i, good, SIGNALED).unwrap().inline(&i.to_le_bytes()).unwrap().finish();
        list.ring();
        let deadline = Instant::now() + DEADLINE;
        loop {
            let mut poll = a.cq.poll();
            if let Some(wc) = poll.next() {
                wc.status().unwrap();
                assert!(a.qp.retire(&wc).is_err(), "not the failed one's");
                assert_eq!(other.retire(&wc).unwrap().wr_id, i);
                break;
            }
            assert!(Instant::now() < deadline);
        }
        assert_eq!(b2.mr.load_u64(0), i);
    }
    card.assert_clean();
}

#[test]
fn k4_mid_batch_error() {
    let mut pair = Pair::new("ports=2");
    let (good, bad) = (pair.b.remote(0), pair.b.remote(1 << 16));
    pair.a.post(|list, _| {
        for i in 0..10 {
            let remote = if i == 4 { bad } else { good };
            list.rdma_write(i, remote, SIGNALED).unwrap().inline(&[i as u8]).unwrap().finish();
        }
    });
    for i in 0..10 {
        let done = pair.a.done();
        assert_eq!(done.wr_id, i);
        match i {
            0..4 => assert_eq!(done.error, None),
            4 => assert_eq!(done.error.unwrap().syndrome, CqeSyndrome::REMOTE_ACCESS_ERR),
            _ => assert!(done.error.unwrap().is_flush()),
        }
    }
    assert_eq!(pair.b.bytes(0, 1), [3], "what came after the failure was not executed");
}

#[test]
fn errors_explain_themselves() {
    let mut pair = Pair::new("ports=2");
    let bad = pair.b.remote(1 << 16);
    pair.a.post(|list, _| list.rdma_write(1, bad, Flags::NONE).unwrap().inline(b"x").unwrap().finish());
    let text = pair.a.fails().to_string();
    for part in ["RDMA_WRITE", "REMOTE_ACCESS_ERR", "rkey"] {
        assert!(text.contains(part), "`{text}` should name {part}");
    }
}
