//! Operations that succeed.

use crate::{
    bench::Bench,
    outcome::{Outcome, fail},
    pair::{MEMORY_BYTES, Setup, bytes, pair},
};
use mlx5_direct::{
    QpInit,
    queue::{Flags, PostError},
};
use std::time::Duration;

pub(super) fn send_recv(bench: &Bench) -> Outcome {
    let (mut a, mut b) = pair(bench, &Setup::default())?;
    for n in 0..1000 {
        let sent = bytes(n as u32, 64 + (n as usize * 37) % 4000);
        a.mr.write(0, &sent);
        b.recv(n, 0, 8192)?;
        a.post(|list, lease| {
            Ok(list.send(n, Flags::SIGNALED)?.local(lease, 0..sent.len() as u64)?.finish())
        })?;
        let done = b.completes(n)?;
        if done.byte_len as usize != sent.len() {
            return fail(format!("message {n}: {} bytes came of {}", done.byte_len, sent.len()));
        }
        b.holds(0, &sent)?;
        a.completes(n)?;
    }
    Ok(())
}

pub(super) fn send_imm(bench: &Bench) -> Outcome {
    let (mut a, mut b) = pair(bench, &Setup::default())?;
    b.recv(1, 0, 64)?;
    a.post(|list, _| Ok(list.send_imm(2, 0x1234_5678, Flags::SIGNALED)?.inline(b"imm")?.finish()))?;
    let done = b.completes(1)?;
    a.completes(2)?;
    match done.imm {
        Some(0x1234_5678) => b.holds(0, b"imm"),
        other => fail(format!("immediate data are {other:x?}, and 0x12345678 was sent")),
    }
}

pub(super) fn inline(bench: &Bench) -> Outcome {
    let max_inline_data = bench.ends()[0].device().max_inline_data.min(512);
    let init = QpInit { max_inline_data, ..QpInit::default() };
    let (mut a, mut b) = pair(bench, &Setup { init, ..Setup::default() })?;
    let limit = usize::from(a.qp.send_limits().max_inline_bytes);
    for len in 0..=limit {
        let mut sent = bytes(len as u32, len);
        b.recv(len as u64, 0, 1024)?;
        a.post(|list, _| Ok(list.send(len as u64, Flags::SIGNALED)?.inline(&sent)?.finish()))?;
        let kept = sent.clone();
        // The buffer is free as soon as the request is posted.
        sent.fill(0xee);
        b.completes(len as u64)?;
        b.holds(0, &kept)?;
        a.completes(len as u64)?;
    }
    let long = vec![0; limit + 1];
    match a.qp.post_list().send(0, Flags::SIGNALED)?.inline(&long) {
        Err(PostError::InlineTooLong) => Ok(()),
        Err(other) => fail(format!("{} inline bytes are refused otherwise: {other}", limit + 1)),
        Ok(_) => fail(format!("{} inline bytes are accepted, the limit is {limit}", limit + 1)),
    }
}

pub(super) fn write(bench: &Bench) -> Outcome {
    let (mut a, mut b) = pair(bench, &Setup::default())?;
    let sent = bytes(1, 10_000);
    a.mr.write(0, &sent);
    b.mr.write(0, &vec![0x5a; MEMORY_BYTES]);
    let to = b.mr.remote(1000);
    a.post(|list, lease| Ok(list.rdma_write(7, to, Flags::SIGNALED)?.local(lease, 0..10_000)?.finish()))?;
    a.completes(7)?;
    b.holds(0, &[0x5a; 1000])?;
    b.holds(1000, &sent)?;
    b.holds(11_000, &vec![0x5a; MEMORY_BYTES - 11_000])?;
    match b.try_done()? {
        None => Ok(()),
        Some(done) => fail(format!("a WRITE made a completion at its target: {done:?}")),
    }
}

pub(super) fn write_imm(bench: &Bench) -> Outcome {
    let (mut a, mut b) = pair(bench, &Setup::default())?;
    let sent = bytes(2, 5000);
    a.mr.write(0, &sent);
    b.recv(3, 0, 0)?;
    let to = b.mr.remote(64);
    a.post(|list, lease| {
        Ok(list.rdma_write_imm(4, to, 99, Flags::SIGNALED)?.local(lease, 0..5000)?.finish())
    })?;
    let done = b.completes(3)?;
    a.completes(4)?;
    if (done.imm, done.byte_len) != (Some(99), 5000) {
        return fail(format!("the receive says {done:?}, and 5000 bytes with 99 were sent"));
    }
    b.holds(64, &sent)
}

