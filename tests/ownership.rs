//! Completion queues without a device: which CQEs are new, what they say, when slots are given back.

mod fixture;

use fixture::{Cq, Recv, Send, SendOptions, requester_cqe};
use mlx5_direct::{
    cqe::{CQE_BYTES, CqeFormat, CqeOpcode, CqeSyndrome, ErrorCqe, RequesterCqe, ResponderCqe},
    mlx5::ids::{Qpn, UserIndex},
    queue::*,
};
use proptest::prelude::*;

#[test]
fn c2_cq_poll_owner_wrap() {
    for log_cq_size in 0..=16u8 {
        for cqe_size in [CqeSize::B64, CqeSize::B128] {
            if log_cq_size > 12 && cqe_size == CqeSize::B128 {
                continue;
            }
            let mut cq = Cq::new(log_cq_size, cqe_size);
            let n = 1u32 << log_cq_size;
            let mut taken = 0u32;
            // Four laps and a bit, in batches that do not divide the ring.
            let batch = (n / 3).max(1);
            while taken < 4 * n + n / 2 + 1 {
                for i in 0..batch {
                    cq.complete(&requester_cqe(Qpn::new(1), (taken + i) as u16));
                }
                let mut done = cq.queue.poll();
                for i in 0..batch {
                    assert_eq!(done.next().expect("new").wqe_counter(), (taken + i) as u16);
                }
                assert!(done.next().is_none(), "size {n}, after {taken}");
                drop(done);
                taken += batch;
                assert_eq!(cq.record.read(0, 4), (taken & 0xff_ffff).to_be_bytes());
            }
        }
    }
}

#[test]
fn c3_cq_poll_empty() {
    // Never written.
    let mut cq = Cq::new(2, CqeSize::B64);
    assert!(cq.queue.poll().next().is_none());
    assert_eq!(cq.record.read(0, 8), [0; 8], "nothing taken, nothing published");
    // Opcode INVALID with this lap's owner.
    cq.ring.write(63, &[0xf0]);
    assert!(cq.queue.poll().next().is_none());
    // Owner of the other lap.
    cq.ring.write(63, &[0x01]);
    assert!(cq.queue.poll().next().is_none());
    // A lap later the first lap's CQEs are old.
    for i in 0..4 {
        cq.complete(&requester_cqe(Qpn::new(1), i));
    }
    let mut done = cq.queue.poll();
    for _ in 0..4 {
        assert!(done.next().is_some());
    }
    assert!(done.next().is_none());
    drop(done);
    assert!(cq.queue.poll().next().is_none());
}

#[test]
fn c4_cq_poll_batch_and_ci_update() {
    let mut cq = Cq::new(3, CqeSize::B64);
    for i in 0..6 {
        cq.complete(&requester_cqe(Qpn::new(1), i));
    }
    let mut done = cq.queue.poll();
    for i in 0..4 {
        assert_eq!(done.next().unwrap().wqe_counter(), i);
        assert_eq!(cq.record.read(0, 4), [0; 4], "published when the poll ends");
    }
    drop(done);
    assert_eq!(cq.record.read(0, 4), 4u32.to_be_bytes());
    let mut done = cq.queue.poll();
    assert_eq!(done.next().unwrap().wqe_counter(), 4);
    // Forgotten: its CQEs were not taken, and come again. Nothing is lost.
    std::mem::forget(done);
    assert_eq!(cq.record.read(0, 4), 4u32.to_be_bytes());
    let mut done = cq.queue.poll();
    assert_eq!(done.next().unwrap().wqe_counter(), 4);
    assert_eq!(done.next().unwrap().wqe_counter(), 5);
    assert!(done.next().is_none());
    drop(done);
    assert_eq!(cq.record.read(0, 4), 6u32.to_be_bytes());
}

