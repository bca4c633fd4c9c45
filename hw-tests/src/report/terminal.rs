//! The table on the terminal, a line as each scenario ends.

use crate::record::{Latency, Row, Run};
use std::io::{self, Write};

/// What stands over the table.
pub(crate) fn head(run: &Run, out: &mut impl Write) -> io::Result<()> {
    for (name, value) in run.environment.lines() {
        writeln!(out, "{name}: {value}")?;
    }
    writeln!(out, "{:<24} {:<4} {:>9}  asserts, or the reason", "scenario", "", "ms")
}

/// A scenario that ended.
pub(crate) fn row(row: &Row, out: &mut impl Write) -> io::Result<()> {
    let text = row.why.as_ref().unwrap_or(&row.asserts);
    writeln!(out, "{:<24} {} {:>9.2}  {text}", row.name, row.verdict.name(), row.ms)?;
    if let Some(latency) = &row.latency {
        writeln!(out, "{:<24} {:<4} {:>9}  {}", "", "", "", in_words(latency))?;
    }
    // Scenarios may take seconds, and a pipe would hold lines back.
    out.flush()
}

fn in_words(latency: &Latency) -> String {
    let us = |quantile| latency.at(quantile).unwrap_or(f64::NAN);
    format!(
        "min {:.2}, p50 {:.2}, p99 {:.2}, p99.9 {:.2}, max {:.2} us of {}",
        us(0.0),
        us(0.5),
        us(0.99),
        us(0.999),
        us(1.0),
        latency.samples
    )
}

/// The count.
pub(crate) fn tail(run: &Run, out: &mut impl Write) -> io::Result<()> {
    let [passed, failed, skipped] = run.counts();
    writeln!(out, "{passed} passed, {failed} failed, {skipped} skipped")
}
