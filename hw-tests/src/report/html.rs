//! One page that needs nothing else: the environment, the table, latencies as curves.

use crate::record::{Latency, Row, Run};
use std::fmt::Write;

const STYLE: &str = "
:root { color-scheme: light dark; --line: #8885; --ok: #2a8a3e; --bad: #c6303e; --off: #888; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top; }
td.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
code { font-family: ui-monospace, monospace; }
.pass { color: var(--ok); } .fail { color: var(--bad); font-weight: 700; } .skip { color: var(--off); }
svg { width: 100%; height: auto; } svg text { font: 12px system-ui, sans-serif; fill: currentColor; }
.grid { stroke: var(--line); } .curve { fill: none; stroke-width: 2; }
";

/// Colours of curves, apart on light and on dark ground.
const COLOURS: [&str; 6] = ["#3b7dd8", "#d9822b", "#2a9d6f", "#b452b4", "#c6303e", "#7a7a2a"];

/// The page.
pub(crate) fn html(run: &Run) -> String {
    let [passed, failed, skipped] = run.counts();
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>hw-tests on {device}</title>\n\
         <style>{STYLE}</style>\n<h1>hw-tests on <code>{device}</code></h1>\n\
         <p><span class=\"pass\">{passed} passed</span>, <span class=\"{bad}\">{failed} failed</span>, \
         <span class=\"skip\">{skipped} skipped</span></p>\n<h2>Environment</h2>\n<table>\n",
        device = escaped(&run.device),
        bad = if failed == 0 { "skip" } else { "fail" },
    );
    for (name, value) in run.environment.lines() {
        // Writing to a string does not fail, here and below.
        let _ = writeln!(page, "<tr><th>{}<td>{}", escaped(&name), escaped(&value));
    }
    page += "</table>\n<h2>Scenarios</h2>\n<table>\n<tr><th>scenario<th><th>ms<th>asserts, or the reason\n";
    for row in &run.scenarios {
        let text = row.why.as_ref().unwrap_or(&row.asserts);
        let _ = writeln!(
            page,
            "<tr><td><code>{}</code><td class=\"{}\">{}<td class=\"n\">{:.2}<td>{}",
            escaped(&row.name),
            row.verdict.name().to_ascii_lowercase(),
            row.verdict.name(),
            row.ms,
            escaped(text)
        );
    }
    page += "</table>\n";
    let measured: Vec<_> =
        run.scenarios.iter().filter_map(|row| Some((row, row.latency.as_ref()?))).collect();
    if !measured.is_empty() {
        page += "<h2>Latency</h2>\n";
        page += &curves(&measured);
        page += &numbers(&measured);
    }
    page
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Latencies in numbers.
fn numbers(measured: &[(&Row, &Latency)]) -> String {
    let mut table =
        String::from("<table>\n<tr><th>us<th>min<th>p50<th>p90<th>p99<th>p99.9<th>max<th>samples\n");
    for (row, latency) in measured {
        let _ = write!(table, "<tr><td><code>{}</code>", escaped(&row.name));
        for quantile in [0.0, 0.5, 0.9, 0.99, 0.999, 1.0] {
            let _ = write!(table, "<td class=\"n\">{:.2}", latency.at(quantile).unwrap_or(f64::NAN));
        }
        let _ = writeln!(table, "<td class=\"n\">{}", latency.samples);
    }
    table + "</table>\n"
}

/// Width and height of the drawing, and what is left of it, right of it and below it for text.
const SIZE: [f64; 2] = [900.0, 360.0];
const LEFT: f64 = 70.0;
const RIGHT: f64 = 160.0;
const BELOW: f64 = 30.0;

/// Latency over the share of round trips that were not slower. Both axes are logarithmic: across, each step is a
/// tenth of the round trips before it; up, ten times the time.
fn curves(measured: &[(&Row, &Latency)]) -> String {
    let all = || measured.iter().flat_map(|(_, latency)| &latency.quantiles).map(|(_, us)| us.max(1e-3));
    let low = all().fold(f64::INFINITY, f64::min).log10().floor();
    let high = all().fold(0.0, f64::max).log10().ceil().max(low + 1.0);
    // The slowest of all has no place on an axis of shares: it is drawn at the end.
    const NINES: f64 = 4.0;
    let x = |quantile: f64| {
        let nines = -(1.0 - quantile).max(1e-4).log10();
        LEFT + nines / NINES * (SIZE[0] - LEFT - RIGHT)
    };
    let y = |us: f64| {
        let share = (us.max(1e-3).log10() - low) / (high - low);
        10.0 + (1.0 - share) * (SIZE[1] - 10.0 - BELOW)
    };
    let mut svg = format!(
        "<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"latency by percentile\">\n",
        SIZE[0], SIZE[1]
    );
    let (right, bottom) = (SIZE[0] - RIGHT, SIZE[1] - BELOW);
    for decade in low as i32..=high as i32 {
        let at = y(10_f64.powi(decade));
        let _ = writeln!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{right}\" y2=\"{at:.1}\"/>"
        );
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{} us</text>",
            LEFT - 8.0,
            at + 4.0,
            10_f64.powi(decade)
        );
    }
    for (quantile, name) in
        [(0.0, "min"), (0.5, "p50"), (0.9, "p90"), (0.99, "p99"), (0.999, "p99.9"), (1.0, "max")]
    {
        let at = x(quantile);
        let _ =
            writeln!(svg, "<line class=\"grid\" x1=\"{at:.1}\" y1=\"10\" x2=\"{at:.1}\" y2=\"{bottom}\"/>");
        let _ = writeln!(
            svg,
            "<text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{name}</text>",
            bottom + 18.0
        );
    }
    for (n, (row, latency)) in measured.iter().enumerate() {
        let colour = COLOURS[n % COLOURS.len()];
        let points: Vec<_> =
            latency.quantiles.iter().map(|(q, us)| format!("{:.1},{:.1}", x(*q), y(*us))).collect();
        let _ = writeln!(
            svg,
            "<polyline class=\"curve\" stroke=\"{colour}\" points=\"{}\"><title>{}</title></polyline>",
            points.join(" "),
            escaped(&row.name)
        );
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" style=\"fill: {colour}\">{}</text>",
            right + 12.0,
            24.0 + 18.0 * n as f64,
            escaped(&row.name)
        );
    }
    svg + "</svg>\n"
}