#[test]
fn c8_arm_words() {
    let mut cq = Cq::new(2, CqeSize::B64);
    cq.complete(&requester_cqe(Qpn::new(1), 0));
    assert!(cq.queue.poll().next().is_some());
    for sn in 0..6u8 {
        for solicited in [false, true] {
            cq.queue.arm(solicited);
            let word = u32::from(sn % 4) << 28 | u32::from(solicited) << 24 | 1;
            assert_eq!(cq.record.read(4, 4), word.to_be_bytes());
            assert_eq!(cq.uar.read(0x20, 8), (u64::from(word) << 32 | 0x89).to_be_bytes());
        }
        cq.queue.event_received();
    }
}

#[test]
fn unknown_cqes_are_reported_and_passed_over() {
    for op_own in 0..=0xffu8 {
        let (opcode, format) = (CqeOpcode(op_own >> 4), CqeFormat(op_own >> 2 & 3));
        let mut cq = Cq::new(2, CqeSize::B64);
        let mut cqe = requester_cqe(Qpn::new(0x77), 0x1234);
        cqe[63] = op_own;
        cq.complete(&cqe);
        cq.complete(&requester_cqe(Qpn::new(0x77), 0x1235));
        let mut done = cq.queue.poll();
        if opcode == CqeOpcode::INVALID {
            assert!(done.next().is_none());
            continue;
        }
        let wc = done.next().expect("passed over");
        let known = (opcode <= CqeOpcode::RESP_SEND_INV) && format == CqeFormat::NO_INLINE_DATA;
        assert_eq!(wc.status().is_ok(), known, "op_own 0x{op_own:02x}");
        if let Some(error) = wc.error() {
            assert_eq!((error.opcode, error.format), (opcode, format));
            assert_eq!((error.qpn.get(), error.wqe_counter), (0x77, 0x1234));
            assert_eq!(error.to_string().lines().count(), 1);
        }
        assert_eq!(done.next().expect("the queue goes on").wqe_counter(), 0x1235);
    }
}

proptest! {
    /// Completions read the fields where the layouts have them.
    #[test]
    fn completions_read_the_declared_fields(mut bytes in proptest::array::uniform32(any::<[u8; 2]>())) {
        bytes[31][1] &= 0xef; // any opcode but INVALID
        let mut cqe = [0u8; CQE_BYTES];
        for (to, from) in cqe.chunks_mut(2).zip(bytes) {
            to.copy_from_slice(&from);
        }
        cqe[63] &= !1;
        let mut cq = Cq::new(1, CqeSize::B128);
        cq.complete_raw(&cqe);
        let mut done = cq.queue.poll();
        let wc = done.next().unwrap();
        prop_assert_eq!(wc.to_bytes(), cqe);
        let (req, resp, err) =
            (RequesterCqe::from_bytes(cqe), ResponderCqe::from_bytes(cqe), ErrorCqe::from_bytes(cqe));
        prop_assert_eq!(wc.opcode(), req.opcode());
        prop_assert_eq!(wc.format(), req.format());
        prop_assert_eq!(wc.is_solicited(), resp.se());
        prop_assert_eq!(wc.qpn(), resp.qpn());
        prop_assert_eq!(wc.user_index(), UserIndex::new(req.user_index().get()));
        prop_assert_eq!(wc.wqe_counter(), req.wqe_counter());
        prop_assert_eq!(wc.timestamp(), resp.timestamp());
        if wc.is_send() {
            prop_assert_eq!(wc.send_opcode(), Some(req.send_wqe_opcode()));
        }
        if wc.is_recv() && wc.opcode() != CqeOpcode::RESP_ERR {
            prop_assert_eq!(wc.byte_len(), resp.byte_cnt());
        }
        if let Some(error) = wc.error().filter(CompletionError::is_failure) {
            prop_assert_eq!(error.syndrome, err.syndrome());
            prop_assert_eq!(error.vendor_err, err.vendor_err_synd());
            prop_assert_eq!(error.is_flush(), err.syndrome() == CqeSyndrome::WR_FLUSH_ERR);
        }
    }
}

fn sends() -> Send {
    Send::new(SendOptions { log_wq_size: 3, ..SendOptions::default() })
}

