//! Bandwidth between two hosts: this end's part of it. The final memory is checked where the data went.

use super::half::{Half, Role};
use crate::{
    failure::Failure,
    payload::verify,
    plan::{Op, Transport},
    traffic::{Patience, Progress, Rate},
};
use std::{
    thread,
    time::{Duration, Instant},
};

/// Fills the memory that messages come from, and posts receives, before the peer may touch either.
pub(crate) fn prepare(half: &mut Half<'_>) -> Result<Vec<u8>, Failure> {
    let plan = half.end.plan.clone();
    let mut inline = Vec::new();
    if plan.op.takes_recv() && half.role == Role::Answers {
        half.fill_recv_queues()?;
    }
    let from = if plan.op == Op::Read { Role::Answers } else { Role::Asks };
    let mut message = vec![0; plan.size as usize];
    for lane in 0..half.end.lanes.len() {
        let places = half.end.places;
        if plan.op == Op::Cas && half.role == Role::Answers {
            half.end.mr.store_u64(places.incoming(lane, 0), half.payload.word(lane, 0));
        }
        if plan.op.is_atomic() || half.role != from {
            continue;
        }
        for slot in 0..places.slots() {
            half.payload.fill(0, lane, slot, &mut message);
            half.end.mr.try_write(places.outgoing(lane, slot), &message)?;
            if plan.inline {
                inline.extend_from_slice(&message);
            }
        }
    }
    Ok(inline)
}

/// The end that asks: runs `plan.iters` requests. `inline` is what [`prepare`] gave.
pub(crate) fn ask(half: &mut Half<'_>, inline: &[u8]) -> Result<Rate, Failure> {
    let plan = half.end.plan.clone();
    let mut progress = Progress::new(
        format!("bw {} {} B", plan.op.name(), plan.size),
        plan.iters,
        std::slice::from_ref(&half.end),
    );
    let mut patience = Patience::new(half);
    let start = Instant::now();
    let time = loop {
        let mut moved = 0;
        for lane in 0..half.end.lanes.len() {
            moved += post(half, lane, inline)?;
        }
        moved += half.end.drain()?;
        let retired: u64 = half.end.lanes.iter().map(|lane| lane.retired).sum();
        progress.at(retired)?;
        if retired == plan.iters {
            break start.elapsed();
        }
        if moved > 0 {
            patience = Patience::new(half);
        } else {
            patience.idle(half, 0, "the completion of a request")?;
        }
    };
    Ok(Rate { size: plan.size, n: plan.iters, time })
}

/// Posts what fits on a lane, a batch at a time; says how many batches that were.
fn post(half: &mut Half<'_>, lane: usize, inline: &[u8]) -> Result<usize, Failure> {
    let plan = &half.end.plan;
    let (size, batch, slots) = (plan.size as usize, plan.batch, half.end.places.slots());
    let share = plan.share(lane);
    // All queue pairs add to one word.
    let requests = half.requests(lane, share, if plan.op == Op::Faa { 0 } else { lane });
    let mut batches = 0;
    loop {
        // At most a batch.
        let n = (share - half.end.lanes[lane].posted).min(batch.into()) as u32;
        if n == 0 || !half.end.has_room(lane, n) {
            return Ok(batches);
        }
        batches += 1;
        half.end.request(requests, n, |n| {
            let start = (lane as u64 * slots + n % slots) as usize * size;
            &inline[start..start + size]
        })?;
    }
}

/// A step of the end that answers: takes what arrived and posts receives anew. Whether anything did.
pub(crate) fn step(half: &mut Half<'_>) -> Result<bool, Failure> {
    let n = half.end.drain()?;
    if half.end.plan.op.takes_recv() {
        let half_full = u64::from(half.end.plan.recv_depth()).div_ceil(2);
        for lane in 0..half.end.lanes.len() {
            if half.end.lanes[lane].recv_posted - half.end.lanes[lane].received <= half_full {
                half.end.fill_recv_queue(lane)?;
            }
        }
    }
    Ok(n > 0)
}

/// The peer has all its completions: what it sent is here, at most not taken yet, or, of a transport that is not reliable,
/// on its way. Compares memory with what was sent.
pub(crate) fn check(half: &mut Half<'_>) -> Result<(), Failure> {
    let plan = half.end.plan.clone();
    if plan.op.takes_recv() {
        let deadline = Instant::now() + plan.patience().max(Duration::from_secs(1));
        while half.end.lanes.iter().map(|lane| lane.received).sum::<u64>() < plan.iters {
            step(half)?;
            if Instant::now() > deadline {
                let received: u64 = half.end.lanes.iter().map(|lane| lane.received).sum();
                return Err(Failure::Run(format!(
                    "the peer sent {} messages, and {received} were received",
                    plan.iters
                )));
            }
        }
    }
    let word = |what: String, lane: usize, expected: u64| {
        let found = half.end.mr.load_u64(half.end.places.incoming(lane, 0));
        if found == expected {
            return Ok(());
        }
        Err(Failure::Run(format!("{what} is 0x{found:x} at the end, and should be 0x{expected:x}")))
    };
    match plan.op {
        Op::Faa => {
            let sum = (0..plan.qps as usize).fold(0u64, |sum, lane| {
                sum.wrapping_add(half.payload.word(lane, 0).wrapping_mul(plan.share(lane)))
            });
            word("the sum of all fetch-and-adds".into(), 0, sum)
        }
        Op::Cas => (0..plan.qps as usize).try_for_each(|lane| {
            word(format!("the word of queue pair {lane}"), lane, half.payload.word(lane, plan.share(lane)))
        }),
        Op::Read => Ok(()),
        Op::Send | Op::Write | Op::WriteImm => check_slots(half),
    }
}

/// Compares the last message in every slot with what was sent there.
pub(super) fn check_slots(half: &Half<'_>) -> Result<(), Failure> {
    let plan = &half.end.plan;
    let mut message = vec![0; plan.size as usize];
    let is_reliable = plan.transport == Transport::Rc;
    let deadline = Instant::now() + plan.patience().max(Duration::from_secs(1));
    for lane in 0..plan.qps as usize {
        for slot in 0..half.end.places.slots().min(plan.share(lane)) {
            half.payload.fill(0, lane, slot, &mut message);
            let what = format!("the last message in slot {slot} of queue pair {lane}");
            let compare = || verify(&half.end.mr, half.end.places.incoming(lane, slot), &message, &what);
            let mut found = compare();
            while found.is_err() && !is_reliable && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(1));
                found = compare();
            }
            found?;
        }
    }
    Ok(())
}
