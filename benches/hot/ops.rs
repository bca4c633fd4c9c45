//! The operations that are measured and disassembled: one function each, as an application would write it.
//!
//! Whoever includes this file calls the functions, so that they are compiled as they stand.
#![allow(unreachable_pub)] // included by an example and a benchmark

use mlx5_direct::{
    mlx5::ids::Lkey,
    queue::{AddressHandle, CompletionQueue, Flags, PostError, RecvQueue, Remote, SendQueue, Sge, Taken, Ud},
};

/// An 8-byte RDMA WRITE, carried inline: the order of a trading system.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn hot_write_inline_8(
    queue: &mut SendQueue,
    wr_id: u64,
    remote: Remote,
    data: &[u8; 8],
) -> Result<(), PostError> {
    let mut list = queue.post_list();
    list.rdma_write(wr_id, remote, Flags::SIGNALED)?.inline(data)?.finish();
    list.ring();
    Ok(())
}

/// A 64-byte SEND, carried inline.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn hot_send_inline_64(queue: &mut SendQueue, wr_id: u64, data: &[u8; 64]) -> Result<(), PostError> {
    let mut list = queue.post_list();
    list.send(wr_id, Flags::SIGNALED)?.inline(data)?.finish();
    list.ring();
    Ok(())
}

/// A datagram of 64 bytes, carried inline.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn hot_send_datagram_64(
    queue: &mut SendQueue<Ud>,
    wr_id: u64,
    to: &AddressHandle,
    data: &[u8; 64],
) -> Result<(), PostError> {
    let mut list = queue.post_list();
    list.send(wr_id, to, Flags::SIGNALED)?.inline(data)?.finish();
    list.ring();
    Ok(())
}

/// A SEND of inline data whose length the compiler does not know.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn hot_send_inline_any(queue: &mut SendQueue, wr_id: u64, data: &[u8]) -> Result<(), PostError> {
    let mut list = queue.post_list();
    list.send(wr_id, Flags::SIGNALED)?.inline(data)?.finish();
    list.ring();
    Ok(())
}

/// A SEND of one piece of memory.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn hot_send_sge(queue: &mut SendQueue, wr_id: u64, sge: Sge) -> Result<(), PostError> {
    let mut list = queue.post_list();
    // SAFETY: no device reads the rings of these programs.
    unsafe { list.send(wr_id, Flags::SIGNALED)?.sge(sge.lkey, sge.addr, sge.len_bytes)? }.finish();
    list.ring();
    Ok(())
}

/// An RDMA READ into one piece of memory.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn hot_read(queue: &mut SendQueue, wr_id: u64, remote: Remote, sge: Sge) -> Result<(), PostError> {
    let mut list = queue.post_list();
    // SAFETY: no device reads the rings of these programs.
    unsafe { list.rdma_read(wr_id, remote, Flags::SIGNALED)?.sge(sge.lkey, sge.addr, sge.len_bytes)? }
        .finish();
    list.ring();
    Ok(())
}

/// A fetch-and-add.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn hot_fetch_add(
    queue: &mut SendQueue,
    wr_id: u64,
    remote: Remote,
    lkey: Lkey,
    addr: u64,
) -> Result<(), PostError> {
    let mut list = queue.post_list();
    // SAFETY: no device reads the rings of these programs.
    unsafe { list.fetch_add(wr_id, remote, 1, Flags::SIGNALED)?.sge(lkey, addr)? }.finish();
    list.ring();
    Ok(())
}

/// Sixteen SENDs of one piece each, rung for once; the last makes the completion.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn hot_send_batch_16(queue: &mut SendQueue, wr_id: u64, sges: &[Sge; 16]) -> Result<(), PostError> {
    send_batch(queue, wr_id, sges)
}

/// Sixty-four of them.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn hot_send_batch_64(queue: &mut SendQueue, wr_id: u64, sges: &[Sge; 64]) -> Result<(), PostError> {
    send_batch(queue, wr_id, sges)
}

#[inline(always)]
fn send_batch<const N: usize>(queue: &mut SendQueue, wr_id: u64, sges: &[Sge; N]) -> Result<(), PostError> {
    let mut list = queue.post_list();
    for (i, sge) in sges.iter().enumerate() {
        let flags = if i == N - 1 { Flags::SIGNALED } else { Flags::NONE };
        // SAFETY: no device reads the rings of these programs.
        unsafe { list.send(wr_id + i as u64, flags)?.sge(sge.lkey, sge.addr, sge.len_bytes)? }.finish();
    }
    list.ring();
    Ok(())
}

/// Sixteen 8-byte RDMA WRITEs, carried inline, rung for once.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn hot_write_batch_16(
    queue: &mut SendQueue,
    wr_id: u64,
    remote: Remote,
    data: &[[u8; 8]; 16],
) -> Result<(), PostError> {
    write_batch(queue, wr_id, remote, data)
}

/// Sixty-four of them.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn hot_write_batch_64(
    queue: &mut SendQueue,
    wr_id: u64,
    remote: Remote,
    data: &[[u8; 8]; 64],
) -> Result<(), PostError> {
    write_batch(queue, wr_id, remote, data)
}

