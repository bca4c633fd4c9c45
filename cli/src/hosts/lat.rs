//! Latency between two hosts: this end's part of it, every payload checked outside of the time measured.
//!
//! Memory has room for two exchanges, so that the peer can start the next one while this one is checked. It cannot
//! start the one after it: that takes an answer, which comes after the check.

use super::half::{Half, Role};
use crate::{
    failure::Failure,
    payload::{Payload, verify},
    plan::Op,
    traffic::{Latencies, Progress, check_message},
};
use std::time::{Duration, Instant};

/// The end that asks: measures `plan.iters` exchanges.
pub(crate) fn ask(half: &mut Half<'_>) -> Result<Latencies, Failure> {
    let mut latencies = Latencies::new()?;
    let (iters, op) = (half.end.plan.iters, half.end.plan.op);
    let mut progress = Progress::new(
        format!("lat {} {} B", op.name(), half.end.plan.size),
        iters,
        std::slice::from_ref(&half.end),
    );
    let mut run = Run::new(half)?;
    for iter in 0..iters {
        let (lane, first) = run.turn(iter)?;
        let latency = if op.fetches() { run.fetch(lane, first) } else { run.send_first(lane, first) };
        latencies.record(latency?);
        progress.at(iter + 1)?;
    }
    run.half.settle()?;
    Ok(latencies)
}

/// The end that answers, for as many exchanges.
pub(crate) fn answer(half: &mut Half<'_>) -> Result<(), Failure> {
    if half.end.plan.op.fetches() {
        // The peer fetches by itself.
        return Ok(());
    }
    let iters = half.end.plan.iters;
    let mut run = Run::new(half)?;
    for iter in 0..iters {
        let (lane, first) = run.turn(iter)?;
        run.send_back(lane, first)?;
    }
    run.half.settle()
}

/// Makes memory ready before the peer may touch it, and posts receives.
pub(crate) fn prepare(half: &mut Half<'_>) -> Result<(), Failure> {
    let (op, size) = (half.end.plan.op, half.end.plan.size as usize);
    if op.takes_recv() {
        half.fill_recv_queues()?;
    }
    for lane in 0..half.end.lanes.len() {
        if op == Op::Cas {
            half.end.mr.store_u64(half.end.places.incoming(lane, 0), half.payload.word(lane, 0));
        }
        if op == Op::Read && half.role == Role::Answers {
            let mut message = vec![0; size];
            for slot in 0..half.end.places.slots() {
                half.payload.fill(half.role.way(), lane, slot, &mut message);
                half.end.mr.try_write(half.end.places.outgoing(lane, slot), &message)?;
            }
        }
    }
    Ok(())
}

/// What the answering end can check after the run.
pub(crate) fn check(half: &Half<'_>) -> Result<(), Failure> {
    let plan = &half.end.plan;
    if !plan.op.is_atomic() {
        return Ok(());
    }
    for lane in 0..plan.qps as usize {
        let n = plan.share(lane) * u64::from(plan.batch);
        let expected = match plan.op {
            Op::Cas => half.payload.word(lane, n),
            _ => half.payload.word(lane, 0).wrapping_mul(n),
        };
        let found = half.end.mr.load_u64(half.end.places.incoming(lane, 0));
        if found != expected {
            return Err(Failure::Run(format!(
                "the word of queue pair {lane} is 0x{found:x} at the end, and should be 0x{expected:x}"
            )));
        }
    }
    Ok(())
}

struct Run<'h, 't> {
    half: &'h mut Half<'t>,
    /// What is sent, host copy: one message after another.
    sent: Vec<u8>,
}

impl<'h, 't> Run<'h, 't> {
    fn new(half: &'h mut Half<'t>) -> Result<Self, Failure> {
        let bytes = u64::from(half.end.plan.size) * u64::from(half.end.plan.batch);
        let bytes = usize::try_from(bytes)
            .map_err(|_| Failure::Usage("the messages do not fit this machine's addresses".into()))?;
        Ok(Self { half, sent: vec![0; bytes] })
    }

    /// Queue pair and first message of an exchange, for which its send queue has room.
    fn turn(&mut self, iter: u64) -> Result<(usize, u64), Failure> {
        let (qps, batch) = (u64::from(self.half.end.plan.qps), self.half.end.plan.batch);
        // Below the number of queue pairs.
        let lane = (iter % qps) as usize;
        if !self.half.end.has_room(lane, batch) {
            self.half.wait("the completion of requests", |end| end.has_room(lane, batch))?;
        }
        Ok((lane, iter / qps * u64::from(batch)))
    }

