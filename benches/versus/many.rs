//! Many queue pairs in turn: the instructions stay the same, and what is added is cache misses.

use crate::{
    measure::{Case, Contender, Targets},
    ops,
    rig::{QPN, REMOTE, Rig, memory},
    rival::{
        device::{Cq, Device, Qp, QpOptions},
        ffi::{IBV_QPT_RC, IBV_SEND_INLINE, IBV_WR_RDMA_WRITE, IbvQpCap, IbvSge, RC_SHORT_OPS},
        library::Library,
        ops::{MESSAGE, Message, Theirs, post_send_to, wr_write_inline_to},
    },
    rivals::NO_LOCKS,
};
use mlx5_direct::{
    doorbell::{DoorbellMode, DoorbellRecord, Sharing, UarPage},
    queue::{QueueId, SendLedgerEntry, SendLimits, SendQueue, SendQueueParts},
};
use std::{cell::RefCell, hint::black_box, ops::Range, ptr::NonNull, rc::Rc};

const CAPS: IbvQpCap =
    IbvQpCap { max_send_wr: 8, max_recv_wr: 4, max_send_sge: 4, max_recv_sge: 1, max_inline_data: 64 };
const LOG_WQ_SIZE: u8 = 4;
/// Registers that the kernel hands out to one context for everything: as many as the pretend one.
const N_REGISTERS: usize = 14;

/// One post on each of so many queue pairs. Locks are the subject elsewhere.
pub fn all(library: Option<&'static Library>) -> Vec<Case> {
    [
        ("post 8 B inline write, 100 QPs", 100),
        ("post 8 B inline write, 1000 QPs", 1000),
        ("post 8 B inline write, 10000 QPs", 10_000),
    ]
    .map(|(name, n)| Case {
        group: "per request, many queue pairs in turn",
        name,
        n: 1,
        // Some of them in a round: short enough to be seldom interrupted.
        calls: n.min(500) as u32,
        // It would be the same queue pair each time.
        isolated: false,
        contenders: Box::new(move || {
            let mut contenders = vec![ours(n)];
            if let Some(library) = library {
                contenders.extend(theirs(NO_LOCKS, &mut Device::open(library, false), n));
            }
            contenders
        }),
        targets: Targets::default(),
    })
    .into()
}

/// Where the next turn of `n_calls` begins, after `turn`: nothing has been posted in it yet.
fn next(turn: &Range<usize>, n_calls: u32, n: usize) -> Range<usize> {
    let first = if turn.end + n_calls as usize <= n { turn.end } else { 0 };
    first..first
}

/// Send queues, and a completion queue for all.
struct Ours {
    queues: Vec<SendQueue>,
    /// Those whose turn it is, which have a request outstanding after it.
    turn: Range<usize>,
    records: NonNull<u8>,
    rig: Rig,
}

impl Ours {
    fn retire(&mut self) {
        let Rig { completer, send_cq, .. } = &mut self.rig;
        for i in self.turn.clone() {
            // SAFETY: a record, one a cache line.
            let record = unsafe { self.records.add(64 * i + 4) }.cast();
            completer.retire(&mut self.queues[i], record, send_cq);
        }
    }
}

