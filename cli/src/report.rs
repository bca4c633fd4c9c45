//! Results, as tables for people and as JSON for programs.

use crate::traffic::{Latencies, Rate};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::io::{self, Write};

/// What is told of a histogram, in microseconds.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct LatencyRow {
    size_bytes: u32,
    samples: u64,
    min_us: f64,
    p50_us: f64,
    p90_us: f64,
    p99_us: f64,
    p99_9_us: f64,
    max_us: f64,
    mean_us: f64,
}

impl LatencyRow {
    pub(crate) fn new(size_bytes: u32, Latencies(histogram): &Latencies) -> Self {
        let at = |quantile| us(histogram.value_at_quantile(quantile));
        Self {
            size_bytes,
            samples: histogram.len(),
            min_us: us(histogram.min()),
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p99_9_us: at(0.999),
            max_us: us(histogram.max()),
            mean_us: histogram.mean() / 1e3,
        }
    }

    /// The line over the rows.
    pub(crate) fn head(out: &mut impl Write) -> io::Result<()> {
        let [size, samples] = ["bytes", "samples"];
        write!(out, "{size:>10} {samples:>9}")?;
        for name in ["min", "p50", "p90", "p99", "p99.9", "max", "mean"] {
            write!(out, " {name:>9}")?;
        }
        writeln!(out)
    }

    pub(crate) fn print(&self, out: &mut impl Write) -> io::Result<()> {
        write!(out, "{:>10} {:>9}", self.size_bytes, self.samples)?;
        let Self { min_us, p50_us, p90_us, p99_us, p99_9_us, max_us, mean_us, .. } = *self;
        for us in [min_us, p50_us, p90_us, p99_us, p99_9_us, max_us, mean_us] {
            write!(out, " {us:>9.2}")?;
        }
        writeln!(out)
    }
}

/// What is told of a bandwidth run.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct RateRow {
    size_bytes: u32,
    messages: u64,
    seconds: f64,
    mb_per_s: f64,
    mmsg_per_s: f64,
}

impl RateRow {
    pub(crate) fn new(rate: &Rate) -> Self {
        Self {
            size_bytes: rate.size,
            messages: rate.n,
            seconds: rate.time.as_secs_f64(),
            mb_per_s: rate.mb_per_s(),
            mmsg_per_s: rate.mmsg_per_s(),
        }
    }

    /// The line over the rows.
    pub(crate) fn head(out: &mut impl Write) -> io::Result<()> {
        let [size, messages, seconds, mb, mmsg] = ["bytes", "messages", "seconds", "MB/s", "Mmsg/s"];
        writeln!(out, "{size:>10} {messages:>10} {seconds:>9} {mb:>11} {mmsg:>9}")
    }

    pub(crate) fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let Self { size_bytes, messages, seconds, mb_per_s, mmsg_per_s } = self;
        writeln!(out, "{size_bytes:>10} {messages:>10} {seconds:>9.3} {mb_per_s:>11.2} {mmsg_per_s:>9.6}")
    }
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

const ROWS: i32 = 10;
const BAR: u64 = 40;

/// Draws a histogram of latencies: rows of equal ratio from the smallest to p99.9, the last open to the top.
pub(crate) fn draw(Latencies(histogram): &Latencies, out: &mut impl Write) -> io::Result<()> {
    let low = histogram.min().max(1) as f64;
    let high = (histogram.value_at_quantile(0.999) as f64).max(low * 1.1);
    let edge = |row: i32| (low * (high / low).powf(f64::from(row) / f64::from(ROWS))) as u64;
    let rows: Vec<_> = (0..ROWS).map(|row| (edge(row), count(histogram, row, edge))).collect();
    let most = rows.iter().map(|(_, n)| *n).max().unwrap_or(0).max(1);
    for (from, n) in rows {
        let length = (n * BAR).div_ceil(most) as usize;
        writeln!(out, "{:>10.2} |{:<40} {n}", us(from), "#".repeat(length))?;
    }
    Ok(())
}

/// Samples of one row.
fn count(histogram: &Histogram<u64>, row: i32, edge: impl Fn(i32) -> u64) -> u64 {
    let below = |edge: u64| {
        histogram
            .iter_recorded()
            .take_while(|v| v.value_iterated_to() < edge)
            .map(|v| v.count_at_value())
            .sum()
    };
    let (from, to): (u64, u64) = (
        if row == 0 { 0 } else { below(edge(row)) },
        if row == ROWS - 1 { histogram.len() } else { below(edge(row + 1)) },
    );
    to - from
}

#[cfg(test)]
mod tests {
    use super::*;

    fn latencies(values: impl IntoIterator<Item = u64>) -> Latencies {
        let mut histogram = Histogram::new_with_bounds(1, 1_000_000_000, 3).unwrap();
        values.into_iter().for_each(|v| histogram.record(v).unwrap());
        Latencies(histogram)
    }

    fn drawn(latencies: &Latencies) -> (Vec<u64>, String) {
        let mut out = Vec::new();
        draw(latencies, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let counts = text.lines().map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect();
        (counts, text)
    }

    #[test]
    fn every_sample_is_in_one_row() {
        for samples in [vec![1000], vec![1000; 50], (1000..9000).collect(), vec![0, 1, 900_000_000]] {
            let n = samples.len() as u64;
            let (counts, text) = drawn(&latencies(samples));
            assert_eq!((counts.len(), counts.iter().sum::<u64>()), (ROWS as usize, n), "{text}");
        }
    }

    #[test]
    fn percentiles_are_those_of_the_samples() {
        let row = LatencyRow::new(64, &latencies((1..=1000).map(|n| n * 1000)));
        let near = |found: f64, expected: f64| (found - expected).abs() < expected / 500.0;
        assert!(near(row.min_us, 1.0) && near(row.p50_us, 500.0) && near(row.p90_us, 900.0), "{row:?}");
        assert!(near(row.p99_us, 990.0) && near(row.p99_9_us, 999.0) && near(row.max_us, 1000.0), "{row:?}");
        assert!(near(row.mean_us, 500.5) && row.samples == 1000, "{row:?}");
    }

    #[test]
    fn rates_are_decimal() {
        let row = RateRow::new(&Rate { size: 1000, n: 2_000_000, time: std::time::Duration::from_secs(2) });
        assert_eq!((row.mb_per_s, row.mmsg_per_s), (1000.0, 1.0));
    }
}
