//! What just fits into a ring or a request, and what just does not: to the byte, to the piece and to the WQEBB.

mod fixture;

use fixture::{RING_FILL, Send, SendOptions};
use mlx5_direct::{
    mlx5::{
        context::Mkc,
        ids::{Lkey, Qpn, Rkey},
    },
    queue::*,
    wqe::{AvSeg, DataSeg, InlineSeg, KlmEntry, MkeyMask, UmrCtrlSeg},
};
use std::num::NonZeroU16;

const KEY: IndirectKey = IndirectKey::new(Rkey::new(0x1234_5678), 60);
/// Segments of a request that changes a key, before its list.
const N_UMR_SEGMENTS: usize = 8;

fn queue<T: Transport>(log_wq_size: u8) -> Send<T> {
    Send::of(SendOptions { log_wq_size, ..SendOptions::default() })
}

fn counting(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 5 + 1) as u8).collect()
}

/// Pieces that differ from each other.
fn pieces(n: usize) -> Vec<Sge> {
    (1..=n as u32).map(|i| Sge { lkey: Lkey::new(i), addr: u64::from(i) << 16, len_bytes: 100 * i }).collect()
}

fn umr_list(list: &mut PostList<'_, Rc>, key: IndirectKey, pieces: &[Sge]) -> Result<(), PostError> {
    // SAFETY: no device reads the ring.
    unsafe { list.umr_list(1, key, pieces, KeyAccess::REMOTE_READ, Flags::SIGNALED) }?.finish();
    Ok(())
}

/// Inline data in two parts, of all lengths around the end of the first WQEBB, which is the ring's last: what is behind it goes
/// to the ring's start, byte for byte.
#[test]
fn inline_data_end_where_the_ring_does_or_go_on_at_its_start() {
    fn post<T: Transport>(
        n_header: usize,
        first_bytes: std::ops::Range<usize>,
        request: impl for<'l, 'q> Fn(&'l mut PostList<'q, T>) -> Request<'l, 'q, Gather, T>,
    ) {
        for first in first_bytes {
            for second in 0..=18 {
                let mut send = queue::<T>(2);
                send.advance(&mut 0, 3);
                send.ring.fill(RING_FILL);
                let data = counting(first + second);
                let mut list = send.queue.post_list();
                let (one, two) = data.split_at(first);
                request(&mut list).inline(one).unwrap().inline(two).unwrap().finish();
                list.ring();
                let header = InlineSeg::new().with_inline(true).with_byte_count(data.len() as u16);
                let expected = [&header.to_bytes()[..], &data].concat();
                let (at, what) = (16 * n_header, format!("{first} and {second} bytes after {n_header}"));
                let wqe = send.wqe(3, 256);
                let ds = n_header + InlineSeg::n_octowords(data.len());
                assert_eq!(usize::from(wqe[7]), ds, "{what}");
                assert_eq!(wqe[at..at + expected.len()], expected, "{what}");
                assert!(wqe[at + expected.len()..].iter().all(|byte| *byte == RING_FILL), "{what}");
            }
        }
    }
    // 16 bytes of the WQE and 4 of the header leave 44.
    post::<Rc>(1, 20..80, |list| list.send(1, Flags::NONE).unwrap());
    let remote = Remote { addr: 1, rkey: Rkey::new(2) };
    post::<Rc>(2, 10..50, |list| list.rdma_write(1, remote, Flags::NONE).unwrap());
    let srq = RemoteSrq::new(7);
    post::<Xrc>(3, 1..40, |list| list.rdma_write(1, srq, remote, Flags::NONE).unwrap());
    let to = AddressHandle::new(AvSeg::new().with_ext(true));
    post::<Ud>(4, 1..80, |list| list.send(1, &to, Flags::NONE).unwrap());
    post::<RawPacket>(2, 10..50, |list| list.send(1, Checksums::NONE, Flags::NONE).unwrap());
    // A head of 34 bytes fills the first WQEBB, one of 50 has a segment behind it.
    for (n_head, n_header) in [(34, 4), (50, 5)] {
        post::<RawPacket>(n_header, 1..40, |list| {
            list.send_with_header(1, &counting(n_head), Checksums::NONE, Flags::NONE).unwrap()
        });
    }
}