fn post(send: &mut Send, wr_id: u64) {
    let mut list = send.queue.post_list();
    list.nop(wr_id, Flags::SIGNALED).unwrap().finish();
    list.ring();
}

#[test]
fn one_completion_is_taken_or_left() {
    let own = Qpn::new(0x111);
    let (mut send, mut recv) = (sends(), Recv::new(0x111, 2, 6, 4));
    // A ring of two: laps change, and nothing is given back that was not taken.
    let mut cq = Cq::new(1, CqeSize::B64);
    let received = ResponderCqe::new().with_opcode(CqeOpcode::RESP_SEND).with_qpn(own);
    for n in 0..20u16 {
        assert_eq!(send.queue.take_one(&mut cq.queue, |retired, _| retired), Taken::Nothing);
        assert_eq!(recv.queue.take_one(&mut cq.queue, |retired, _| retired), Taken::Nothing);
        post(&mut send, n.into());
        post(&mut send, u64::from(n) + 100);
        recv.queue.post(n.into(), &[]).unwrap();
        cq.complete(&requester_cqe(own, 2 * n + 1));
        cq.complete(&received.with_byte_cnt(n.into()).to_bytes());
        assert_eq!(recv.queue.take_one(&mut cq.queue, |retired, _| retired), Taken::Other);
        let done = Retired { wr_id: u64::from(n) + 100, n_freed: 2 };
        assert_eq!(send.queue.take_one(&mut cq.queue, |retired, _| retired), Taken::Done(done));
        assert_eq!(cq.published(), 2 * u32::from(n) + 1);
        assert_eq!(send.queue.take_one(&mut cq.queue, |retired, _| retired), Taken::Other);
        let (wr_id, len_bytes) = (n.into(), n.into());
        let taken = recv.queue.take_one(&mut cq.queue, |retired, wc| (retired, wc.byte_len()));
        assert_eq!(taken, Taken::Done((Retired { wr_id, n_freed: 1 }, len_bytes)));
        assert_eq!(cq.published(), 2 * u32::from(n) + 2);
    }
    assert_eq!((send.queue.n_outstanding(), recv.queue.n_outstanding()), (0, 0));
}

#[test]
fn what_is_no_success_of_the_queue_is_not_taken() {
    let own = Qpn::new(0x111);
    let failed = ErrorCqe::new().with_opcode(CqeOpcode::REQ_ERR).with_qpn(own).to_bytes();
    let compressed = RequesterCqe::new().with_format(CqeFormat(3)).with_qpn(own).to_bytes();
    for (what, cqe) in [
        ("another queue's", requester_cqe(Qpn::new(0x112), 0)),
        ("of nothing outstanding", requester_cqe(own, 1)),
        ("a failure", failed),
        ("not understood", compressed),
    ] {
        let mut send = sends();
        post(&mut send, 7);
        let mut cq = Cq::new(3, CqeSize::B64);
        cq.complete(&cqe);
        for _ in 0..2 {
            assert_eq!(send.queue.take_one(&mut cq.queue, |retired, _| retired), Taken::Other, "{what}");
            assert_eq!((send.queue.n_outstanding(), cq.queue.ci(), cq.published()), (1, 0, 0), "{what}");
        }
        assert!(cq.queue.poll().next().is_some(), "{what}: it is there");
        assert_eq!(send.queue.take_one(&mut cq.queue, |retired, _| retired), Taken::Nothing, "{what}");
    }
    // A receive while none is posted.
    let mut recv = Recv::new(0x111, 2, 6, 4);
    let mut cq = Cq::new(3, CqeSize::B64);
    cq.complete(&ResponderCqe::new().with_opcode(CqeOpcode::RESP_SEND).with_qpn(own).to_bytes());
    assert_eq!(recv.queue.take_one(&mut cq.queue, |retired, _| retired), Taken::Other);
    assert_eq!(recv.queue.n_outstanding(), 0);
}
