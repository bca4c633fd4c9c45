//! Latency: one exchange at a time, every payload checked outside of the time measured.
//!
//! SEND, WRITE and WRITE with immediate go there and back, and half of that counts, as in perftest. READ and
//! atomics count from the post to their completion.

use super::{A, B, Link, Progress};
use crate::{
    endpoint::Places,
    failure::Failure,
    payload::{Payload, verify},
    plan::Op,
    request::Requests,
};
use hdrhistogram::Histogram;
use std::time::{Duration, Instant};

/// Latencies of one run.
#[derive(Debug)]
pub(crate) struct Latencies(pub(crate) Histogram<u64>);

impl Latencies {
    pub(crate) fn new() -> Result<Self, Failure> {
        // Three digits from 1 ns to an hour.
        let histogram = Histogram::new_with_bounds(1, 3_600_000_000_000, 3);
        histogram.map(Self).map_err(|error| Failure::Run(format!("no histogram: {error}")))
    }

    pub(crate) fn record(&mut self, latency: Duration) {
        self.0.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
    }
}

/// Measures `plan.iters` exchanges.
pub(crate) fn latency(link: &mut Link) -> Result<Latencies, Failure> {
    let mut latencies = Latencies::new()?;
    let iters = link.plan.iters;
    let mut progress =
        Progress::new(format!("lat {} {} B", link.plan.op.name(), link.plan.size), iters, &link.ends);
    let mut run = Run::new(link)?;
    for iter in 0..iters {
        latencies.record(run.exchange(iter)?);
        progress.at(iter + 1)?;
    }
    run.settle()?;
    Ok(latencies)
}

struct Run<'l> {
    link: &'l mut Link,
    /// What is sent, host copy: one message after another.
    there: Vec<u8>,
    /// What is sent back.
    back: Vec<u8>,
}

impl<'l> Run<'l> {
    fn new(link: &'l mut Link) -> Result<Self, Failure> {
        let plan = &link.plan;
        let bytes = usize::try_from(u64::from(plan.size) * u64::from(plan.batch))
            .map_err(|_| Failure::Usage("the messages do not fit this machine's addresses".into()))?;
        if plan.op.takes_recv() {
            link.fill_recv_queues()?;
        }
        if link.plan.op == Op::Cas {
            for lane in 0..link.ends[B].lanes.len() {
                let at = link.ends[B].places.incoming(lane, 0);
                link.ends[B].mr.store_u64(at, link.payload.word(lane, 0));
            }
        }
        Ok(Self { link, there: vec![0; bytes], back: vec![0; bytes] })
    }

    /// One exchange of a batch on the next queue pair in turn.
    fn exchange(&mut self, iter: u64) -> Result<Duration, Failure> {
        let plan = &self.link.plan;
        let (qps, batch) = (u64::from(plan.qps), plan.batch);
        // Below the number of queue pairs.
        let lane = (iter % qps) as usize;
        let first = iter / qps * u64::from(batch);
        let op = plan.op;
        self.make_room(lane)?;
        match op {
            Op::Send | Op::WriteImm | Op::Write => self.there_and_back(lane, first),
            Op::Read => self.read(lane, first),
            Op::Cas | Op::Faa => self.atomic(lane, first),
        }
    }

    /// Waits until a batch fits in both send queues.
    fn make_room(&mut self, lane: usize) -> Result<(), Failure> {
        let batch = self.link.plan.batch;
        for end in [A, B] {
            if !self.link.ends[end].has_room(lane, batch) {
                self.link.wait(end, "the completion of requests", |end| end.has_room(lane, batch))?;
            }
        }
        Ok(())
    }

    /// Puts the messages from `first` on into `bytes`, and into the memory of `end`.
    fn prepare(&mut self, end: usize, lane: usize, first: u64) -> Result<(), Failure> {
        let size = self.link.plan.size as usize;
        let bytes = if end == A { &mut self.there } else { &mut self.back };
        for (n, message) in (first..).zip(bytes.chunks_mut(size.max(1))) {
            self.link.payload.fill(end as u64, lane, n, message);
            let to = &self.link.ends[end];
            to.mr.try_write(to.places.outgoing(lane, n), message)?;
        }
        Ok(())
    }

    fn there_and_back(&mut self, lane: usize, first: u64) -> Result<Duration, Failure> {
        self.prepare(A, lane, first)?;
        self.prepare(B, lane, first)?;
        let start = Instant::now();
        self.send(A, lane)?;
        self.arrive(B, lane, first)?;
        self.send(B, lane)?;
        self.arrive(A, lane, first)?;
        let half = start.elapsed() / 2;
        self.check(B, lane, first)?;
        self.check(A, lane, first)?;
        if self.link.plan.op.takes_recv() {
            self.link.ends[A].fill_recv_queue(lane)?;
            self.link.ends[B].fill_recv_queue(lane)?;
        }
        Ok(half)
    }

    /// Sends a batch from `end`.
    #[inline]
    fn send(&mut self, end: usize, lane: usize) -> Result<(), Failure> {
        let (from, to) = if end == A { (A, B) } else { (B, A) };
        let plan = &self.link.plan;
        let (size, batch) = (plan.size as usize, plan.batch);
        let far = self.link.ends[to].far();
        let last = plan.share(lane) * u64::from(batch) - 1;
        let requests = Requests { lane, far, word: far.incoming(lane, 0), last, payload: self.link.payload };
        let first = self.link.ends[from].lanes[lane].posted;
        let bytes = if end == A { &self.there } else { &self.back };
        self.link.ends[from].request(requests, batch, |n| {
            let start = (n - first) as usize * size;
            &bytes[start..start + size]
        })
    }

