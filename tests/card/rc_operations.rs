//! RC operations end to end: our driver, the model, packets between. Cases of groups E and G.

use crate::support::*;
use mlx5_direct::{
    Access, QpInit,
    cqe::{CqeOpcode, CqeSyndrome},
    mlx5::{
        context::{Mtu, QpState},
        ids::Rkey,
    },
    queue::{Flags, PostError},
};

const MAKES: &[&str] = &["ports=2", "ports=1"];

#[test]
fn e1_send_recv_1000() {
    for options in makes(MAKES) {
        let mut pair = Pair::new(options);
        let (a, b) = (&mut pair.a, &mut pair.b);
        let mut received = 0;
        for i in 0..1000u64 {
            if i % 32 == 0 {
                for slot in 0..32 {
                    b.recv(i + slot, slot * 128..slot * 128 + 128);
                }
            }
            let message = pattern(i, 1 + i as usize % 128);
            a.mr.write(0, &message);
            a.post(|list, memory| {
                let request = list.send(i, SIGNALED).unwrap();
                request.local(memory, 0..message.len() as u64).unwrap().finish();
            });
            let sent = a.ok();
            assert_eq!((sent.wr_id, sent.opcode), (i, CqeOpcode::REQ));
            let got = b.ok();
            assert_eq!((got.wr_id, got.byte_len as usize), (i, message.len()), "in order");
            assert_eq!(b.bytes(i as usize % 32 * 128, message.len()), message);
            received += 1;
        }
        assert_eq!(received, 1000);
        assert_eq!((a.poll(), b.poll()), (None, None));
    }
}

#[test]
fn e2_send_imm() {
    let mut pair = Pair::new("ports=2");
    pair.b.recv(7, 0..16);
    pair.a.post(|list, _| {
        list.send_imm(1, 0x0102_0304, SIGNALED).unwrap().inline(b"hello").unwrap().finish();
    });
    pair.a.ok();
    let got = pair.b.ok();
    assert_eq!((got.opcode, got.imm, got.byte_len), (CqeOpcode::RESP_SEND_IMM, Some(0x0102_0304), 5));
    assert_eq!(pair.b.bytes(0, 5), b"hello");
}

#[test]
fn e3_send_inval() {
    needs!(Need::Prm);
    let mut pair = Pair::new("ports=2");
    let window = pair.b.pd.alloc_mr(64, ALL | Access::REMOTE_INVALIDATE).unwrap();
    pair.b.recv(1, 0..16);
    pair.a.post(|list, _| {
        list.send_inval(1, window.rkey(), SIGNALED).unwrap().inline(b"x").unwrap().finish();
    });
    pair.a.ok();
    let got = pair.b.ok();
    assert_eq!((got.opcode, got.invalidated_rkey), (CqeOpcode::RESP_SEND_INV, Some(window.rkey().get())));
    // The key is dead.
    pair.a.post(|list, _| {
        list.rdma_write(2, window.remote(0), SIGNALED).unwrap().inline(b"x").unwrap().finish();
    });
    assert_eq!(pair.a.fails().syndrome, CqeSyndrome::REMOTE_ACCESS_ERR);
}

/// A key that its owner invalidated opens nothing, to peers and to its own queue pair; one that is not there fails.
#[test]
fn e3_local_inv() {
    let mut pair = Pair::new("ports=2");
    let window = pair.b.pd.alloc_mr(64, ALL).unwrap();
    pair.b.post(|list, _| {
        list.local_inv(1, window.rkey(), SIGNALED).unwrap().finish();
        list.nop(2, SIGNALED | Flags::AFTER_INVALIDATE | Flags::FENCE).unwrap().finish();
    });
    pair.b.ok();
    pair.b.ok();
    pair.a.post(|list, _| {
        list.rdma_write(2, window.remote(0), SIGNALED).unwrap().inline(b"x").unwrap().finish();
    });
    assert_eq!(pair.a.fails().syndrome, CqeSyndrome::REMOTE_ACCESS_ERR);
    drop((window, pair));
    let mut pair = Pair::new("ports=2");
    pair.a.post(|list, _| list.local_inv(1, Rkey::new(0xdead_be00), SIGNALED).unwrap().finish());
    assert_eq!(pair.a.fails().syndrome, CqeSyndrome::MW_BIND_ERR);
}

