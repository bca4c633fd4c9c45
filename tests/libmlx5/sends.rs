//! Send requests: the whole ring, the doorbell record and the register afterwards.

use crate::{
    address::To,
    beside_libmlx5, beside_libmlx5_with,
    fixture::{HALF, RING_FILL, Send, SendOptions, UAR_FILL},
    frame::Frame,
    random::Random,
    request::{self, MAX_INLINE_BYTES, MAX_SGE, Posts, Wr},
    rival::{
        device::{Cq, Device, Qp, QpOptions, Window},
        ffi::*,
    },
};
use mlx5_direct::queue::{Flags, PostError, RawPacket, Rc, SendLimits, Uc, Ud, Xrc};
use std::collections::BTreeMap;

#[test]
fn rc_requests_are_the_same_bytes() {
    beside_libmlx5("sends::rc_requests_are_the_same_bytes", |library| {
        let posted = compare::<Rc>(Device::open(library, false), 1);
        assert!(posted.n_wqebbs > 1 << 16, "the 16-bit counter has wrapped");
    });
}

#[test]
fn uc_requests_are_the_same_bytes() {
    beside_libmlx5("sends::uc_requests_are_the_same_bytes", |library| {
        compare::<Uc>(Device::open(library, false), 2);
    });
}

#[test]
fn ud_requests_are_the_same_bytes() {
    beside_libmlx5("sends::ud_requests_are_the_same_bytes", |library| {
        compare::<Ud>(Device::open(library, false), 6);
    });
}

#[test]
fn xrc_requests_are_the_same_bytes() {
    beside_libmlx5("sends::xrc_requests_are_the_same_bytes", |library| {
        compare::<Xrc>(Device::open(library, false), 8);
    });
}

#[test]
fn raw_packets_are_the_same_bytes() {
    let settings = [("MLX5_UVERBS_PORT", "eth")];
    beside_libmlx5_with("sends::raw_packets_are_the_same_bytes", &settings, |library| {
        compare_frames(Device::open(library, false), 9, 0);
    });
}

#[test]
fn raw_packets_with_their_heads_inline_are_the_same_bytes() {
    let settings = [("MLX5_UVERBS_PORT", "eth-l2")];
    let name = "sends::raw_packets_with_their_heads_inline_are_the_same_bytes";
    beside_libmlx5_with(name, &settings, |library| {
        compare_frames(Device::open(library, false), 10, 18);
    });
}

/// What a request may not hold, and how far the device has heard of it: not at all.
#[test]
fn what_is_too_much_is_refused_by_both() {
    beside_libmlx5("sends::what_is_too_much_is_refused_by_both", |library| {
        let mut pair = Pair::<Rc>::new(Device::open(library, false));
        let mut random = Random::new(7);
        for (wr, refusal) in [
            (Wr::of_pieces(&mut random, MAX_SGE + 1), PostError::TooManySge),
            (Wr::of_inline(&mut random, 2 * MAX_INLINE_BYTES), PostError::InlineTooLong),
            (Wr::of_window(&mut random, (1 << 31) + 1), PostError::MessageTooLong),
        ] {
            for posted in [request::ibv_post_send, request::ibv_wr] {
                let register = pair.theirs.register();
                register.fill(UAR_FILL);
                assert_ne!(posted(&pair.theirs, std::slice::from_ref(&wr)), 0, "libmlx5 took {wr:?}");
                let owner = pair.ours.queue.id();
                let mut list = pair.ours.queue.post_list();
                assert_eq!(Rc::post(&mut list, &wr, Flags::NONE, owner), Err(refusal));
                assert_eq!(list.n_wqebbs(), 0);
                list.ring();
                assert!(register.read().iter().all(|byte| *byte == UAR_FILL), "their register");
                assert!(pair.ours.take_register().is_empty(), "our register");
                assert_eq!((pair.theirs.records(), pair.ours.record.read(0, 8)), (vec![0; 8], vec![0; 8]));
            }
        }
        // Both go on as if nothing had been asked, but that libmlx5 remembers the small fence of a bind that it refused.
        pair.after_key_change = true;
        for _ in 0..100 {
            pair.post(&[Wr::draw(&mut random, Rc::OPCODES, &[])], random.one_in(2));
        }
    });
}

/// What was compared.
#[derive(Default)]
struct Posted {
    n_requests: u32,
    n_wqebbs: u32,
    n_wrapped: u32,
    n_blue_flame: u32,
    n_doorbells: u32,
    by_opcode: BTreeMap<u32, u32>,
    differences: BTreeMap<&'static str, u32>,
}