#[inline(always)]
fn write_batch<const N: usize>(
    queue: &mut SendQueue,
    wr_id: u64,
    remote: Remote,
    data: &[[u8; 8]; N],
) -> Result<(), PostError> {
    let mut list = queue.post_list();
    for (i, data) in data.iter().enumerate() {
        let flags = if i == N - 1 { Flags::SIGNALED } else { Flags::NONE };
        list.rdma_write(wr_id + i as u64, remote, flags)?.inline(data)?.finish();
    }
    list.ring();
    Ok(())
}

/// A message as an active message is: one byte of what it is, a header, and data, 17 bytes together, carried inline.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn hot_send_message(
    queue: &mut SendQueue,
    wr_id: u64,
    id: u8,
    header: u64,
    data: &[u8; 8],
) -> Result<(), PostError> {
    let mut list = queue.post_list();
    let request = list.send(wr_id, Flags::SIGNALED)?.inline(&[id])?;
    request.inline(&header.to_ne_bytes())?.inline(data)?.finish();
    list.ring();
    Ok(())
}

/// One receive request.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn hot_recv(queue: &mut RecvQueue, wr_id: u64, sge: Sge) -> Result<(), PostError> {
    let mut list = queue.post_list();
    // SAFETY: no device reads the rings of these programs.
    unsafe { list.recv(wr_id)?.sge(sge.lkey, sge.addr, sge.len_bytes)? }.finish();
    list.publish();
    Ok(())
}

/// Sixteen receive requests, published once.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn hot_recv_batch_16(queue: &mut RecvQueue, wr_id: u64, sges: &[Sge; 16]) -> Result<(), PostError> {
    let mut list = queue.post_list();
    for (i, sge) in sges.iter().enumerate() {
        // SAFETY: no device reads the rings of these programs.
        unsafe { list.recv(wr_id + i as u64)?.sge(sge.lkey, sge.addr, sge.len_bytes)? }.finish();
    }
    list.publish();
    Ok(())
}

/// Takes at most `max` completions of sends and retires their requests; gives the sum of their `wr_id`s, or
/// `u64::MAX` at an error.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn hot_poll(cq: &mut CompletionQueue, queue: &mut SendQueue, max: usize) -> u64 {
    poll_sends(cq, queue, max)
}

#[inline(always)]
fn poll_sends(cq: &mut CompletionQueue, queue: &mut SendQueue, max: usize) -> u64 {
    let mut done = cq.poll();
    let mut sum = 0;
    for _ in 0..max {
        let Some(wc) = done.next() else { break };
        let Ok(retired) = queue.retire(&wc) else { return u64::MAX };
        if wc.error().is_some() {
            return u64::MAX;
        }
        sum += retired.wr_id;
    }
    sum
}

/// Takes one completion of a send, if there is one, and retires it: its `wr_id`, or `u64::MAX` at an error.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn hot_poll_one(cq: &mut CompletionQueue, queue: &mut SendQueue) -> u64 {
    match queue.take_one(cq, |retired, _| retired.wr_id) {
        Taken::Done(wr_id) => wr_id,
        Taken::Nothing => 0,
        Taken::Other => failed_send(cq, queue),
    }
}

/// Takes one completion of a receive, if there is one, and retires it: its `wr_id` and the bytes received.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn hot_poll_recv_one(cq: &mut CompletionQueue, queue: &mut RecvQueue) -> u64 {
    match queue.take_one(cq, |retired, wc| retired.wr_id + u64::from(wc.byte_len())) {
        Taken::Done(sum) => sum,
        Taken::Nothing => 0,
        Taken::Other => failed_recv(cq, queue),
    }
}

#[cold]
#[inline(never)]
fn failed_send(cq: &mut CompletionQueue, queue: &mut SendQueue) -> u64 {
    poll_sends(cq, queue, 1)
}

#[cold]
#[inline(never)]
fn failed_recv(cq: &mut CompletionQueue, queue: &mut RecvQueue) -> u64 {
    poll_recvs(cq, queue, 1)
}

/// Takes at most `max` completions of receives, retires them, and adds up the bytes received.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn hot_poll_recv(cq: &mut CompletionQueue, queue: &mut RecvQueue, max: usize) -> u64 {
    poll_recvs(cq, queue, max)
}

#[inline(always)]
fn poll_recvs(cq: &mut CompletionQueue, queue: &mut RecvQueue, max: usize) -> u64 {
    let mut done = cq.poll();
    let mut sum = 0;
    for _ in 0..max {
        let Some(wc) = done.next() else { break };
        let Ok(retired) = queue.retire(&wc) else { return u64::MAX };
        if wc.error().is_some() {
            return u64::MAX;
        }
        sum += retired.wr_id + u64::from(wc.byte_len());
    }
    sum
}

/// Whether there is nothing to take: the idle loop.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn hot_poll_empty(cq: &mut CompletionQueue) -> bool {
    cq.poll().next().is_none()
}

/// A SEND that takes three WQEBBs, and its completion: in a small ring, where many run over the end.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn hot_send_and_poll(
    queue: &mut SendQueue,
    cq: &mut CompletionQueue,
    wr_id: u64,
    data: &[u8; 128],
) -> Result<u64, PostError> {
    let mut list = queue.post_list();
    list.send(wr_id, Flags::SIGNALED)?.inline(data)?.finish();
    list.ring();
    Ok(poll_sends(cq, queue, 1))
}