#[test]
fn e4_write() {
    for options in makes(MAKES) {
        let mut pair = Pair::new(options);
        let data = pattern(4, 10_000);
        pair.a.mr.write(100, &data);
        // No receive is posted, and none is needed.
        let remote = pair.b.remote(333);
        pair.a.post(|list, memory| {
            list.rdma_write(1, remote, SIGNALED).unwrap().local(memory, 100..10_100).unwrap().finish();
        });
        pair.a.ok();
        assert_eq!(pair.b.bytes(333, 10_000), data);
        assert_eq!((pair.b.bytes(332, 1), pair.b.bytes(10_333, 1)), (vec![0], vec![0]), "and no byte beside");
        pair.b.assert_quiet();
    }
}

#[test]
fn e5_write_imm() {
    let mut pair = Pair::new("ports=2");
    pair.b.recv(9, 0..0);
    let data = pattern(5, 5000);
    pair.a.mr.write(0, &data);
    let remote = pair.b.remote(64);
    pair.a.post(|list, memory| {
        list.rdma_write_imm(1, remote, 0xfeed_beef, SIGNALED)
            .unwrap()
            .local(memory, 0..5000)
            .unwrap()
            .finish();
    });
    pair.a.ok();
    let got = pair.b.ok();
    assert_eq!(
        (got.wr_id, got.opcode, got.imm, got.byte_len),
        (9, CqeOpcode::RESP_WR_IMM, Some(0xfeed_beef), 5000)
    );
    assert_eq!(pair.b.bytes(64, 5000), data);
    assert_eq!(pair.b.qp.recv_queue().n_outstanding(), 0, "one receive is consumed");
}

#[test]
fn e6_read() {
    for options in makes(MAKES) {
        let mut pair = Pair::new(options);
        let data = pattern(6, 20_000);
        pair.b.mr.write(1, &data);
        let remote = pair.b.remote(1);
        pair.a.post(|list, memory| {
            list.rdma_read(1, remote, SIGNALED).unwrap().local(memory, 7..20_007).unwrap().finish();
        });
        let done = pair.a.ok();
        assert_eq!(done.byte_len, 20_000);
        assert_eq!(pair.a.bytes(7, 20_000), data, "complete only after the last byte");
        assert_eq!((pair.a.bytes(6, 1), pair.a.bytes(20_007, 1)), (vec![0], vec![0]));
        pair.b.assert_quiet();
    }
}

#[test]
fn e7_zero_size_send() {
    let mut pair = Pair::new("ports=2");
    pair.b.recv(1, 0..64);
    pair.a.post(|list, _| list.send(1, SIGNALED).unwrap().finish());
    pair.a.ok();
    let got = pair.b.ok();
    assert_eq!((got.opcode, got.byte_len), (CqeOpcode::RESP_SEND, 0));
    assert_eq!(pair.b.bytes(0, 64), [0; 64]);
}

#[test]
fn e7_zero_size_write_and_read_need_no_valid_key() {
    let mut pair = Pair::new("ports=2");
    let nowhere = mlx5_direct::queue::Remote {
        addr: 0xdead_0000,
        rkey: mlx5_direct::mlx5::ids::Rkey::new(0xbad0_0bad),
    };
    pair.a.post(|list, _| list.rdma_write(1, nowhere, SIGNALED).unwrap().finish());
    assert_eq!(pair.a.ok().wr_id, 1);
    pair.a.post(|list, _| list.rdma_read(2, nowhere, SIGNALED).unwrap().finish());
    assert_eq!(pair.a.ok().byte_len, 0);
    assert_eq!(pair.b.device_state(), QpState::RTS);
}

