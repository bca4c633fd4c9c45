//! Runs side by side: model against card, one version of the driver against another.

use crate::record::{Row, Run, Verdict};
use std::io::{self, Write};

/// Writes a Markdown table of runs, the first of which is what the others are measured by; whether all agree in
/// what passed and what failed.
pub(crate) fn compare(runs: &[Run], out: &mut impl Write) -> io::Result<bool> {
    for (n, run) in runs.iter().enumerate() {
        let devices = run.environment.devices.iter();
        let devices: Vec<_> = devices.map(|device| format!("{} ({})", device.name, device.line())).collect();
        writeln!(out, "{}. `{}`: {}", n + 1, run.device, devices.join("; "))?;
    }
    writeln!(out)?;
    write!(out, "| scenario |")?;
    runs.iter().try_for_each(|run| write!(out, " {} |", run.device))?;
    write!(out, "\n|---|")?;
    runs.iter().try_for_each(|_| write!(out, "---|"))?;
    writeln!(out)?;
    let mut agree = true;
    for name in names(runs) {
        let rows: Vec<_> = runs.iter().map(|run| run.row(name)).collect();
        let n_failed = rows.iter().flatten().filter(|row| row.verdict == Verdict::Fail).count();
        let differ = n_failed != 0 && n_failed != rows.iter().flatten().count();
        agree &= !differ;
        write!(out, "| `{name}`{} |", if differ { " (differs)" } else { "" })?;
        for row in &rows {
            write!(out, " {} |", row.map_or("not run".into(), |row| cell(row, rows[0])))?;
        }
        writeln!(out)?;
    }
    write!(out, "| passed, failed, skipped |")?;
    for run in runs {
        let [passed, failed, skipped] = run.counts();
        write!(out, " {passed}, {failed}, {skipped} |")?;
    }
    writeln!(out)?;
    Ok(agree)
}

/// Names of scenarios, each once, in the order in which they were run.
fn names(runs: &[Run]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for row in runs.iter().flat_map(|run| &run.scenarios) {
        if !names.contains(&row.name.as_str()) {
            names.push(&row.name);
        }
    }
    names
}

/// What a row says beside the row of the first run.
fn cell(row: &Row, first: Option<&Row>) -> String {
    let p50 = |row: &Row| row.latency.as_ref().and_then(|latency| latency.at(0.5));
    let mut text = row.verdict.name().to_owned();
    if let Some(us) = p50(row) {
        text += &format!(" p50 {us:.2} us");
        if let Some(base) = first.filter(|first| !std::ptr::eq(*first, row)).and_then(p50) {
            text += &format!(" (× {:.2})", us / base);
        }
    }
    if let Some(why) = &row.why {
        // A bar would end the cell.
        text += &format!(": {}", why.replace('|', "/"));
    }
    text
}
