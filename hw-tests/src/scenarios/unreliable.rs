//! Unreliable connections and datagrams.

use crate::{
    bench::Bench,
    outcome::{Outcome, fail},
    pair::{DEADLINE, End, QKEY, Setup, bytes, datagram_pair, pair_of},
};
use mlx5_direct::{
    Access,
    backend::{LinkLayer, QpModify},
    cqe::{CqeSyndrome, RoceL3},
    mlx5::{context::QpState, ids::Rkey},
    queue::{Flags, Grh, PostError, Transport, Uc},
};
use std::{
    thread,
    time::{Duration, Instant},
};

/// Bytes before a datagram.
const HEAD: u64 = Grh::BYTES as u64;

/// Nothing shall come, now or soon.
fn quiet<T: Transport>(end: &mut End<T>) -> Outcome {
    thread::sleep(Duration::from_millis(5));
    match end.try_done()? {
        None => Ok(()),
        Some(done) => fail(format!("nothing should complete: {done:?}")),
    }
}

pub(super) fn uc_send_write(bench: &Bench) -> Outcome {
    let (mut a, mut b) = pair_of::<Uc>(bench, &Setup::default())?;
    for (n, len) in [1, 100, 4096, 4097, 20_000].into_iter().enumerate() {
        let (sent, len) = (bytes(n as u32, len), len as u64);
        a.mr.write(0, &sent);
        b.recv(1, 0, 24_000)?;
        b.recv(2, 0, 24_000)?;
        b.recv(3, 0, 0)?;
        let to = b.mr.remote(30_000);
        a.post(|list, lease| {
            list.send(1, Flags::SIGNALED)?.local(lease, 0..len)?.finish();
            list.send_imm(2, 22, Flags::SIGNALED)?.local(lease, 0..len)?.finish();
            list.rdma_write(3, to, Flags::SIGNALED)?.local(lease, 0..len)?.finish();
            list.rdma_write_imm(4, to, 44, Flags::SIGNALED)?.local(lease, 0..len)?.finish();
            Ok(())
        })?;
        for wr_id in 1..=4 {
            a.completes(wr_id)?;
        }
        for (wr_id, imm) in [(1, None), (2, Some(22)), (3, Some(44))] {
            let done = b.completes(wr_id)?;
            if (u64::from(done.byte_len), done.imm) != (len, imm) {
                return fail(format!(
                    "receive {wr_id} says {done:?}, and {len} bytes with {imm:?} were sent"
                ));
            }
        }
        b.holds(0, &sent)?;
        b.holds(30_000, &sent)?;
    }
    Ok(())
}

pub(super) fn uc_nobody_answers(bench: &Bench) -> Outcome {
    let access = Access::LOCAL_WRITE | Access::REMOTE_READ;
    let (mut a, mut b) = pair_of::<Uc>(bench, &Setup { access, ..Setup::default() })?;
    b.mr.write(0, b"untouched");
    let to = b.mr.remote(0);
    a.post(|list, _| {
        list.send(1, Flags::SIGNALED)?.inline(b"lost")?.finish();
        list.rdma_write(2, to, Flags::SIGNALED)?.inline(b"overwrite")?.finish();
        Ok(())
    })?;
    a.completes(1)?;
    a.completes(2)?;
    quiet(&mut b)?;
    b.holds(0, b"untouched")?;
    b.recv(3, 100, 64)?;
    a.post(|list, _| Ok(list.send(4, Flags::SIGNALED)?.inline(b"arrives")?.finish()))?;
    b.completes(3)?;
    a.completes(4)?;
    b.holds(100, b"arrives")
}

pub(super) fn uc_send_queue_error(bench: &Bench) -> Outcome {
    let (mut a, mut b) = pair_of::<Uc>(bench, &Setup::default())?;
    a.post(|list, _| {
        // Nobody has this key.
        list.local_inv(1, Rkey::new(0x7fff_ff00), Flags::SIGNALED)?.finish();
        list.send(2, Flags::SIGNALED)?.inline(b"flushed")?.finish();
        Ok(())
    })?;
    a.fails(CqeSyndrome::MW_BIND_ERR)?;
    a.fails(CqeSyndrome::WR_FLUSH_ERR)?;
    // A device may tell of the request before it has moved.
    let start = Instant::now();
    while a.qp.refresh()? != QpState::SQER {
        if start.elapsed() > DEADLINE {
            return fail(format!("the queue pair is in {}, not in SQER", a.qp.state()));
        }
    }
    a.recv(3, 0, 64)?;
    b.post(|list, _| Ok(list.send(4, Flags::SIGNALED)?.inline(b"still receives")?.finish()))?;
    b.completes(4)?;
    a.completes(3)?;
    a.holds(0, b"still receives")?;
    a.qp.modify(&QpModify::to(QpState::RTS))?;
    b.recv(5, 0, 64)?;
    a.post(|list, _| Ok(list.send(6, Flags::SIGNALED)?.inline(b"sends again")?.finish()))?;
    a.completes(6)?;
    b.completes(5)?;
    b.holds(0, b"sends again")
}

