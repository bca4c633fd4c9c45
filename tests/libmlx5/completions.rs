//! CQEs drawn from a seed, valid and broken, read by libmlx5's two ways to poll and by ours.
//!
//! Left out, for a reason each:
//! - payload in CQEs and compression (`format`): turned off by whoever makes our queues; we say "not understood";
//! - NOP and UMR among completed sends: libmlx5 tells their kind from what it remembers, not from the CQE;
//! - opcodes 5, 6, 12: a queue's resize, tag matching and signature errors, which ask for objects that are not here.

use crate::{
    beside_libmlx5, fixture,
    random::Random,
    rival::{
        device::{Cq, Device, QpOptions},
        ffi::*,
    },
};
use mlx5_direct::{
    cqe::{CqeOpcode, CqeSyndrome, ErrorCqe, RequesterCqe},
    mlx5::ids::{Qpn, UserIndex},
    queue::{Completion, CqeSize},
    wqe::SendOpcode,
};

/// What a completion says, in libibverbs' terms. `None`: the way to poll does not say it.
#[derive(Debug, PartialEq, Eq, Default, Clone)]
struct Meaning {
    status: u32,
    opcode: Option<u32>,
    vendor_err: Option<u32>,
    byte_len: Option<u32>,
    imm: Option<u32>,
    invalidated_rkey: Option<u32>,
    qp_num: Option<u32>,
    /// `src_qp`, `slid`, `sl`, `dlid_path_bits`, and whether there is a GRH.
    from: Option<(u32, u32, u8, u8, bool)>,
}

/// What a way to poll makes of one CQE.
#[derive(Debug, PartialEq, Eq)]
enum Polled {
    /// It is not software's yet.
    Nothing,
    Completion(Meaning),
    /// Of a queue pair that is not here.
    Stranger,
}

const GOOD_SENDS: [SendOpcode; 8] = [
    SendOpcode::SEND,
    SendOpcode::SEND_IMM,
    SendOpcode::SEND_INVAL,
    SendOpcode::RDMA_WRITE,
    SendOpcode::RDMA_WRITE_IMM,
    SendOpcode::RDMA_READ,
    SendOpcode::ATOMIC_CS,
    SendOpcode::ATOMIC_FA,
];

#[test]
fn completions_mean_the_same() {
    beside_libmlx5("completions::completions_mean_the_same", |library| {
        let mut device = Device::open(library, false);
        let caps = IbvQpCap {
            max_send_wr: 16,
            max_recv_wr: 16,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        };
        // One queue for each way to poll, with a queue pair each.
        let mut old = device.cq(16);
        let mut new = device.cq(16);
        let options = QpOptions { qp_type: IBV_QPT_RC, send_ops: RC_OPS, dv_ops: 0, caps };
        let (old_qp, new_qp) = (device.qp(&old, &old, &options), device.qp(&new, &new, &options));
        let mut ours = fixture::Cq::new(4, CqeSize::B64);
        let mut random = Random::new(4);
        let mut n = [0; 5];
        for _ in 0..20_000 {
            let (cqe, kind) = draw(&mut random);
            // Each reads of its own queue pair, or of nobody's.
            let stranger = kind != Kind::NotWritten && random.one_in(10);
            let addressed = |qpn: u32, user_index: u32| {
                let user_index = if stranger { 0x00fe_dcba } else { user_index };
                address(cqe, qpn, user_index)
            };
            let wrong_owner = kind == Kind::Written && random.one_in(8);
            let our_cqe = addressed(old_qp.qpn, old_qp.user_index);
            old.write(our_cqe, wrong_owner);
            new.write(addressed(new_qp.qpn, new_qp.user_index), wrong_owner);
            write_ours(&mut ours, our_cqe, wrong_owner);

            let said = Polled::of_ours(&mut ours, old_qp.user_index);
            let theirs = Polled::of_poll_cq(&old);
            assert_eq!(theirs, said, "ibv_poll_cq and ours: {our_cqe:02x?}");
            let expected = by_start_poll(said, new_qp.qpn);
            assert_eq!(Polled::of_start_poll(&new), expected, "ibv_start_poll and ours: {our_cqe:02x?}");
            n[match &theirs {
                Polled::Nothing => 0,
                Polled::Stranger => 1,
                Polled::Completion(meaning) if meaning.status != 0 => 2,
                Polled::Completion(meaning) if meaning.opcode.is_some_and(|o| o < 128) => 3,
                Polled::Completion(_) => 4,
            }] += 1;
            if theirs == Polled::Nothing {
                // The slot is written again.
                (old.pi, new.pi, ours.pi) =
                    (old.pi.wrapping_sub(1), new.pi.wrapping_sub(1), ours.pi.wrapping_sub(1));
            }
        }
        let [nothing, strangers, failures, sends, receives] = n;
        println!(
            "- {sends} sends, {receives} receives, {failures} failures, {strangers} of unknown queue pairs, {nothing} not written: the same"
        );
        assert!(n.iter().all(|n| *n > 500), "{n:?}");
    });
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Written,
    /// Opcode `INVALID`.
    NotWritten,
}

