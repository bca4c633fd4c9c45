//! UC end to end: our driver, the model, packets between. Case F1.

use crate::support::*;
use mlx5_direct::{
    backend::QpModify,
    cqe::{CqeOpcode, CqeSyndrome},
    mlx5::{
        context::QpState,
        ids::{Lkey, Rkey},
    },
    queue::{PostError, Sge, Uc},
};

const MAKES: [&str; 2] = ["ports=2", "ports=1"];

fn pair(options: &str) -> Pair<Uc> {
    Pair::of(options, &Setup::default(), &Setup::default())
}

#[test]
fn f1_uc_write_send() {
    for options in MAKES {
        let mut pair = pair(options);
        let (a, b) = (&mut pair.a, &mut pair.b);
        // Of one packet, of several, and at the edges; 64 times round a ring of 128.
        for (n, len) in [0, 1, 8, 1023, 4096, 4097, 9000, 20_000].into_iter().cycle().take(8192).enumerate() {
            let (n, end) = (n as u64, len as u64);
            if n < 16 || n.is_multiple_of(64) {
                a.mr.write(0, &pattern(n, len));
            } else {
                // The rest for the rings' sake.
                b.recv(n, 0..64);
                a.post(|list, _| list.send(n, SIGNALED).unwrap().inline(&n.to_ne_bytes()).unwrap().finish());
                assert_eq!((a.ok().wr_id, b.ok().byte_len), (n, 8));
                assert_eq!(b.bytes(0, 8), n.to_ne_bytes());
                continue;
            }
            let remote = b.remote(30_000);
            b.recv(n, 0..24_000);
            b.recv(n, 0..0);
            a.post(|list, memory| {
                list.send_imm(1, 7, SIGNALED).unwrap().local(memory, 0..end).unwrap().finish();
                list.rdma_write(2, remote, SIGNALED).unwrap().local(memory, 0..end).unwrap().finish();
                list.rdma_write_imm(3, remote, 9, SIGNALED).unwrap().local(memory, 0..end).unwrap().finish();
                list.nop(4, SIGNALED).unwrap().finish();
            });
            assert_eq!([a.ok(), a.ok(), a.ok(), a.ok()].map(|done| done.wr_id), [1, 2, 3, 4]);
            let [sent, written] = [b.ok(), b.ok()];
            assert_eq!(
                (sent.opcode, sent.imm, sent.byte_len),
                (CqeOpcode::RESP_SEND_IMM, Some(7), len as u32)
            );
            assert_eq!(
                (written.opcode, written.imm, written.byte_len),
                (CqeOpcode::RESP_WR_IMM, Some(9), len as u32)
            );
            assert_eq!((b.bytes(0, len), b.bytes(30_000, len)), (pattern(n, len), pattern(n, len)));
        }
        assert_eq!((a.poll(), b.poll()), (None, None));
    }
}

/// What UC asks of the device, and what not.
#[test]
fn f1_uc_attributes() {
    let pair = pair("ports=2");
    let attr = pair.a.qp.query().unwrap();
    let peer = pair.b.qp.address(1, None).unwrap();
    assert_eq!(
        (attr.state, attr.dest_qp_num, attr.rq_psn, attr.ah.dgid),
        (QpState::RTS, peer.qpn, peer.psn, peer.gid)
    );
    // No acknowledgement is waited for.
    assert_eq!((attr.timeout, attr.retry_cnt, attr.rnr_retry), (0, 0, 0));
}

/// Nobody answers: what cannot be received is lost, its sender hears nothing, and what comes after it arrives.
#[test]
fn f1_uc_nobody_is_told() {
    let mut pair = pair("ports=2");
    let (a, b) = (&mut pair.a, &mut pair.b);
    let good = b.remote(0);
    let window = b.pd.alloc_mr(64, mlx5_direct::Access::LOCAL_WRITE).unwrap();
    a.post(|list, _| {
        // No receive, no such key, no right.
        list.send(1, SIGNALED).unwrap().inline(b"lost").unwrap().finish();
        let nowhere = mlx5_direct::queue::Remote { rkey: Rkey::new(0xdead_be00), ..good };
        list.rdma_write(2, nowhere, SIGNALED).unwrap().inline(b"lost").unwrap().finish();
        list.rdma_write(3, window.remote(0), SIGNALED).unwrap().inline(b"lost").unwrap().finish();
    });
    assert_eq!([a.ok(), a.ok(), a.ok()].map(|done| done.wr_id), [1, 2, 3]);
    b.assert_quiet();
    let mut left = [1; 4];
    window.read(0, &mut left);
    assert_eq!(left, [0; 4]);
    b.recv(1, 100..164);
    a.post(|list, _| {
        list.rdma_write(4, good, SIGNALED).unwrap().inline(b"written").unwrap().finish();
        list.send(5, SIGNALED).unwrap().inline(b"sent").unwrap().finish();
    });
    a.ok();
    a.ok();
    assert_eq!(b.ok().byte_len, 4);
    assert_eq!((b.bytes(0, 7), b.bytes(100, 4)), (b"written".to_vec(), b"sent".to_vec()));
    assert_eq!((a.device_state(), b.device_state()), (QpState::RTS, QpState::RTS));
}

