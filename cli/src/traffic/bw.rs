//! Bandwidth: as many requests in flight as the queues hold, one way, and the final memory checked.

use super::{A, B, Link, Patience, Progress};
use crate::{
    failure::Failure,
    payload::verify,
    plan::{Measure, Op},
    request::Requests,
};
use std::time::{Duration, Instant};

/// What a run moved, and how long that took.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rate {
    pub(crate) size: u32,
    pub(crate) n: u64,
    pub(crate) time: Duration,
}

impl Rate {
    /// Millions of bytes a second.
    pub(crate) fn mb_per_s(&self) -> f64 {
        self.mmsg_per_s() * f64::from(self.size)
    }

    /// Millions of messages a second.
    pub(crate) fn mmsg_per_s(&self) -> f64 {
        self.n as f64 / 1e6 / self.time.as_secs_f64().max(1e-9)
    }
}

/// Runs `plan.iters` requests.
pub(crate) fn bandwidth(link: &mut Link) -> Result<Rate, Failure> {
    let mut run = Run::new(link)?;
    let time = run.run()?;
    run.check()?;
    Ok(Rate { size: run.link.plan.size, n: run.link.plan.iters, time })
}

struct Run<'l> {
    link: &'l mut Link,
    /// Messages of each lane and slot, as they are sent: one after another. Empty where not needed inline.
    inline: Vec<u8>,
    slots: u64,
}

impl<'l> Run<'l> {
    fn new(link: &'l mut Link) -> Result<Self, Failure> {
        let slots = u64::from(link.plan.slots(Measure::Bandwidth));
        let mut run = Self { link, inline: Vec::new(), slots };
        run.fill()?;
        if run.link.plan.op.takes_recv() {
            run.link.fill_recv_queues()?;
        }
        Ok(run)
    }

    /// Fills the memory that messages come from. What they go to is zero.
    fn fill(&mut self) -> Result<(), Failure> {
        let plan = &self.link.plan;
        let mut message = vec![0; plan.size as usize];
        for lane in 0..plan.qps as usize {
            if plan.op == Op::Cas {
                let b = &self.link.ends[B];
                b.mr.store_u64(b.places.incoming(lane, 0), self.link.payload.word(lane, 0));
            }
            if plan.op.is_atomic() {
                continue;
            }
            let from = &self.link.ends[if plan.op == Op::Read { B } else { A }];
            for slot in 0..self.slots {
                self.link.payload.fill(0, lane, slot, &mut message);
                from.mr.try_write(from.places.outgoing(lane, slot), &message)?;
                if plan.inline {
                    self.inline.extend_from_slice(&message);
                }
            }
        }
        Ok(())
    }

    fn run(&mut self) -> Result<Duration, Failure> {
        let plan = &self.link.plan;
        let (total, takes_recv) = (plan.iters, plan.op.takes_recv());
        let mut progress =
            Progress::new(format!("bw {} {} B", plan.op.name(), plan.size), total, &self.link.ends);
        let mut patience = Patience::new(self.link);
        let start = Instant::now();
        loop {
            let mut moved = 0;
            for lane in 0..self.link.ends[A].lanes.len() {
                moved += self.post(lane)?;
            }
            moved += self.link.ends[A].drain()?;
            if takes_recv {
                moved += self.link.ends[B].drain()?;
                self.repost()?;
            }
            let sum = |end: usize, count: fn(&crate::endpoint::Lane) -> u64| -> u64 {
                self.link.ends[end].lanes.iter().map(count).sum()
            };
            let (posted, retired) = (sum(A, |lane| lane.posted), sum(A, |lane| lane.retired));
            let received = sum(B, |lane| lane.received);
            progress.at(retired)?;
            if retired == total && (!takes_recv || received == total) {
                return Ok(start.elapsed());
            }
            if moved > 0 {
                patience = Patience::new(self.link);
                continue;
            }
            // What is under way arrives first, and completes then.
            let end = if takes_recv && received < posted { B } else { A };
            patience.idle(self.link, end, "the completion of a request")?;
        }
    }

    /// Posts what fits on a lane, a batch at a time; says how many batches that were.
    #[inline]
    fn post(&mut self, lane: usize) -> Result<usize, Failure> {
        let (plan, slots) = (&self.link.plan, self.slots);
        let (size, batch, takes_recv) = (plan.size as usize, plan.batch, plan.op.takes_recv());
        let (share, far) = (plan.share(lane), self.link.ends[B].far());
        // All queue pairs add to one word.
        let word = far.incoming(if plan.op == Op::Faa { 0 } else { lane }, 0);
        let requests = Requests { lane, far, word, last: share.max(1) - 1, payload: self.link.payload };
        let mut batches = 0;
        loop {
            let posted = self.link.ends[A].lanes[lane].posted;
            // At most a batch.
            let n = (share - posted).min(batch.into()) as u32;
            let credit = !takes_recv || posted + u64::from(n) <= self.link.ends[B].lanes[lane].recv_posted;
            if n == 0 || !credit || !self.link.ends[A].has_room(lane, n) {
                return Ok(batches);
            }
            batches += 1;
            let messages = &self.inline;
            self.link.ends[A].request(requests, n, |n| {
                let start = (lane as u64 * slots + n % slots) as usize * size;
                &messages[start..start + size]
            })?;
        }
    }

    /// Posts receives anew, half a queue at a time: that many share a doorbell record write.
    fn repost(&mut self) -> Result<(), Failure> {
        let half = u64::from(self.link.plan.depth).div_ceil(2);
        let b = &mut self.link.ends[B];
        for lane in 0..b.lanes.len() {
            if b.lanes[lane].recv_posted - b.lanes[lane].received <= half {
                b.fill_recv_queue(lane)?;
            }
        }
        Ok(())
    }

    /// Compares what is in memory at the end with what was sent.
    fn check(&self) -> Result<(), Failure> {
        let plan = &self.link.plan;
        let (payload, b) = (self.link.payload, &self.link.ends[B]);
        let word = |what: String, at: usize, expected: u64| {
            let found = b.mr.load_u64(at);
            if found == expected {
                return Ok(());
            }
            Err(Failure::Run(format!("{what} is 0x{found:x} at the end, and should be 0x{expected:x}")))
        };
        if plan.op == Op::Faa {
            let sum = (0..plan.qps as usize).fold(0u64, |sum, lane| {
                sum.wrapping_add(payload.word(lane, 0).wrapping_mul(plan.share(lane)))
            });
            return word("the sum of all fetch-and-adds".into(), b.places.incoming(0, 0), sum);
        }
        let to = if plan.op == Op::Read { &self.link.ends[A] } else { b };
        let mut message = vec![0; plan.size as usize];
        for lane in 0..plan.qps as usize {
            let share = plan.share(lane);
            if plan.op == Op::Cas {
                let last = payload.word(lane, share);
                word(format!("the word of queue pair {lane}"), b.places.incoming(lane, 0), last)?;
                continue;
            }
            for slot in 0..self.slots.min(share) {
                payload.fill(0, lane, slot, &mut message);
                let what = format!("the last message in slot {slot} of queue pair {lane}");
                verify(&to.mr, to.places.incoming(lane, slot), &message, &what)?;
            }
        }
        Ok(())
    }
}