/// Both queue pairs, in the same state.
struct Pair<T> {
    theirs: Qp,
    cq: Cq,
    ours: Send<T>,
    /// Free-running index of the next WQEBB.
    pi: u32,
    /// The half of the register whose turn it is.
    turn: usize,
    after_key_change: bool,
    posted: Posted,
}

fn compare<T: Posts>(device: Device, stream: u64) -> Posted {
    let mut random = Random::new(stream);
    let n_handles = if T::QP_TYPE == IBV_QPT_UD { 100 } else { 0 };
    let to: Vec<_> = (0..n_handles).map(|_| To::draw(&device, &mut random)).collect();
    compare_drawn::<T>(device, random, |random, _| Wr::draw(random, T::OPCODES, &to))
}

/// Frames of a device that wants so many bytes of each in the request.
fn compare_frames(device: Device, stream: u64, n_head: usize) -> Posted {
    let mut random = Random::new(stream);
    let memory: &[u8] = random.bytes(1 << 20).leak();
    compare_drawn::<RawPacket>(device, random, |random, room_bytes| {
        let frame = Frame::draw(random, memory, n_head, room_bytes);
        Wr::of_frame(random, frame)
    })
}

/// Requests as `draw` draws them; for the first of each chain it is told how far away the ring's end is.
fn compare_drawn<T: Posts>(
    device: Device,
    mut random: Random,
    mut draw: impl FnMut(&mut Random, Option<usize>) -> Wr,
) -> Posted {
    let mut pair = Pair::<T>::new(device);
    while pair.posted.n_requests < 40_000 {
        let n = if random.one_in(3) { 1 + random.below(4) } else { 1 };
        let n_ring = pair.ours.n_wqebbs;
        let room_bytes = (n_ring - pair.pi as usize % n_ring) * 64;
        let wrs: Vec<_> = (0..n).map(|i| draw(&mut random, (i == 0).then_some(room_bytes))).collect();
        let wrs = of_one_interface(wrs);
        pair.post(&wrs, random.one_in(2));
    }
    let posted = pair.posted;
    println!(
        "- {} requests ({} WQEBBs, {} over the ring's end), {} by BlueFlame, {} doorbells of 8 bytes: the same",
        posted.n_requests, posted.n_wqebbs, posted.n_wrapped, posted.n_blue_flame, posted.n_doorbells
    );
    for (reason, n) in &posted.differences {
        println!("- {n} times libmlx5 left bytes alone and ours are zero: {reason}");
    }
    assert_eq!(posted.by_opcode.len(), T::OPCODES.len(), "{:?}", posted.by_opcode);
    assert!(posted.n_wrapped > 500 && posted.n_blue_flame > 5000 && posted.n_doorbells > 2000);
    posted
}

/// Those that one interface can post.
fn of_one_interface(mut wrs: Vec<Wr>) -> Vec<Wr> {
    if wrs.iter().any(Wr::is_type_1) {
        wrs.retain(|wr| !wr.is_indirect());
    }
    wrs
}

impl<T: Posts> Pair<T> {
    /// New on both sides.
    fn new(mut device: Device) -> Self {
        let caps = IbvQpCap {
            max_send_wr: 4,
            max_recv_wr: 1,
            max_send_sge: MAX_SGE as u32,
            max_recv_sge: 1,
            max_inline_data: MAX_INLINE_BYTES as u32,
        };
        let cq = device.cq(64);
        let theirs = device.qp(
            &cq,
            &cq,
            &QpOptions { qp_type: T::QP_TYPE, send_ops: T::SEND_OPS, dv_ops: T::DV_OPS, caps },
        );
        assert!(theirs.dv.sq.wqe_cnt.is_power_of_two() && theirs.dv.bf.size == HALF as u32);
        let ours = Send::<T>::of(SendOptions {
            qpn: theirs.qpn,
            log_wq_size: theirs.dv.sq.wqe_cnt.ilog2() as u8,
            limits: SendLimits {
                max_sge: MAX_SGE as u8,
                max_inline_bytes: MAX_INLINE_BYTES as u16,
                max_message_bytes: u32::MAX,
                min_header_bytes: 0,
            },
            ..SendOptions::default()
        });
        let posted = Posted::default();
        Self { theirs, cq, ours, pi: 0, turn: 0, after_key_change: false, posted }
    }

