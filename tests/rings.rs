//! Send and receive rings, credits and doorbells, on tiny rings and without a device.

mod fixture;

use fixture::{Cq, RING_FILL, Recv, Send, SendOptions, UAR_FILL, requester_cqe};
use mlx5_direct::{
    cqe::{CqeOpcode, ResponderCqe},
    doorbell::{DoorbellMode, Sharing},
    mlx5::ids::{Lkey, Qpn, Rkey},
    queue::*,
    wqe::{CtrlSeg, DataSeg, InlineSeg, RaddrSeg, SendOpcode},
};
use proptest::prelude::*;

const REMOTE: Remote = Remote { addr: 0x1122_3344_5566_7788, rkey: Rkey::new(0xcafe_f00d) };

fn sends(log_wq_size: u8) -> Send {
    Send::new(SendOptions { log_wq_size, ..SendOptions::default() })
}

/// Posts one WRITE of `n` SGEs whose lengths tell them apart.
fn write_sges(send: &mut Send, wr_id: u64, n: usize) -> Result<(), PostError> {
    let mut list = send.queue.post_list();
    let mut request = list.rdma_write(wr_id, REMOTE, Flags::SIGNALED)?;
    for i in 0..n {
        // SAFETY: no device reads the ring.
        request = unsafe { request.sge(Lkey::new(7), 0x1000 * i as u64, i as u32 + 1) }?;
    }
    request.finish();
    list.ring();
    Ok(())
}

fn write_inline(send: &mut Send, wr_id: u64, pieces: &[&[u8]]) -> Result<(), PostError> {
    let mut list = send.queue.post_list();
    let mut request = list.rdma_write(wr_id, REMOTE, Flags::SIGNALED)?.inline(pieces[0])?;
    for piece in &pieces[1..] {
        request = request.inline(piece)?;
    }
    request.finish();
    list.ring();
    Ok(())
}

fn segment(wqe: &[u8], i: usize) -> [u8; 16] {
    wqe[16 * i..16 * i + 16].try_into().unwrap()
}

#[test]
fn h1_sq_wrap_all_offsets() {
    for n_sge in 0..=60usize {
        let ds = 2 + n_sge;
        let n_wqebbs = ds.div_ceil(4);
        for start in 0..16u32 {
            let mut send = sends(4);
            send.advance(&mut 0, start);
            send.ring.fill(RING_FILL);
            write_sges(&mut send, 99, n_sge).unwrap();
            let wqe = send.wqe(start as usize, 16 * 64);
            let ctrl = CtrlSeg::from_bytes(segment(&wqe, 0));
            assert_eq!(u32::from(ctrl.wqe_index()), start);
            assert_eq!(ctrl.opcode(), SendOpcode::RDMA_WRITE);
            assert_eq!(usize::from(ctrl.ds()), ds);
            let raddr = RaddrSeg::from_bytes(segment(&wqe, 1));
            assert_eq!((raddr.raddr(), raddr.rkey()), (REMOTE.addr, REMOTE.rkey));
            for i in 0..n_sge {
                let data = DataSeg::from_bytes(segment(&wqe, 2 + i));
                assert_eq!((data.byte_count(), data.addr()), (i as u32 + 1, 0x1000 * i as u64));
            }
            assert!(wqe[16 * ds..].iter().all(|b| *b == RING_FILL), "wrote past the end");
            assert_eq!(send.record.read(4, 4), (start + n_wqebbs as u32).to_be_bytes());
            assert_eq!(send.retire(start).unwrap(), Retired { wr_id: 99, n_freed: n_wqebbs as u32 });
        }
    }
}

