//! Raw packets in a ring: heads of every length at every place, and what is refused.

mod fixture;

use fixture::{RING_FILL, Send, SendOptions};
use mlx5_direct::{
    mlx5::ids::{Lkey, Qpn},
    queue::{Checksums, Flags, PostError, RawPacket, SendLimits},
    wqe::{CompletionMode, CtrlSeg, DataSeg, EthSeg, InlineSeg, SendOpcode},
};
use std::num::NonZeroU16;

const QPN: u32 = 0x111;

fn queue(log_wq_size: u8) -> Send<RawPacket> {
    Send::of(SendOptions { qpn: QPN, log_wq_size, ..SendOptions::default() })
}

fn head(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + 3) as u8).collect()
}

/// Segments of a request, the head padded with zeros.
fn expected(opcode: SendOpcode, index: u32, mss: u16, head: &[u8], rest: &[u8]) -> Vec<u8> {
    let mut padded = head.get(2..).unwrap_or_default().to_vec();
    padded.resize(padded.len().next_multiple_of(16), 0);
    let start = head.first_chunk().map_or(0, |start| u16::from_be_bytes(*start));
    let eth = EthSeg::new()
        .with_cs_flags(0x80)
        .with_mss(mss)
        .with_inline_hdr_sz(head.len() as u16)
        .with_inline_hdr_start(start);
    let ds = 2 + padded.len() / 16 + rest.len() / 16;
    let ctrl = CtrlSeg::new()
        .with_wqe_index(index as u16)
        .with_opcode(opcode)
        .with_qpn(Qpn::new(QPN))
        .with_ds(ds as u8)
        .with_ce(CompletionMode::ALWAYS);
    [&ctrl.to_bytes()[..], &eth.to_bytes(), &padded, rest].concat()
}

fn data(lkey: u32) -> [u8; 16] {
    DataSeg::new().with_byte_count(1000).with_lkey(Lkey::new(lkey)).with_addr(0x1000).to_bytes()
}

/// Every head of a large send, each at every place of the ring.
#[test]
fn heads_go_on_at_the_rings_start() {
    let mut send = queue(3);
    let (mut pi, mut n_wrapped) = (0u32, 0);
    for len in 14..=258 {
        for start in 0..8 {
            let index = pi.next_multiple_of(8) + start;
            send.advance(&mut pi, index);
            send.ring.fill(RING_FILL);
            let mut list = send.queue.post_list();
            let mss = NonZeroU16::new(500).unwrap();
            let mut request = list.lso(1, &head(len), mss, Checksums::L4, Flags::SIGNALED).unwrap();
            for lkey in 0..3 {
                // SAFETY: no device reads the ring.
                request = unsafe { request.sge(Lkey::new(lkey), 0x1000, 1000) }.unwrap();
            }
            request.finish();
            let n_wqebbs = list.n_wqebbs();
            list.ring();
            let wqe =
                expected(SendOpcode::LSO, index, 500, &head(len), &[data(0), data(1), data(2)].concat());
            assert_eq!(send.wqe(index as usize, wqe.len()), wqe, "{len} bytes at {start}");
            let all = send.wqe(index as usize, 8 * 64);
            assert!(all[wqe.len()..].iter().all(|byte| *byte == RING_FILL), "{len} bytes at {start}");
            send.take_register();
            assert_eq!(send.retire(index).unwrap().n_freed, n_wqebbs);
            pi = index + n_wqebbs;
            n_wrapped += u32::from(start + n_wqebbs > 8);
        }
    }
    assert!(n_wrapped > 200, "{n_wrapped}");
}

/// Heads and inline data behind them, whose header may be anywhere.
#[test]
fn frames_may_be_inline_as_a_whole() {
    let mut send = queue(4);
    let mut pi = 0u32;
    for n_head in [0, 14, 18, 34, 50, 54, 66, 82, 98, 258] {
        for n_inline in [1, 11, 12, 13, 46, 100, 300] {
            for start in 0..16 {
                let index = pi.next_multiple_of(16) + start;
                send.advance(&mut pi, index);
                let (head, frame) = (head(n_head), head(n_inline));
                let mut list = send.queue.post_list();
                let request = list.send_with_header(1, &head, Checksums::L4, Flags::SIGNALED).unwrap();
                let (first, second) = frame.split_at(n_inline / 3);
                request.inline(first).unwrap().inline(second).unwrap().finish();
                let n_wqebbs = list.n_wqebbs();
                list.ring();
                let header = InlineSeg::new().with_inline(true).with_byte_count(n_inline as u16);
                let mut rest = [&header.to_bytes()[..], &frame].concat();
                let padding = rest.len();
                rest.resize(padding.next_multiple_of(16), 0);
                let wqe = expected(SendOpcode::SEND, index, 0, &head, &rest);
                let n = wqe.len() - (rest.len() - padding);
                assert_eq!(send.wqe(index as usize, n), wqe[..n], "{n_head} and {n_inline} at {start}");
                send.take_register();
                send.retire(index).unwrap();
                pi = index + n_wqebbs;
            }
        }
    }
}

