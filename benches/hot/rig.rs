//! Queues over ordinary memory with a pretend device, and the table of operations that run on them.
#![allow(dead_code, unreachable_pub)] // included by an example and a benchmark

use super::ops;
use mlx5_direct::{
    cqe::{CQE_BYTES, CqeOpcode, RequesterCqe, ResponderCqe},
    doorbell::{DoorbellMode, DoorbellRecord, Sharing, UarPage},
    mlx5::ids::{Cqn, Lkey, Qpn, Rkey},
    queue::*,
};
use std::{
    alloc::{Layout, alloc_zeroed},
    ptr::NonNull,
};

pub const QPN: Qpn = Qpn::new(0x111);
pub const REMOTE: Remote = Remote { addr: 0x7f00_1234_5678, rkey: Rkey::new(0x1234_5600) };
pub const SGE: Sge = Sge { lkey: Lkey::new(0x0102_0300), addr: 0x7f11_0000_1000, len_bytes: 64 };

/// Log2 of the slots of every ring: with their ledgers they stay in the first-level cache.
pub const LOG_SIZE: u8 = 8;

/// Memory that lives as long as the program.
pub fn memory(len_bytes: usize) -> NonNull<u8> {
    let layout = Layout::from_size_align(len_bytes, 4096).expect("a size");
    // SAFETY: the size is not 0.
    NonNull::new(unsafe { alloc_zeroed(layout) }).expect("memory")
}

/// A send, a receive and two completion queues.
pub struct Rig {
    pub send: SendQueue,
    pub recv: RecvQueue,
    pub send_cq: CompletionQueue,
    pub recv_cq: CompletionQueue,
    pub completer: Completer,
    recv_cqes: Producer,
    /// The send queue's doorbell record.
    record: NonNull<u32>,
    /// Index of the oldest receive that is not completed.
    recv_counter: u16,
    /// Index of the first send that is not completed ahead.
    ahead: u16,
}

impl Rig {
    pub fn new() -> Self {
        Self::with_log_wq_size(LOG_SIZE)
    }

    /// With rings for requests of another size.
    pub fn with_log_wq_size(log_wq_size: u8) -> Self {
        let record = |memory: NonNull<u8>, at| {
            // SAFETY: memory that lives for ever, given to one queue.
            unsafe { DoorbellRecord::new(memory.add(at).cast()) }
        };
        let (qp_record, page) = (memory(8), memory(4096));
        let id = QueueId::next();
        // SAFETY: memory that lives for ever, of the sizes that the parts say, given to one queue.
        unsafe {
            // Taken for write-combining, so that the fences are those of a card.
            let uar = UarPage::new(page, true);
            let (send_cq, send_cqes) = completion_queue(uar);
            let (recv_cq, recv_cqes) = completion_queue(uar);
            let mut send = SendQueue::new(SendQueueParts {
                qpn: QPN,
                id,
                ring: memory(64 << log_wq_size),
                log_wq_size,
                ledger: memory(size_of::<SendLedgerEntry>() << log_wq_size).cast(),
                record: record(qp_record, 4),
                register: uar.register(2, 9, Sharing::Exclusive),
                doorbell: DoorbellMode::Auto,
                limits: SendLimits {
                    max_sge: 4,
                    max_inline_bytes: 220,
                    max_message_bytes: 1 << 30,
                    min_header_bytes: 0,
                },
            });
            let mut recv = RecvQueue::new(RecvQueueParts {
                qpn: QPN,
                id,
                ring: memory(64 << log_wq_size),
                log_wq_size,
                log_wq_stride: 6,
                ledger: memory(8 << log_wq_size).cast(),
                record: record(qp_record, 0),
                max_sge: 4,
            });
            send.open();
            recv.open();
            Self {
                send,
                recv,
                send_cq,
                recv_cq,
                completer: Completer { cqes: send_cqes },
                recv_cqes,
                record: qp_record.add(4).cast(),
                recv_counter: 0,
                ahead: 0,
            }
        }
    }

    /// Completes and retires all that was sent. The rings go on from where they are, as a device's would.
    pub fn drain_sends(&mut self) {
        self.completer.retire(&mut self.send, self.record, &mut self.send_cq);
    }

    /// The same of receives.
    pub fn drain_recvs(&mut self) {
        self.retire_recvs();
        for _ in 0..self.recv.n_outstanding() {
            self.complete_recv();
        }
        self.retire_recvs();
    }

    fn retire_recvs(&mut self) {
        let mut done = self.recv_cq.poll();
        while let Some(wc) = done.next() {
            self.recv.retire(&wc).expect("outstanding");
        }
    }

