//! CQEs, read and retired.

use crate::{
    any_bytes::{Choices, damage},
    fixture::{Cq, Recv, Send, SendOptions, requester_cqe},
};
use mlx5_direct::{
    mlx5::ids::Qpn,
    queue::{Completion, CqeSize, Flags, Taken},
};

const QPN: u32 = 0x111;

/// Requests of a queue pair, and a device that completes whatever it likes.
pub(crate) fn check(mut choices: Choices) {
    let mut send = Send::new(SendOptions { qpn: QPN, ..SendOptions::default() });
    let mut recv = Recv::new(QPN, 4, 4, 1);
    for wr_id in 0..8 {
        let mut list = send.queue.post_list();
        list.nop(wr_id, Flags::SIGNALED).unwrap().finish();
        list.ring();
        recv.queue.post(wr_id, &[]).unwrap();
    }
    let size = if choices.bool() { CqeSize::B64 } else { CqeSize::B128 };
    let mut cq = Cq::new(choices.below(4) as u8, size);
    for _ in 0..1 + choices.below(19) {
        if choices.ended() {
            break;
        }
        let cqe = cqe(&mut choices);
        if choices.bool() {
            cq.complete(&cqe);
        } else {
            cq.complete_raw(&cqe);
        }
        if choices.bool() {
            let before = send.queue.n_outstanding();
            let taken = send.queue.take_one(&mut cq.queue, |retired, wc| (retired, wc.byte_len()));
            if let Taken::Done((retired, _)) = taken {
                assert!(retired.wr_id < 8 && before - send.queue.n_outstanding() == retired.n_freed);
            }
            if !matches!(taken, Taken::Other) {
                continue;
            }
        }
        let mut poll = cq.queue.poll();
        while let Some(wc) = poll.next() {
            retire(&wc, &mut send, &mut recv);
        }
    }
}

/// Nearly what a send's completion is, or whatever.
fn cqe(choices: &mut Choices) -> [u8; 64] {
    let mut cqe = requester_cqe(Qpn::new(QPN), choices.below(10) as u16);
    match choices.below(4) {
        0 => choices.fill(&mut cqe),
        // One of the opcodes, for this queue pair.
        1 => cqe[63] = choices.u8(),
        _ => (0..choices.below(4)).for_each(|_| damage(choices, &mut cqe)),
    }
    cqe
}

/// A completion says what it is, and retires what its own queue has outstanding, in one direction at most.
fn retire(wc: &Completion<'_>, send: &mut Send, recv: &mut Recv) {
    let said = format!("{wc:?} {:?} {:?} {:?}", wc.source(), wc.imm(), wc.invalidated_rkey());
    let before = [send.queue.n_outstanding(), recv.queue.n_outstanding()];
    let retired = [send.queue.retire(wc), recv.queue.retire(wc)];
    let after = [send.queue.n_outstanding(), recv.queue.n_outstanding()];
    assert!(retired.iter().filter(|retired| retired.is_ok()).count() <= 1, "{said}");
    for ((retired, before), after) in retired.into_iter().zip(before).zip(after) {
        match retired {
            Ok(retired) => {
                assert!(wc.qpn().get() == QPN && retired.wr_id < 8, "{retired:?} of {said}");
                assert!(retired.n_freed > 0 && before - after == retired.n_freed, "{retired:?} of {said}");
            }
            Err(refused) => assert!(before == after && !refused.to_string().is_empty(), "{said}"),
        }
    }
    assert_eq!(wc.error().is_none(), wc.status().is_ok(), "{said}");
    if let Some(error) = wc.error() {
        assert!(error.to_string().contains(&error.qpn.to_string()));
    }
}