fn ours(n: usize) -> Contender {
    let id = QueueId::next();
    // Records one a cache line, rings one a page, as libmlx5 has them; ledgers side by side, as on the heap.
    let (records, pages) = (memory(64 * n), memory(4096 * N_REGISTERS / 2));
    let ledger_bytes = size_of::<SendLedgerEntry>() << LOG_WQ_SIZE;
    let ledgers = memory(ledger_bytes * n);
    let queue = |i: usize| {
        let register = i % N_REGISTERS;
        // SAFETY: memory that lives for ever, of these sizes. Registers are shared, as libmlx5's are; there is one thread.
        unsafe {
            let mut queue = SendQueue::new(SendQueueParts {
                qpn: QPN,
                id,
                ring: memory(64 << LOG_WQ_SIZE),
                log_wq_size: LOG_WQ_SIZE,
                ledger: ledgers.add(ledger_bytes * i).cast(),
                record: DoorbellRecord::new(records.add(64 * i + 4).cast()),
                register: UarPage::new(pages.add(4096 * (register / 2)), true).register(
                    register % 2,
                    9,
                    Sharing::Exclusive,
                ),
                doorbell: DoorbellMode::Auto,
                limits: SendLimits {
                    max_sge: 4,
                    max_inline_bytes: 64,
                    max_message_bytes: 1 << 30,
                    min_header_bytes: 0,
                },
            });
            queue.open();
            queue
        }
    };
    let queues = (0..n).map(queue).collect();
    let ours = Rc::new(RefCell::new(Ours { queues, turn: 0..0, records, rig: Rig::new() }));
    let a = Rc::clone(&ours);
    Contender {
        who: "ours",
        entry: ops::hot_write_inline_8 as *const () as usize,
        prepare: Box::new(move |calls| {
            let ours = &mut *a.borrow_mut();
            ours.retire();
            ours.turn = next(&ours.turn, calls, n);
        }),
        run: Box::new(move |calls| {
            let ours = &mut *ours.borrow_mut();
            let first = ours.turn.start;
            for queue in &mut ours.queues[first..first + calls as usize] {
                ops::hot_write_inline_8(queue, 1, REMOTE, black_box(&[7; 8])).expect("room");
            }
            ours.turn.end = first + calls as usize;
        }),
    }
}

/// Queue pairs on one completion queue, and one prepared request for all.
struct Many {
    first: Theirs,
    qps: Vec<Qp>,
    /// Those whose turn it is, which have a request outstanding after it.
    turn: Range<usize>,
    cq: Cq,
}

impl Many {
    fn prepare(&mut self, calls: u32) {
        for qp in &self.qps[self.turn.clone()] {
            self.cq.complete(qp.requester_cqe(qp.pi().wrapping_sub(1)));
            self.cq.drain();
        }
        self.turn = next(&self.turn, calls, self.qps.len());
    }
}

fn theirs(names: [&'static str; 2], device: &mut Device, n: usize) -> [Contender; 2] {
    let options = QpOptions { qp_type: IBV_QPT_RC, send_ops: RC_SHORT_OPS, dv_ops: 0, caps: CAPS };
    let mut first = Theirs::new(device, &options, 256);
    first.prepare(1, IBV_WR_RDMA_WRITE, IBV_SEND_INLINE, 1);
    let cq = device.cq(256);
    assert_eq!(first.qp.dv.sq.wqe_cnt, 1 << LOG_WQ_SIZE, "the same rings on both sides");
    let qps = (0..n).map(|_| device.qp(&cq, &first.recv_cq, &options)).collect();
    let many = Rc::new(RefCell::new(Many { first, qps, turn: 0..0, cq }));
    static DATA: [u8; 8] = [7; 8];
    let message = || {
        let data = black_box(&DATA);
        Message { sge: IbvSge { addr: data.as_ptr().addr() as u64, length: 8, lkey: 0 }, ..MESSAGE }
    };
    let [a, b, c, d] = [(); 4].map(|()| Rc::clone(&many));
    // Pointers side by side, as a program has them.
    let old: Vec<NonNull<_>> = many.borrow().qps.iter().map(|qp| qp.qp).collect();
    let new: Vec<NonNull<_>> = many.borrow().qps.iter().map(|qp| qp.ex).collect();
    [
        Contender {
            who: names[0],
            entry: post_send_to as *const () as usize,
            prepare: Box::new(move |calls| a.borrow_mut().prepare(calls)),
            run: Box::new(move |calls| {
                let many = &mut *b.borrow_mut();
                let first = many.turn.start;
                for qp in &old[first..first + calls as usize] {
                    post_send_to(&mut many.first, *qp, message());
                }
                many.turn.end = first + calls as usize;
            }),
        },
        Contender {
            who: names[1],
            entry: wr_write_inline_to as *const () as usize,
            prepare: Box::new(move |calls| c.borrow_mut().prepare(calls)),
            run: Box::new(move |calls| {
                let turn = &mut d.borrow_mut().turn;
                for qp in &new[turn.start..turn.start + calls as usize] {
                    wr_write_inline_to(*qp, MESSAGE, black_box(&DATA));
                }
                turn.end = turn.start + calls as usize;
            }),
        },
    ]
}