#[test]
fn e8_sizes_0_to_2g_mtu_edges() {
    // Every power of two and every multiple of the MTU, one less and one more, up to 64 KiB; then large ones.
    let mut setup = Setup { mr_bytes: 1 << 20, ..Setup::default() };
    for mtu in [Mtu::MTU_256, Mtu::MTU_1024, Mtu::MTU_4096] {
        setup.connection.path_mtu = Some(mtu);
        let mut pair = Pair::with("ports=2", &setup, &setup);
        let source = pattern(8, 1 << 20);
        pair.a.mr.write(0, &source);
        let mtu_bytes = 128usize << mtu.0;
        let powers = (0..=16).map(|log| 1usize << log);
        let multiples = (1..=5).map(|n| n * mtu_bytes);
        for size in powers.chain(multiples).flat_map(|n| [n - 1, n, n + 1]).chain([(1 << 20) - 1, 1 << 20]) {
            let (remote, len) = (pair.b.remote(0), size as u64);
            pair.a.post(|list, memory| {
                list.rdma_write(1, remote, SIGNALED).unwrap().local(memory, 0..len).unwrap().finish();
            });
            pair.a.ok();
            assert!(pair.b.bytes(0, size) == source[..size], "{size} bytes written at MTU {mtu}");
        }
        for size in [0, 1, mtu_bytes - 1, mtu_bytes, mtu_bytes + 1, 3 * mtu_bytes, 1 << 20] {
            let len = size as u64;
            pair.b.recv(3, 0..len);
            pair.a.post(|list, memory| {
                list.send(2, SIGNALED).unwrap().local(memory, 0..len).unwrap().finish();
            });
            pair.a.ok();
            assert_eq!(pair.b.ok().byte_len as usize, size);
            assert!(pair.b.bytes(0, size) == source[..size], "{size} bytes sent at MTU {mtu}");
        }
    }
}

#[test]
fn e8_sizes_0_to_2g_over_max_refused() {
    let setup = Setup { init: QpInit { max_send_sge: 4, ..QpInit::default() }, ..Setup::default() };
    let mut pair = Pair::with("ports=2", &setup, &setup);
    let limit = pair.a.qp.send_limits().max_message_bytes;
    assert_eq!(limit, 1 << 30, "log_max_msg 30");
    let remote = pair.b.remote(0);
    let lkey = pair.a.mr.lkey();
    let addr = pair.a.mr.addr();
    let mut list = pair.a.qp.post_list();
    let request = list.rdma_write(1, remote, SIGNALED).unwrap();
    // SAFETY: never posted.
    let refused = unsafe { request.sge(lkey, addr, limit + 1) }.unwrap_err();
    assert_eq!(refused, PostError::MessageTooLong);
    let request = list.rdma_write(1, remote, SIGNALED).unwrap();
    // SAFETY: never posted.
    let refused = unsafe { request.sge(lkey, addr, limit).unwrap().sge(lkey, addr, 1) }.unwrap_err();
    assert_eq!(refused, PostError::MessageTooLong);
    list.ring();
    pair.a.assert_quiet();
}