#[test]
fn a_tag_takes_the_heads_place() {
    let mut send = queue(4);
    let mut list = send.queue.post_list();
    let request = list.send_tagged(1, 0x6123, Checksums::NONE, Flags::SIGNALED).unwrap();
    // SAFETY: no device reads the ring.
    unsafe { request.sge(Lkey::new(7), 0x1000, 60) }.unwrap().finish();
    list.ring();
    assert_eq!(send.wqe(0, 48)[16..32], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0, 0x61, 0x23]);
}

#[test]
fn what_is_no_frame_is_refused_and_leaves_nothing() {
    let mut send = queue(2);
    let mss = NonZeroU16::new(500).unwrap();
    let (none, flags) = (Checksums::NONE, Flags::SIGNALED);
    let limits = send.queue.limits();
    assert_eq!((limits.max_sge, limits.max_inline_bytes), (45, 716), "what is left beside the longest head");
    let mut list = send.queue.post_list();
    for len in [1, 2, 13, 259, 1000] {
        assert_eq!(list.send_with_header(1, &head(len), none, flags).unwrap_err(), PostError::HeaderLength);
    }
    for len in [0, 13, 259] {
        assert_eq!(list.lso(1, &head(len), mss, none, flags).unwrap_err(), PostError::HeaderLength);
    }
    // 258 bytes of head are 18 segments with what comes before them: five WQEBBs, and the ring has four.
    assert_eq!(list.lso(1, &head(258), mss, none, flags).unwrap_err(), PostError::QueueFull);
    let request = list.send_with_header(1, &head(18), none, flags).unwrap();
    // SAFETY: no device reads the ring.
    let request = unsafe { request.sge(Lkey::new(7), 0x1000, 60) }.unwrap();
    assert_eq!(request.inline(&[1]).unwrap_err(), PostError::MixedInline);
    let request = list.send(1, none, flags).unwrap();
    assert_eq!(request.inline(&[1; 717]).unwrap_err(), PostError::InlineTooLong);
    assert_eq!(list.send(1, none, flags).unwrap().inline(&[1; 400]).unwrap_err(), PostError::QueueFull);
    assert_eq!(list.n_wqebbs(), 0);
    list.ring();
    assert!(send.take_register().is_empty());
    assert_eq!(send.record.read(0, 8), [0; 8]);

    // A device that wants heads in requests.
    send.queue.set_limits(SendLimits { min_header_bytes: 18, ..limits });
    let mut list = send.queue.post_list();
    assert_eq!(list.send(1, none, flags).unwrap_err(), PostError::HeaderLength);
    assert_eq!(list.send_with_header(1, &head(17), none, flags).unwrap_err(), PostError::HeaderLength);
    list.send_with_header(1, &head(18), none, flags).unwrap().inline(&[1; 42]).unwrap().finish();
    list.lso(1, &head(14), mss, none, flags).unwrap().finish();
    assert_eq!(list.n_wqebbs(), 3);
    list.ring();

    let mut send = queue(5);
    send.queue.set_limits(SendLimits { max_sge: 2, ..limits });
    let mut list = send.queue.post_list();
    let mut request = list.send_with_header(1, &head(258), none, flags).unwrap();
    for lkey in 0..2 {
        // SAFETY: no device reads the ring.
        request = unsafe { request.sge(Lkey::new(lkey), 0x1000, 60) }.unwrap();
    }
    // SAFETY: no device reads the ring.
    assert_eq!(unsafe { request.sge(Lkey::new(2), 0x1000, 60) }.unwrap_err(), PostError::TooManySge);
    assert!(PostError::HeaderLength.to_string().contains("min_header_bytes"));
}
