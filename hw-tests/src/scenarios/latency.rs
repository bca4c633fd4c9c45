//! Round trips, one at a time, measured.

use crate::{
    bench::Bench,
    interrupt,
    outcome::{Outcome, fail},
    pair::{DEADLINE, End, Setup, pair},
};
use hdrhistogram::Histogram;
use mlx5_direct::queue::Flags;
use std::time::Instant;

/// Round trips that count.
const N_SAMPLES: u64 = 2000;
/// Round trips before, which fill caches.
const N_WARM: u64 = 200;
/// Bytes of a message.
const LEN: u64 = 64;

/// Nanoseconds, three digits, up to a minute.
fn histogram() -> Outcome<Histogram<u64>> {
    Ok(Histogram::new_with_bounds(1, 60_000_000_000, 3)?)
}

/// Times each of many round trips.
fn measure(mut round_trip: impl FnMut(u64) -> Outcome, share: u32) -> Outcome<Histogram<u64>> {
    let mut latencies = histogram()?;
    for n in 0..N_WARM + N_SAMPLES {
        let start = Instant::now();
        round_trip(n)?;
        let took = start.elapsed() / share;
        if n >= N_WARM {
            latencies.saturating_record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        }
    }
    Ok(latencies)
}

/// Half the time of a SEND and its answer, polled.
pub(super) fn send(bench: &Bench) -> Outcome<Histogram<u64>> {
    let (mut a, mut b) = pair(bench, &Setup::default())?;
    let one_way = |from: &mut End, to: &mut End, n: u64| {
        to.recv(n, 0, LEN)?;
        from.post(|list, lease| Ok(list.send(n, Flags::SIGNALED)?.local(lease, 0..LEN)?.finish()))?;
        to.completes(n)?;
        from.completes(n).map(|_| ())
    };
    measure(
        |n| {
            one_way(&mut a, &mut b, n)?;
            one_way(&mut b, &mut a, n)
        },
        2,
    )
}

/// Half the time of a WRITE and its answer; each end looks at the last byte of its own memory.
pub(super) fn write(bench: &Bench) -> Outcome<Histogram<u64>> {
    let (mut a, mut b) = pair(bench, &Setup::default())?;
    let last = LEN as usize - 1;
    let one_way = |from: &mut End, to: &mut End, n: u64| {
        // Never what the last message left there.
        let mark = 1 + (n % 250) as u8;
        let bytes = [mark; LEN as usize];
        let at = to.mr.remote(0);
        from.post(|list, _| Ok(list.rdma_write(n, at, Flags::SIGNALED)?.inline(&bytes)?.finish()))?;
        let start = Instant::now();
        loop {
            // The model needs a processor too, where there are few.
            for _ in 0..256 {
                let mut seen = [0];
                to.mr.try_read(last, &mut seen)?;
                if seen == [mark] {
                    return from.completes(n).map(|_| ());
                }
                std::hint::spin_loop();
            }
            if start.elapsed() > DEADLINE || interrupt::asked() {
                return fail(format!("WRITE {n} did not arrive within {DEADLINE:?}"));
            }
            std::thread::yield_now();
        }
    };
    measure(
        |n| {
            one_way(&mut a, &mut b, n)?;
            one_way(&mut b, &mut a, n)
        },
        2,
    )
}

/// From the post of a READ to its completion.
pub(super) fn read(bench: &Bench) -> Outcome<Histogram<u64>> {
    let (mut a, b) = pair(bench, &Setup::default())?;
    let from = b.mr.remote(0);
    measure(
        |n| {
            a.post(|list, lease| {
                Ok(list.rdma_read(n, from, Flags::SIGNALED)?.local(lease, 0..LEN)?.finish())
            })?;
            a.completes(n).map(|_| ())
        },
        1,
    )
}

/// From the post of an addition to its completion.
pub(super) fn fetch_add(bench: &Bench) -> Outcome<Histogram<u64>> {
    let (mut a, b) = pair(bench, &Setup::default())?;
    let at = b.mr.remote(0);
    measure(
        |n| {
            a.post(|list, lease| Ok(list.fetch_add(n, at, 1, Flags::SIGNALED)?.local(lease, 0)?.finish()))?;
            a.completes(n).map(|_| ())
        },
        1,
    )
}

/// Half the time of a SEND and its answer, each waited for asleep.
pub(super) fn send_events(bench: &Bench) -> Outcome<Histogram<u64>> {
    let (mut a, mut b) = pair(bench, &Setup { events: true, ..Setup::default() })?;
    let one_way = |from: &mut End, to: &mut End, n: u64| {
        to.recv(n, 0, LEN)?;
        from.post(|list, lease| Ok(list.send(n, Flags::SIGNALED)?.local(lease, 0..LEN)?.finish()))?;
        to.wakes(n)?;
        to.completes(n)?;
        from.completes(n).map(|_| ())
    };
    measure(
        |n| {
            one_way(&mut a, &mut b, n)?;
            one_way(&mut b, &mut a, n)
        },
        2,
    )
}