/// A local invalidation takes two WQEBBs: around the ring's end, or not at all.
#[test]
fn h1_local_inv_wraps_or_waits() {
    let mut send = sends(2);
    send.advance(&mut 0, 3);
    let mut list = send.queue.post_list();
    list.local_inv(1, Rkey::new(0x1234), Flags::SIGNALED).unwrap().finish();
    list.nop(2, Flags::AFTER_INVALIDATE | Flags::SIGNALED).unwrap().finish();
    assert!(matches!(list.local_inv(3, Rkey::new(5), Flags::NONE), Err(PostError::QueueFull)), "one is left");
    list.ring();
    let wqe = send.wqe(3, 3 * 64);
    assert_eq!((wqe[3], wqe[7]), (0x25, 8));
    assert_eq!((wqe[64], &wqe[68..72]), (0x40, &[0xff, 0xff, 0xff, 0][..]), "the context, at the start");
    assert_eq!(wqe[128 + 11], 0x28, "the small fence");
    assert_eq!(send.retire(3).unwrap(), Retired { wr_id: 1, n_freed: 2 });
    assert_eq!(Flags::AFTER_INVALIDATE | Flags::FENCE, Flags::FENCE, "one fence, the full one");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Inline data of every size, in any pieces, at any distance from the ring's end.
    #[test]
    fn h1_inline_wraps_in_mid_segment(
        start in 0..8u32,
        data in proptest::collection::vec(any::<u8>(), 0..=476),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..4),
    ) {
        let mut send = sends(3);
        send.advance(&mut 0, start);
        send.ring.fill(RING_FILL);
        let mut cuts: Vec<usize> = cuts.iter().map(|c| c.index(data.len() + 1)).collect();
        cuts.sort();
        let mut pieces = vec![];
        let mut at = 0;
        for cut in cuts {
            pieces.push(&data[at..cut]);
            at = cut;
        }
        pieces.push(&data[at..]);
        write_inline(&mut send, 5, &pieces).unwrap();
        let wqe = send.wqe(start as usize, 8 * 64);
        let ds = 2 + if data.is_empty() { 0 } else { InlineSeg::n_octowords(data.len()) };
        prop_assert_eq!(usize::from(CtrlSeg::from_bytes(segment(&wqe, 0)).ds()), ds);
        let mut end = 32;
        if !data.is_empty() {
            let header = InlineSeg::from_bytes(wqe[32..36].try_into().unwrap());
            prop_assert!(header.inline());
            prop_assert_eq!(usize::from(header.byte_count()), data.len());
            prop_assert_eq!(&wqe[36..36 + data.len()], &data[..]);
            end = 36 + data.len();
        }
        prop_assert!(wqe[end..].iter().all(|b| *b == RING_FILL));
        prop_assert_eq!(send.retire(start).unwrap().n_freed as usize, ds.div_ceil(4));
    }

    /// Any mixture of lengths, signalled or not, posted and retired in any rhythm, keeps exact credits.
    #[test]
    fn credits_are_exact(
        log_wq_size in 0..=5u8,
        steps in proptest::collection::vec((0..12usize, any::<bool>(), 0..4u8), 1..200),
    ) {
        let mut send = sends(log_wq_size);
        let n_wqebbs = 1u32 << log_wq_size;
        let (mut pi, mut ci) = (0u32, 0u32);
        let mut outstanding = std::collections::VecDeque::new();
        for (n_sge, _, retire) in steps {
            let need = (2 + n_sge).div_ceil(4) as u32;
            let free = n_wqebbs - (pi - ci);
            let wr_id = u64::from(pi) << 8 | n_sge as u64;
            match write_sges(&mut send, wr_id, n_sge) {
                Ok(()) => {
                    prop_assert!(need <= free);
                    outstanding.push_back((pi, need, wr_id));
                    pi += need;
                }
                Err(e) => {
                    prop_assert_eq!(e, PostError::QueueFull);
                    prop_assert!(need > free);
                }
            }
            prop_assert_eq!(send.queue.n_outstanding(), pi - ci);
            prop_assert_eq!(send.record.read(4, 4), (pi & 0xffff).to_be_bytes());
            if retire > 0 && !outstanding.is_empty() {
                let last = (usize::from(retire) - 1).min(outstanding.len() - 1);
                let (index, n, wr_id) = outstanding[last];
                outstanding.drain(..=last);
                let n_freed = index + n - ci;
                prop_assert_eq!(send.retire(index).unwrap(), Retired { wr_id, n_freed });
                ci = index + n;
                // The same again is refused, and nothing changes.
                let again = send.retire(index);
                let refused = matches!(again, Err(RetireError::NotOutstanding { .. }));
                prop_assert!(refused);
                prop_assert_eq!(send.queue.n_outstanding(), pi - ci);
            }
        }
    }
}

#[test]
fn h2_sq_index_wrap_65536() {
    let mut send = sends(2);
    let mut index = 0u32;
    while index < 3 * 65536 {
        write_sges(&mut send, u64::from(index), 2 + (index % 7) as usize).unwrap();
        let n = (4 + index % 7).div_ceil(4);
        let ctrl = CtrlSeg::from_bytes(segment(&send.wqe(index as usize, 16), 0));
        assert_eq!(ctrl.wqe_index(), index as u16);
        assert_eq!(send.record.read(4, 4), ((index + n) & 0xffff).to_be_bytes());
        assert_eq!(send.retire(index).unwrap(), Retired { wr_id: u64::from(index), n_freed: n });
        index += n;
    }
}