    /// Puts own messages from `first` on into memory.
    fn prepare(&mut self, lane: usize, first: u64) -> Result<(), Failure> {
        let (size, way, end) = (self.half.end.plan.size as usize, self.half.role.way(), &self.half.end);
        for (n, message) in (first..).zip(self.sent.chunks_mut(size.max(1))) {
            self.half.payload.fill(way, lane, n, message);
            end.mr.try_write(end.places.outgoing(lane, n), message)?;
        }
        Ok(())
    }

    fn send_first(&mut self, lane: usize, first: u64) -> Result<Duration, Failure> {
        self.prepare(lane, first)?;
        let start = Instant::now();
        self.post(lane, first)?;
        self.arrive(lane, first)?;
        let half = start.elapsed() / 2;
        self.check(lane, first)?;
        self.refill(lane)?;
        Ok(half)
    }

    fn send_back(&mut self, lane: usize, first: u64) -> Result<(), Failure> {
        self.prepare(lane, first)?;
        self.arrive(lane, first)?;
        // The next batch may come as soon as this one is answered.
        let plan = &self.half.end.plan;
        if plan.recv_depth() < 2 * plan.batch {
            self.refill(lane)?;
        }
        self.post(lane, first)?;
        self.check(lane, first)?;
        self.refill(lane)
    }

    fn refill(&mut self, lane: usize) -> Result<(), Failure> {
        if self.half.end.plan.op.takes_recv() { self.half.end.fill_recv_queue(lane) } else { Ok(()) }
    }

    fn post(&mut self, lane: usize, first: u64) -> Result<(), Failure> {
        let plan = &self.half.end.plan;
        let (size, batch) = (plan.size as usize, plan.batch);
        let requests = self.half.requests(lane, plan.share(lane) * u64::from(batch), lane);
        let sent = &self.sent;
        self.half.end.request(requests, batch, |n| {
            let start = (n - first) as usize * size;
            &sent[start..start + size]
        })
    }

    /// Waits until the peer's batch from `first` on is here.
    fn arrive(&mut self, lane: usize, first: u64) -> Result<(), Failure> {
        let plan = &self.half.end.plan;
        let next = first + u64::from(plan.batch);
        if plan.op.takes_recv() {
            return self.half.wait("the arrival of a message", |end| end.lanes[lane].received >= next);
        }
        let at = self.last_byte_at(lane, next - 1);
        self.half.wait_memory(at, Payload::last_byte(next - 1), "the arrival of an RDMA WRITE")
    }

    fn last_byte_at(&self, lane: usize, n: u64) -> usize {
        self.half.end.places.incoming(lane, n) + self.half.end.plan.size as usize - 1
    }

    /// Compares what is here with what the peer sends by the same seed.
    fn check(&mut self, lane: usize, first: u64) -> Result<(), Failure> {
        let Half { end, payload, role, .. } = &*self.half;
        let mut message = vec![0; end.plan.size as usize];
        let next = first + u64::from(end.plan.batch);
        for n in first..next {
            payload.fill(role.other().way(), lane, n, &mut message);
            check_message(&end.mr, end.places, lane, n, &message, end.plan.op)?;
        }
        if end.plan.op == Op::Write {
            // The last byte of a later message in this place may be the same, and shall be seen to come.
            end.mr.write(self.last_byte_at(lane, next - 1), &[0]);
        }
        Ok(())
    }

    /// A READ or atomic of a batch, to its completion.
    fn fetch(&mut self, lane: usize, first: u64) -> Result<Duration, Failure> {
        let next = first + u64::from(self.half.end.plan.batch);
        let mut message = vec![0; self.half.end.plan.size as usize];
        for n in first..next {
            // What is there already cannot be taken for what comes.
            self.half.end.mr.try_write(self.half.end.places.incoming(lane, n), &message)?;
        }
        let start = Instant::now();
        self.post(lane, first)?;
        self.half.wait("the completion of a request", |end| end.lanes[lane].retired >= next)?;
        let took = start.elapsed();
        let Half { end, payload, role, .. } = &*self.half;
        for n in first..next {
            let at = end.places.incoming(lane, n);
            if end.plan.op == Op::Read {
                payload.fill(role.other().way(), lane, n % end.places.slots(), &mut message);
                verify(&end.mr, at, &message, &format!("READ {n} of queue pair {lane}"))?;
                continue;
            }
            let expected = match end.plan.op {
                Op::Cas => payload.word(lane, n),
                _ => payload.word(lane, 0).wrapping_mul(n),
            };
            let old = end.mr.load_u64(at);
            if old != expected {
                return Err(Failure::Run(format!(
                    "{} {n} of queue pair {lane} brought 0x{old:x}, and 0x{expected:x} was there",
                    end.plan.op.name()
                )));
            }
        }
        Ok(took)
    }
}