/// Inline data may take all WQEBBs that are free, and all bytes that the limit allows.
#[test]
fn inline_data_fill_what_is_free() {
    let mut send = queue::<Rc>(1);
    let mut list = send.queue.post_list();
    // Two WQEBBs less 16 bytes of control segment and 4 of the header.
    assert_eq!(list.send(1, Flags::NONE).unwrap().inline(&[1; 109]).unwrap_err(), PostError::QueueFull);
    let request = list.send(1, Flags::NONE).unwrap().inline(&[1; 100]).unwrap();
    assert_eq!(request.inline(&[1; 9]).unwrap_err(), PostError::QueueFull);
    list.send(1, Flags::NONE).unwrap().inline(&[1; 108]).unwrap().finish();
    assert_eq!(list.n_wqebbs(), 2);
    assert_eq!(list.send(2, Flags::NONE).unwrap_err(), PostError::QueueFull);

    let mut send = queue::<Rc>(4);
    let mut list = send.queue.post_list();
    assert_eq!(list.send(1, Flags::NONE).unwrap().inline(&[1; 973]).unwrap_err(), PostError::InlineTooLong);
    let request = list.send(1, Flags::NONE).unwrap().inline(&[1; 972]).unwrap();
    request.inline(&[]).unwrap().finish();
    assert_eq!(list.n_wqebbs(), 16);
}

/// The head of a frame may take all WQEBBs that are free.
#[test]
fn heads_fill_what_is_free() {
    let mss = NonZeroU16::new(500).unwrap();
    // Two WQEBBs less control and Ethernet segment, where two bytes of the head are.
    for (log_wq_size, fits) in [(0, 34), (1, 98), (2, 226)] {
        let mut send = queue::<RawPacket>(log_wq_size);
        let mut list = send.queue.post_list();
        let longer = list.lso(1, &counting(fits + 1), mss, Checksums::NONE, Flags::NONE);
        assert_eq!(longer.unwrap_err(), PostError::QueueFull);
        list.lso(1, &counting(fits), mss, Checksums::NONE, Flags::NONE).unwrap().finish();
        assert_eq!(list.n_wqebbs(), 1 << log_wq_size);
    }
}

/// Lists of all lengths, at each place of the ring: two WQEBBs and whole units of four entries.
#[test]
fn lists_of_a_key_go_on_at_the_rings_start() {
    for n in 1..=24 {
        for start in 0..8 {
            let mut send = queue::<Rc>(3);
            send.advance(&mut 0, start);
            send.ring.fill(RING_FILL);
            let pieces = pieces(n);
            let mut list = send.queue.post_list();
            umr_list(&mut list, KEY, &pieces).unwrap();
            let n_units = n.div_ceil(4);
            assert_eq!(list.n_wqebbs() as usize, 2 + n_units);
            list.ring();
            let wqe = send.wqe(start as usize, 8 * 64);
            assert_eq!(usize::from(wqe[7]), N_UMR_SEGMENTS + 4 * n_units);
            let ctrl = UmrCtrlSeg::from_bytes(*wqe[16..].first_chunk().unwrap());
            assert_eq!((ctrl.klm_octowords() as usize, ctrl.inline()), (4 * n_units, true));
            let context = Mkc::from_bytes(*wqe[64..].first_chunk().unwrap());
            assert_eq!(context.len(), pieces.iter().map(|piece| u64::from(piece.len_bytes)).sum::<u64>());
            assert_eq!(context.mkey_7_0(), 0x78);
            let (entries, behind) = wqe[128..].split_at(64 * n_units);
            for (i, entry) in entries.as_chunks().0.iter().enumerate() {
                let expected = pieces.get(i).map_or(KlmEntry::new(), |piece| {
                    let entry = KlmEntry::new().with_byte_count(piece.len_bytes).with_mkey(piece.lkey);
                    entry.with_address(piece.addr)
                });
                assert_eq!(KlmEntry::from_bytes(*entry), expected, "entry {i} of {n} at {start}");
            }
            assert!(behind.iter().all(|byte| *byte == RING_FILL), "{n} at {start}");
        }
    }
}

