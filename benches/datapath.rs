//! `cargo bench -p mlx5-direct`: what post and poll cost the processor, beside a floor written by hand in the same
//! run.
//!
//! There is no card: queues, records and UAR page are ordinary memory, with the fences of write-combining
//! memory. See the notes that the table ends with for what that does not show.

#[path = "hot/floor.rs"]
mod floor;
#[path = "hot/ops.rs"]
mod ops;
#[path = "hot/rig.rs"]
mod rig;
#[path = "hot/step.rs"]
mod step;

use floor::Floor;
use rig::{Op, Rig};
use std::{hint::black_box, time::Instant};

/// Calls of one timed round: as many as the rings hold.
fn calls(op: &Op) -> u32 {
    (1 << rig::LOG_SIZE) / op.n / 2
}

/// The floor of an operation: entry, preparation and calls.
struct FloorOp {
    entry: usize,
    prepare: fn(&mut Floor, u32),
    run: fn(&mut Floor, u32),
}

macro_rules! floor_op {
    ($function:ident, |$p:ident, $n:pat_param| $prepare:expr, |$f:ident| $call:expr) => {
        FloorOp {
            entry: floor::$function as *const () as usize,
            prepare: |$p, $n| $prepare,
            run: |$f, calls| {
                for _ in 0..calls {
                    $call
                }
            },
        }
    };
}

fn floor_of(name: &str) -> FloorOp {
    match name {
        "post 8 B inline write" => {
            floor_op!(write_inline_8, |_f, _| (), |f| floor::write_inline_8(f, black_box(&[7; 8])))
        }
        "post 64 B inline send" | "post 64 B, length unknown" => {
            floor_op!(send_inline_64, |_f, _| (), |f| floor::send_inline_64(f, black_box(&[7; 64])))
        }
        "post SEND" => floor_op!(send_sge, |_f, _| (), |f| floor::send_sge(f)),
        "post READ" => floor_op!(read, |_f, _| (), |f| floor::read(f)),
        "post FAA" => floor_op!(fetch_add, |_f, _| (), |f| floor::fetch_add(f)),
        "post SEND x16" => floor_op!(send_batch_16, |_f, _| (), |f| floor::send_batch_16(f)),
        "post_recv" => floor_op!(recv, |_f, _| (), |f| floor::recv(f)),
        "post_recv x16" => floor_op!(recv_batch_16, |_f, _| (), |f| floor::recv_batch_16(f)),
        "poll 1, retire" => {
            floor_op!(poll, |f, n| f.complete(n), |f| _ = black_box(floor::poll(f, black_box(1))))
        }
        "poll empty" => {
            floor_op!(poll, |f, _| f.complete_none(), |f| _ = black_box(floor::poll(f, black_box(1))))
        }
        _ => floor_op!(poll, |f, n| f.complete(16 * n), |f| _ = black_box(floor::poll(f, black_box(16)))),
    }
}

/// Target of an operation, per request or completion.
fn target(name: &str) -> &'static str {
    match name {
        "post 8 B inline write" => "<= 8 ns, <= 85 instr, <= 1 fence",
        "post SEND x16" => "<= 2.5 ns, <= 40 instr",
        "post_recv" => "<= 3 ns",
        "post_recv x16" => "<= 1 ns",
        "poll 1, retire" => "<= 5 ns, <= 45 instr, 0 fences",
        "poll 16, retire" | "poll 16 receives" => "<= 3 ns, <= 45 instr, 0 fences",
        "poll empty" => "<= 1.2 ns",
        _ => "",
    }
}

/// Nanoseconds since some point, as finely as the machine tells.
fn now_ns() -> f64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: reads the time stamp counter, after all before it.
        let ticks = unsafe {
            core::arch::x86_64::_mm_lfence();
            let ticks = core::arch::x86_64::_rdtsc();
            core::arch::x86_64::_mm_lfence();
            ticks
        };
        ticks as f64 * ns_per_tick()
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        START.get_or_init(Instant::now).elapsed().as_nanos() as f64
    }
}

#[cfg(target_arch = "x86_64")]
fn ns_per_tick() -> f64 {
    static RATE: std::sync::OnceLock<f64> = std::sync::OnceLock::new();
    *RATE.get_or_init(|| {
        // SAFETY: reads the time stamp counter.
        let (start, ticks) = (Instant::now(), unsafe { core::arch::x86_64::_rdtsc() });
        while start.elapsed().as_millis() < 50 {}
        // SAFETY: as above.
        let passed = unsafe { core::arch::x86_64::_rdtsc() } - ticks;
        start.elapsed().as_nanos() as f64 / passed as f64
    })
}

