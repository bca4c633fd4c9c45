//! Queues without a device: what they say of themselves and of failures, what is copied and swept out of them.

mod fixture;

use fixture::{Cq, Recv, Send, SendOptions, requester_cqe};
use mlx5_direct::{
    cqe::{CqeOpcode, CqeSyndrome, ErrorCqe, RequesterCqe, ResponderCqe, RoceL3},
    mlx5::ids::{Cqn, Lkey, Qpn, Rkey},
    queue::*,
    wqe::{AvSeg, DataSeg, SendOpcode},
};

const OWN: Qpn = Qpn::new(0x111);

fn nops(send: &mut Send, n: u64) {
    let mut list = send.queue.post_list();
    for wr_id in 0..n {
        list.nop(wr_id, Flags::SIGNALED).unwrap().finish();
    }
    list.ring();
}

#[test]
fn queues_say_what_they_are() {
    let send = Send::new(SendOptions::default());
    assert_eq!((send.queue.qpn(), send.queue.n_wqebbs()), (OWN, 16));
    assert_eq!(send.queue.blue_flame_max_wqebbs(), 4);
    let recv = Recv::new(0x42, 3, 6, 4);
    assert_eq!((recv.queue.qpn(), recv.queue.n_wqes(), recv.queue.max_sge()), (Qpn::new(0x42), 8, 4));
    let cq = Cq::new(3, CqeSize::B64);
    assert_eq!((cq.queue.cqn(), cq.queue.n_cqes(), cq.queue.ci()), (Cqn::new(0x89), 8, 0));
    // SAFETY: no device uses the lease.
    let lease = unsafe { Lease::new(QueueId::next(), Lkey::new(3), 0x1000, 77) };
    assert_eq!(lease.len_bytes(), 77);
    // SAFETY: no device uses the lease.
    assert_eq!(unsafe { Bindable::new(QueueId::next(), Lkey::new(3), 0x1000, 88) }.len_bytes(), 88);
    let key = IndirectKey::new(Rkey::new(0x345), 9);
    assert_eq!((key.lkey(), key.rkey(), key.max_entries()), (Lkey::new(0x345), Rkey::new(0x345), 9));
    assert_eq!(RemoteSrq::new(0x1100_0042).get(), 0x42);
    let av = AvSeg::new().with_sl(5);
    assert_eq!(AddressHandle::new(av).av(), av);
}

/// The compact form of an address vector stays what it is.
#[test]
fn an_address_vector_goes_as_it_is() {
    for ext in [false, true] {
        let av = AvSeg::new().with_ext(ext).with_sl(5).with_rgid([7; 16]).with_dqpn_dctn(Qpn::new(0x123));
        let mut send = fixture::Send::<Ud>::of(SendOptions::default());
        let mut list = send.queue.post_list();
        list.send(1, &AddressHandle::new(av), Flags::NONE).unwrap().finish();
        list.ring();
        assert_eq!(send.wqe(0, 64)[16..], av.to_bytes());
    }
}

#[test]
fn flags_are_put_together_once() {
    let both = Checksums::IP | Checksums::L4;
    assert_eq!(both, Checksums::ALL);
    assert_eq!(both | Checksums::IP | Checksums::L4, both);
    let both = WindowAccess::REMOTE_READ | WindowAccess::REMOTE_WRITE;
    assert_eq!(both | WindowAccess::REMOTE_READ, both);
    let both = KeyAccess::LOCAL_WRITE | KeyAccess::REMOTE_READ;
    assert_eq!(both | KeyAccess::REMOTE_READ, both);
    let both = Flags::SIGNALED | Flags::SOLICITED;
    assert_eq!(both | Flags::SIGNALED, both);
    assert!(both.contains(Flags::SIGNALED) && both.contains(both) && both.contains(Flags::NONE));
    assert!(!both.contains(Flags::FENCE) && !Flags::SOLICITED.contains(both));
    assert!(!(both | Flags::AFTER_INVALIDATE).contains(Flags::FENCE), "a small fence is not the full one");
}

