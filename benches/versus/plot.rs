//! What was measured, as bars in an SVG file.

use crate::measure::Outcome;
use std::fmt::Write;

const ROW: f64 = 15.0;
const LEFT: f64 = 330.0;
const WIDTH: f64 = 860.0;

/// Bars by operation, as long as the nanoseconds per request; the longest of an operation fills the line.
pub fn svg(outcomes: &[Outcome]) -> String {
    let n_rows: usize = outcomes.iter().map(|o| o.contenders.len() + 2).sum();
    let height = ROW * (n_rows as f64 + 2.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" font-family=\"sans-serif\" \
         font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    let text = |x: f64, y: f64, anchor: &str, weight: &str, text: &str| {
        format!("<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\" font-weight=\"{weight}\">{text}</text>\n")
    };
    let mut y = ROW * 1.5;
    for outcome in outcomes {
        svg += &text(10.0, y, "start", "bold", &format!("{}, ns", outcome.name));
        let longest = outcome.contenders.iter().map(|took| took.ns).fold(0.0, f64::max);
        for took in &outcome.contenders {
            y += ROW;
            let length = (WIDTH - LEFT - 60.0) * took.ns / longest;
            let color = match took.who {
                "ours" => "#2a7f3f",
                "floor" => "#b0b0b0",
                _ => "#3b6ea8",
            };
            svg += &text(LEFT - 8.0, y, "end", "normal", took.who);
            writeln!(
                svg,
                "<rect x=\"{LEFT}\" y=\"{}\" width=\"{length:.1}\" height=\"{}\" fill=\"{color}\"/>",
                y - ROW + 4.0,
                ROW - 3.0
            )
            .expect("a string");
            svg += &text(LEFT + length + 5.0, y, "start", "normal", &format!("{:.1}", took.ns));
        }
        y += ROW * 2.0;
    }
    svg + "</svg>\n"
}