#[test]
fn e9_sge_lists() {
    let init = QpInit { max_send_sge: 30, max_recv_sge: 16, ..QpInit::default() };
    let setup = Setup { init, ..Setup::default() };
    let mut pair = Pair::with("ports=2", &setup, &setup);
    let (send_max, recv_max) = (pair.a.qp.send_limits().max_sge.min(30), pair.b.qp.max_recv_sge());
    let source = pattern(9, 1 << 14);
    pair.a.mr.write(0, &source);
    for n in 1..=usize::from(send_max) {
        // Odd lengths from odd places, with an empty entry after every third.
        let pieces: Vec<_> = (0..n)
            .map(|i| (i * 401 + 1, if i % 4 == 3 { 0 } else { 37 + 2 * i }))
            .map(|(start, len)| start as u64..(start + len) as u64)
            .collect();
        let message: Vec<u8> =
            pieces.iter().flat_map(|p| &source[p.start as usize..p.end as usize]).copied().collect();
        // The receiver takes it in as many pieces as it may.
        let n_recv = (recv_max as usize).min(n);
        let piece = (message.len() / n_recv + 1) as u64;
        let slices: Vec<_> =
            (0..n_recv as u64).map(|i| pair.b.lease.slice(i * 2 * piece..i * 2 * piece + piece)).collect();
        pair.b.qp.post_recv(n as u64, &slices).unwrap();
        pair.a.post(|list, memory| {
            let mut request = list.send(n as u64, SIGNALED).unwrap();
            for piece in &pieces {
                request = request.local(memory, piece.clone()).unwrap();
            }
            request.finish();
        });
        pair.a.ok();
        let got = pair.b.ok();
        assert_eq!((got.wr_id, got.byte_len as usize), (n as u64, message.len()));
        let scattered: Vec<u8> = (0..n_recv)
            .flat_map(|i| pair.b.bytes(i * 2 * piece as usize, piece as usize))
            .take(message.len())
            .collect();
        assert!(scattered == message, "{n} pieces");
    }
    // One more than the limit.
    let max = pair.a.qp.send_limits().max_sge;
    let memory = pair.a.lease;
    let mut list = pair.a.qp.post_list();
    let mut request = list.send(1, SIGNALED).unwrap();
    for _ in 0..max {
        request = request.local(memory, 0..1).unwrap();
    }
    assert_eq!(request.local(memory, 0..1).unwrap_err(), PostError::TooManySge);
    list.ring();
    let too_many = vec![pair.b.lease.slice(0..1); recv_max as usize + 1];
    assert_eq!(pair.b.qp.post_recv(1, &too_many).unwrap_err(), PostError::TooManySge);
    pair.a.assert_quiet();
}

#[test]
fn e10_inline_all_sizes() {
    let init = QpInit { max_inline_data: 400, ..QpInit::default() };
    let setup = Setup { init, ..Setup::default() };
    let mut pair = Pair::with("ports=2", &setup, &setup);
    let max = usize::from(pair.a.qp.send_limits().max_inline_bytes);
    assert!(max >= 400);
    for size in 0..=max {
        let mut data = pattern(size as u64, size);
        let remote = pair.b.remote(0);
        pair.a.post(|list, _| {
            // In one piece, and in two.
            let request = list.rdma_write(1, remote, SIGNALED).unwrap().inline(&data[..size / 3]).unwrap();
            request.inline(&data[size / 3..]).unwrap().finish();
            // Reused at once.
            data.fill(0xee);
        });
        pair.a.ok();
        assert!(pair.b.bytes(0, size) == pattern(size as u64, size), "{size} bytes inline");
    }
    let remote = pair.b.remote(0);
    let mut list = pair.a.qp.post_list();
    let refused = list.rdma_write(1, remote, SIGNALED).unwrap().inline(&vec![0; max + 1]).unwrap_err();
    assert_eq!(refused, PostError::InlineTooLong);
}

#[test]
fn e15_fence_read_then_send() {
    let mut pair = Pair::new("ports=2");
    let data = pattern(15, 8192);
    pair.b.mr.write(0, &data);
    pair.b.recv(1, 32_768..40_960);
    let remote = pair.b.remote(0);
    // What is read is sent back: right only if the SEND waits for the READ.
    pair.a.post(|list, memory| {
        list.rdma_read(1, remote, Flags::NONE).unwrap().local(memory, 0..8192).unwrap().finish();
        list.send(2, SIGNALED | Flags::FENCE).unwrap().local(memory, 0..8192).unwrap().finish();
    });
    pair.a.ok();
    pair.b.ok();
    assert!(pair.b.bytes(32_768, 8192) == data);
}