/// The longest receive WQE that `log_rq_stride` can say: 128 pieces, and no room for a terminator.
#[test]
fn the_longest_receive_wqe_is_filled() {
    let mut recv = Recv::new(0x42, 1, 11, 128);
    let mut list = recv.queue.post_list();
    for wr_id in 0..2 {
        let mut request = list.recv(wr_id).unwrap();
        for i in 0..128 {
            // SAFETY: no device reads the ring.
            request = unsafe { request.sge(Lkey::new(3), i, 64) }.unwrap();
        }
        request.finish();
    }
    list.publish();
    for at in (0..2 * MAX_RECV_WQE_BYTES).step_by(16) {
        let data = DataSeg::from_bytes(recv.ring.read(at, 16).try_into().unwrap());
        assert_eq!((data.addr(), data.len_bytes()), ((at / 16 % 128) as u64, 64));
    }
    assert_eq!(recv.retire().unwrap(), Retired { wr_id: 0, n_freed: 1 });
    let mut list = recv.queue.post_list();
    // SAFETY: no device reads the ring.
    unsafe { list.recv(2).unwrap().sge(Lkey::new(3), 5, 64) }.unwrap().finish();
    list.publish();
    assert!(DataSeg::from_bytes(recv.ring.read(16, 16).try_into().unwrap()).is_terminator());
}

/// A list that is shorter than the one before in its slot ends with a terminator.
#[test]
fn what_a_longer_receive_left_is_not_named_again() {
    let piece = |addr| Sge { lkey: Lkey::new(3), addr, len_bytes: 64 };
    for n_before in 1..=4 {
        let mut recv = Recv::new(0x42, 0, 6, 4);
        let long: Vec<_> = (0..n_before).map(piece).collect();
        // SAFETY: no device reads the ring.
        unsafe { recv.queue.post_raw(0, &long) }.unwrap();
        recv.retire().unwrap();
        // SAFETY: no device reads the ring.
        unsafe { recv.queue.post_raw(1, &long[1..]) }.unwrap();
        let at = 16 * (n_before as usize - 1);
        assert!(
            DataSeg::from_bytes(recv.ring.read(at, 16).try_into().unwrap()).is_terminator(),
            "{n_before}"
        );
    }
}

/// Whatever the queue's limit: the 8 bytes of an atomic have a place.
#[test]
fn an_atomic_has_its_piece() {
    let limits = SendLimits { max_sge: 0, ..SendOptions::default().limits };
    let mut send = Send::new(SendOptions { limits, ..SendOptions::default() });
    let mut list = send.queue.post_list();
    let remote = Remote { addr: 8, rkey: Rkey::new(9) };
    // SAFETY: no device reads the ring.
    unsafe { list.fetch_add(1, remote, 1, Flags::NONE).unwrap().sge(Lkey::new(3), 16) }.unwrap().finish();
    // SAFETY: no device reads the ring.
    let piece = unsafe { list.rdma_write(2, remote, Flags::NONE).unwrap().sge(Lkey::new(3), 16, 8) };
    assert_eq!(piece.unwrap_err(), PostError::TooManySge);
    list.ring();
    assert_eq!(send.wqe(0, 64)[7], 4);
}

#[test]
fn posted_wqes_can_be_copied_out() {
    let mut send = Send::new(SendOptions { log_wq_size: 2, ..SendOptions::default() });
    let mut buffer = [0; 1024];
    assert!(send.queue.copy_wqe(0, &mut buffer).is_none());
    send.advance(&mut 0, 3);
    let mut list = send.queue.post_list();
    let mut request = list.rdma_write(1, Remote { addr: 0, rkey: Rkey::new(9) }, Flags::NONE).unwrap();
    for i in 0..6 {
        // SAFETY: no device reads the ring.
        request = unsafe { request.sge(Lkey::new(7), i, 64) }.unwrap();
    }
    request.finish();
    list.ring();
    assert_eq!(send.queue.copy_wqe(3, &mut buffer).unwrap(), send.wqe(3, 128));
    assert!(send.queue.copy_wqe(4, &mut buffer).is_none());
    let mut list = send.queue.post_list();
    list.nop(2, Flags::NONE).unwrap().finish();
    list.ring();
    assert_eq!(send.queue.copy_wqe(5, &mut buffer).unwrap(), send.wqe(5, 64));
}