/// A CQE of random bytes, with an opcode that both know.
fn draw(random: &mut Random) -> ([u8; 64], Kind) {
    let mut cqe: [u8; 64] = random.bytes(64).try_into().expect("64 bytes");
    let opcode = random.one_of(&[
        CqeOpcode::REQ,
        CqeOpcode::REQ,
        CqeOpcode::REQ,
        CqeOpcode::RESP_WR_IMM,
        CqeOpcode::RESP_SEND,
        CqeOpcode::RESP_SEND_IMM,
        CqeOpcode::RESP_SEND_INV,
        CqeOpcode::REQ_ERR,
        CqeOpcode::RESP_ERR,
        CqeOpcode::INVALID,
    ]);
    // `app` 1 is tag matching, at which ibv_start_poll looks and ibv_poll_cq does not.
    cqe[0x28] &= !1;
    // No format; `se` as it was drawn.
    cqe[63] = opcode.0 << 4 | cqe[63] & 2;
    match opcode {
        CqeOpcode::REQ => cqe[0x38] = random.one_of(&GOOD_SENDS).0,
        CqeOpcode::REQ_ERR | CqeOpcode::RESP_ERR if random.one_in(2) => {
            let known = CqeSyndrome::TABLE.1;
            cqe[0x37] = known[random.below(known.len())].1 as u8;
        }
        _ => {}
    }
    let kind = if opcode == CqeOpcode::INVALID { Kind::NotWritten } else { Kind::Written };
    (cqe, kind)
}

/// The CQE with these numbers.
fn address(cqe: [u8; 64], qpn: u32, user_index: u32) -> [u8; 64] {
    let cqe = RequesterCqe::from_bytes(cqe);
    cqe.with_qpn(Qpn::new(qpn)).with_user_index(UserIndex::new(user_index)).to_bytes()
}

fn write_ours(cq: &mut fixture::Cq, mut cqe: [u8; 64], wrong_owner: bool) {
    let lap = (cq.pi >> cq.log_cq_size & 1) as u8;
    cqe[63] = cqe[63] & !1 | lap ^ u8::from(wrong_owner);
    cq.complete_raw(&cqe);
}

/// What `ibv_start_poll` can say of it: the numbers are its own queue pair's, and of sends it gives the CQE's byte
/// count as it is, even where that means nothing, so that it is not asked.
fn by_start_poll(said: Polled, qpn: u32) -> Polled {
    let Polled::Completion(mut meaning) = said else { return said };
    meaning.qp_num = Some(qpn);
    if meaning.status == 0 && meaning.opcode.is_some_and(|opcode| opcode < 128) {
        meaning.byte_len = None;
    }
    Polled::Completion(meaning)
}

impl Polled {
    fn of_poll_cq(cq: &Cq) -> Self {
        let untouched = 0xdead_beef;
        let mut wc = IbvWc { byte_len: untouched, opcode: untouched, ..IbvWc::default() };
        // SAFETY: a completion queue and room for one completion.
        match unsafe { (cq.poll)(cq.cq.as_ptr().cast(), 1, &mut wc) } {
            0 => Self::Nothing,
            1 => {
                let is_send = wc.opcode < 128;
                let is_good = wc.status == 0;
                let is_recv = is_good && !is_send;
                let with = |flag: u32| is_recv && wc.wc_flags & flag != 0;
                Self::Completion(Meaning {
                    status: wc.status,
                    opcode: is_good.then_some(wc.opcode),
                    vendor_err: (!is_good).then_some(wc.vendor_err),
                    byte_len: is_good.then_some(if wc.byte_len == untouched { 0 } else { wc.byte_len }),
                    imm: with(IBV_WC_WITH_IMM).then(|| u32::from_be(wc.imm_or_rkey)),
                    invalidated_rkey: with(IBV_WC_WITH_INV).then_some(wc.imm_or_rkey),
                    qp_num: Some(wc.qp_num),
                    from: is_recv.then(|| {
                        (
                            wc.src_qp,
                            u32::from(wc.slid),
                            wc.sl,
                            wc.dlid_path_bits,
                            wc.wc_flags & IBV_WC_GRH != 0,
                        )
                    }),
                })
            }
            _ => Self::Stranger,
        }
    }