    fn complete_recv(&mut self) {
        self.recv_cqes.push(responder_cqe(self.recv_counter));
        self.recv_counter = self.recv_counter.wrapping_add(1);
    }

    /// `n` sends outstanding and completed.
    pub fn complete_sends(&mut self, n: u32) {
        self.drain_sends();
        let first = counter(self.record);
        let mut list = self.send.post_list();
        for i in 0..n {
            list.nop(1, Flags::SIGNALED).expect("room").finish();
            self.completer.cqes.push(requester_cqe(first.wrapping_add(i as u16)));
        }
        list.ring();
    }

    /// Completions of the next `n` requests of three WQEBBs, before they are posted.
    pub fn complete_ahead(&mut self, n: u32) {
        let end = counter(self.record).wrapping_add(3 * n as u16);
        while self.ahead != end {
            self.completer.cqes.push(requester_cqe(self.ahead));
            self.ahead = self.ahead.wrapping_add(3);
        }
    }

    /// `n` receives outstanding and completed.
    pub fn complete_recvs(&mut self, n: u32) {
        self.drain_recvs();
        for _ in 0..n {
            self.recv.post(1, &[]).expect("room");
            self.complete_recv();
        }
    }
}

/// Completes what was sent.
pub struct Completer {
    pub cqes: Producer,
}

impl Completer {
    /// Completes and retires all that `queue` has sent, by a request of its own after it.
    pub fn retire(&mut self, queue: &mut SendQueue, record: NonNull<u32>, cq: &mut CompletionQueue) {
        let mut list = queue.post_list();
        list.nop(1, Flags::SIGNALED).expect("room").finish();
        list.ring();
        self.cqes.push(requester_cqe(counter(record).wrapping_sub(1)));
        let mut done = cq.poll();
        while let Some(wc) = done.next() {
            queue.retire(&wc).expect("outstanding");
        }
    }
}

/// Index of the next WQEBB, as a send queue's doorbell record says.
fn counter(record: NonNull<u32>) -> u16 {
    // SAFETY: a record of these programs, which lives for ever.
    u32::from_be(unsafe { record.read_volatile() }) as u16
}

fn requester_cqe(wqe_counter: u16) -> [u8; CQE_BYTES] {
    RequesterCqe::new().with_qpn(QPN).with_wqe_counter(wqe_counter).to_bytes()
}

fn responder_cqe(wqe_counter: u16) -> [u8; CQE_BYTES] {
    let cqe = ResponderCqe::new().with_opcode(CqeOpcode::RESP_SEND).with_qpn(QPN).with_byte_cnt(64);
    cqe.with_wqe_counter(wqe_counter).to_bytes()
}

/// # Safety
/// As [`CompletionQueue::new`]: `uar` stays mapped.
pub unsafe fn completion_queue(uar: UarPage) -> (CompletionQueue, Producer) {
    let (ring, words) = (memory(CQE_BYTES << LOG_SIZE), memory(8));
    // SAFETY: memory that lives for ever, given to one queue.
    let queue = unsafe {
        CompletionQueue::new(CompletionQueueParts {
            cqn: Cqn::new(0x89),
            ring,
            log_cq_size: LOG_SIZE,
            cqe_size: CqeSize::B64,
            consumer_index: DoorbellRecord::new(words.cast()),
            arm: DoorbellRecord::new(words.add(4).cast()),
            uar,
        })
    };
    (queue, Producer { ring, pi: 0 })
}

/// Writes CQEs as a device would.
pub struct Producer {
    pub ring: NonNull<u8>,
    pub pi: u32,
}

impl Producer {
    pub fn push(&mut self, mut cqe: [u8; CQE_BYTES]) {
        cqe[63] |= (self.pi >> LOG_SIZE & 1) as u8;
        let slot = (self.pi & ((1 << LOG_SIZE) - 1)) as usize;
        // SAFETY: a slot of the ring.
        unsafe { self.ring.add(slot * CQE_BYTES).cast::<[u8; CQE_BYTES]>().write_volatile(cqe) };
        self.pi = self.pi.wrapping_add(1);
    }

    /// Where the `n` newest CQEs are.
    pub fn newest(&self, n: u32) -> impl Iterator<Item = *const u8> + '_ {
        (1..=n).map(|i| {
            let slot = (self.pi.wrapping_sub(i) & ((1 << LOG_SIZE) - 1)) as usize;
            // SAFETY: a slot of the ring.
            unsafe { self.ring.as_ptr().add(slot * CQE_BYTES).cast_const() }
        })
    }
}

