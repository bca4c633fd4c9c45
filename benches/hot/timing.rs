//! A clock as fine as the machine has, and what is said of many readings.
#![allow(dead_code, unreachable_pub)] // a module of benchmarks

use std::time::Instant;

/// Nanoseconds since some point, after all that was done before.
pub fn now_ns() -> f64 {
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

/// How long `run` takes.
pub fn time(run: impl FnOnce()) -> f64 {
    let start = now_ns();
    run();
    now_ns() - start
}

pub fn median(values: &mut [f64]) -> f64 {
    percentile(values, 50)
}

pub fn percentile(values: &mut [f64], p: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    values[(values.len() - 1) * p / 100]
}
