//! Rings and doorbells with a device behind them. Cases of group H; those without a device are in `rings.rs`.

use crate::support::*;
use mlx5_direct::{
    QpInit,
    doorbell::DoorbellMode,
    queue::{Flags, PostError},
};

const BARS: &[&str] = &["ports=2", "ports=2,bar=trapped"];

fn small() -> Setup {
    let init = QpInit { max_send_wr: 4, max_send_sge: 8, max_inline_data: 200, ..QpInit::default() };
    Setup { init, ..Setup::default() }
}

#[test]
fn h1_sq_wrap_all_offsets_on_a_device() {
    for options in makes(BARS) {
        let mut pair = Pair::with(options, &small(), &small());
        let n_wqebbs = pair.a.qp.send_queue().n_wqebbs();
        let max_inline = u64::from(pair.a.qp.send_limits().max_inline_bytes);
        let source = pattern(1, 4096);
        pair.a.mr.write(0, &source);
        for start in 0..n_wqebbs {
            // Inline data of every length, then scattered memory, each begun at this distance from the end.
            for len in (0..=max_inline).step_by(7) {
                align(&mut pair.a, start);
                let remote = pair.b.remote(0);
                pair.a.post(|list, _| {
                    let request = list.rdma_write(len, remote, SIGNALED).unwrap();
                    request.inline(&source[..len as usize]).unwrap().finish();
                });
                assert_eq!(pair.a.ok().wr_id, len);
                assert!(pair.b.bytes(0, len as usize) == source[..len as usize], "{len} inline at {start}");
            }
            for n_sge in 1..=8 {
                align(&mut pair.a, start);
                let remote = pair.b.remote(0);
                pair.a.post(|list, memory| {
                    let mut request = list.rdma_write(n_sge, remote, SIGNALED).unwrap();
                    for i in 0..n_sge {
                        request = request.local(memory, i * 9..i * 9 + 9).unwrap();
                    }
                    request.finish();
                });
                pair.a.ok();
                assert!(
                    pair.b.bytes(0, n_sge as usize * 9) == source[..n_sge as usize * 9],
                    "{n_sge} at {start}"
                );
            }
        }
    }
}

/// Fills the ring with NOPs until the next WQE starts `start` WQEBBs in.
fn align(side: &mut Side, start: u32) {
    let n_wqebbs = side.qp.send_queue().n_wqebbs();
    loop {
        side.post(|list, _| list.nop(999, SIGNALED).unwrap().finish());
        let done = side.ok();
        if (u32::from(done.wqe_counter) + 1) % n_wqebbs == start {
            return;
        }
    }
}

#[test]
fn h2_sq_index_wrap_65536_on_a_device() {
    let mut pair = Pair::with("ports=2", &small(), &small());
    let remote = pair.b.remote(0);
    let mut last = None;
    let mut wraps = 0;
    // 16-bit counters of WQEs of 1 and 2 WQEBBs go round, twice.
    for i in 0..90_000u64 {
        pair.a.post(|list, _| {
            let flags = if i % 4 == 3 { SIGNALED } else { Flags::NONE };
            let request = list.rdma_write(i, remote, flags).unwrap();
            let bytes = i.to_le_bytes();
            if i % 2 == 0 {
                request.inline(&bytes).unwrap().finish();
            } else {
                request.inline(&bytes).unwrap().inline(&[0; 60]).unwrap().finish();
            }
        });
        if i % 4 == 3 {
            let done = pair.a.ok();
            assert_eq!((done.wr_id, done.n_freed), (i, 6));
            wraps += u32::from(last.is_some_and(|last| done.wqe_counter < last));
            last = Some(done.wqe_counter);
            assert_eq!(pair.b.mr.load_u64(0), i);
        }
    }
    assert_eq!(wraps, 2);
}

#[test]
fn h3_sq_full_refused_then_ok_on_a_device() {
    needs!(Need::Options("drive=step"));
    let mut pair = Pair::with("ports=2,drive=step", &small(), &small());
    let n_wqebbs = pair.a.qp.send_queue().n_wqebbs();
    for i in 0..n_wqebbs {
        pair.a.post(|list, _| list.nop(i.into(), SIGNALED).unwrap().finish());
    }
    for _ in 0..2 {
        let mut list = pair.a.qp.post_list();
        assert_eq!(list.nop(99, SIGNALED).unwrap_err(), PostError::QueueFull);
        list.ring();
    }
    pair.settle();
    for i in 0..n_wqebbs {
        assert_eq!(pair.a.ok().wr_id, u64::from(i), "nothing was lost or overwritten");
    }
    pair.a.post(|list, _| list.nop(100, SIGNALED).unwrap().finish());
    assert_eq!(pair.a.ok().wr_id, 100);
}

#[test]
fn h5_doorbell_batch_on_a_device() {
    for options in makes(BARS) {
        let mut pair = Pair::new(options);
        for k in 1..=32u64 {
            let remote = pair.b.remote(0);
            pair.a.post(|list, _| {
                for i in 0..k {
                    let at = mlx5_direct::queue::Remote { addr: remote.addr + i * 8, ..remote };
                    list.rdma_write(i, at, SIGNALED)
                        .unwrap()
                        .inline(&(k + i).to_le_bytes())
                        .unwrap()
                        .finish();
                }
            });
            for i in 0..k {
                assert_eq!(pair.a.ok().wr_id, i, "in order");
            }
            for i in 0..k {
                assert_eq!(pair.b.mr.load_u64(i as usize * 8), k + i);
            }
        }
    }
}

#[test]
fn h9_db_modes_pass_the_same_1000_ops() {
    for options in makes(BARS) {
        for doorbell in [DoorbellMode::Auto, DoorbellMode::Doorbell] {
            let mut setup = Setup::default();
            setup.init.doorbell = doorbell;
            let mut pair = Pair::with(options, &setup, &setup);
            let remote = pair.b.remote(0);
            for i in 0..1000u64 {
                pair.a.post(|list, _| {
                    list.rdma_write(i, remote, SIGNALED).unwrap().inline(&i.to_le_bytes()).unwrap().finish();
                });
                assert_eq!(pair.a.ok().wr_id, i);
                assert_eq!(pair.b.mr.load_u64(0), i);
            }
        }
    }
}