#[test]
fn h3_sq_full_refused_then_ok() {
    let mut send = sends(2);
    for i in 0..4 {
        write_sges(&mut send, i, 2).unwrap();
    }
    let (ring, record) = (send.ring.read(0, 256), send.record.read(0, 8));
    send.uar.fill(UAR_FILL);
    assert_eq!(write_sges(&mut send, 9, 0).unwrap_err(), PostError::QueueFull);
    assert_eq!(write_inline(&mut send, 9, &[b"x"]).unwrap_err(), PostError::QueueFull);
    assert_eq!(send.ring.read(0, 256), ring);
    assert_eq!(send.record.read(0, 8), record);
    assert!(send.uar.read(0, 4096).iter().all(|b| *b == UAR_FILL));
    assert_eq!(send.retire(1).unwrap(), Retired { wr_id: 1, n_freed: 2 });
    // Room for two WQEBBs: three are refused, as SGEs and inline, and the list posts nothing of them.
    assert_eq!(write_sges(&mut send, 9, 7).unwrap_err(), PostError::QueueFull);
    assert_eq!(write_inline(&mut send, 9, &[&[0; 120]]).unwrap_err(), PostError::QueueFull);
    assert_eq!(send.record.read(0, 8), record);
    assert_eq!(send.ring.read(128, 128), ring[128..], "posted WQEs are not touched");
    write_sges(&mut send, 9, 6).unwrap();
    assert_eq!(send.retire(4).unwrap(), Retired { wr_id: 9, n_freed: 4 });
}

#[test]
fn h4_rq_full_and_wrap() {
    let mut recv = Recv::new(0x42, 2, 6, 4);
    let mut index = 0u64;
    let post = |recv: &mut Recv, wr_id: u64| {
        let mut list = recv.queue.post_list();
        // SAFETY: no device reads the ring.
        unsafe { list.recv(wr_id)?.sge(Lkey::new(3), wr_id, 64)? }.finish();
        list.publish();
        Ok::<_, PostError>(())
    };
    for _ in 0..4 {
        post(&mut recv, index).unwrap();
        index += 1;
    }
    let mut oldest = 0;
    while index < 65536 + 16 {
        // Looked at closely where the 16 bits of the index wrap.
        let close = (index + 8) & 0xffff < 16;
        if close {
            let before = (recv.ring.read(0, 256), recv.record.read(0, 8));
            assert_eq!(post(&mut recv, 999).unwrap_err(), PostError::QueueFull);
            assert_eq!((recv.ring.read(0, 256), recv.record.read(0, 8)), before, "nothing written");
        }
        assert_eq!(recv.retire().unwrap(), Retired { wr_id: oldest, n_freed: 1 });
        oldest += 1;
        post(&mut recv, index).unwrap();
        index += 1;
        if !close {
            continue;
        }
        let slot = (index as usize - 1) % 4 * 64;
        let data = DataSeg::from_bytes(recv.ring.read(slot, 16).try_into().unwrap());
        assert_eq!((data.addr(), data.len_bytes()), (index - 1, 64));
        assert!(DataSeg::from_bytes(recv.ring.read(slot + 16, 16).try_into().unwrap()).is_terminator());
        assert_eq!(recv.record.read(0, 4), (index as u32 & 0xffff).to_be_bytes());
        assert_eq!(recv.record.read(4, 4), [0; 4], "the send word");
    }
}