/// A list is as long as the free WQEBBs, `ctrl.ds`, the inline data of the queue's requests and the key allow.
#[test]
fn lists_of_a_key_fill_what_there_is() {
    let mut send = queue::<Rc>(2);
    let mut list = send.queue.post_list();
    assert_eq!(umr_list(&mut list, KEY, &pieces(9)), Err(PostError::QueueFull), "five WQEBBs of four");
    umr_list(&mut list, KEY, &pieces(8)).unwrap();
    assert_eq!(list.n_wqebbs(), 4);

    let mut send = queue::<Rc>(5);
    let mut list = send.queue.post_list();
    assert_eq!(umr_list(&mut list, KEY, &pieces(53)), Err(PostError::InlineTooLong), "of `ctrl.ds`");
    umr_list(&mut list, KEY, &pieces(52)).unwrap();
    assert_eq!(list.n_wqebbs(), 15);
    assert_eq!(umr_list(&mut list, KEY, &pieces(61)), Err(PostError::TooManySge), "of the key");
    assert_eq!(umr_list(&mut list, IndirectKey::new(KEY.rkey(), 4), &pieces(5)), Err(PostError::TooManySge));
    umr_list(&mut list, IndirectKey::new(KEY.rkey(), 4), &pieces(4)).unwrap();
    assert_eq!(umr_list(&mut list, KEY, &[]), Err(PostError::OutOfRange));

    // 16 bytes each, less 4 of a header that is not there.
    let limits = send.queue.limits();
    for (max_inline_bytes, fits) in [(59, 3), (60, 4), (75, 4), (76, 5)] {
        send.queue.set_limits(SendLimits { max_inline_bytes, ..limits });
        let mut list = send.queue.post_list();
        assert_eq!(umr_list(&mut list, KEY, &pieces(fits + 1)), Err(PostError::InlineTooLong));
        umr_list(&mut list, KEY, &pieces(fits)).unwrap();
    }
}

#[test]
fn pieces_of_a_key_have_1_byte_to_2_gib() {
    let piece = |len_bytes| [Sge { lkey: Lkey::new(1), addr: 0, len_bytes }];
    let mut send = queue::<Rc>(4);
    let mut list = send.queue.post_list();
    assert_eq!(umr_list(&mut list, KEY, &piece(0)), Err(PostError::OutOfRange));
    assert_eq!(umr_list(&mut list, KEY, &piece((1 << 31) + 1)), Err(PostError::MessageTooLong));
    umr_list(&mut list, KEY, &piece(1)).unwrap();
    umr_list(&mut list, KEY, &[piece(1 << 31)[0], piece(1 << 31)[0]]).unwrap();
    list.ring();
    let context = Mkc::from_bytes(*send.wqe(3 + 1, 64).first_chunk().unwrap());
    assert_eq!(context.len(), 1 << 32);

    // Of a memory window likewise.
    let mut window = Window::new(Rkey::new(0x100));
    let mut list = send.queue.post_list();
    let mut bind = |len_bytes| {
        let (memory, access) = (piece(len_bytes)[0], WindowAccess::REMOTE_READ);
        // SAFETY: no device reads the ring.
        let request = unsafe { list.bind_mw_type_1(1, &mut window, memory, access, Flags::NONE) };
        request.map(Request::finish)
    };
    assert_eq!(bind(0), Err(PostError::OutOfRange));
    assert_eq!(bind((1 << 31) + 1), Err(PostError::MessageTooLong));
    bind(1).unwrap();
    bind(1 << 31).unwrap();
    assert_eq!(window.rkey(), Rkey::new(0x102), "a new one for each that was not refused");
}

