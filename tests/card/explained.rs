//! Every error of a request, produced on purpose, and what is said of it. Cases K1 and K2.

use crate::support::*;
use mlx5_direct::{
    Access, Connection, QpInit,
    backend::QpModify,
    cqe::CqeSyndrome,
    mlx5::{
        context::QpState,
        ids::{Lkey, Rkey},
    },
    queue::{CompletionError, Flags, Remote, Sge, WindowAccess},
};
use mlx5_model::fault::FaultScript;

/// A pair on which faults can be had and time is exact.
fn pair(script: &str, how: &Connection) -> Pair {
    let setup = Setup { connection: *how, ..Setup::default() };
    let pair = Pair::with("ports=2,drive=step", &setup, &setup);
    let script: FaultScript = script.parse().unwrap();
    pair.card.model().inject(&script);
    pair
}

fn send(side: &mut Side, len: u64) {
    side.post(|list, memory| list.send(1, SIGNALED).unwrap().local(memory, 0..len).unwrap().finish());
}

fn write(side: &mut Side, remote: Remote) {
    side.post(|list, _| list.rdma_write(1, remote, SIGNALED).unwrap().inline(b"x").unwrap().finish());
}

/// Nobody's memory.
fn nowhere(side: &Side) -> Remote {
    Remote { rkey: Rkey::new(0x00ab_cd00), ..side.remote(0) }
}

/// Has a request fail in this way: the error, and what the queue pair says of it.
fn produce(syndrome: CqeSyndrome) -> (CompletionError, String) {
    let usual = Connection::default();
    let hasty = Connection { retry_cnt: 1, timeout: 6, rnr_retry: 1, min_rnr_timer: 1, ..usual };
    let mut pair = match syndrome {
        CqeSyndrome::BAD_RESP_ERR => pair("@1 packet 1 psn +1", &usual),
        CqeSyndrome::TRANSPORT_RETRY_EXC_ERR => pair("@0 packet * drop", &hasty),
        CqeSyndrome::RNR_RETRY_EXC_ERR => pair("receive * missing", &hasty),
        CqeSyndrome::REMOTE_ABORTED_ERR => pair("@0 completion 1 fail REMOTE_ABORTED_ERR 0x99", &usual),
        // Of a WQE that this driver does not write: `model/tests/rc/errors.rs` writes it.
        CqeSyndrome::LOCAL_QP_OP_ERR => pair("@0 completion 1 fail LOCAL_QP_OP_ERR 0x68", &usual),
        _ => pair("", &usual),
    };
    let Pair { a, b, .. } = &mut pair;
    let bad_lkey = Sge { lkey: Lkey::new(0x00ab_cd00), addr: a.mr.addr(), len_bytes: 8 };
    // Who fails.
    let side = match syndrome {
        CqeSyndrome::LOCAL_LENGTH_ERR => {
            b.recv(1, 0..16);
            send(a, 17);
            &mut *b
        }
        CqeSyndrome::LOCAL_QP_OP_ERR => {
            let remote = b.remote(0);
            a.post(|list, memory| {
                list.rdma_read(1, remote, SIGNALED).unwrap().local(memory, 0..8).unwrap().finish();
            });
            &mut *a
        }
        CqeSyndrome::LOCAL_PROT_ERR => {
            a.post(|list, _| {
                let request = list.send(1, SIGNALED).unwrap();
                // SAFETY: there is no such key, so nothing is read.
                unsafe { request.sge(bad_lkey.lkey, bad_lkey.addr, 8) }.unwrap().finish();
            });
            &mut *a
        }
        CqeSyndrome::WR_FLUSH_ERR => {
            a.qp.modify(&QpModify::to(QpState::ERR)).unwrap();
            send(a, 8);
            &mut *a
        }
        CqeSyndrome::MW_BIND_ERR => {
            let mr = a.pd.alloc_mr(64, Access::LOCAL_WRITE | Access::MW_BIND).unwrap();
            let (memory, mut mw) = (a.qp.bindable(&mr).unwrap(), a.pd.alloc_mw().unwrap());
            let view = memory.view(0..8, WindowAccess::REMOTE_WRITE);
            // Twice to the same window, which is bound by then.
            let window = mw.window();
            a.post(|list, _| list.bind_mw(1, window, &view, SIGNALED).unwrap().finish());
            a.ok();
            a.post(|list, _| list.bind_mw(1, window, &view, SIGNALED).unwrap().finish());
            &mut *a
        }
        CqeSyndrome::BAD_RESP_ERR => {
            let remote = b.remote(0);
            a.post(|list, memory| {
                list.rdma_write(1, remote, Flags::NONE).unwrap().inline(b"x").unwrap().finish();
                list.rdma_read(2, remote, SIGNALED).unwrap().local(memory, 0..8).unwrap().finish();
            });
            &mut *a
        }
        CqeSyndrome::LOCAL_ACCESS_ERR => {
            b.recv(1, 0..16);
            let remote = nowhere(b);
            a.post(|list, _| {
                list.rdma_write_imm(1, remote, 7, SIGNALED).unwrap().inline(b"x").unwrap().finish();
            });
            &mut *b
        }
        CqeSyndrome::REMOTE_INVAL_REQ_ERR => {
            b.recv(1, 0..16);
            send(a, 17);
            &mut *a
        }
        CqeSyndrome::REMOTE_ACCESS_ERR => {
            let remote = nowhere(b);
            write(a, remote);
            &mut *a
        }
        CqeSyndrome::REMOTE_OP_ERR => {
            // SAFETY: there is no such key, so nothing is written.
            unsafe { b.qp.post_recv_raw(1, &[bad_lkey]) }.unwrap();
            send(a, 8);
            &mut *a
        }
        CqeSyndrome::TRANSPORT_RETRY_EXC_ERR | CqeSyndrome::RNR_RETRY_EXC_ERR => {
            b.recv(1, 0..16);
            send(a, 8);
            &mut *a
        }
        CqeSyndrome::REMOTE_ABORTED_ERR => {
            let remote = b.remote(0);
            write(a, remote);
            &mut *a
        }
        other => panic!("nobody knows how to produce {other}"),
    };
    let error = side.fails();
    let told = side.qp.explain(&error).to_string();
    (error, told)
}