#[test]
fn posted_receives_can_be_copied_out() {
    let mut recv = Recv::new(0x42, 1, 5, 2);
    let mut buffer = [0; MAX_RECV_WQE_BYTES];
    let post = |recv: &mut Recv, addr| {
        let mut list = recv.queue.post_list();
        // SAFETY: no device reads the ring.
        unsafe { list.recv(addr).unwrap().sge(Lkey::new(3), addr, 64) }.unwrap().finish();
        list.publish();
    };
    assert!(recv.queue.copy_wqe(0, &mut buffer).is_none(), "never posted");
    assert!(recv.queue.copy_wqe(u16::MAX, &mut buffer).is_none(), "never posted");
    post(&mut recv, 0);
    assert_eq!(recv.queue.copy_wqe(0, &mut buffer), Some(&recv.ring.read(0, 32)[..]));
    assert!(recv.queue.copy_wqe(1, &mut buffer).is_none(), "not yet posted");
    assert!(recv.queue.copy_wqe(u16::MAX, &mut buffer).is_none(), "never posted");
    post(&mut recv, 1);
    recv.retire().unwrap();
    post(&mut recv, 2);
    assert!(recv.queue.copy_wqe(0, &mut buffer).is_none(), "overwritten");
    assert_eq!(recv.queue.copy_wqe(1, &mut buffer), Some(&recv.ring.read(32, 32)[..]));
    let third = recv.queue.copy_wqe(2, &mut buffer).unwrap();
    assert_eq!(third, &recv.ring.read(0, 32)[..]);
    assert_eq!(DataSeg::from_bytes(*third.first_chunk().unwrap()).addr(), 2);
}

/// Completions of one queue pair go, from wherever in the ring and over its end; the others stay in their order.
#[test]
fn what_is_swept_is_of_one_queue_pair() {
    let other = Qpn::new(0x112);
    for cqe_size in [CqeSize::B64, CqeSize::B128] {
        for (before, pattern) in
            [(0, 0b0000), (1, 0b1010), (3, 0b0101), (6, 0b1001), (4, 0b1111), (5, 0b0110)]
        {
            let mut cq = Cq::new(2, cqe_size);
            for _ in 0..before {
                cq.complete(&requester_cqe(other, 99));
                assert!(cq.queue.poll().next().is_some());
            }
            let send = Send::new(SendOptions::default());
            let n_swept = (pattern as u32).count_ones();
            for n in 0..4u16 {
                let qpn = if pattern >> n & 1 == 1 { OWN } else { other };
                cq.complete(&requester_cqe(qpn, n));
            }
            let what = format!("{pattern:04b} after {before}, {cqe_size:?}");
            assert_eq!(cq.queue.sweep(&send.queue), n_swept, "{what}");
            assert_eq!((cq.queue.ci(), cq.published()), (before + n_swept, before + n_swept), "{what}");
            let mut left = Vec::new();
            let mut poll = cq.queue.poll();
            while let Some(wc) = poll.next() {
                assert_eq!(wc.qpn(), other, "{what}");
                left.push(wc.wqe_counter());
            }
            drop(poll);
            let expected: Vec<_> = (0..4).filter(|n| pattern >> n & 1 == 0).collect();
            assert_eq!(left, expected, "{what}");
            // The slots are the device's again, with the owner bits of their laps.
            for n in 10..14 {
                cq.complete(&requester_cqe(other, n));
            }
            let mut poll = cq.queue.poll();
            for n in 10..14 {
                assert_eq!(poll.next().map(|wc| wc.wqe_counter()), Some(n), "{what}");
            }
            assert!(poll.next().is_none(), "{what}");
        }
    }
}