#[test]
fn receive_lists_batch_and_refuse() {
    let mut recv = Recv::new(0x42, 3, 6, 4);
    let mut list = recv.queue.post_list();
    for i in 0..5 {
        list.recv(i).unwrap().finish();
    }
    list.publish();
    assert_eq!(recv.record.read(0, 4), 5u32.to_be_bytes());
    // Not published: nothing happened.
    recv.queue.post_list().recv(77).unwrap().finish();
    assert_eq!(recv.record.read(0, 4), 5u32.to_be_bytes());
    assert_eq!(recv.queue.n_outstanding(), 5);
    // Four SGEs fill the stride, without a terminator; a fifth is refused.
    let sge = Sge { lkey: Lkey::new(1), addr: 0, len_bytes: 1 };
    let zero = Sge { len_bytes: 0, ..sge };
    // SAFETY: no device reads the ring.
    unsafe {
        recv.queue.post_raw(5, &[sge, zero, sge, sge, sge]).unwrap();
        assert_eq!(recv.queue.post_raw(6, &[sge; 5]).unwrap_err(), PostError::TooManySge);
        let long = Sge { len_bytes: (1 << 31) + 1, ..sge };
        assert_eq!(recv.queue.post_raw(6, &[long]).unwrap_err(), PostError::MessageTooLong);
        recv.queue.post_raw(6, &[Sge { len_bytes: 1 << 31, ..sge }]).unwrap();
    }
    let largest = DataSeg::from_bytes(recv.ring.read(6 * 64, 16).try_into().unwrap());
    assert_eq!((largest.byte_count(), largest.len_bytes()), (0, 1 << 31));
    assert_eq!(recv.ring.read(5 * 64 + 48, 4), 1u32.to_be_bytes());
    for i in 0..7 {
        assert_eq!(recv.retire().unwrap().wr_id, i);
    }
    assert!(matches!(recv.retire(), Err(RetireError::NotOutstanding { .. })));
    recv.queue.reset();
    assert_eq!(recv.record.read(0, 4), [0; 4]);
    assert_eq!(recv.queue.post(0, &[]).unwrap_err(), PostError::WrongState);
}

#[test]
fn h5_doorbell_batch() {
    let mut send = sends(4);
    let mut list = send.queue.post_list();
    for i in 0..5 {
        // SAFETY: no device reads the ring.
        unsafe { list.send(i, Flags::NONE).unwrap().sge(Lkey::new(1), i, 8).unwrap() }.finish();
    }
    list.nop(5, Flags::SIGNALED).unwrap().finish();
    assert_eq!(list.n_wqebbs(), 6);
    // Nothing is visible yet.
    assert_eq!(send.record.read(0, 8), [0; 8]);
    assert!(send.uar.read(0, 4096).iter().all(|b| *b == UAR_FILL));

    let mut send = sends(4);
    let mut list = send.queue.post_list();
    for i in 0..6 {
        list.nop(i, Flags::SIGNALED).unwrap().finish();
    }
    list.ring();
    assert_eq!(send.record.read(4, 4), 6u32.to_be_bytes());
    // One doorbell: the last WQE's first 8 bytes.
    assert_eq!(send.take_register(), send.wqe(5, 8));
    assert!(send.take_register().is_empty(), "once");
    // One completion retires them all.
    assert_eq!(send.retire(5).unwrap(), Retired { wr_id: 5, n_freed: 6 });
}

#[test]
fn a_list_that_does_not_ring_posts_nothing() {
    let mut send = sends(2);
    write_sges(&mut send, 1, 1).unwrap();
    send.take_register();
    // Lists have no destructor: dropped and forgotten are the same.
    assert!(!std::mem::needs_drop::<PostList<'_>>() && !std::mem::needs_drop::<RecvList<'_>>());
    let mut list = send.queue.post_list();
    list.nop(2, Flags::NONE).unwrap().finish();
    list.nop(3, Flags::NONE).unwrap().finish();
    // A request that is not finished is not in the list.
    let _ = list.send(4, Flags::NONE).unwrap();
    assert_eq!(list.n_wqebbs(), 2);
    assert_eq!(send.record.read(4, 4), 1u32.to_be_bytes());
    assert_eq!(send.queue.n_outstanding(), 1);
    send.queue.post_list().ring();
    assert!(send.take_register().is_empty(), "an empty list rings nothing");
    assert!(matches!(send.retire(1), Err(RetireError::NotOutstanding { .. })), "never posted");
    write_sges(&mut send, 5, 1).unwrap();
    assert_eq!(send.retire(1).unwrap(), Retired { wr_id: 5, n_freed: 2 });
}