/// Time of `n` calls together, per call.
fn back_to_back(n: u32, run: impl FnOnce()) -> f64 {
    let start = now_ns();
    run();
    (now_ns() - start) / f64::from(n)
}

fn median(values: &mut [f64]) -> f64 {
    percentile(values, 50)
}

fn percentile(values: &mut [f64], p: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    values[(values.len() - 1) * p / 100]
}

fn main() {
    // `cargo test --benches` runs this program too: it only has to work then.
    let rounds = if std::env::args().any(|arg| arg == "--bench") { 400 } else { 3 };
    let (mut rig, mut floor) = (Rig::new(), Floor::new());
    println!(
        "{:<27}{:>7}{:>7}{:>8}{:>10}{:>10}{:>19}{:>11}{:>11}  target (per request)",
        "per request or completion",
        "instr",
        "floor",
        "fences",
        "ns",
        "floor",
        "ratio (p10-p90)",
        "isolated",
        "floor"
    );
    for op in rig::all() {
        let (floor_op, calls, n) = (floor_of(op.name), calls(&op), f64::from(op.n));
        (op.prepare)(&mut rig, 1);
        let counted = step::count(op.entry, || (op.run)(&mut rig, 1));
        (floor_op.prepare)(&mut floor, 1);
        let floor_counted = step::count(floor_op.entry, || (floor_op.run)(&mut floor, 1));

        let (mut ours, mut theirs, mut ratios) = (vec![], vec![], vec![]);
        let (mut ours_alone, mut theirs_alone) = (vec![], vec![]);
        for round in 0..rounds {
            // In turn, so that a slow spell of the machine meets both.
            let mut measure_ours = || {
                (op.prepare)(&mut rig, calls);
                back_to_back(calls, || (op.run)(&mut rig, calls)) / n
            };
            let mut measure_floor = || {
                (floor_op.prepare)(&mut floor, calls);
                back_to_back(calls, || (floor_op.run)(&mut floor, calls)) / n
            };
            let (a, b) = if round % 2 == 0 {
                let a = measure_ours();
                (a, measure_floor())
            } else {
                let b = measure_floor();
                (measure_ours(), b)
            };
            ours.push(a);
            theirs.push(b);
            ratios.push(a / b);
            // One call between two fenced clock readings, less what the readings cost.
            let nothing = (0..8).map(|_| back_to_back(1, || ())).fold(f64::MAX, f64::min);
            (op.prepare)(&mut rig, calls);
            (floor_op.prepare)(&mut floor, calls);
            for _ in 0..calls.min(8) {
                ours_alone.push((back_to_back(1, || (op.run)(&mut rig, 1)) - nothing) / n);
                theirs_alone.push((back_to_back(1, || (floor_op.run)(&mut floor, 1)) - nothing) / n);
            }
        }
        let show = |count: Option<step::Count>, value: fn(step::Count) -> u32| {
            count.map_or("-".to_owned(), |c| {
                let per_request = f64::from(value(c)) / n;
                if n > 1.0 { format!("{per_request:.1}") } else { format!("{per_request:.0}") }
            })
        };
        println!(
            "{:<27}{:>7}{:>7}{:>8}{:>10.2}{:>10.2}{:>18}{:>11.1}{:>11.1}  {}",
            op.name,
            show(counted, |c| c.instructions),
            show(floor_counted, |c| c.instructions),
            show(counted, |c| c.fences),
            median(&mut ours),
            median(&mut theirs),
            format!(
                "{:.2} ({:.2}-{:.2})",
                median(&mut ratios),
                percentile(&mut ratios, 10),
                percentile(&mut ratios, 90)
            ),
            median(&mut ours_alone),
            median(&mut theirs_alone),
            target(op.name),
        );
        assert_eq!(counted.unwrap_or_default().locks, 0, "{}: a locked instruction", op.name);
    }
    println!("{NOTES}");
}

const NOTES: &str = "
instr and fences: single-stepped, exact, from the first instruction of the function to its return.
ns: median of rounds that alternate with the floor; ratio: ours / floor of the same round. Neighbours on a
shared machine move the ns by tens of per cent: compare ratios, and gate on instructions and fences.
isolated: one call between two serialized clock readings.
The floor does less: no credits, ledger, limits or wrap, constants for arguments, and its poll neither checks
whose completion it is nor retires anything.
What this does not show: write-combining memory. Here a BlueFlame goes to cached memory and costs a cache hit;
on a card back-to-back posts are bounded by the flush of each line to the bus, for everyone. CQEs are in the
cache here; after device DMA they are not. CPU time saved is a few per cent of a message's latency.";