#[test]
fn patterns_have_lengths_and_skips_that_fit() {
    let mut send = queue::<Rc>(4);
    let mut list = send.queue.post_list();
    let mut post = |repeat_count, pieces: &[(u16, u16)]| {
        let strided: Vec<_> = pieces
            .iter()
            .map(|&(len_bytes, skip_bytes)| Strided { lkey: Lkey::new(1), addr: 0, len_bytes, skip_bytes })
            .collect();
        // SAFETY: no device reads the ring.
        let request = unsafe {
            list.umr_interleaved(1, KEY, repeat_count, &strided, KeyAccess::LOCAL_WRITE, Flags::NONE)
        };
        request.map(Request::finish)
    };
    for (repeat_count, pieces) in
        [(0, &[(1, 1)][..]), (1, &[]), (1, &[(0, 5)]), (1, &[(1, 0xffff)]), (1, &[(0xffff, 1)])]
    {
        assert_eq!(post(repeat_count, pieces), Err(PostError::OutOfRange), "{repeat_count} of {pieces:?}");
    }
    post(1, &[(1, 0)]).unwrap();
    post(1 << 31, &[(0xfffe, 1), (2, 3)]).unwrap();
    list.ring();
    let context = Mkc::from_bytes(*send.wqe(3 + 1, 64).first_chunk().unwrap());
    assert_eq!(context.len(), 0x1_0000 << 31);
}

#[test]
fn a_list_in_memory_is_named_by_one_segment() {
    let mut send = queue::<Rc>(2);
    let mut list = send.queue.post_list();
    let place = Sge { lkey: Lkey::new(0x55), addr: 0xabc0, len_bytes: 0 };
    let access = KeyAccess::LOCAL_WRITE | KeyAccess::REMOTE_ATOMIC;
    let mut post = |n_entries| {
        // SAFETY: no device reads the ring.
        let request =
            unsafe { list.umr_list_in_memory(1, KEY, place, n_entries, 1 << 40, access, Flags::NONE) };
        request.map(Request::finish)
    };
    assert_eq!(post(0), Err(PostError::OutOfRange));
    assert_eq!(post(61), Err(PostError::TooManySge));
    post(57).unwrap();
    list.ring();
    let wqe = send.wqe(0, 192);
    assert_eq!(wqe[7], 9);
    let ctrl = UmrCtrlSeg::from_bytes(*wqe[16..].first_chunk().unwrap());
    assert_eq!((ctrl.klm_octowords(), ctrl.inline()), (60, false));
    assert!(ctrl.mkey_mask().has(MkeyMask::LEN.and(MkeyMask::A)));
    let context = Mkc::from_bytes(*wqe[64..].first_chunk().unwrap());
    assert_eq!((context.len(), context.lw(), context.a()), (1 << 40, true, true));
    assert!(!context.rw() && !context.rr());
    let data = DataSeg::from_bytes(*wqe[128..].first_chunk().unwrap());
    assert_eq!((data.byte_count(), data.lkey(), data.addr()), (60 * 16, Lkey::new(0x55), 0xabc0));
}

