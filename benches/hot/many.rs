//! Many queue pairs on one completion queue: what a poll costs must not depend on how many there are.
#![allow(unreachable_pub)] // included by an example

use super::rig::{LOG_SIZE, Producer, completion_queue, memory};
use mlx5_direct::{
    cqe::RequesterCqe,
    doorbell::{DoorbellMode, DoorbellRecord, Sharing, UarPage},
    mlx5::ids::Qpn,
    queue::*,
};
use std::ptr::NonNull;

/// Number of the first; the others follow.
const FIRST_QPN: u32 = 0x100;
/// Completions of one call.
pub const BATCH: u32 = 16;
/// Log2 of the WQEBBs of each ring.
const LOG_WQ_SIZE: u8 = 2;

/// Send queues, and the completion queue of all.
pub struct Many {
    queues: Vec<(SendQueue, NonNull<u32>)>,
    cq: CompletionQueue,
    cqes: Producer,
    /// Whose turn it is.
    next: usize,
}

impl Many {
    pub fn new(n: usize) -> Self {
        // SAFETY: memory that lives for ever, and a page of one's own.
        let uar = unsafe { UarPage::new(memory(4096), true) };
        // SAFETY: as above.
        let (cq, cqes) = unsafe { completion_queue(uar) };
        Self { queues: (0..n).map(|at| queue(at, uar)).collect(), cq, cqes, next: 0 }
    }

    /// A request of each of the next [`BATCH`] queue pairs, posted and completed.
    pub fn complete(&mut self) {
        for _ in 0..BATCH {
            let at = self.next;
            self.next = (at + 7919) % self.queues.len();
            let (queue, record) = &mut self.queues[at];
            // SAFETY: a record of this program, which lives for ever.
            let counter = u32::from_be(unsafe { record.read_volatile() }) as u16;
            let mut list = queue.post_list();
            list.nop(1, Flags::SIGNALED).expect("room").finish();
            list.ring();
            let cqe = RequesterCqe::new().with_qpn(Qpn::new(FIRST_QPN + at as u32));
            self.cqes.push(cqe.with_wqe_counter(counter).to_bytes());
        }
    }

    /// Takes the completions: the sum of their `wr_id`s.
    pub fn poll(&mut self) -> u64 {
        hot_poll_many(&mut self.cq, &mut self.queues)
    }
}

/// Takes completions and retires their requests, each where its number says.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn hot_poll_many(cq: &mut CompletionQueue, queues: &mut [(SendQueue, NonNull<u32>)]) -> u64 {
    let mut done = cq.poll();
    let mut sum = 0;
    for _ in 0..BATCH {
        let Some(wc) = done.next() else { break };
        let Some((queue, _)) = queues.get_mut((wc.qpn().get() - FIRST_QPN) as usize) else { break };
        let Ok(retired) = queue.retire(&wc) else { break };
        sum += retired.wr_id;
    }
    sum
}

fn queue(at: usize, uar: UarPage) -> (SendQueue, NonNull<u32>) {
    const { assert!(1 << LOG_SIZE >= BATCH) };
    // Ring, ledger and record.
    let page = memory(4096);
    // SAFETY: within the page.
    let (ledger, record) = unsafe { (page.add(1024).cast(), page.add(2048)) };
    // SAFETY: memory that lives for ever, of the sizes that the parts say, given to one queue.
    let mut queue = unsafe {
        SendQueue::new(SendQueueParts {
            qpn: Qpn::new(FIRST_QPN + at as u32),
            id: QueueId::next(),
            ring: page,
            log_wq_size: LOG_WQ_SIZE,
            ledger,
            record: DoorbellRecord::new(record.add(4).cast()),
            register: uar.register(2, 9, Sharing::Exclusive),
            doorbell: DoorbellMode::Auto,
            limits: SendLimits {
                max_sge: 1,
                max_inline_bytes: 0,
                max_message_bytes: 1 << 30,
                min_header_bytes: 0,
            },
        })
    };
    queue.open();
    // SAFETY: within the record.
    (queue, unsafe { record.add(4).cast() })
}
