//! Operations that fail, by the name that they should have.

use crate::{
    bench::Bench,
    outcome::{Outcome, fail},
    pair::{MEMORY_BYTES, Setup, pair},
};
use mlx5_direct::{
    Access, Connection, backend::QpModify, cqe::CqeSyndrome, mlx5::context::QpState, queue::Flags,
};
use std::{thread, time::Duration};

pub(super) fn rnr_then_post(bench: &Bench) -> Outcome {
    let (mut a, mut b) = pair(bench, &Setup::default())?;
    a.post(|list, _| Ok(list.send(1, Flags::SIGNALED)?.inline(b"patient")?.finish()))?;
    thread::sleep(Duration::from_millis(5));
    if let Some(done) = a.try_done()? {
        return fail(format!("completed without a receive: {done:?}"));
    }
    b.recv(2, 0, 64)?;
    b.completes(2)?;
    a.completes(1)?;
    b.holds(0, b"patient")
}

pub(super) fn rnr_exceeded(bench: &Bench) -> Outcome {
    let how = Connection { rnr_retry: 1, min_rnr_timer: 1, ..Connection::default() };
    let (mut a, _b) = pair(bench, &Setup { how, ..Setup::default() })?;
    a.post(|list, _| {
        list.send(1, Flags::SIGNALED)?.inline(b"first")?.finish();
        list.send(2, Flags::SIGNALED)?.inline(b"second")?.finish();
        Ok(())
    })?;
    a.fails(CqeSyndrome::RNR_RETRY_EXC_ERR)?;
    a.fails(CqeSyndrome::WR_FLUSH_ERR)
}

pub(super) fn remote_access(bench: &Bench) -> Outcome {
    let access = Access::LOCAL_WRITE | Access::REMOTE_READ;
    let (mut a, b) = pair(bench, &Setup { access, ..Setup::default() })?;
    b.mr.write(0, b"untouched");
    let to = b.mr.remote(0);
    a.post(|list, _| Ok(list.rdma_write(1, to, Flags::SIGNALED)?.inline(b"overwrite")?.finish()))?;
    a.fails(CqeSyndrome::REMOTE_ACCESS_ERR)?;
    b.holds(0, b"untouched")
}

pub(super) fn remote_bounds(bench: &Bench) -> Outcome {
    let (mut a, b) = pair(bench, &Setup::default())?;
    let from = b.mr.remote(MEMORY_BYTES - 63);
    a.post(|list, lease| Ok(list.rdma_read(1, from, Flags::SIGNALED)?.local(lease, 0..64)?.finish()))?;
    a.fails(CqeSyndrome::REMOTE_ACCESS_ERR)
}

pub(super) fn local_access(bench: &Bench) -> Outcome {
    let (mut a, mut b) = pair(bench, &Setup::default())?;
    let read_only = b.pd.alloc_mr(4096, Access::LOCAL_READ)?;
    let lease = b.qp.lease(&read_only)?;
    b.qp.post_recv(1, &[lease.slice(0..64)])?;
    a.post(|list, _| Ok(list.send(2, Flags::SIGNALED)?.inline(b"no")?.finish()))?;
    b.fails(CqeSyndrome::LOCAL_PROT_ERR)?;
    a.fails(CqeSyndrome::REMOTE_OP_ERR)
}

pub(super) fn short_receive(bench: &Bench) -> Outcome {
    let (mut a, mut b) = pair(bench, &Setup::default())?;
    b.recv(1, 0, 63)?;
    a.post(|list, lease| Ok(list.send(2, Flags::SIGNALED)?.local(lease, 0..64)?.finish()))?;
    b.fails(CqeSyndrome::LOCAL_LENGTH_ERR)?;
    a.fails(CqeSyndrome::REMOTE_INVAL_REQ_ERR)
}

pub(super) fn recover(bench: &Bench) -> Outcome {
    let setup = Setup::default();
    let (mut a, mut b) = pair(bench, &setup)?;
    for end in [&mut a, &mut b] {
        end.qp.modify(&QpModify::to(QpState::ERR))?;
        end.recv(1, 0, 64)?;
        end.fails(CqeSyndrome::WR_FLUSH_ERR)?;
        end.qp.modify(&QpModify::to(QpState::RST))?;
    }
    let (port, gid_index) = (setup.how.port, setup.how.gid_index);
    let (to_a, to_b) = (a.qp.address(port, gid_index)?, b.qp.address(port, gid_index)?);
    a.qp.connect(&to_b, &setup.how)?;
    b.qp.connect(&to_a, &setup.how)?;
    b.recv(2, 0, 64)?;
    a.post(|list, _| Ok(list.send(3, Flags::SIGNALED)?.inline(b"again")?.finish()))?;
    b.completes(2)?;
    a.completes(3)?;
    b.holds(0, b"again")
}