/// A bind takes three WQEBBs, an invalidation two.
#[test]
fn changes_of_keys_wait_for_their_wqebbs() {
    let mut send = queue::<Rc>(2);
    // SAFETY: no device reads the ring.
    let memory = unsafe { Bindable::new(send.queue.id(), Lkey::new(3), 0x1000, 64) };
    let view = memory.view(0..64, WindowAccess::REMOTE_WRITE);
    let mut window = Window::new(Rkey::new(0x1ff));
    let mut list = send.queue.post_list();
    list.nop(0, Flags::NONE).unwrap().finish();
    list.nop(0, Flags::NONE).unwrap().finish();
    assert_eq!(list.bind_mw(1, &mut window, &view, Flags::NONE).unwrap_err(), PostError::QueueFull);
    assert_eq!(window.rkey(), Rkey::new(0x1ff), "it keeps its name");
    list.close_mw_type_1(1, &mut window, Flags::NONE).unwrap().finish();
    assert_eq!(window.rkey(), Rkey::new(0x100));
    list.ring();
    let mut send = queue::<Rc>(2);
    // SAFETY: no device reads the ring.
    let memory = unsafe { Bindable::new(send.queue.id(), Lkey::new(3), 0x1000, 64) };
    let mut list = send.queue.post_list();
    list.nop(0, Flags::NONE).unwrap().finish();
    let view = memory.view(0..64, WindowAccess::REMOTE_WRITE);
    list.bind_mw(1, &mut window, &view, Flags::NONE).unwrap().finish();
    assert_eq!((list.n_wqebbs(), window.rkey()), (4, Rkey::new(0x101)));
}

/// A lease may be named from its first byte to its last, and nothing of it at its end too.
#[test]
fn leases_may_be_named_whole() {
    let mut send = queue::<Rc>(2);
    // SAFETY: no device reads the ring.
    let lease = unsafe { Lease::new(send.queue.id(), Lkey::new(9), 0x10_0000, 4096) };
    let mut list = send.queue.post_list();
    let request = list.send(1, Flags::NONE).unwrap();
    request
        .local(lease, 4096..4096)
        .unwrap()
        .local(lease, 5..5)
        .unwrap()
        .local(lease, 0..4096)
        .unwrap()
        .finish();
    list.ring();
    let wqe = send.wqe(0, 32);
    assert_eq!(wqe[7], 2, "one piece");
    let data = DataSeg::from_bytes(*wqe[16..].first_chunk().unwrap());
    assert_eq!((data.addr(), data.byte_count()), (0x10_0000, 4096));
    // SAFETY: no device reads the ring.
    let large = unsafe { Lease::new(send.queue.id(), Lkey::new(9), 0, 1 << 33) };
    let mut list = send.queue.post_list();
    let too_long = list.send(1, Flags::NONE).unwrap().local(large, 0..1 << 32);
    assert_eq!(too_long.unwrap_err(), PostError::MessageTooLong);
}

/// A request may have as many pieces and bytes as the limits say, and take as many WQEBBs as are free.
#[test]
fn pieces_fill_what_there_is() {
    fn sge(request: Request<'_, '_, Gather>, len_bytes: u32) -> Result<(), PostError> {
        // SAFETY: no device reads the ring.
        unsafe { request.sge(Lkey::new(1), 0, len_bytes) }.map(Request::finish)
    }
    let limits = SendLimits { max_sge: 1, max_inline_bytes: 0, max_message_bytes: 1000, min_header_bytes: 0 };
    let mut send = Send::new(SendOptions { limits, ..SendOptions::default() });
    let mut list = send.queue.post_list();
    assert_eq!(sge(list.send(1, Flags::NONE).unwrap(), 1001), Err(PostError::MessageTooLong));
    sge(list.send(1, Flags::NONE).unwrap(), 1000).unwrap();
    let most = SendLimits {
        max_sge: 255,
        max_inline_bytes: u16::MAX,
        max_message_bytes: u32::MAX,
        min_header_bytes: 0,
    };
    fn limits_of<T: Transport>(limits: SendLimits) -> (u8, u16, u32) {
        let mut send = queue::<T>(0);
        send.queue.set_limits(limits);
        let limits = send.queue.limits();
        (limits.max_sge, limits.max_inline_bytes, limits.max_message_bytes)
    }
    assert_eq!(limits_of::<Rc>(most), (61, 972, 1 << 31));
    assert_eq!(limits_of::<Xrc>(most), (60, 956, 1 << 31));
    assert_eq!(limits_of::<Ud>(most), (59, 940, 1 << 31));
    assert_eq!(limits_of::<RawPacket>(most), (45, 716, 1 << 31));
    assert_eq!(send.queue.qpn(), Qpn::new(0x111));
}