#[test]
fn h7_blueflame_1_to_4_bb() {
    // Which WQEs are copied, for each kind of register.
    for (doorbell, write_combining, sharing, copies) in [
        (DoorbellMode::Auto, true, Sharing::Exclusive, true),
        (DoorbellMode::Doorbell, true, Sharing::Exclusive, false),
        (DoorbellMode::Auto, false, Sharing::Exclusive, false),
    ] {
        let options = SendOptions { doorbell, write_combining, sharing, ..SendOptions::default() };
        let mut send = Send::new(options);
        assert_eq!(send.queue.sharing(), sharing);
        let mut index = 0;
        for n_sge in [0, 2, 6, 10, 14, 15, 2, 30, 2] {
            write_sges(&mut send, 0, n_sge).unwrap();
            let n_wqebbs = (2 + n_sge).div_ceil(4);
            // `take_register` checks that the halves are taken in turn.
            let expected = if copies && n_wqebbs <= 4 { n_wqebbs * 64 } else { 8 };
            assert_eq!(send.take_register(), send.wqe(index, expected));
            send.retire(index as u32).unwrap();
            index += n_wqebbs;
        }
    }
    // A shared register takes single 8-byte stores, always at its start.
    let mut send = Send::new(SendOptions { sharing: Sharing::Shared, ..SendOptions::default() });
    assert_eq!(send.queue.sharing(), Sharing::Shared);
    for i in 0..3 {
        write_sges(&mut send, 0, 2).unwrap();
        assert_eq!(send.uar.read(0x800 + 2 * 512, 8), send.wqe(i, 8));
        assert!(send.uar.read(0x800 + 2 * 512 + 8, 504).iter().all(|b| *b == UAR_FILL));
    }
}

#[test]
fn limits_are_named() {
    let limits =
        SendLimits { max_sge: 3, max_inline_bytes: 20, max_message_bytes: 1000, min_header_bytes: 0 };
    let mut send = Send::new(SendOptions { limits, ..SendOptions::default() });
    assert_eq!(send.queue.limits(), limits);
    assert_eq!(write_sges(&mut send, 0, 4).unwrap_err(), PostError::TooManySge);
    assert_eq!(write_inline(&mut send, 0, &[&[0; 21]]).unwrap_err(), PostError::InlineTooLong);
    assert_eq!(write_inline(&mut send, 0, &[&[0; 15], &[0; 6]]).unwrap_err(), PostError::InlineTooLong);
    write_inline(&mut send, 0, &[&[], &[], &[0; 20]]).unwrap();
    let mut list = send.queue.post_list();
    // SAFETY: no device reads the ring.
    let request = unsafe { list.send(0, Flags::NONE).unwrap().sge(Lkey::new(1), 0, 999) }.unwrap();
    // SAFETY: as above.
    assert_eq!(unsafe { request.sge(Lkey::new(1), 0, 2) }.unwrap_err(), PostError::MessageTooLong);
    // SAFETY: as above.
    let request = unsafe { list.send(0, Flags::NONE).unwrap().sge(Lkey::new(1), 0, 1) }.unwrap();
    assert_eq!(request.inline(b"x").unwrap_err(), PostError::MixedInline);
    send.queue.reset();
    assert_eq!(write_sges(&mut send, 0, 1).unwrap_err(), PostError::WrongState);
    assert_eq!(send.record.read(4, 4), [0; 4]);
    send.queue.open();
    write_sges(&mut send, 0, 1).unwrap();
    assert_eq!(CtrlSeg::from_bytes(segment(&send.wqe(0, 16), 0)).wqe_index(), 0);
    // A READ takes 30 pieces, whatever the queue takes.
    let mut send = sends(4);
    let mut list = send.queue.post_list();
    let mut read = list.rdma_read(0, REMOTE, Flags::NONE).unwrap();
    for i in 0..30 {
        // SAFETY: no device reads the ring.
        read = unsafe { read.sge(Lkey::new(1), i, 1) }.unwrap();
    }
    // SAFETY: as above.
    assert_eq!(unsafe { read.sge(Lkey::new(1), 0, 1) }.unwrap_err(), PostError::TooManySge);
    assert_eq!(size_of::<PostError>(), 1);
}

#[test]
fn longest_piece_is_written_as_0() {
    let limits = SendLimits { max_message_bytes: u32::MAX, ..SendOptions::default().limits };
    let mut send = Send::new(SendOptions { limits, ..SendOptions::default() });
    let mut list = send.queue.post_list();
    // SAFETY: no device reads the ring.
    unsafe { list.send(0, Flags::NONE).unwrap().sge(Lkey::new(1), 0, 1 << 31).unwrap() }.finish();
    // SAFETY: as above.
    let longer = unsafe { list.send(0, Flags::NONE).unwrap().sge(Lkey::new(1), 0, (1 << 31) + 1) };
    assert_eq!(longer.unwrap_err(), PostError::MessageTooLong);
    list.ring();
    assert_eq!(send.wqe(0, 20)[16..], [0; 4]);
}