#[test]
fn k1_every_syndrome_explained() {
    needs!(Need::Model);
    let syndromes = CqeSyndrome::TABLE.1;
    assert_eq!(syndromes.len(), 13);
    let mut advice = std::collections::BTreeSet::new();
    for &(name, value) in syndromes {
        let syndrome = CqeSyndrome(value as u8);
        let (error, told) = produce(syndrome);
        assert_eq!(error.syndrome, syndrome, "{told}");
        // By name, with the vendor's number, what to look at, and what was asked.
        let first = told.lines().next().unwrap();
        assert!(first.contains(name) && first.contains("vendor_err 0x"), "{told}");
        assert!(advice.insert(first.rsplit(": ").next().unwrap().to_owned()), "{told}: said of another too");
        let what = if error.send_opcode.is_some() { "CtrlSeg" } else { "receive WQE:" };
        assert!(told.contains(what), "{told}");
        println!("{told}\n");
    }
    let (_, told) = produce(CqeSyndrome::REMOTE_ABORTED_ERR);
    assert!(told.contains("vendor_err 0x99 (a packet out of sequence)"), "{told}");
}

#[test]
fn k2_offending_wqe_identified() {
    needs!(Need::Options("drive=step"));
    let init = QpInit { max_send_wr: 16, max_inline_data: 200, ..QpInit::default() };
    let setup = Setup { init, ..Setup::default() };
    // At every place of the ring, also where the WQE goes on at its beginning, and past the wrap of the counter.
    for n_before in (0..70).chain([65_530, 65_536, 70_001]) {
        let mut pair = Pair::with("ports=2,drive=step", &setup, &setup);
        let (good, bad) = (pair.b.remote(0), Remote { rkey: Rkey::new(0x00ab_cd07), ..pair.b.remote(24) });
        let mut left = n_before;
        while left > 0 {
            let n = left.min(16);
            pair.a.post(|list, _| {
                for at in 1..=n {
                    let flags = if at == n { SIGNALED } else { Flags::NONE };
                    list.rdma_write(0, good, flags).unwrap().inline(b"x").unwrap().finish();
                }
            });
            pair.a.ok();
            left -= n;
        }
        let data = pattern(n_before, 150);
        pair.a.post(|list, _| {
            list.rdma_write(1, good, Flags::NONE).unwrap().inline(b"x").unwrap().finish();
            list.rdma_write(2, bad, Flags::NONE).unwrap().inline(&data).unwrap().finish();
            list.rdma_write(3, good, SIGNALED).unwrap().inline(b"x").unwrap().finish();
        });
        let done = pair.a.done();
        let error = done.error.expect("the key is nobody's");
        assert_eq!((done.wr_id, error.syndrome), (2, CqeSyndrome::REMOTE_ACCESS_ERR));
        assert_eq!(u64::from(error.wqe_counter), (n_before + 1) & 0xffff);
        let explained = pair.a.qp.explain(&error);
        let wqe = mlx5_direct::wqe::decode(explained.wqe.as_deref().expect("it is there")).unwrap();
        assert_eq!(wqe.ctrl().wqe_index(), error.wqe_counter);
        let inline = wqe.segments().find_map(|segment| match segment {
            mlx5_direct::wqe::Segment::Inline { data, .. } => Some(data.to_vec()),
            _ => None,
        });
        assert_eq!(inline.as_ref(), Some(&data), "after {n_before}");
        let told = explained.to_string();
        for part in ["RDMA_WRITE", "REMOTE_ACCESS_ERR", "abcd07", &format!("{:x}", bad.addr)] {
            assert!(told.contains(part), "`{part}` in {told}");
        }
    }
}

#[test]
fn k2_offending_wqe_that_was_overwritten_is_not_guessed() {
    let init = QpInit { max_send_wr: 4, ..QpInit::default() };
    let mut pair = Pair::with("ports=2", &Setup { init, ..Setup::default() }, &Setup::default());
    let bad = nowhere(&pair.b);
    write(&mut pair.a, bad);
    let error = pair.a.fails();
    assert!(pair.a.qp.explain(&error).to_string().contains("RaddrSeg"));
    // In ERR requests are flushed, and take the places of those before.
    let n = pair.a.qp.send_queue().n_wqebbs();
    for _ in 0..n {
        send(&mut pair.a, 8);
        assert!(pair.a.fails().is_flush());
    }
    let explained = pair.a.qp.explain(&error);
    assert_eq!(explained.wqe, None);
    assert!(explained.to_string().ends_with("its WQE is no more in the queue"), "{explained}");
    // Another queue pair's error is not looked up in this one's ring.
    assert_eq!(pair.b.qp.explain(&error).wqe, None);
}