    /// Waits until the batch from `first` on is at `end`.
    #[inline]
    fn arrive(&mut self, end: usize, lane: usize, first: u64) -> Result<(), Failure> {
        let next = first + u64::from(self.link.plan.batch);
        if self.link.plan.op.takes_recv() {
            return self.link.wait(end, "the arrival of a message", |end| end.lanes[lane].received >= next);
        }
        let at = self.last_byte_at(end, lane, first);
        self.link.wait_memory(end, at, Payload::last_byte(next - 1), "the arrival of an RDMA WRITE")
    }

    /// Where the last byte of the batch from `first` on arrives.
    fn last_byte_at(&self, end: usize, lane: usize, first: u64) -> usize {
        let plan = &self.link.plan;
        let last = first + u64::from(plan.batch) - 1;
        self.link.ends[end].places.incoming(lane, last) + plan.size as usize - 1
    }

    /// Compares what is at `end` with what was sent.
    fn check(&mut self, end: usize, lane: usize, first: u64) -> Result<(), Failure> {
        let sent = if end == B { &self.there } else { &self.back };
        let at = &self.link.ends[end];
        let size = self.link.plan.size as usize;
        for (n, message) in (first..).zip(sent.chunks(size.max(1))) {
            check_message(&at.mr, at.places, lane, n, message, self.link.plan.op)?;
        }
        if self.link.plan.op == Op::Write {
            // The last byte of a later message in this place may be the same, and shall be seen to come.
            at.mr.write(self.last_byte_at(end, lane, first), &[0]);
        }
        Ok(())
    }

    fn read(&mut self, lane: usize, first: u64) -> Result<Duration, Failure> {
        self.prepare(B, lane, first)?;
        let start = Instant::now();
        self.send(A, lane)?;
        let done = self.completed(lane, first)?;
        self.check(A, lane, first)?;
        Ok(done.duration_since(start))
    }

    /// Waits until the batch from `first` on is completed, its last request at least.
    fn completed(&mut self, lane: usize, first: u64) -> Result<Instant, Failure> {
        let next = first + u64::from(self.link.plan.batch);
        self.link.wait(A, "the completion of a request", |end| end.lanes[lane].retired >= next)?;
        Ok(Instant::now())
    }

    fn atomic(&mut self, lane: usize, first: u64) -> Result<Duration, Failure> {
        let (op, batch, payload) = (self.link.plan.op, self.link.plan.batch, self.link.payload);
        let places = self.link.ends[A].places;
        let addend = payload.word(lane, 0);
        let start = Instant::now();
        self.send(A, lane)?;
        let done = self.completed(lane, first)?;
        for n in first..first + u64::from(batch) {
            let old = self.link.ends[A].mr.load_u64(places.incoming(lane, n));
            let expected = if op == Op::Cas { payload.word(lane, n) } else { addend.wrapping_mul(n) };
            if old != expected {
                return Err(Failure::Run(format!(
                    "{} {n} of queue pair {lane} brought 0x{old:x}, and 0x{expected:x} was there",
                    op.name()
                )));
            }
        }
        Ok(done.duration_since(start))
    }

    /// Waits for the completion of everything.
    fn settle(&mut self) -> Result<(), Failure> {
        for end in [A, B] {
            self.link.wait(end, "the completion of the last requests", |end| {
                end.lanes.iter().all(|lane| lane.retired == lane.posted)
            })?;
        }
        Ok(())
    }
}

/// Compares a message that arrived with what was sent.
///
/// A WRITE is seen by its last byte. The device may still be writing those before it, since nothing but a
/// completion promises an order: they have a moment to arrive.
pub(crate) fn check_message(
    mr: &mlx5_direct::Mr,
    places: Places,
    lane: usize,
    n: u64,
    sent: &[u8],
    op: Op,
) -> Result<(), Failure> {
    let until = Instant::now() + Duration::from_millis(100);
    loop {
        let result = verify(mr, places.incoming(lane, n), sent, &format!("message {n} of queue pair {lane}"));
        if result.is_ok() || op != Op::Write || Instant::now() > until {
            return result;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        device::{Device, options},
        plan::{Measure, Plan, Transport},
    };
    use mlx5_model::Model;

    /// Last bytes repeat every 255 messages, and places every batch.
    #[test]
    fn a_batch_of_before_is_not_taken_for_one_that_comes() {
        let device =
            Device::on(Model::new("".parse().unwrap()).unwrap(), &options(Duration::from_secs(10))).unwrap();
        let plan = Plan {
            transport: Transport::Rc,
            op: Op::Write,
            size: 8,
            iters: 4,
            inline: false,
            batch: 255,
            depth: 255,
            signal_every: 1,
            events: false,
            qps: 1,
            seed: 7,
            timeout: Duration::from_millis(300),
            explain: false,
            two_hosts: false,
            window_bytes: 0,
        };
        let mut link = crate::traffic::Link::connect(&device, &plan, Measure::Latency).unwrap();
        let mut run = Run::new(&mut link).unwrap();
        run.exchange(0).unwrap();
        for end in [A, B] {
            let error = run.arrive(end, 0, 255).unwrap_err().message().unwrap();
            assert!(error.contains("the arrival of an RDMA WRITE did not happen within"), "{error}");
        }
    }
}