#[test]
fn every_failure_says_what_to_look_at() {
    for (syndrome, vendor_err, expected) in [
        (CqeSyndrome::LOCAL_LENGTH_ERR, 0, "longer than the scatter list"),
        (CqeSyndrome::LOCAL_QP_OP_ERR, 0, "malformed"),
        (CqeSyndrome::LOCAL_PROT_ERR, 0, "lkey"),
        (CqeSyndrome::WR_FLUSH_ERR, 0, "the first error"),
        (CqeSyndrome::MW_BIND_ERR, 0, "window"),
        (CqeSyndrome::BAD_RESP_ERR, 0, "response does not fit"),
        (CqeSyndrome::LOCAL_ACCESS_ERR, 0, "remote access to local memory"),
        (CqeSyndrome::REMOTE_INVAL_REQ_ERR, 0, "refused the request"),
        (CqeSyndrome::REMOTE_ACCESS_ERR, 0, "rkey"),
        (CqeSyndrome::REMOTE_OP_ERR, 0, "peer's queue pair failed"),
        (CqeSyndrome::TRANSPORT_RETRY_EXC_ERR, 0, "did not answer"),
        (CqeSyndrome::RNR_RETRY_EXC_ERR, 0, "no receive posted"),
        (CqeSyndrome::REMOTE_ABORTED_ERR, 0, "gave the request up"),
        (CqeSyndrome::REMOTE_ABORTED_ERR, 0x93, "(a page fault of on-demand paging)"),
        (CqeSyndrome::REMOTE_ABORTED_ERR, 0x99, "(a packet out of sequence)"),
        (CqeSyndrome(0x3f), 0, "without a public name"),
    ] {
        let mut cq = Cq::new(1, CqeSize::B64);
        let cqe = ErrorCqe::new()
            .with_opcode(CqeOpcode::REQ_ERR)
            .with_qpn(OWN)
            .with_send_wqe_opcode(SendOpcode::RDMA_WRITE)
            .with_syndrome(syndrome)
            .with_vendor_err_synd(vendor_err);
        cq.complete(&cqe.to_bytes());
        let mut poll = cq.queue.poll();
        let error = poll.next().unwrap().error().unwrap();
        let said = error.to_string();
        assert!(said.contains(expected), "{said}");
        assert_eq!(error.vendor_meaning().is_some(), vendor_err != 0, "{said}");
        assert_eq!(error.is_flush(), syndrome == CqeSyndrome::WR_FLUSH_ERR, "{said}");
    }
}

/// A request of a queue that was told it is done, and of one that was not.
#[test]
fn completions_of_the_other_kind_are_not_taken() {
    let mut send = Send::new(SendOptions::default());
    nops(&mut send, 1);
    let mut recv = Recv::new(0x111, 2, 6, 4);
    recv.queue.post(5, &[]).unwrap();
    let mut cq = Cq::new(2, CqeSize::B64);
    cq.complete(&requester_cqe(OWN, 0));
    let mut poll = cq.queue.poll();
    let wc = poll.next().unwrap();
    assert!(recv.queue.retire(&wc).is_err());
    assert_eq!(recv.queue.n_outstanding(), 1);
    assert_eq!(send.queue.retire(&wc).unwrap(), Retired { wr_id: 0, n_freed: 1 });
}

/// What is no plain success, of whichever kind and whosever: the first thing that is wrong is said.
#[test]
fn failures_are_retired_by_their_own_queue() {
    let (own, other) = (OWN, Qpn::new(0x112));
    let failed = |opcode, qpn| ErrorCqe::new().with_opcode(opcode).with_qpn(qpn).to_bytes();
    let unknown = |qpn| RequesterCqe::new().with_qpn(qpn).with_opcode(CqeOpcode(7)).to_bytes();
    let foreign = RetireError::OtherQueue { completion_qpn: 0x112, qpn: 0x111 };
    let done = Ok(Retired { wr_id: 0, n_freed: 1 });
    let direction = |opcode| Err(RetireError::OtherDirection { opcode });
    let (req, resp) = (CqeOpcode::REQ_ERR, CqeOpcode::RESP_ERR);
    for (cqe, of_send, of_recv) in [
        (failed(req, own), done, direction(req)),
        (failed(resp, own), direction(resp), done),
        (failed(req, other), Err(foreign), Err(foreign)),
        (failed(resp, other), Err(foreign), Err(foreign)),
        (unknown(own), direction(CqeOpcode(7)), direction(CqeOpcode(7))),
        (unknown(other), Err(foreign), Err(foreign)),
    ] {
        let mut send = Send::new(SendOptions::default());
        nops(&mut send, 1);
        let mut recv = Recv::new(0x111, 2, 6, 4);
        recv.queue.post(0, &[]).unwrap();
        let mut cq = Cq::new(2, CqeSize::B64);
        cq.complete(&cqe);
        let mut poll = cq.queue.poll();
        let wc = poll.next().unwrap();
        assert_eq!(send.queue.retire(&wc), of_send, "{wc:?}");
        assert_eq!(recv.queue.retire(&wc), of_recv, "{wc:?}");
    }
}