pub(super) fn read(bench: &Bench) -> Outcome {
    let (mut a, b) = pair(bench, &Setup::default())?;
    for (n, len) in [1, 4095, 4096, 4097, 20_000].into_iter().enumerate() {
        let there = bytes(n as u32, len);
        b.mr.write(0, &there);
        let from = b.mr.remote(0);
        a.post(|list, lease| {
            Ok(list.rdma_read(n as u64, from, Flags::SIGNALED)?.local(lease, 0..len as u64)?.finish())
        })?;
        let done = a.completes(n as u64)?;
        if done.byte_len as usize != len {
            return fail(format!("a READ of {len} bytes says it brought {}", done.byte_len));
        }
        a.holds(0, &there)?;
    }
    Ok(())
}

pub(super) fn compare_swap(bench: &Bench) -> Outcome {
    let (mut a, b) = pair(bench, &Setup::default())?;
    let at = b.mr.remote(8);
    b.mr.store_u64(8, 5);
    // Compare, swap, and what the word is before and after.
    for (n, (compare, swap, before, after)) in
        [(5, 6, 5, 6), (5, 7, 6, 6), (6, 8, 6, 8)].into_iter().enumerate()
    {
        let n = n as u64;
        a.post(|list, lease| {
            Ok(list.compare_swap(n, at, compare, swap, Flags::SIGNALED)?.local(lease, 16)?.finish())
        })?;
        a.completes(n)?;
        let (old, new) = (a.mr.load_u64(16), b.mr.load_u64(8));
        if (old, new) != (before, after) {
            return fail(format!(
                "swap {compare} for {swap}: {old} came back and {new} is there, not {before} and {after}"
            ));
        }
    }
    Ok(())
}

pub(super) fn fetch_add(bench: &Bench) -> Outcome {
    let (mut a, b) = pair(bench, &Setup::default())?;
    let at = b.mr.remote(0);
    for n in 0..1000 {
        a.post(|list, lease| Ok(list.fetch_add(n, at, 3, Flags::SIGNALED)?.local(lease, 0)?.finish()))?;
        a.completes(n)?;
        if a.mr.load_u64(0) != 3 * n {
            return fail(format!("addition {n} brought {}, and {} was there", a.mr.load_u64(0), 3 * n));
        }
    }
    match b.mr.load_u64(0) {
        3000 => Ok(()),
        sum => fail(format!("1000 additions of 3 give {sum}")),
    }
}

pub(super) fn unsignaled(bench: &Bench) -> Outcome {
    let (mut a, b) = pair(bench, &Setup::default())?;
    let to = b.mr.remote(0);
    let mut n = 0;
    // Silent ones until the queue is full, but for the last.
    let n_wqebbs = a.qp.send_queue().n_wqebbs();
    while a.qp.send_queue().n_outstanding() + 2 < n_wqebbs {
        a.post(|list, lease| Ok(list.rdma_write(n, to, Flags::NONE)?.local(lease, 0..8)?.finish()))?;
        n += 1;
    }
    while a.qp.send_queue().n_outstanding() < n_wqebbs {
        a.post(|list, lease| Ok(list.rdma_write(n, to, Flags::SIGNALED)?.local(lease, 0..8)?.finish()))?;
        n += 1;
    }
    let refused = a.qp.post_list().nop(n, Flags::SIGNALED).err();
    if refused != Some(PostError::QueueFull) {
        return fail(format!("a full queue says {refused:?}"));
    }
    while a.qp.send_queue().n_outstanding() > 0 {
        a.done()?;
    }
    match a.try_done()? {
        None => Ok(()),
        Some(done) => fail(format!("a silent request completed: {done:?}")),
    }
}

pub(super) fn event(bench: &Bench) -> Outcome {
    let (mut a, mut b) = pair(bench, &Setup { events: true, ..Setup::default() })?;
    for n in 0..20 {
        b.recv(n, 0, 64)?;
        if b.cq.wait(Duration::from_millis(2))? {
            return fail(format!("woke before message {n}"));
        }
        a.post(|list, _| Ok(list.send(n, Flags::SIGNALED)?.inline(b"wake")?.finish()))?;
        b.wakes(n)?;
        b.completes(n)?;
        a.completes(n)?;
    }
    Ok(())
}