#[test]
fn e16_unsignaled_then_signaled() {
    let mut pair = Pair::new("ports=2");
    let remote = pair.b.remote(0);
    for round in 0..10 {
        pair.a.post(|list, _| {
            for i in 0..15 {
                list.rdma_write(i, remote, Flags::NONE).unwrap().inline(&[round; 8]).unwrap().finish();
            }
            list.rdma_write(15, remote, SIGNALED).unwrap().inline(&[round; 8]).unwrap().finish();
        });
        let done = pair.a.ok();
        assert_eq!((done.wr_id, done.n_freed), (15, 16), "one completion retires them all");
        assert_eq!(pair.a.qp.send_queue().n_outstanding(), 0);
        assert_eq!(pair.a.poll(), None);
    }
    // A silent request that fails speaks all the same.
    let beyond = pair.b.remote(1 << 16);
    pair.a.post(|list, _| {
        list.rdma_write(1, remote, Flags::NONE).unwrap().inline(b"good").unwrap().finish();
        list.rdma_write(2, beyond, Flags::NONE).unwrap().inline(b"bad").unwrap().finish();
        list.rdma_write(3, remote, SIGNALED).unwrap().inline(b"late").unwrap().finish();
    });
    let done = pair.a.done();
    assert_eq!((done.wr_id, done.error.unwrap().syndrome), (2, CqeSyndrome::REMOTE_ACCESS_ERR));
    let flushed = pair.a.done();
    assert_eq!((flushed.wr_id, flushed.error.unwrap().is_flush()), (3, true));
}

#[test]
fn e22_loopback_same_qp_and_port() {
    let card = card("ports=1");
    let ctx = open(&card, 0);
    let mut side = looped(&card, &ctx, &Setup::default());
    side.recv(1, 1024..1088);
    side.mr.write(0, b"to myself");
    side.post(|list, memory| list.send(2, SIGNALED).unwrap().local(memory, 0..9).unwrap().finish());
    let both = [side.ok(), side.ok()];
    assert!(both.iter().any(|done| done.is_send) && both.iter().any(|done| !done.is_send));
    assert_eq!(side.bytes(1024, 9), b"to myself");
    card.assert_clean();
}

#[test]
fn g1_cas_success_and_failure() {
    let mut pair = Pair::new("ports=2");
    let remote = pair.b.remote(64);
    pair.b.mr.store_u64(64, 5);
    for (compare, swap, old, new) in [(5, 9, 5, 9), (5, 7, 9, 9), (9, u64::MAX, 9, u64::MAX)] {
        pair.a.post(|list, memory| {
            list.compare_swap(1, remote, compare, swap, SIGNALED).unwrap().local(memory, 8).unwrap().finish();
        });
        assert_eq!(pair.a.ok().byte_len, 8);
        assert_eq!((pair.a.mr.load_u64(8), pair.b.mr.load_u64(64)), (old, new));
    }
}

#[test]
fn g2_fetch_add_wrap() {
    let mut pair = Pair::new("ports=2");
    let remote = pair.b.remote(0);
    pair.b.mr.store_u64(0, u64::MAX - 1);
    for (add, old, new) in [(3, u64::MAX - 1, 1), (u64::MAX, 1, 0), (0, 0, 0)] {
        pair.a.post(|list, memory| {
            list.fetch_add(1, remote, add, SIGNALED).unwrap().local(memory, 0).unwrap().finish();
        });
        pair.a.ok();
        assert_eq!((pair.a.mr.load_u64(0), pair.b.mr.load_u64(0)), (old, new));
    }
}

#[test]
fn g6_atomic_unaligned() {
    let mut pair = Pair::new("ports=2");
    let remote = pair.b.remote(4);
    pair.a.post(|list, memory| {
        list.fetch_add(1, remote, 1, SIGNALED).unwrap().local(memory, 0).unwrap().finish();
    });
    assert_eq!(pair.a.fails().syndrome, CqeSyndrome::REMOTE_INVAL_REQ_ERR);
    assert_eq!(pair.b.bytes(0, 16), [0; 16]);
}
