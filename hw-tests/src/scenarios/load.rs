//! Many, long, and over and over.

use crate::{
    bench::Bench,
    outcome::{Outcome, fail},
    pair::{End, MEMORY_BYTES, Setup, bytes, pair},
};
use mlx5_direct::{Access, cqe::CqeSyndrome, queue::Flags};

/// Longer than any MTU by far, and not a multiple of one.
const LONG_BYTES: usize = (4 << 20) + 13;

pub(super) fn long_messages(bench: &Bench) -> Outcome {
    let (mut a, mut b) = pair(bench, &Setup::default())?;
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
    let (here, there) = (a.pd.alloc_mr(LONG_BYTES, access)?, b.pd.alloc_mr(LONG_BYTES, access)?);
    let (from, to) = (a.qp.lease(&here)?, b.qp.lease(&there)?);
    let len = LONG_BYTES as u64;
    let check = |salt: u32| {
        let mut found = vec![0; LONG_BYTES];
        there.try_read(0, &mut found)?;
        if found == bytes(salt, LONG_BYTES) { Ok(()) } else { fail("bytes differ") }
    };
    here.write(0, &bytes(1, LONG_BYTES));
    b.qp.post_recv(1, &[to.slice(0..len)])?;
    a.post(|list, _| Ok(list.send(2, Flags::SIGNALED)?.local(from, 0..len)?.finish()))?;
    b.completes(1)?;
    a.completes(2)?;
    check(1)?;
    here.write(0, &bytes(2, LONG_BYTES));
    let at = there.remote(0);
    a.post(|list, _| Ok(list.rdma_write(3, at, Flags::SIGNALED)?.local(from, 0..len)?.finish()))?;
    a.completes(3)?;
    check(2)?;
    there.write(0, &bytes(3, LONG_BYTES));
    a.post(|list, _| Ok(list.rdma_read(4, at, Flags::SIGNALED)?.local(from, 0..len)?.finish()))?;
    a.completes(4)?;
    let mut found = vec![0; LONG_BYTES];
    here.try_read(0, &mut found)?;
    if found == bytes(3, LONG_BYTES) { Ok(()) } else { fail("the READ brought other bytes") }
}

/// One more than the 16-bit index of a WQE counts, and some.
const N_PAST_INDEX: u64 = 70_000;

pub(super) fn index_wrap(bench: &Bench) -> Outcome {
    let (mut a, b) = pair(bench, &Setup::default())?;
    let at = b.mr.remote(0);
    let n_wqebbs = a.qp.send_queue().n_wqebbs();
    let (mut posted, mut done) = (0, 0);
    while done < N_PAST_INDEX {
        while posted < N_PAST_INDEX && a.qp.send_queue().n_outstanding() < n_wqebbs {
            let word = posted.to_ne_bytes();
            a.post(|list, _| Ok(list.rdma_write(posted, at, Flags::SIGNALED)?.inline(&word)?.finish()))?;
            posted += 1;
        }
        a.completes(done)?;
        done += 1;
    }
    b.holds(0, &(N_PAST_INDEX - 1).to_ne_bytes())
}

const N_PAIRS: usize = 32;
const N_EACH: u64 = 200;

pub(super) fn many_pairs(bench: &Bench) -> Outcome {
    let mut pairs = Vec::new();
    for _ in 0..N_PAIRS {
        pairs.push(pair(bench, &Setup::default())?);
    }
    for n in 0..N_EACH {
        for (place, (a, b)) in pairs.iter_mut().enumerate() {
            b.recv(n, 0, 64)?;
            let text = message(place, n);
            a.post(|list, _| Ok(list.send(n, Flags::SIGNALED)?.inline(text.as_bytes())?.finish()))?;
        }
        for (place, (a, b)) in pairs.iter_mut().enumerate() {
            a.completes(n)?;
            b.completes(n)?;
            b.holds(0, message(place, n).as_bytes())?;
        }
    }
    Ok(())
}

fn message(place: usize, n: u64) -> String {
    format!("pair {place:3}, message {n:6}")
}

const N_REGISTRATIONS: u64 = 500;

pub(super) fn register_often(bench: &Bench) -> Outcome {
    let (mut a, b) = pair(bench, &Setup::default())?;
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let mut ended = b.mr.remote(0);
    for n in 0..N_REGISTRATIONS {
        let len = 8 + (n as usize * 7919) % 300_000;
        let mr = b.pd.alloc_mr(len, access)?;
        let end = mr.remote(len - 8);
        a.post(|list, _| Ok(list.rdma_write(n, end, Flags::SIGNALED)?.inline(&n.to_ne_bytes())?.finish()))?;
        a.completes(n)?;
        let mut found = [0; 8];
        mr.try_read(len - 8, &mut found)?;
        if found != n.to_ne_bytes() {
            return fail(format!("registration {n}, of {len} bytes, ends in {found:x?}"));
        }
        ended = end;
    }
    a.post(|list, _| Ok(list.rdma_write(0, ended, Flags::SIGNALED)?.inline(b"too late")?.finish()))?;
    a.fails(CqeSyndrome::REMOTE_ACCESS_ERR)
}

pub(super) fn destroy_busy(bench: &Bench) -> Outcome {
    for round in 0..20 {
        let (mut a, b) = pair(bench, &Setup::default())?;
        let at = b.mr.remote(0);
        for n in 0..16 {
            let len = MEMORY_BYTES as u64;
            a.post(|list, lease| {
                Ok(list.rdma_write(n, at, Flags::SIGNALED)?.local(lease, 0..len)?.finish())
            })?;
        }
        // Which end goes first, while packets are on their way, must not matter.
        if round % 2 == 0 {
            drop(a);
            drop(b);
        } else {
            drop(b);
            drop(a);
        }
    }
    let (mut a, mut b) = pair(bench, &Setup::default())?;
    exchange(&mut a, &mut b)
}

/// A message, to see that an end works.
fn exchange(a: &mut End, b: &mut End) -> Outcome {
    b.recv(1, 0, 64)?;
    a.post(|list, _| Ok(list.send(2, Flags::SIGNALED)?.inline(b"alive")?.finish()))?;
    b.completes(1)?;
    a.completes(2)?;
    b.holds(0, b"alive")
}