#[test]
fn leases_are_checked() {
    let mut send = sends(2);
    // SAFETY: no device reads the ring.
    let (mine, other) = unsafe {
        (
            Lease::new(send.queue.id(), Lkey::new(9), 0x10_0000, 4096),
            Lease::new(QueueId::next(), Lkey::new(9), 0x10_0000, 4096),
        )
    };
    let mut list = send.queue.post_list();
    list.send(0, Flags::NONE).unwrap().local(mine, 16..80).unwrap().finish();
    list.fetch_add(1, REMOTE, 1, Flags::NONE).unwrap().local(mine, 4088).unwrap().finish();
    for (lease, range, error) in [
        (other, 0..64, PostError::NotLeased),
        (mine, 0..4097, PostError::OutOfRange),
        (mine, 4097..4098, PostError::OutOfRange),
        (mine, std::ops::Range { start: 64, end: 0 }, PostError::OutOfRange),
        (mine, u64::MAX..u64::MAX, PostError::OutOfRange),
    ] {
        assert_eq!(list.send(2, Flags::NONE).unwrap().local(lease, range).unwrap_err(), error);
    }
    let atomic = list.compare_swap(2, REMOTE, 0, 1, Flags::NONE).unwrap();
    assert_eq!(atomic.local(mine, 4089).unwrap_err(), PostError::OutOfRange);
    let atomic = list.compare_swap(2, REMOTE, 0, 1, Flags::NONE).unwrap();
    assert_eq!(atomic.local(mine, u64::MAX).unwrap_err(), PostError::OutOfRange);
    list.ring();
    let data = DataSeg::from_bytes(segment(&send.wqe(0, 32), 1));
    assert_eq!((data.addr(), data.byte_count(), data.lkey()), (0x10_0010, 64, Lkey::new(9)));
    let mut recv = Recv::new(1, 2, 6, 4);
    assert_eq!(recv.queue.post(0, &[mine.slice(0..8)]).unwrap_err(), PostError::NotLeased);
}

#[test]
fn retire_refuses_what_is_not_its_own() {
    let mut send = sends(3);
    let mut recv = Recv::new(0x111, 2, 6, 4);
    write_sges(&mut send, 1, 6).unwrap();
    let mut cq = Cq::new(3, CqeSize::B64);
    cq.complete(&requester_cqe(Qpn::new(0x112), 0));
    cq.complete(&ResponderCqe::new().with_opcode(CqeOpcode::RESP_SEND).with_qpn(Qpn::new(0x111)).to_bytes());
    cq.complete(&requester_cqe(Qpn::new(0x111), 1)); // in the middle of the WQE
    cq.complete(&requester_cqe(Qpn::new(0x111), 2)); // after it
    cq.complete(&requester_cqe(Qpn::new(0x111), 0xffff)); // before it
    cq.complete(&requester_cqe(Qpn::new(0x111), 0));
    let mut done = cq.queue.poll();
    let refused = send.queue.retire(&done.next().unwrap()).unwrap_err();
    assert_eq!(refused, RetireError::OtherQueue { completion_qpn: 0x112, qpn: 0x111 });
    assert!(refused.to_string().contains("0x112"));
    let refused = send.queue.retire(&done.next().unwrap()).unwrap_err();
    assert_eq!(refused, RetireError::OtherDirection { opcode: CqeOpcode::RESP_SEND });
    for _ in 0..3 {
        let refused = send.queue.retire(&done.next().unwrap()).unwrap_err();
        assert!(matches!(refused, RetireError::NotOutstanding { ci: 0, pi: 2, .. }), "{refused}");
    }
    let wc = done.next().unwrap();
    assert!(matches!(recv.queue.retire(&wc), Err(RetireError::OtherDirection { .. })));
    assert_eq!(send.queue.retire(&wc).unwrap(), Retired { wr_id: 1, n_freed: 2 });
}

proptest! {
    /// Any bytes are taken apart or refused, and print.
    #[test]
    fn decode_takes_any_bytes(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..1100),
        opcode in prop::sample::select(vec![0u8, 1, 8, 9, 0xa, 0xb, 0x10, 0x11, 0x12, 0x25, 0xff]),
    ) {
        if let Some(byte) = bytes.get_mut(3) {
            *byte = opcode;
        }
        match mlx5_direct::wqe::decode(&bytes) {
            Ok(wqe) => prop_assert!(wqe.to_string().lines().count() > wqe.segments().count()),
            Err(error) => prop_assert!(error.at_bytes <= bytes.len() && !error.to_string().is_empty()),
        }
    }
}