/// One operation of the table.
pub struct Op {
    pub name: &'static str,
    /// Requests or completions of one call.
    pub n: u32,
    /// The measured function.
    pub entry: usize,
    /// Makes room, or completions, for `calls` calls. Not measured.
    pub prepare: fn(&mut Rig, calls: u32),
    /// `calls` calls.
    pub run: fn(&mut Rig, calls: u32),
}

macro_rules! ops {
    ($($name:literal $n:literal $function:ident, |$p:ident, $calls:pat_param| $prepare:expr, |$r:ident| $call:expr;)*) => {
        /// Every operation, in the order of the table.
        pub fn all() -> Vec<Op> {
            vec![$(Op {
                name: $name,
                n: $n,
                entry: ops::$function as *const () as usize,
                prepare: |$p, $calls| $prepare,
                run: |$r, calls| for _ in 0..calls { $call },
            }),*]
        }
    };
}

ops! {
    "post 8 B inline write" 1 hot_write_inline_8, |r, _| r.drain_sends(),
        |r| ops::hot_write_inline_8(&mut r.send, 1, REMOTE, &[7; 8]).expect("room");
    "post 64 B inline send" 1 hot_send_inline_64, |r, _| r.drain_sends(),
        |r| ops::hot_send_inline_64(&mut r.send, 1, &[7; 64]).expect("room");
    "post 64 B, length unknown" 1 hot_send_inline_any, |r, _| r.drain_sends(),
        |r| ops::hot_send_inline_any(&mut r.send, 1, &[7; 64]).expect("room");
    "post SEND" 1 hot_send_sge, |r, _| r.drain_sends(),
        |r| ops::hot_send_sge(&mut r.send, 1, SGE).expect("room");
    "post READ" 1 hot_read, |r, _| r.drain_sends(),
        |r| ops::hot_read(&mut r.send, 1, REMOTE, SGE).expect("room");
    "post FAA" 1 hot_fetch_add, |r, _| r.drain_sends(),
        |r| ops::hot_fetch_add(&mut r.send, 1, REMOTE, SGE.lkey, SGE.addr).expect("room");
    "post 8 B inline write x16" 16 hot_write_batch_16, |r, _| r.drain_sends(),
        |r| ops::hot_write_batch_16(&mut r.send, 1, REMOTE, &[[7; 8]; 16]).expect("room");
    "post 8 B inline write x64" 64 hot_write_batch_64, |r, _| r.drain_sends(),
        |r| ops::hot_write_batch_64(&mut r.send, 1, REMOTE, &[[7; 8]; 64]).expect("room");
    "post SEND x16" 16 hot_send_batch_16, |r, _| r.drain_sends(),
        |r| ops::hot_send_batch_16(&mut r.send, 1, &[SGE; 16]).expect("room");
    "post SEND x64" 64 hot_send_batch_64, |r, _| r.drain_sends(),
        |r| ops::hot_send_batch_64(&mut r.send, 1, &[SGE; 64]).expect("room");
    "post 17 B message" 1 hot_send_message, |r, _| r.drain_sends(),
        |r| ops::hot_send_message(&mut r.send, 1, 1, 0x1234, &[7; 8]).expect("room");
    "post_recv" 1 hot_recv, |r, _| r.drain_recvs(),
        |r| ops::hot_recv(&mut r.recv, 1, SGE).expect("room");
    "post_recv x16" 16 hot_recv_batch_16, |r, _| r.drain_recvs(),
        |r| ops::hot_recv_batch_16(&mut r.recv, 1, &[SGE; 16]).expect("room");
    "poll 1" 1 hot_poll_one, |r, calls| r.complete_sends(calls),
        |r| assert_eq!(ops::hot_poll_one(&mut r.send_cq, &mut r.send), 1);
    "poll 1 receive" 1 hot_poll_recv_one, |r, calls| r.complete_recvs(calls),
        |r| assert_eq!(ops::hot_poll_recv_one(&mut r.recv_cq, &mut r.recv), 65);
    "poll 1 in a list" 1 hot_poll, |r, calls| r.complete_sends(calls),
        |r| assert_eq!(ops::hot_poll(&mut r.send_cq, &mut r.send, 1), 1);
    "poll 16" 16 hot_poll, |r, calls| r.complete_sends(16 * calls),
        |r| assert_eq!(ops::hot_poll(&mut r.send_cq, &mut r.send, 16), 16);
    "poll 16 receives" 16 hot_poll_recv, |r, calls| r.complete_recvs(16 * calls),
        |r| assert_eq!(ops::hot_poll_recv(&mut r.recv_cq, &mut r.recv, 16), 16 * 65);
    "poll empty" 1 hot_poll_empty, |r, _| r.drain_sends(), |r| assert!(ops::hot_poll_empty(&mut r.send_cq));
}