    /// Posts the same on both, compares, and retires it.
    fn post(&mut self, wrs: &[Wr], by_ibv_wr: bool) {
        let (their_ring, their_register) = (self.theirs.send_ring(), self.theirs.register());
        their_ring.fill(RING_FILL);
        self.ours.ring.fill(RING_FILL);
        their_register.fill(UAR_FILL);

        // Direct verbs go with the one interface alone, and windows of type 1 with the other: `ibv_wr_bind_mw` takes all for
        // type 2.
        let by_ibv_wr = by_ibv_wr && !wrs.iter().any(Wr::is_type_1) || wrs.iter().any(Wr::is_indirect);
        let posted = if by_ibv_wr { request::ibv_wr } else { request::ibv_post_send };
        let failed = posted(&self.theirs, wrs);
        assert_eq!(failed, 0, "libmlx5 refused {wrs:?}");
        let owner = self.ours.queue.id();
        let mut list = self.ours.queue.post_list();
        let mut starts = vec![];
        for wr in wrs {
            let start = self.pi.wrapping_add(list.n_wqebbs());
            starts.push(start);
            let flags = wr.flags(self.after_key_change);
            T::post(&mut list, wr, flags, owner).unwrap_or_else(|e| panic!("we refused {wr:?}: {e}"));
            self.after_key_change = wr.changes_a_key();
            let lap = |index: u32| index as usize / self.ours.n_wqebbs;
            let last = self.pi.wrapping_add(list.n_wqebbs()).wrapping_sub(1);
            self.posted.n_wrapped += u32::from(lap(last) != lap(start));
        }
        let end = self.pi.wrapping_add(list.n_wqebbs());
        list.ring();

        let n_bytes = self.ours.n_wqebbs * 64;
        let (theirs, ours) = (their_ring.read(), self.ours.ring.read(0, n_bytes));
        let mut allowed = vec![false; n_bytes];
        for (wr, start) in wrs.iter().zip(&starts) {
            for (range, reason) in wr.left_alone::<T>(by_ibv_wr) {
                *self.posted.differences.entry(reason).or_default() += 1;
                for at in range {
                    let at = (*start as usize * 64 + at) % n_bytes;
                    assert_eq!((theirs[at], ours[at]), (RING_FILL, 0), "{reason}: {wr:?}");
                    allowed[at] = true;
                }
            }
        }
        for (wr, start) in wrs.iter().zip(&starts) {
            for at in wr.cleared() {
                let at = (*start as usize * 64 + at) % n_bytes;
                assert_eq!((theirs[at], ours[at]), (0, RING_FILL), "padding of inline data: {wr:?}");
                allowed[at] = true;
            }
        }
        let differs = (0..n_bytes).find(|at| !allowed[*at] && theirs[*at] != ours[*at]);
        if let Some(at) = differs {
            let line = at / 64 * 64..at / 64 * 64 + 64;
            panic!(
                "byte {at} of the ring, WQEs at {starts:x?}, by_ibv_wr {by_ibv_wr}: {wrs:#?}\ntheirs {:02x?}\nours   {:02x?}",
                &theirs[line.clone()],
                &ours[line]
            );
        }
        assert_eq!(self.theirs.records(), self.ours.record.read(0, 8), "doorbell records: {wrs:?}");
        self.compare_registers(&their_register, &theirs, *starts.last().expect("a request"));

        self.cq.complete(self.theirs.requester_cqe(*starts.last().expect("a request") as u16));
        assert_eq!(self.cq.drain(), 1);
        let n_freed = self.ours.retire(*starts.last().expect("a request")).expect("outstanding").n_freed;
        assert_eq!(n_freed, end.wrapping_sub(self.pi));

        for wr in wrs {
            *self.posted.by_opcode.entry(wr.opcode).or_default() += 1;
        }
        self.posted.n_requests += wrs.len() as u32;
        self.posted.n_wqebbs += n_freed;
        self.pi = end;
    }

    /// The register's two halves: the same one was written, with the same bytes; a BlueFlame is what the ring holds.
    fn compare_registers(&mut self, register: &Window, their_ring: &[u8], last: u32) {
        let (theirs, ours) = (register.read(), self.ours.take_register());
        let half = self.turn * HALF;
        self.turn ^= 1;
        for (at, byte) in theirs.iter().enumerate() {
            assert!((half..half + ours.len()).contains(&at) || *byte == UAR_FILL, "register byte {at}");
        }
        let theirs = &theirs[half..half + ours.len()];
        if let [_, _, _, _, _, _, _, _] = ours[..] {
            assert_eq!(theirs, ours, "the doorbell");
            self.posted.n_doorbells += 1;
            return;
        }
        let n_bytes = their_ring.len();
        let wqe = |at: usize| (last as usize * 64 + at) % n_bytes;
        for at in 0..ours.len() {
            assert_eq!(theirs[at], their_ring[wqe(at)], "their BlueFlame, byte {at}");
        }
        assert_eq!(ours, self.ours.wqe(last as usize, ours.len()), "our BlueFlame");
        self.posted.n_blue_flame += 1;
    }
}