/// A message of which a packet is lost never comes, and its receive takes the next.
#[test]
fn f1_uc_lost_packets() {
    needs!(Need::Model);
    let mut pair = pair("ports=2,drive=step");
    let data = pattern(3, 20_000);
    pair.a.mr.write(0, &data);
    // The third of the first message's five.
    pair.card.model().inject(&"packet 3 drop\npacket 11 drop".parse().unwrap());
    pair.b.recv(1, 0..20_000);
    pair.a.post(|list, memory| {
        list.send(1, SIGNALED).unwrap().local(memory, 0..20_000).unwrap().finish();
    });
    pair.a.ok();
    pair.b.assert_quiet();
    pair.a.post(|list, memory| {
        list.send(2, SIGNALED).unwrap().local(memory, 0..19_999).unwrap().finish();
    });
    pair.a.ok();
    let got = pair.b.ok();
    assert_eq!((got.wr_id, got.byte_len), (1, 19_999));
    assert_eq!(pair.b.bytes(0, 19_999), data[..19_999]);
    // Five packets each, and no acknowledgement.
    assert_eq!(pair.card.model().faults_done().to_string(), "packet 3 drop\n");
}

/// A send that fails stops the send queue, not the queue pair, and it can be started again.
#[test]
fn f1_uc_send_queue_error() {
    let mut pair = pair("ports=2");
    let (a, b) = (&mut pair.a, &mut pair.b);
    for round in 0..3 {
        a.post(|list, _| {
            // SAFETY: the key is no region's.
            unsafe { list.send(1, SIGNALED).unwrap().sge(Lkey::new(0xdead_be00), 0, 8).unwrap() }.finish();
            list.send(2, SIGNALED).unwrap().inline(b"behind").unwrap().finish();
        });
        assert_eq!(a.fails().syndrome, CqeSyndrome::LOCAL_PROT_ERR);
        assert!(a.fails().is_flush());
        assert_eq!(a.qp.refresh().unwrap(), QpState::SQER);
        // What is posted now comes back flushed, and receiving goes on.
        a.post(|list, _| list.send(3, SIGNALED).unwrap().inline(b"x").unwrap().finish());
        assert!(a.fails().is_flush());
        a.recv(round, 0..64);
        b.post(|list, _| list.send(4, SIGNALED).unwrap().inline(b"still").unwrap().finish());
        b.ok();
        assert_eq!(a.ok().byte_len, 5);
        a.qp.modify(&QpModify::to(QpState::RTS)).unwrap();
        b.recv(round, 0..64);
        a.post(|list, _| list.send(5, SIGNALED).unwrap().inline(b"again").unwrap().finish());
        a.ok();
        assert_eq!(b.ok().byte_len, 5);
    }
}

/// A message that is too long for the receive is lost, and the receive takes the next. A receive that names what may not
/// be written ends the receiver. The sender is told of neither.
#[test]
fn f1_uc_receive_errors() {
    let mut pair = pair("ports=2");
    let (a, b) = (&mut pair.a, &mut pair.b);
    b.recv(1, 0..4);
    for text in ["longer", "fits"] {
        a.post(|list, _| list.send(1, SIGNALED).unwrap().inline(text.as_bytes()).unwrap().finish());
        a.ok();
    }
    assert_eq!((b.ok().byte_len, b.bytes(0, 4)), (4, b"fits".to_vec()));
    let nowhere = Sge { lkey: Lkey::new(0xdead_be00), addr: 0, len_bytes: 8 };
    // SAFETY: the key is no region's.
    unsafe { b.qp.post_recv_raw(2, &[nowhere]).unwrap() };
    a.post(|list, _| list.send(1, SIGNALED).unwrap().inline(b"nowhere").unwrap().finish());
    a.ok();
    assert_eq!(b.fails().syndrome, CqeSyndrome::LOCAL_PROT_ERR);
    assert_eq!((a.device_state(), b.qp.refresh().unwrap()), (QpState::RTS, QpState::ERR));
}

#[test]
fn f1_uc_limits() {
    let mut pair = pair("ports=1");
    let limits = pair.a.qp.send_limits();
    let long = vec![0; usize::from(limits.max_inline_bytes) + 1];
    let mut list = pair.a.qp.post_list();
    assert_eq!(list.send(1, SIGNALED).unwrap().inline(&long).unwrap_err(), PostError::InlineTooLong);
    assert_eq!(list.n_wqebbs(), 0);
    list.ring();
    // A full queue takes no more, and does when there is room again.
    let (room, _) = pair.a.qp.max_wr();
    let mut list = pair.a.qp.post_list();
    let n = (0..2 * room).take_while(|n| {
        list.nop(u64::from(*n), SIGNALED).map(|request| request.finish()) != Err(PostError::QueueFull)
    });
    assert!(n.count() as u32 >= room);
    list.ring();
    pair.a.ok();
    pair.a.post(|list, _| list.nop(1, SIGNALED).unwrap().finish());
}