pub(super) fn ud_send_grh(bench: &Bench) -> Outcome {
    let (mut a, mut b, to_b) = datagram_pair(bench, &Setup::default())?;
    for (n, len) in [0, 1, 63, 256].into_iter().enumerate() {
        let sent = bytes(n as u32, len);
        a.mr.write(0, &sent);
        b.recv(1, 1000, 1000)?;
        a.recv(2, 1000, 1000)?;
        a.post(|list, lease| {
            Ok(list.send_imm(3, &to_b, 77, Flags::SIGNALED)?.local(lease, 0..len as u64)?.finish())
        })?;
        a.completes(3)?;
        let done = b.completes(1)?;
        if (u64::from(done.byte_len), done.imm) != (HEAD + len as u64, Some(77)) {
            return fail(format!("the receive says {done:?}, and {len} bytes with 77 were sent"));
        }
        b.holds(1000 + Grh::BYTES, &sent)?;
        let Some(source) = done.source else { return fail("the completion names no sender") };
        if source.qpn != a.qp.qpn() {
            return fail(format!("the completion names QP {}, and {} has sent", source.qpn, a.qp.qpn()));
        }
        let mut header = [0; Grh::BYTES];
        b.mr.try_read(1000, &mut header)?;
        if source.grh {
            let l3 = match bench.ends()[1].port(1)?.link_layer {
                LinkLayer::Ethernet => source.roce_l3(),
                LinkLayer::InfiniBand => RoceL3::GRH,
            };
            names_both(bench, &Grh::parse(&header, l3))?;
        }
        let back = b.qp.address_handle(&b.qp.address_from(&source, &header)?, source.qpn, QKEY)?;
        b.post(|list, _| Ok(list.send(4, &back, Flags::SIGNALED)?.inline(b"answer")?.finish()))?;
        b.completes(4)?;
        a.completes(2)?;
        a.holds(1000 + Grh::BYTES, b"answer")?;
    }
    Ok(())
}

/// Whether a header goes from one end's usual address to the other's.
fn names_both(bench: &Bench, header: &Grh) -> Outcome {
    for (end, gid) in bench.ends().into_iter().zip([header.sgid, header.dgid]) {
        let own = end.gid(1, end.usual_gid_index(1)?.into())?;
        if own.gid != gid {
            return fail(format!("the header names {}, and not {own}", std::net::Ipv6Addr::from(gid)));
        }
    }
    Ok(())
}

pub(super) fn ud_wrong_qkey(bench: &Bench) -> Outcome {
    let (mut a, mut b, to_b) = datagram_pair(bench, &Setup::default())?;
    b.recv(1, 0, 200)?;
    let wrong = to_b.with_peer(b.qp.qpn(), QKEY ^ 1);
    a.post(|list, _| Ok(list.send(2, &wrong, Flags::SIGNALED)?.inline(b"wrong")?.finish()))?;
    a.completes(2)?;
    quiet(&mut b)?;
    a.post(|list, _| Ok(list.send(3, &to_b, Flags::SIGNALED)?.inline(b"right")?.finish()))?;
    a.completes(3)?;
    b.completes(1)?;
    b.holds(Grh::BYTES, b"right")
}

pub(super) fn ud_over_mtu(bench: &Bench) -> Outcome {
    let (mut a, mut b, to_b) = datagram_pair(bench, &Setup::default())?;
    let mtu = u64::from(bench.ends()[0].port(1)?.active_mtu.bytes().unwrap_or(0));
    let lease = a.lease;
    let mut list = a.qp.post_list();
    match list.send(1, &to_b, Flags::SIGNALED)?.local(lease, 0..mtu + 1).err() {
        Some(PostError::MessageTooLong) => {}
        other => return fail(format!("{} bytes with an MTU of {mtu}: {other:?}", mtu + 1)),
    }
    list.ring();
    let sent = bytes(1, mtu as usize);
    a.mr.write(0, &sent);
    b.recv(2, 10_000, HEAD + mtu)?;
    a.post(|list, lease| Ok(list.send(3, &to_b, Flags::SIGNALED)?.local(lease, 0..mtu)?.finish()))?;
    a.completes(3)?;
    b.completes(2)?;
    b.holds(10_000 + Grh::BYTES, &sent)
}