/// In a CQE the opcode of the request stands above the queue pair's number, and is no part of it.
#[test]
fn the_opcode_of_a_request_is_no_part_of_its_queue() {
    for opcode in [SendOpcode::NOP, SendOpcode::RDMA_WRITE, SendOpcode(0xff)] {
        let mut send = Send::new(SendOptions::default());
        nops(&mut send, 1);
        let mut cq = Cq::new(2, CqeSize::B64);
        cq.complete(&RequesterCqe::new().with_qpn(OWN).with_send_wqe_opcode(opcode).to_bytes());
        let mut poll = cq.queue.poll();
        let wc = poll.next().unwrap();
        assert_eq!((wc.qpn(), wc.send_opcode()), (OWN, Some(opcode)));
        assert_eq!(send.queue.retire(&wc), Ok(Retired { wr_id: 0, n_freed: 1 }));
    }
}

/// A copy is read as if the device had just written it, whatever its owner bit.
#[test]
fn a_copied_completion_says_what_it_is() {
    for owner in [0, 1] {
        let mut cqe = CqeCopy([0; 64]);
        cqe.0 = requester_cqe(OWN, 0x1234);
        cqe.0[63] |= owner;
        let wc = Completion::of(&cqe);
        assert_eq!((wc.opcode(), wc.wqe_counter(), wc.status()), (CqeOpcode::REQ, 0x1234, Ok(())));
        assert!(!wc.is_solicited());
        cqe.0[63] = 0x20 | 2 | owner;
        let wc = Completion::of(&cqe);
        assert_eq!(wc.opcode(), CqeOpcode::RESP_SEND);
        assert!(wc.is_recv() && wc.is_solicited() && wc.error().is_none());
        let said = format!("{wc:?}");
        assert!(said.contains("RESP_SEND") && said.contains("0x1234") | said.contains("4660"), "{said}");
    }
}

/// Each part of a datagram's source stands where the layout has it, and nowhere else.
#[test]
fn a_source_is_read_field_by_field() {
    let source = |cqe: ResponderCqe| {
        let mut copy = CqeCopy([0; 64]);
        copy.0 = cqe.with_opcode(CqeOpcode::RESP_SEND).to_bytes();
        Completion::of(&copy).source().unwrap()
    };
    let none = Source { qpn: Qpn::new(0), slid: 0, sl: 0, path_bits: 0, grh: false };
    let cqe = ResponderCqe::new();
    assert_eq!(source(cqe), none);
    for sl in 1..16 {
        assert_eq!(source(cqe.with_sl(sl)), Source { sl, ..none });
    }
    for path_bits in [1, 0x55, 0x7f] {
        assert_eq!(source(cqe.with_ml_path(path_bits)), Source { path_bits, ..none });
    }
    for grh in 1..4 {
        assert_eq!(source(cqe.with_grh(grh)), Source { grh: true, ..none });
    }
    assert_eq!(source(cqe.with_slid(0xfedc)), Source { slid: 0xfedc, ..none });
    assert_eq!(source(cqe.with_rqpn(OWN)), Source { qpn: OWN, ..none });
}

#[test]
fn the_kind_of_network_header_is_in_the_service_level() {
    let source = |sl| Source { qpn: OWN, slid: 0, sl, path_bits: 0, grh: true };
    assert_eq!(source(8 | RoceL3::IPV4.0).roce_l3(), RoceL3::IPV4);
    assert_eq!(source(RoceL3::GRH.0).roce_l3(), RoceL3::GRH);
    let header: [u8; Grh::BYTES] = std::array::from_fn(|i| i as u8 * 3 + 1);
    let grh = Grh::parse(&header, RoceL3::IPV4);
    assert_eq!(grh.sgid, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 97, 100, 103, 106]);
    assert_eq!(grh.dgid, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 109, 112, 115, 118]);
}