    fn of_start_poll(cq: &Cq) -> Self {
        let mut attr = IbvPollCqAttr::default();
        let cq = cq.cq.as_ptr();
        // SAFETY: an extended completion queue; the functions are called in their order, and none that does not go with
        // the kind of completion.
        unsafe {
            match ((*cq).start_poll)(cq, &mut attr) {
                0 => {}
                libc::ENOENT => return Self::Nothing,
                _ => return Self::Stranger,
            }
            let status = (*cq).status;
            let mut meaning = Meaning { status, qp_num: Some(((*cq).read_qp_num)(cq)), ..Meaning::default() };
            if status != 0 {
                meaning.vendor_err = Some(((*cq).read_vendor_err)(cq));
            } else {
                let opcode = ((*cq).read_opcode)(cq);
                meaning.opcode = Some(opcode);
                if opcode >= 128 {
                    let flags = ((*cq).read_wc_flags)(cq);
                    meaning.byte_len = Some(((*cq).read_byte_len)(cq));
                    meaning.imm =
                        (flags & IBV_WC_WITH_IMM != 0).then(|| u32::from_be(((*cq).read_imm_data)(cq)));
                    meaning.invalidated_rkey =
                        (flags & IBV_WC_WITH_INV != 0).then(|| ((*cq).read_imm_data)(cq));
                    meaning.from = Some((
                        ((*cq).read_src_qp)(cq),
                        ((*cq).read_slid)(cq),
                        ((*cq).read_sl)(cq),
                        ((*cq).read_dlid_path_bits)(cq),
                        flags & IBV_WC_GRH != 0,
                    ));
                }
            }
            ((*cq).end_poll)(cq);
            Self::Completion(meaning)
        }
    }

    /// Ours, of the queue pair with this user index.
    fn of_ours(cq: &mut fixture::Cq, user_index: u32) -> Self {
        let mut done = cq.queue.poll();
        match done.next() {
            None => Self::Nothing,
            Some(wc) if wc.user_index().get() != user_index => Self::Stranger,
            Some(wc) => Self::Completion(meaning(&wc)),
        }
    }
}

fn meaning(wc: &Completion<'_>) -> Meaning {
    let qp_num = Some(wc.qpn().get());
    if let Some(error) = wc.error() {
        assert!(error.is_failure(), "{error}");
        assert_eq!(error.vendor_err, ErrorCqe::from_bytes(wc.to_bytes()).vendor_err_synd());
        return Meaning {
            status: fixture::wc_status(error.syndrome),
            vendor_err: Some(u32::from(error.vendor_err)),
            qp_num,
            ..Meaning::default()
        };
    }
    let opcode = match wc.send_opcode() {
        Some(SendOpcode::RDMA_WRITE | SendOpcode::RDMA_WRITE_IMM) => 1,
        Some(SendOpcode::RDMA_READ) => 2,
        Some(SendOpcode::ATOMIC_CS) => 3,
        Some(SendOpcode::ATOMIC_FA) => 4,
        Some(_) => 0,
        None if wc.opcode() == CqeOpcode::RESP_WR_IMM => 129,
        None => 128,
    };
    let from =
        wc.source().map(|from| (from.qpn.get(), u32::from(from.slid), from.sl, from.path_bits, from.grh));
    Meaning {
        status: 0,
        opcode: Some(opcode),
        vendor_err: None,
        byte_len: Some(wc.byte_len()),
        imm: wc.imm(),
        invalidated_rkey: wc.invalidated_rkey().map(|rkey| rkey.get()),
        qp_num,
        from,
    }
}
